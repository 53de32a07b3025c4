# SPDX-License-Identifier: Apache-2.0
"""The HTTP routes of tasks: who is in them, what they use, what they sent."""

from dataclasses import astuple

import msgspec
from litestar import Response, delete, get, put
from litestar.params import FromPath, FromQuery

from analyzer.detect.arrival import overdue
from analyzer.roster.registry import EndpointRecord
from analyzer.server import views
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, read
from analyzer.server.identity import require_admin, sight
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.problems import Problem
from analyzer.skeleton import recording
from netagent.model.ids import EndpointId
from netagent.model.task import Parallelism, Task
from netagent.wire.codec import ContentType


class TaskBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task as a scheduler declares it."""

    containers: tuple[str, ...]
    """Container ids, in rank order."""
    rnics_per_container: int = 0
    """0: as many as there are rails."""
    rails: tuple[int, ...] = ()
    skeleton: bool = True
    """False opts out: the task's traffic decides nothing, its basic list stays."""
    parallelism: Parallelism | None = None
    """A hint: degrees of the job, one rank per RNIC, held against its traffic."""
    hosts: tuple[str, ...] = ()
    """Where each container runs, in the same order, "" where that is not known. No other host can
    have it then."""


TASK_EXAMPLE = {
    "containers": ["train-a-0", "train-a-1"],
    "rnics_per_container": 2,
    "rails": [0, 1],
    "hosts": ["gpu-0417", "gpu-0418"],
}


@put(
    "/v1/tasks/{task:str}",
    operation_class=takes(TaskBody, TASK_EXAMPLE, forms=(ContentType.JSON,)),
    responses={200: gives("The task as declared."), 400: PROBLEM, 403: PROBLEM, 409: PROBLEM},
    tags=["tasks"],
)
async def put_task(task: FromPath[str], request: Call) -> Response[bytes]:
    """Declare a task, before or after its containers exist; replaces an earlier declaration."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    body, _ = await read(request, TaskBody)
    _check_source(analyzer, task)
    owner = analyzer.registry.declarer(body.containers, besides=task)
    if owner is not None:
        _check_source(analyzer, owner)
        raise Problem(
            409, f"task {owner} holds some of these containers", f"delete task {owner} first"
        )
    rnics = body.rnics_per_container or len(body.rails)
    ranks = len(body.containers) * rnics
    if body.parallelism is not None and min(astuple(body.parallelism)) < 1:
        raise Problem(400, "a degree is below 1", "declare degrees of 1 or more")
    if body.parallelism is not None and body.parallelism.ranks != ranks:
        raise Problem(
            400,
            f"{body.parallelism} takes {body.parallelism.ranks} ranks, the task has {ranks}",
            "declare one rank per RNIC, or no parallelism",
        )
    if body.hosts and len(body.hosts) != len(body.containers):
        text = f"{len(body.hosts)} hosts for {len(body.containers)} containers"
        raise Problem(400, text, "declare one host per container, or none at all")
    declared = Task(
        task,
        body.containers,
        rnics,
        body.rails,
        declared=True,
        skeleton=body.skeleton,
        parallelism=body.parallelism,
        hosts=body.hosts,
    )
    await analyzer.service.put_task(declared, analyzer.clock())
    return as_json(_task(analyzer, task))


@get("/v1/tasks/{task:str}", responses={404: PROBLEM}, tags=["tasks"])
async def get_task(task: FromPath[str], request: Call) -> Response[bytes]:
    """Return a task, declared or learned."""
    analyzer = analyzer_of(request)
    _seen(request, analyzer, task)
    return as_json(_task(analyzer, task))


@delete(
    "/v1/tasks/{task:str}",
    status_code=200,
    responses={403: PROBLEM, 409: PROBLEM},
    tags=["tasks"],
)
async def delete_task(task: FromPath[str], request: Call) -> Response[bytes]:
    """Withdraw a declaration; what agents discovered of the task stays known."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    _check_source(analyzer, task)
    known = await analyzer.service.delete_task(task, analyzer.clock())
    return as_json({"id": task, "known": known})


@get("/v1/tasks", tags=["tasks"])
async def tasks(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return every task, declared or learned."""
    analyzer = analyzer_of(request)
    sees = sight(request, analyzer.config).sees
    mine = [each for each in analyzer.registry.tasks() if sees(each.id)]
    found, last = page(mine, lambda task: task.id, after, limit)
    told = [_task(analyzer, each.id) for each in found]
    return as_json({"tasks": told, "next": last.id if last else None})


@get("/v1/endpoints", tags=["tasks"])
async def endpoints(
    request: Call,
    task: FromQuery[str | None] = None,
    host: FromQuery[str | None] = None,
    after: After = None,
    limit: Limit = LIMIT,
    *,
    vanished: FromQuery[bool] = False,
) -> Response[bytes]:
    """Return registered endpoints (of a task, of a host); `vanished` adds those lately gone."""
    analyzer = analyzer_of(request)
    registry, report = analyzer.registry, analyzer.reports.of
    seen = sight(request, analyzer.config)
    known = registry.endpoints(task, vanished=vanished)
    mine = sorted(
        (r for r in known if host in {None, r.endpoint.host} and seen.sees(r.endpoint.task)),
        key=_id,
    )
    found, last = page(mine, _id, _after(after), limit)
    conflicts = [views.conflict(each) for each in registry.conflicts() if seen.is_whole]
    told = [views.endpoint(each, report(each.endpoint.host)) for each in found]
    following = str(last.endpoint.id) if last else None
    return as_json({"endpoints": told, "conflicts": conflicts, "next": following})


@get(
    "/v1/tasks/{task:str}/skeleton",
    responses={200: gives("What is probed, and why."), 404: PROBLEM},
    tags=["tasks"],
)
async def skeleton(task: FromPath[str], request: Call) -> Response[bytes]:
    """Return what the ping lists of a task follow: its skeleton, or the basic list and why."""
    analyzer = analyzer_of(request)
    _seen(request, analyzer, task)
    return as_json(views.plan(task, analyzer.skeletons.plan(task)))


@get(
    "/v1/tasks/{task:str}/traffic",
    responses={200: gives("A NumPy archive.", bytes), 403: PROBLEM, 404: PROBLEM},
    tags=["tasks"],
)
async def traffic(
    task: FromPath[str], request: Call, tick_ms: FromQuery[int | None] = None
) -> Response[bytes]:
    """Return what the endpoints of a task sent lately, as `netagent-analyzer skeleton` reads it.

    In ticks of `tick_ms`, or else of those that its skeleton came from.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    _task(analyzer, task)
    tick_ns = None if tick_ms is None else tick_ms * 1_000_000
    series = analyzer.skeletons.recent(task, analyzer.traffic, tick_ns, analyzer.clock())
    if series is None:
        raise Problem(
            404,
            f"no series of {task} in such ticks",
            "wait for two windows of its agents; GET /v1/tasks/TASK/skeleton says more",
        )
    return Response(recording.pack(series), status_code=200, media_type="application/octet-stream")


ROUTES = (put_task, get_task, delete_task, tasks, endpoints, skeleton, traffic)


def _id(record: EndpointRecord) -> EndpointId:
    return record.endpoint.id


def _after(text: str | None) -> EndpointId | None:
    try:
        return None if text is None else EndpointId.parse(text)
    except ValueError as error:
        raise Problem(400, str(error), "give `next` of the page before") from error


def _unknown(task: str) -> Problem:
    return Problem(404, f"no task {task!r}", "`netagent-analyzer tasks` lists those known")


def _check_source(analyzer: Analyzer, task: str) -> None:
    """Refuse to change what was declared elsewhere."""
    known = analyzer.registry.task(task)
    if known is not None and known.source:
        text = f"task {task} is declared by {known.source}"
        raise Problem(409, text, "change or end its job there")


def _seen(request: Call, analyzer: Analyzer, task: str) -> None:
    """Refuse who may not see a task as if there were none."""
    seen = sight(request, analyzer.config)
    if not seen.sees(task):
        raise _unknown(task)
    _task(analyzer, task)


def _task(analyzer: Analyzer, task: str) -> views.Plain:
    known = analyzer.registry.task(task)
    if known is None:
        raise _unknown(task)
    records = analyzer.registry.endpoints(task)
    missing = overdue(
        analyzer.registry.awaited(task),
        now_ns=analyzer.clock(),
        after_ns=analyzer.config.tasks.missing_after_s * 10**9,
    )
    return views.task(known, records, analyzer.skeletons.plan(task), missing)
