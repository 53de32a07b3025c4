# SPDX-License-Identifier: Apache-2.0
"""The routes of the page, and the one by which a session of it is asked for."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
from litestar import Litestar, Response, get, post
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from analyzer.picture.asked import By
from analyzer.server import diagnoses
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, read
from analyzer.server.identity import PEER, PEER_SERIAL, is_admin, require_admin, sight
from analyzer.server.page import fabric as fabrics
from analyzer.server.page import hosts as machines
from analyzer.server.page import incident as incidents
from analyzer.server.page import now as nows
from analyzer.server.page import pair as pairs
from analyzer.server.page import tasks as jobs
from analyzer.server.page.archive import MAX_PAGE, Wanted, archive
from analyzer.server.page.events import stream
from analyzer.server.page.guard import HOLDS
from analyzer.server.page.page import Page
from analyzer.server.page.sessions import LINK_NS, Holder
from analyzer.server.problems import HANDLERS, Problem
from analyzer.server.sight import Sight
from netagent.wire.codec import ContentType

MAX_BYTES = 1 << 16
"""Bytes of a body. Chosen: many times those of two ends."""
MAX_NAME = 1024
"""Characters of a name in a query. Chosen: many times what names have."""
MAX_DIGITS = 20
"""Of an event's number. Python refuses to read one of thousands."""
LISTED = 50
"""Names of an answer, unless more are asked for. Chosen: a list to choose from."""
MAX_MINUTES = 24 * 60
"""Most minutes of an inquiry. Chosen: of more than a small task, so many are refused anyway."""
ANYWHERE = ("0.0.0.0", "::")


Given = Annotated[str, QueryParameter(max_length=MAX_NAME)]
Most = Annotated[int, QueryParameter(ge=1, le=machines.MAX_LISTED)]
Name = Annotated[str | None, QueryParameter(max_length=MAX_NAME)]


class SessionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For whom a session is."""

    whose: str = msgspec.field(default="", name="for")
    """A tenant, as which it sees; of administrators alone. Empty: who asks."""


class InquiryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is looked at."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=MAX_MINUTES)]
    """Minutes until now."""


@post(
    "/v1/sessions",
    status_code=200,
    operation_class=takes(SessionBody, {"for": "tenant-a"}, forms=(ContentType.JSON,)),
    responses={
        200: gives("A link that is opened once, and soon."),
        **dict.fromkeys((400, 403, 404), PROBLEM),
    },
    tags=["analyzer"],
)
async def begin(request: Call) -> Response[bytes]:
    """Return a link to the page; who opens it in a browser sees there what the caller may."""
    analyzer = analyzer_of(request)
    sight(request, analyzer.config)
    body, _ = await read(request, SessionBody, max_bytes=MAX_BYTES)
    if analyzer.page_at is None:
        raise Problem(404, "there is no page", "set listen in [page] of the analyzer's file")
    state = request.scope["state"]
    name: str | None = state.get(PEER)
    seen_as = name
    if body.whose:
        require_admin(request, analyzer.config.admins)
        if body.whose not in analyzer.config.tenants:
            raise Problem(400, f"{body.whose!r} is no tenant", "name one of [tenants]")
        seen_as = body.whose
    holder = Holder(seen_as, name, state.get(PEER_SERIAL, ""))
    token = analyzer.sessions.invite(holder, analyzer.monotonic())
    url = f"{_origin(analyzer, request)}/session/{token}"
    return as_json({"url": url, "expires_ns": analyzer.clock() + LINK_NS})


def _origin(analyzer: Analyzer, request: Call) -> str:
    """Return where the page is; on all addresses, at that by which the caller came."""
    host, port = analyzer.page_at or ("", 0)
    if host in ANYWHERE:
        host = request.url.hostname or host
    scheme = "https" if analyzer.config.tls is not None else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@get("/v1/views/now")
async def now(request: Call) -> Response[bytes]:
    """Return what is wrong, and what is not watched."""
    page, sees = _asked(request)
    return as_json(await nows.now(page, sees))


@get("/v1/views/events")
async def events(request: Call) -> Stream:
    """Return what happens to incidents, and how it stands at each window."""
    page, sees = _asked(request)
    name = request.scope["state"].get(PEER)
    holds: Callable[[], bool] = request.scope["state"].get(HOLDS, lambda: True)
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) <= MAX_DIGITS else None
    page.streams.check(name)

    async def told() -> AsyncIterator[bytes]:
        page.streams.begin(name)  # here, as it ends: who hangs up before was never counted
        try:
            async for each in stream(page, sees, after, holds):
                yield each
        finally:
            page.streams.end(name)

    return Stream(told(), media_type="text/event-stream")


def _asked(request: Call) -> tuple[Page, Sight]:
    """Return the page, and what the caller may see; Problem for who may see nothing."""
    page: Page = request.app.state["page"]
    return page, sight(request, page.analyzer.config)


@get("/v1/views/fabric")
async def fabric(request: Call) -> Response[bytes]:
    """Return switches, links and hosts with what crossed them."""
    return as_json(await fabrics.fabric(*_asked(request)))


@get("/v1/views/matrix")
async def matrix(
    request: Call, by: FromQuery[By] = "leaf", row: Name = None, col: Name = None
) -> Response[bytes]:
    """Return from whom to whom probes were lost, and how long they took."""
    return as_json(await fabrics.matrix(*_asked(request), by, row, col))


@get("/v1/views/tasks")
async def tasks(request: Call) -> Response[bytes]:
    """Return the tasks that the caller may see."""
    return as_json(jobs.tasks(*_asked(request)))


@get("/v1/views/task/{task:str}")
async def task(task: FromPath[str], request: Call) -> Response[bytes]:
    """Return what a task is and uses, and what of it was lost."""
    page, sees = _asked(request)
    may_inquire = is_admin(request, page.analyzer.config.admins)
    return as_json(await jobs.task(page, sees, task, may_inquire=may_inquire))


@post("/v1/tasks/{task:str}/inquiry", status_code=200)
async def inquiry(task: FromPath[str], request: Call) -> Response[bytes]:
    """Return whether a task's network was well in the last minutes, for administrators."""
    page, _ = _asked(request)
    require_admin(request, page.analyzer.config.admins)
    body, _ = await read(request, InquiryBody, max_bytes=MAX_BYTES)
    return as_json(await jobs.inquire(page, task, body.minutes))


@get("/v1/views/incident/{incident:str}")
async def incident(incident: FromPath[str], request: Call) -> Response[bytes]:
    """Return one incident with all that is kept of it."""
    page, sees = _asked(request)
    may_fetch = is_admin(request, page.analyzer.config.admins)
    return as_json(incidents.incident(page, sees, incident, may_fetch=may_fetch))


@get("/v1/views/incident/{incident:str}/recording")
async def recording(incident: FromPath[str], request: Call) -> Stream:
    """Return what the diagnosis of an incident was given, for administrators."""
    page, _ = _asked(request)
    require_admin(request, page.analyzer.config.admins)
    pieces = await incidents.recorded(page, incident)
    headers = {"content-disposition": 'attachment; filename="incident.recording"'}
    return Stream(pieces, media_type="application/octet-stream", headers=headers)


@get("/v1/views/incidents")
async def kept(
    request: Call,
    in_state: Annotated[str, QueryParameter(name="state", max_length=MAX_NAME)] = "",
    layer: Given = "",
    component: Given = "",
    after: Given = "",
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)] = LISTED,
) -> Response[bytes]:
    """Return incidents that are kept, newest first; Litestar has `state` for itself."""
    wanted = Wanted(in_state, layer, component)
    return as_json(archive(*_asked(request), wanted, after, limit))


@get("/v1/views/pair")
async def pair(request: Call, source: Given = "", target: Given = "") -> Response[bytes]:
    """Return what a pair's probes did."""
    return as_json(await pairs.pair(*_asked(request), source, target))


@get("/v1/views/host/{host:str}")
async def host(host: FromPath[str], request: Call) -> Response[bytes]:
    """Return one host."""
    return as_json(await machines.host(*_asked(request), host))


@get("/v1/views/hosts")
async def hosts(request: Call, q: Given = "", limit: Most = LISTED) -> Response[bytes]:
    """Return hosts whose names begin so."""
    return as_json(machines.hosts(*_asked(request), q, limit))


@get("/v1/views/endpoints")
async def endpoints(request: Call, q: Given = "", limit: Most = LISTED) -> Response[bytes]:
    """Return endpoints whose names begin so."""
    return as_json(machines.endpoints(*_asked(request), q, limit))


VIEWS = (
    now,
    events,
    fabric,
    matrix,
    tasks,
    task,
    inquiry,
    incident,
    recording,
    kept,
    pair,
    host,
    hosts,
    endpoints,
)


def application(analyzer: Analyzer) -> Litestar:
    """Return the ASGI application behind the page's guard."""
    return Litestar(
        route_handlers=[*VIEWS, *diagnoses.ROUTES],
        state=State({"analyzer": analyzer, "page": Page(analyzer)}),
        exception_handlers=HANDLERS,
        request_max_body_size=MAX_BYTES,
        openapi_config=None,
        logging_config=None,
    )
