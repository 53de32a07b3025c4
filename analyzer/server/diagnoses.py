# SPDX-License-Identifier: Apache-2.0
"""The routes of a diagnosis: of one pair now, or of many pairs in a while."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from analyzer.intent.ends import Doubt, End, Name
from analyzer.server import inquiries
from analyzer.server.analyzer import Analyzer
from analyzer.server.diagnosing import (
    BUDGET_S,
    MAX_BUDGET_S,
    MAX_PAIRS,
    Diagnosis,
    Pair,
    Phase,
    Plain,
    spread,
    waiting_for,
)
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, WaitS, analyzer_of, as_json, changed, read
from analyzer.server.identity import PEER, require_admin, sight
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.address import canonical
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import ContentType
from netagent.wire.messages import Service

MAX_FAILING = MAX_PAIRS // 2
"""Most pairs of open incidents that are walked for a task. Chosen: what it uses has room, too."""

Named = Name | End
"""An end: ``CONTAINER/railN``, or in other words."""


class PairBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pair of ends."""

    source: Named
    target: Named
    service: Service | None = None


class DiagnoseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pair (`source` and `target`), many `pairs`, or all that a `task` uses, and that fail.

    An end is written CONTAINER/railN, or as an object with one of endpoint, pod
    (NAMESPACE/NAME), port (the controller's name of it) and address, and with task and rail where
    that alone is not one endpoint.
    """

    source: Named = ""
    target: Named = ""
    service: Service | None = None
    """Of one pair: what the source asks the target for; a probe where nobody says. Its first packet
    is walked, as one of a new connection, then the reply."""
    layers: bool = False
    """Of one pair: whether both hosts also compare flow tables, datapath and RNIC, in seconds."""
    pairs: tuple[PairBody, ...] = ()
    task: str = ""
    budget_s: float = BUDGET_S
    """Of many pairs: seconds after which it ends with what it has."""


ONE = {"source": "train-a-0/rail0", "target": "train-a-1/rail0"}
IN_OTHER_WORDS = {
    "source": {"pod": "default/train-a-0", "rail": 0},
    "target": {"address": "10.0.0.11", "task": "train-a"},
}
OF_A_SERVICE = ONE | {"service": {"protocol": "tcp", "port": 443, "address": "10.96.0.1"}}
MANY = {"pairs": [ONE, IN_OTHER_WORDS], "budget_s": 60}
OF_A_TASK = {"task": "train-a"}
OBSERVATION = {
    "way": "there",
    "component": "flow h0/br-int/table=44",
    "action": "refused",
    "text": "dropped: drop",
    "host": "h0",
    "by": "quarantine",
    "incident": "",
    "cookie": "0xadc603b0",
}
WALK = ONE | {
    "outcome": "refused",
    "component": "flow h0/br-int/table=44",
    "layer": "overlay",
    "text": "refused by quarantine: drop",
    "observations": [OBSERVATION],
    "tree": [{"text": "train-a-0/rail0 -> train-a-1/rail0 (overlay)", "children": []}],
}
UNDER_WAY = {
    "id": "5d2c7a90be1f4a36",
    "phase": "running",
    "error": "",
    "done": 16,
    "all": 256,
    "left_out": 0,
    "results": [{name: value for name, value in WALK.items() if name != "tree"}],
    "next": 16,
}


@post(
    "/v1/diagnose",
    status_code=200,
    operation_class=takes(
        DiagnoseBody,
        ONE,
        forms=(ContentType.JSON,),
        more={
            "in other words": IN_OTHER_WORDS,
            "of a service": OF_A_SERVICE,
            "many": MANY,
            "of a task": OF_A_TASK,
        },
    ),
    responses={
        200: gives("The walk.", example=WALK),
        202: gives("The diagnosis of many pairs has begun.", example=UNDER_WAY),
        **dict.fromkeys((400, 403, 404, 429), PROBLEM),
    },
    tags=["incidents"],
)
async def diagnose(request: Call) -> Response[bytes]:
    """Walk from one endpoint to another now, through vSwitches and fabric; or between many.

    With `layers` both hosts also compare the copies of their flow tables. What is asked of many
    pairs goes on: GET /v1/diagnoses/ID says how far it is.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    body, _ = await read(request, DiagnoseBody)
    ways = sum(map(bool, (body.source or body.target, body.pairs, body.task)))
    if ways != 1 or bool(body.source) != bool(body.target):
        raise RemoteProtocolError("give source and target, or pairs, or a task")
    _check([body.service, *(each.service for each in body.pairs)])
    if body.source and body.target:
        [pair] = await _resolved(analyzer, [(body.source, body.target)])
        if pair[0] == pair[1] and not (body.service and body.service.address):
            raise RemoteProtocolError(f"both ends are {pair[0]}")
        with analyzer.diagnoses.one():
            walk = await analyzer.judge.walk(
                *pair, analyzer.asker.put, layers=body.layers, service=body.service
            )
            [told] = await analyzer.explained([walk])
        return as_json(told)
    if body.layers or body.service:
        what = "layers are compared" if body.layers else "a service beside the ends is"
        raise RemoteProtocolError(f"{what} of one pair only")
    if not 0 < body.budget_s <= MAX_BUDGET_S:
        raise RemoteProtocolError(f"budget_s is above 0, and {MAX_BUDGET_S:g} at most")
    failing = _failing(analyzer, body.task) if body.task else []
    given = (
        _used(analyzer, body.task, set(failing))
        if body.task
        else await _given(analyzer, body.pairs)
    )
    pairs = [*failing, *spread(given, MAX_PAIRS - len(failing))]
    begun = analyzer.diagnoses.begin(
        request.scope["state"].get(PEER),
        pairs,
        [_tasks(analyzer, pair) for pair in pairs],
        services=[each.service for each in body.pairs],
        left_out=len(failing) + len(given) - len(pairs),
        budget_s=body.budget_s,
    )
    answer = as_json(_told(begun, Sight(), 0))
    answer.status_code = 202
    answer.headers["location"] = f"/v1/diagnoses/{begun.id}"
    return answer


@get(
    "/v1/diagnoses/{diagnosis:str}",
    responses={
        200: gives("How far it is.", example=UNDER_WAY),
        403: PROBLEM,
        404: PROBLEM,
    },
    tags=["incidents"],
)
async def diagnosis(
    diagnosis: FromPath[str], request: Call, after: FromQuery[int] = 0, wait_s: WaitS = 0.0
) -> Response[bytes]:
    """Return how far a diagnosis of many pairs is, with its results from number `after` on.

    It is held until there are such results, or it is over, `wait_s` at most. Who sees some tasks
    only sees the pairs between their endpoints, without what would name others.
    """
    analyzer = analyzer_of(request)
    sees = sight(request, analyzer.config)
    deadline_s = asyncio.get_running_loop().time() + wait_s
    while True:
        known = analyzer.diagnoses.get(diagnosis)
        if known is None or not _mine(known, sees):
            remedy = "those that are over are forgotten one after the other: ask anew"
            raise Problem(404, f"no diagnosis {diagnosis!r}", remedy)
        ticket = analyzer.waiters.ticket(waiting_for(diagnosis))
        try:
            told = _told(known, sees, after)
            is_news = told["results"] or known.phase is not Phase.RUNNING
            if is_news or not await changed(analyzer, ticket, deadline_s):
                return as_json(told)
        finally:
            analyzer.waiters.discard(waiting_for(diagnosis), ticket)


ROUTES = (diagnose, diagnosis)


def _check(services: Sequence[Service | None]) -> None:
    """Raise RemoteProtocolError for what no packet can be sent to."""
    for each in services:
        if each is not None and each.address and canonical(each.address) is None:
            raise RemoteProtocolError(f"{each.address!r} is no address of a service")


def _tasks(analyzer: Analyzer, pair: Pair) -> frozenset[str]:
    """Return whose a pair is; nobody's, where that is not known of both ends."""
    records = [record for end in pair if (record := analyzer.registry.endpoint(end)) is not None]
    return frozenset(r.endpoint.task for r in records) if len(records) == 2 else frozenset()


def _mine(known: Diagnosis, sees: Sight) -> list[int]:
    """Return the numbers of the pairs that may be seen."""
    return [
        n for n, tasks in enumerate(known.tasks)
        if sees.is_whole or (tasks and all(map(sees.sees, tasks)))
    ]  # fmt: skip


def _told(known: Diagnosis, sees: Sight, after: int) -> Plain:
    mine = _mine(known, sees)
    done = [known.results[n] for n in mine if n < len(known.results)]
    return {
        "id": known.id,
        "phase": known.phase.value,
        "error": known.error if sees.is_whole or not known.error else "it ended early",
        "done": len(done),
        "all": len(mine),
        "left_out": known.left_out if sees.is_whole else 0,
        "results": [sees.walk(each) for each in done[max(0, after) :]],
        "next": max(after, len(done)),
    }


def _failing(analyzer: Analyzer, task: str) -> list[Pair]:
    """Return the pairs of a task that its open incidents say fail; each once.

    Its skeleton may lack just these: what the task uses would be delivered, and all seem well.
    """
    live = {r.endpoint.id for r in analyzer.registry.endpoints(task)}
    ends = (
        (pair.source, pair.target)
        for known in analyzer.journal.active()
        for pair in known.verdict.failing
    )
    found = dict.fromkeys(min(pair, pair[::-1]) for pair in ends if live.issuperset(pair))
    return list(found)[:MAX_FAILING]


def _used(analyzer: Analyzer, task: str, beside: Collection[Pair]) -> list[Pair]:
    """Return the other pairs that a task uses, or else that are probed; each once."""
    plan = analyzer.skeletons.plan(task)
    live = {r.endpoint.id for r in analyzer.registry.endpoints(task)}
    hosts = {r.endpoint.host for r in analyzer.registry.endpoints(task)}
    if plan is not None and plan.used is not None:
        pairs = set(plan.used.pairs)
    else:
        pairs = set(inquiries.listed(analyzer, sorted(hosts), task))
    found = sorted({min(pair, pair[::-1]) for pair in pairs if live.issuperset(pair)})
    if not found and not beside:
        raise Problem(
            404, f"no pairs of a task {task!r}", "`netagent-analyzer tasks` lists those known"
        )
    return [pair for pair in found if pair not in beside]


async def _given(analyzer: Analyzer, pairs: Sequence[PairBody]) -> list[Pair]:
    if len(pairs) > MAX_PAIRS:
        text = f"{len(pairs)} pairs are more than {MAX_PAIRS}"
        raise Problem(400, text, "ask for some after the others, or for a task")
    return await _resolved(analyzer, [(each.source, each.target) for each in pairs])


async def _resolved(analyzer: Analyzer, pairs: Sequence[tuple[Named, Named]]) -> list[Pair]:
    """Return the pairs that are meant; Problem where an end is not one endpoint."""
    ends = [End(endpoint=end) if isinstance(end, str) else end for pair in pairs for end in pair]
    found = [_known(analyzer, end) for end in ends]
    if None in found:
        records = analyzer.registry.endpoints()
        directory = await analyzer.intended.directory(record.endpoint for record in records)
        found = await asyncio.to_thread(
            lambda: [
                each or _sure(directory.resolve(end)) for each, end in zip(found, ends, strict=True)
            ]
        )
    sure = [each for each in found if each is not None]
    return list(zip(sure[::2], sure[1::2], strict=True))


def _known(analyzer: Analyzer, end: End) -> EndpointId | None:
    """Return an endpoint that is named as netagent does, without a look at all others."""
    if end != End(endpoint=end.endpoint):
        return None
    try:
        named = EndpointId.parse(end.endpoint)
    except ValueError:
        return None
    return named if analyzer.registry.endpoint(named) is not None else None


def _sure(found: EndpointId | Doubt) -> EndpointId:
    if isinstance(found, Doubt):
        raise Problem(404 if found.is_unknown else 400, found.text, found.remedy)
    return found
