# SPDX-License-Identifier: Apache-2.0
"""The HTTP routes: bytes to messages and back. Decisions are the service's and the engine's."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast

from litestar import Litestar, Response, delete, get, post, put
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

import netagent
from analyzer.roster.addresses import check_rpc_url
from analyzer.roster.service import check_schema
from analyzer.server import (
    actions,
    backups,
    certificates,
    diagnoses,
    exports,
    history,
    inquiries,
    intent,
    operators,
    tasks,
    uniformity,
    unprobed,
    views,
    webhooks,
)
from analyzer.server.analyzer import INCIDENTS, Analyzer
from analyzer.server.deliveries import PATH, App, Deliveries, take
from analyzer.server.documents import PROBLEM, config, gives, takes
from analyzer.server.http import BOTH, Call, WaitS, analyzer_of, as_json, changed, read, reply
from analyzer.server.identity import (
    PEER,
    caller_names,
    is_admin,
    require_admin,
    require_host,
    require_reader,
    sight,
)
from analyzer.server.metrics.scrape import Scrapes
from analyzer.server.page import routes as page_routes
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.places import hit, tasks_at
from analyzer.server.problems import HANDLERS, Problem
from analyzer.server.review import feedback, worst
from analyzer.server.sight import Sight
from analyzer.server.zones import Zones
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList
from netagent.model.verdict import Incident, IncidentState
from netagent.wire.codec import MAX_BODY_BYTES
from netagent.wire.enrolment import CRL_VERSION
from netagent.wire.messages import Accepted, Registered, Registration, Summary, SummaryHead
from netagent.wire.roster import MAX_FOLLOW_BYTES, Follow, Update

COALESCE_S = 0.05
"""Seconds that the answer with a changed ping list waits for further changes. Chosen: containers
start in groups, and their hosts then fetch one list."""

ANSWER_S = 0.005
"""Seconds that it waits besides, for each host that hears of the same changes. Chosen: answering
takes less than 1 ms each, so that the start of a task of 600 hosts takes a fifth of the loop."""

MOST_WAIT_S = 3.0
"""Seconds, at most, of both. Chosen: less than agents wait for the news of what they registered."""

SOURCE_BYTES, TARGET_BYTES = 128, 1 << 10
"""What an answer counts of what its caller may send: bytes for each endpoint of the host that
follows its list, and for each target of a list that is made whole. Chosen: as the first has them,
and what a target takes of memory; one that asks without pause has a few hundredths of a core."""
REGISTERED_BYTES = 1 << 10
"""The same of what a host registers, for each endpoint. Chosen: to look each up, write it and tell
others of it costs some hundred times what its deflated bytes do."""

RECORDING_CHUNK_BYTES = 1 << 20
"""Bytes of a recording sent at a time. Chosen: bounds memory per download."""

InState = Annotated[
    str | None,
    QueryParameter(
        name="state", description="open, confirmed, recovered, or active (the first two)"
    ),
]


ENDPOINT_EXAMPLE = {
    "id": {"container": "train-a-0", "rail": 0},
    "task": "train-a",
    "host": "h0",
    "address": "10.0.0.10",
    "mac": "02:00:00:00:00:0a",
    "underlay": "172.30.0.10",
    "rnic": "rnic0",
    "bridge": "br-int",
    "port": "train-a-0-r0",
}
REGISTRATION_EXAMPLE = {
    "host": "h0",
    "instance": "6f1c",
    "generation": 3,
    "rpc_url": "https://198.18.0.10:8421",
    "endpoints": [ENDPOINT_EXAMPLE],
}
PINGLIST_EXAMPLE = {
    "version": 1795154400000,
    "targets": [
        {
            "source": {"container": "train-a-0", "rail": 0},
            "target": {"container": "train-a-1", "rail": 0},
            "address": "10.0.0.11",
            "underlay": "172.30.0.11",
        }
    ],
}
FOLLOW_EXAMPLE = {"version": 0, "wait_s": 20}
SUMMARY_EXAMPLE = {
    "host": "h0",
    "instance": "6f1c",
    "start_ns": 1795154400000000000,
    "width_ns": 5000000000,
}


# --- agents -------------------------------------------------------------------------------------


@put(
    "/v1/hosts/{host:str}/endpoints",
    operation_class=takes(Registration, REGISTRATION_EXAMPLE, forms=BOTH),
    responses={
        200: gives("It was taken.", Registered, {"sources": 3605154400000}),
        400: PROBLEM,
        403: PROBLEM,
        503: PROBLEM,
    },
    tags=["agents"],
)
async def register(host: FromPath[str], request: Call) -> Response[bytes]:
    """Register all endpoints of a host; what is missing is deregistered."""
    analyzer = analyzer_of(request)
    require_host(request, host, analyzer.config)
    caller = request.scope["state"].get(PEER)
    # Before it is read: what makes no sense costs as much.
    analyzer.may_send(caller, len(await request.body()))
    registration, _ = await read(request, Registration)
    analyzer.may_send(caller, REGISTERED_BYTES * len(registration.endpoints))
    if registration.host != host:
        raise RemoteProtocolError(f"registration of {registration.host!r} at the path of {host!r}")
    check_rpc_url(registration.rpc_url, caller_names(request))
    analyzer.admit(analyzer.clock())
    analyzer.counters.registrations += 1
    return reply(request, await analyzer.service.register(registration, analyzer.clock()))


@get(
    "/v1/hosts/{host:str}/pinglist",
    responses={200: gives("The list, whole.", PingList, PINGLIST_EXAMPLE), 503: PROBLEM},
    tags=["agents"],
)
async def pinglist(host: FromPath[str], request: Call) -> Response[bytes]:
    """Return the host's ping list, for people: what its agent makes of what it follows."""
    analyzer = analyzer_of(request)
    if not is_admin(request, analyzer.config.admins):
        require_host(request, host, analyzer.config)
    caller = request.scope["state"].get(PEER)
    analyzer.may_send(caller, 0)  # to see how many there are takes its time, too
    _, targets = analyzer.lists.extent(host)
    analyzer.may_send(caller, TARGET_BYTES * targets)
    return reply(request, analyzer.lists.pinglist(host))


@post(
    "/v1/hosts/{host:str}/pinglist",
    status_code=200,
    operation_class=takes(Follow, FOLLOW_EXAMPLE, forms=BOTH),
    responses={
        200: gives("What changed since what the agent has.", Update),
        204: gives("Nothing did.", None),
        400: PROBLEM,
        403: PROBLEM,
        503: PROBLEM,
    },
    tags=["agents"],
)
async def follow(host: FromPath[str], request: Call) -> Response[bytes]:
    """Return what changed of the host's ping list, once it differs from what the agent has."""
    analyzer = analyzer_of(request)
    require_host(request, host, analyzer.config)
    caller = request.scope["state"].get(PEER)
    analyzer.may_send(caller, len(await request.body()))  # before anything is looked up for it
    sources, _ = analyzer.lists.extent(host)
    analyzer.may_send(caller, SOURCE_BYTES * sources)
    asked, _ = await read(request, Follow, max_bytes=MAX_FOLLOW_BYTES)
    check_schema(asked.schema)
    deadline_s = asyncio.get_running_loop().time() + asked.wait_s
    # An agent asks once at a time: a later question ends the earlier one.
    analyzer.waiters.wake([host])
    me = analyzer.following[host] = object()
    try:
        answer = await _followed(request, analyzer, host, asked, deadline_s, me)
        if analyzer.authority is not None:
            answer.headers[CRL_VERSION] = analyzer.authority.crl_version
        return answer
    finally:
        if analyzer.following.get(host) is me:
            del analyzer.following[host]


async def _followed(
    request: Call, analyzer: Analyzer, host: str, asked: Follow, deadline_s: float, me: object
) -> Response[bytes]:
    while analyzer.following.get(host) is me:
        ticket = analyzer.waiters.ticket(host)
        try:
            update = analyzer.lists.update(host, asked)
            if update is not None:
                return reply(request, update)
            if not await changed(analyzer, ticket, deadline_s):
                return Response(b"", status_code=204)
        finally:
            analyzer.waiters.discard(host, ticket)
        wait_s = max(COALESCE_S, ANSWER_S * analyzer.lists.crowd(host))
        await asyncio.sleep(min(wait_s, MOST_WAIT_S))
    return Response(b"", status_code=204)


@post(
    PATH,
    status_code=200,
    operation_class=takes(Summary, SUMMARY_EXAMPLE, forms=BOTH),
    responses={
        200: gives("The summary is on disk.", Accepted, {"duplicate": False}),
        400: PROBLEM,
        403: PROBLEM,
        503: PROBLEM,
    },
    tags=["agents"],
)
async def summaries(request: Call) -> Response[bytes]:
    """Store one host's closed window; answered once it is on disk.

    A msgpack body may be deflated (RFC 1950, Content-Encoding: deflate); so it is stored.
    """
    analyzer = analyzer_of(request)
    received_ns = analyzer.clock()
    caller = request.scope["state"].get(PEER)
    analyzer.may_send(caller, len(await request.body()))
    summary, payload = await read(request, Summary, SummaryHead)
    return reply(request, await take(analyzer, caller, summary, payload, received_ns))


@get("/v1/agents", responses={200: gives("Agents.")}, tags=["agents"])
async def agents(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return every agent, with how long it has been silent and what it last said of itself."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    report, wall_ns = analyzer.reports.of, analyzer.clock()
    found, last = page(analyzer.registry.agents(), lambda agent: agent.host, after, limit)
    told = [views.agent(each, report(each.host), wall_ns=wall_ns) for each in found]
    return as_json({"agents": told, "next": last.host if last else None})


@delete("/v1/hosts/{host:str}", status_code=200, responses={403: PROBLEM}, tags=["agents"])
async def forget(host: FromPath[str], request: Call) -> Response[bytes]:
    """Forget a host that left the cluster for good, with its endpoints."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    analyzer.uniformity.drop(host)
    analyzer.driven.drop(host)
    analyzer.unprobed.drop(host)
    return as_json({"host": host, "known": await analyzer.service.forget(host, analyzer.clock())})


# --- incidents ----------------------------------------------------------------------------------


@get("/v1/incidents", responses={400: PROBLEM}, tags=["incidents"])
async def incidents(
    request: Call,
    wanted: InState = None,
    since: FromQuery[int] = 0,
    after: After = None,
    limit: Limit = LIMIT,
) -> Response[bytes]:
    """Return incidents, latest first.

    `state` is open, confirmed, recovered, or active (open or confirmed); `since` keeps those
    updated at that instant (Unix nanoseconds) or later. `warnings` say what is wrong with the
    analyzer itself.
    """
    if wanted is not None and wanted not in {"active", *IncidentState}:
        raise Problem(
            400,
            f"{wanted!r} is no state",
            f"use active, {', '.join(s.value for s in IncidentState)}",
        )
    analyzer = analyzer_of(request)
    sees = sight(request, analyzer.config)
    journal = analyzer.journal
    before = journal.get(after) if after is not None else None
    if after is not None and before is None:
        raise Problem(400, f"no incident {after!r} to go on after", "begin with the first page")
    from_ns = _latest_first(before) if before is not None else None
    seen = (_seen(sees, analyzer, each) for each in journal.incidents(wanted, since))
    mine = (each for each in seen if each is not None)
    found, last = page(mine, _latest_first, from_ns, limit)
    told = [
        views.incident(
            each,
            stored=journal.is_stored(each.id),
            remarks=uniformity.remarks(analyzer, sees, each),
            runbooks=analyzer.config.runbooks.pages,
        )
        for each in found
    ]
    if sees.is_whole:  # notes name anybody
        for each in told:
            each["feedback"] = feedback.said(analyzer, str(each["id"]))
    after = last.id if last else None
    return as_json({"incidents": told, "next": after, "warnings": _warnings(analyzer, sees)})


@get("/v1/incidents/events", tags=["incidents"])
async def events(
    request: Call, after: FromQuery[int | None] = None, wait_s: WaitS = 0.0
) -> Response[bytes]:
    """Return what happened to incidents after number `after`, as soon as something did.

    Without `after`, return at once the number to go on from. Tenants learn by none of it that
    something happened to others.
    """
    analyzer = analyzer_of(request)
    sees = sight(request, analyzer.config)
    journal = analyzer.journal
    if after is None:
        warnings = _warnings(analyzer, sees)
        seq = journal.seq
        if not sees.is_whole:
            seen = (e.seq for e in journal.events(0) if _seen(sees, analyzer, e.incident))
            seq = max(seen, default=0)
        return as_json({"next": seq, "events": [], "warnings": warnings})
    deadline_s = asyncio.get_running_loop().time() + wait_s
    while True:
        ticket = analyzer.waiters.ticket(INCIDENTS)
        try:
            shown = ((e, _seen(sees, analyzer, e.incident)) for e in journal.events(after))
            found = [replace(e, incident=i) for e, i in shown if i is not None]
            if found or not await changed(analyzer, ticket, deadline_s):
                seq = found[-1].seq if found else after
                told = [
                    views.event(
                        each,
                        stored=journal.is_stored(each.incident.id),
                        remarks=uniformity.remarks(analyzer, sees, each.incident),
                        runbooks=analyzer.config.runbooks.pages,
                    )
                    for each in found
                ]
                warnings = _warnings(analyzer, sees)
                return as_json({"next": seq, "events": told, "warnings": warnings})
        finally:
            analyzer.waiters.discard(INCIDENTS, ticket)


@get("/v1/incidents/{incident:str}", responses={404: PROBLEM}, tags=["incidents"])
async def show(incident: FromPath[str], request: Call) -> Response[bytes]:
    """Return one incident with its verdict and all evidence."""
    analyzer = analyzer_of(request)
    journal, known = analyzer.journal, analyzer.journal.get(incident)
    sees = sight(request, analyzer.config)
    if known is not None:
        known = _seen(sees, analyzer, known)
    if known is None:
        raise Problem(
            404, f"no incident {incident!r}", "`netagent-analyzer incidents` lists what is kept"
        )
    remarks = uniformity.remarks(analyzer, sees, known)
    # Commands name hosts, which are no tenant's.
    could = actions.offered(analyzer, incident) if sees.is_whole else []
    told = views.incident(
        known,
        stored=journal.is_stored(incident),
        remarks=remarks,
        runbooks=analyzer.config.runbooks.pages,
    )
    words = feedback.said(analyzer, incident) if sees.is_whole else []
    more = {"hit": hit(analyzer, sees, known), "actions": could, "feedback": words}
    return as_json({**told, **more})


@get("/v1/recording", responses={403: PROBLEM, 503: PROBLEM}, tags=["incidents"])
async def recording(request: Call) -> Stream:
    """Return what the diagnosis was given lately, for `netagent-analyzer replay`.

    It names every tenant's endpoints.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)

    path = Path(await analyzer.judge.look("recording", str))

    async def chunks() -> AsyncIterator[bytes]:
        try:
            with await asyncio.to_thread(path.open, "rb") as file:
                while chunk := await asyncio.to_thread(file.read, RECORDING_CHUNK_BYTES):
                    yield chunk
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    return Stream(chunks(), media_type="application/octet-stream")


# --- the whole ----------------------------------------------------------------------------------


@get("/v1/topology", tags=["analyzer"])
async def topology(request: Call) -> Response[bytes]:
    """Return the fabric, as declared and as learned from traced paths."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    return as_json(await analyzer.judge.look("topology", dict[str, Any]))


@get("/v1/findings", tags=["analyzer"])
async def findings(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return what hosts state about their own parts."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    known = await analyzer.judge.look("findings", list[Finding])
    found, last = page(sorted(known, key=_place), _place, after, limit)
    pages = analyzer.config.runbooks.pages
    told = [views.finding(each, pages) for each in found]
    return as_json({"findings": told, "next": _place(last) if last else None})


@get("/v1/status", tags=["analyzer"])
async def status(request: Call) -> Response[bytes]:
    """Return who this analyzer is, how much it holds, and whether its disk takes more."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    kept, size = await _usage(analyzer)
    return as_json(
        {
            "version": netagent.__version__,
            "started_ns": analyzer.started_ns,
            "wall_ns": analyzer.clock(),
            "agents": len(analyzer.registry.agents()),
            "endpoints": len(analyzer.registry.endpoints()),
            "tasks": len(analyzer.registry.tasks()),
            "incidents_active": len(analyzer.journal.incidents("active")),
            "accuracy": feedback.told(analyzer.accuracy()),
            "summaries_kept": kept,
            "summary_bytes_kept": size,
            "rows_set_aside": analyzer.rows_aside,
            "disk": {
                "takes": analyzer.disk.takes,
                "refuses_since_ns": analyzer.disk.since_ns,
                "error": analyzer.disk.error,
                "incidents_not_stored": analyzer.journal.unstored,
                "storing_ns": analyzer.storing_ns(),
                "sync_ns": analyzer.sync_ns(),
                **analyzer.space.told(),
            },
            "judge": {
                "pid": analyzer.judge.pid,
                "starts": analyzer.judge.starts,
                "late_ns": _late_ns(analyzer),
                "backlog_bytes": analyzer.judge.backlog_bytes,
            },
            "controller": _controller(analyzer),
            "pushed": {
                name: {"version": each.version, "away": each.intent.away, **each.counts}
                for name, each in analyzer.pushed.items()
            },
            "stood_still": analyzer.asker.stood_still,
            "wall_clock_off_ns": analyzer.steady.off_ns,
            "counters": {
                "worker_crashes": analyzer.workers.crashes,
                **{name: getattr(analyzer.counters, name) for name in analyzer.counters.__slots__},
            },
        }
    )


def _controller(analyzer: Analyzer) -> dict[str, Any] | None:
    """Return who reads the controller; None where none is configured."""
    it = analyzer.controller
    if it is None:
        return None
    told: dict[str, Any] = {"pid": it.pid, "starts": it.starts, "away": it.away}
    if isinstance(it, Zones):
        told["zones"] = asdict(it.counts)
    if (done := analyzer.comparisons) is not None:
        told["compared"] = {"asked": done.asked, "refused": done.refused, "failed": done.failed}
    return told


def _late_ns(analyzer: Analyzer) -> int:
    """Return how long the judge has been at its step, or was at the newest one."""
    return analyzer.judge.late_ns(analyzer.clock()) or analyzer.asker.late_ns


async def _usage(analyzer: Analyzer) -> tuple[int | None, int | None]:
    try:
        return await analyzer.store.usage()
    except CapabilityMissing:
        return None, None  # a database that is away; `disk` says why


@get("/v1/capacity", tags=["analyzer"])
async def capacity(request: Call) -> Response[bytes]:
    """Return how many RNICs the analyzer could take, by what it uses of the machine now."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    return as_json(views.capacity(analyzer.meter.capacity(), analyzer.config.retention))


@get("/metrics", tags=["analyzer"], media_type="text/plain")
async def metrics(request: Call) -> Response[bytes]:
    """Return metrics as text or, where that is asked for, as OpenMetrics."""
    require_reader(request, analyzer_of(request).config)
    scrapes: Scrapes = request.app.state["scrapes"]
    text, form = await scrapes.answer(request.headers.get("accept", ""))
    return Response(text, media_type=form)


def application(analyzer: Analyzer) -> Deliveries:
    """Return the ASGI application of `analyzer`."""
    rest = Litestar(
        route_handlers=[
            *(register, pinglist, follow, summaries, agents, forget),
            *tasks.ROUTES,
            *inquiries.ROUTES,
            *diagnoses.ROUTES,
            *backups.ROUTES,
            *history.ROUTES,
            *exports.ROUTES,
            *certificates.ROUTES,
            *uniformity.ROUTES,
            *unprobed.ROUTES,
            *operators.ROUTES,
            *actions.ROUTES,
            *webhooks.ROUTES,
            *feedback.ROUTES,
            *worst.ROUTES,
            *intent.ROUTES,
            page_routes.begin,
            *(incidents, events, show, recording),
            *(topology, findings, status, capacity, metrics),
        ],
        state=State({"analyzer": analyzer, "scrapes": Scrapes(analyzer)}),
        exception_handlers=HANDLERS,
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=config(),
        logging_config=None,
    )
    return Deliveries(analyzer, cast("App", rest))


def _warnings(analyzer: Analyzer, sees: Sight) -> list[str]:
    """Return what is wrong with the analyzer; it names tasks and containers of anybody."""
    return analyzer.warnings() if sees.is_whole else []


def _seen(sees: Sight, analyzer: Analyzer, known: Incident) -> Incident | None:
    def task_of(endpoint: EndpointId) -> str | None:
        record = analyzer.registry.endpoint(endpoint)
        return record.endpoint.task if record is not None else None

    return sees.incident(known, task_of, lambda of: tasks_at(analyzer, of))


def _latest_first(incident: Incident) -> tuple[int, str]:
    """Return what `Journal.incidents` is in the order of."""
    return -incident.detected_ns, incident.id


def _place(finding: Finding) -> str:
    _, _, *which = finding.key
    return " ".join((str(finding.component), finding.kind, str(finding.wall_ns), *which))
