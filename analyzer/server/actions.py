# SPDX-License-Identifier: Apache-2.0
"""The HTTP routes of actions: what was done, what could be, and what a person wants done."""

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import QueryParameter

from analyzer.actions.broker import TRAIL, Action, Entry, Mode
from analyzer.server import views
from analyzer.server.acting import Acting
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, read
from analyzer.server.identity import PEER, require_admin, require_reader
from analyzer.server.problems import Problem
from netagent.wire.actions import ActionReply
from netagent.wire.codec import ContentType

ANYBODY = "anybody"
"""Who acts where there is no TLS."""

Newest = Annotated[int, QueryParameter(ge=1, le=TRAIL, description="Newest entries to return.")]


class AboutIncident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An incident."""

    incident: str


class AboutAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action, as a dry run or the trail names it."""

    id: str


class Closing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The breaker is closed."""

    why: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """What the person saw, for the trail."""


@get("/v1/actions", responses={403: PROBLEM}, tags=["actions"])
async def actions(request: Call, limit: Newest = 100) -> Response[bytes]:
    """Return what is permitted, whether the breaker is open, and the trail, newest last."""
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    broker = analyzer.acting.broker
    return as_json(
        {
            "mode": broker.limits.mode.value,
            "verbs": sorted(broker.limits.verbs),
            "breaker": broker.opened or None,
            "stored": analyzer.acting.is_written,
            "entries": [_entry(each) for each in list(broker.trail)[-limit:]],
        }
    )


@post(
    "/v1/actions/dry-run",
    status_code=200,
    operation_class=takes(AboutIncident, {"incident": "i6b0005c6-c96d"}, forms=(ContentType.JSON,)),
    responses={200: gives("What could be done."), 403: PROBLEM, 404: PROBLEM, 409: PROBLEM},
    tags=["actions"],
)
async def dry_run(request: Call) -> Response[bytes]:
    """Return what could be done about an incident, and what its host says of it; do nothing."""
    analyzer = analyzer_of(request)
    by = _admin(request, analyzer)
    body, _ = await read(request, AboutIncident)
    _known(analyzer, body.incident)
    _permitted(analyzer)
    looked = await analyzer.acting.look(body.incident, by)
    told = [_offer(analyzer.acting, *each) for each in looked]
    return as_json({"incident": body.incident, "actions": told})


@post(
    "/v1/actions/do",
    status_code=200,
    operation_class=takes(
        AboutAction, {"id": "i6b0005c6-c96d-3f2a91c0"}, forms=(ContentType.JSON,)
    ),
    responses={200: gives("It was done."), 403: PROBLEM, 409: PROBLEM},
    tags=["actions"],
)
async def do(request: Call) -> Response[bytes]:
    """Do something now, by the caller's name; each action is done once, and within the limits."""
    analyzer = analyzer_of(request)
    by = _admin(request, analyzer)
    body, _ = await read(request, AboutAction)
    _permitted(analyzer)
    if problem := await analyzer.acting.do(body.id, by):
        raise Problem(409, f"not done: {problem}", "`netagent-analyzer actions` shows the trail")
    return as_json({"id": body.id, "done": True})


@post(
    "/v1/actions/undo",
    status_code=200,
    operation_class=takes(
        AboutAction, {"id": "i6b0005c6-c96d-3f2a91c0"}, forms=(ContentType.JSON,)
    ),
    responses={200: gives("It was undone."), 403: PROBLEM, 409: PROBLEM},
    tags=["actions"],
)
async def undo(request: Call) -> Response[bytes]:
    """Take back what was done, by the caller's name."""
    analyzer = analyzer_of(request)
    by = _admin(request, analyzer)
    body, _ = await read(request, AboutAction)
    if problem := await analyzer.acting.undo(body.id, by):
        raise Problem(409, f"not undone: {problem}", "`netagent-analyzer actions` shows the trail")
    return as_json({"id": body.id, "undone": True})


@post(
    "/v1/actions/close",
    status_code=200,
    operation_class=takes(Closing, {"why": "replaced the cable"}, forms=(ContentType.JSON,)),
    responses={200: gives("The breaker is closed."), 403: PROBLEM},
    tags=["actions"],
)
async def close(request: Call) -> Response[bytes]:
    """Close the breaker, by the caller's name: what is permitted is done again."""
    analyzer = analyzer_of(request)
    by = _admin(request, analyzer)
    body, _ = await read(request, Closing)
    was = analyzer.acting.broker.opened
    await analyzer.acting.close(by, body.why)
    return as_json({"was": was or None})


ROUTES = (actions, dry_run, do, undo, close)


def offered(analyzer: Analyzer, incident: str) -> list[views.Plain]:
    """Return what could be done about an incident, as is known here; hosts are not asked."""
    acting = analyzer.acting
    return [_offer(acting, each, None, "") for each in acting.broker.offers(incident)]


def _admin(request: Call, analyzer: Analyzer) -> str:
    require_admin(request, analyzer.config.admins)
    name: str | None = request.scope["state"].get(PEER)
    return name or ANYBODY


def _known(analyzer: Analyzer, incident: str) -> None:
    if analyzer.journal.get(incident) is None:
        raise Problem(
            404, f"no incident {incident!r}", "`netagent-analyzer incidents` lists what is kept"
        )


def _permitted(analyzer: Analyzer) -> None:
    if analyzer.acting.mode is Mode.OBSERVE:
        raise Problem(
            409, "this analyzer only observes", 'set mode = "advise" or "act" in its [actions]'
        )


def _offer(acting: Acting, action: Action, reply: ActionReply | None, problem: str) -> views.Plain:
    told = {**_action(action), "became": acting.last_of(action), "problem": problem}
    if reply is not None:
        told |= {
            "command": reply.command or told["command"],
            "undo": reply.undo or told["undo"],
            "read": list(reply.read),
            "problem": problem or reply.refused,
        }
    return told


def _entry(entry: Entry) -> views.Plain:
    return {
        "wall_ns": entry.wall_ns,
        "step": entry.step.value,
        "by": entry.by,
        "text": entry.text,
        "action": _action(entry.action) if entry.action else None,
    }


def _action(action: Action) -> dict[str, Any]:
    remedy = action.remedy
    return {
        "id": action.id,
        "incident": action.incident,
        "verb": remedy.verb.value,
        "host": remedy.host,
        "object": remedy.object,
        "command": remedy.command,
        "undo": remedy.undo,
        "why": action.why,
    }
