# SPDX-License-Identifier: Apache-2.0
"""The routes of what controllers say should be, where it is pushed, and how a host differs."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from litestar import Response, get, patch, put
from litestar.params import FromPath, FromQuery

from analyzer.intent.model import Intent
from analyzer.intent.ovn import NORTHBOUND, SOURCE, SOUTHBOUND
from analyzer.intent.pushed import PART, IntentChange, LostChange, WholeIntent
from analyzer.server.analyzer import Analyzer
from analyzer.server.comparing import Compared
from analyzer.server.controllers import Controller
from analyzer.server.documents import PROBLEM, gives, takes
from analyzer.server.http import Call, analyzer_of, as_json, body_of
from analyzer.server.identity import PEER, require_reader
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.problems import Problem
from analyzer.server.pushing import PushedController
from analyzer.server.zones import Zones
from netagent.model.path import Layer
from netagent.model.verdict import Incident
from netagent.wire.codec import ContentType


@get(
    "/v1/intent",
    responses={200: gives("What should be."), 403: PROBLEM, 404: PROBLEM},
    tags=["analyzer"],
)
async def intent(
    request: Call,
    source: FromQuery[str | None] = None,
    after: After = None,
    limit: Limit = LIMIT,
) -> Response[bytes]:
    """Return ports and where they were put, in pages; hosts and generations on the first of them.

    `source` names the controller where there are several. `away` says which database cannot be
    read now, and why; what is said of it was read last. Where each host has a controller of its
    own, that is by `zone`, and so are ports and chassis: one of them may be said by two.
    """
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    name, intents = _intents(analyzer, source)
    of = {
        f"{port} {told.zone}".rstrip(): (port, told)
        for told in intents
        for port in told.ports.keys() | told.placements.keys()
    }
    found, last = page(sorted(of), str, after, limit)
    read = analyzer.controller if name == SOURCE else None
    answer = {
        "source": name,
        "wall_ns": max((told.wall_ns for told in intents), default=0),
        "away": read.away if read is not None else intents[0].away,
        "ports": [_port(*of[key]) for key in found],
        "next": last,
    }
    if after is None:
        answer |= {
            "databases": _databases(analyzer, name),
            "chassis": [
                asdict(told.chassis[chassis]) | _zone_of(told)
                for told in intents
                for chassis in sorted(told.chassis)
            ],
        }
        if isinstance(read, Zones):
            answer["zones"] = [
                {"zone": told.zone, "wall_ns": told.wall_ns, "away": told.away,
                 "ladder": told.ladder}
                for told in intents
            ]  # fmt: skip
        else:
            answer["ladder"] = intents[0].ladder
    return as_json(answer)


def _intents(analyzer: Analyzer, source: str | None) -> tuple[str, tuple[Intent, ...]]:
    """Return whose intent is asked for, and it; Problem where it is none, or any of several."""
    known = analyzer.sources()
    if not known:
        remedy = "set [controllers.ovn] or [controllers.pushed.NAME] and start again"
        raise Problem(404, "no controller is known", remedy)
    if source is None and len(known) == 1:
        return next(iter(known.items()))
    if source in known:
        return source, known[source]
    asked = "several are known" if source is None else f"no controller {source!r} is known"
    raise Problem(400 if source is None else 404, asked, f"name one as source: {', '.join(known)}")


def _databases(analyzer: Analyzer, source: str) -> list[dict[str, Any]]:
    if (pushed := analyzer.pushed.get(source)) is not None:
        where = f"{pushed.client or 'anybody'}, version {pushed.version}"
        return [{"name": PART, "remote": where if pushed.version else "", "lacks": ()}]
    return _read_from(analyzer.controller) if analyzer.controller is not None else []


def _zone_of(told: Intent) -> dict[str, str]:
    return {"zone": told.zone} if told.zone else {}


def _port(name: str, told: Intent) -> dict[str, Any]:
    """Return a port and its place; one of them may be missing."""
    port, placed = told.ports.get(name), told.placements.get(name)
    both = {"port": port and asdict(port), "placement": placed and asdict(placed)}
    return {"name": name, **both, **_zone_of(told)}


def _read_from(controller: Controller | Zones) -> list[dict[str, Any]]:
    """Return where each database is read from; of zones, those that lack something."""
    if isinstance(controller, Zones):
        return [
            {"name": each.database, "remote": each.remote, "lacks": each.lacks}
            for each in controller.sources
        ]
    return [
        {
            "name": name,
            "remote": source.remote if source else "",
            "lacks": source.lacks if source else (),
        }
        for name in (NORTHBOUND, SOUTHBOUND)
        for source in (controller.sources.get(name),)
    ]


WHOLE_EXAMPLE = {
    "version": "1042",
    "ports": {
        "train-a-0-net1": {
            "network": "rail0",
            "pod": "ml/train-a-0",
            "container": "train-a-0",
            "macs": ["02:00:00:00:00:0a"],
            "addresses": ["10.0.0.10"],
            "hosts": ["gpu-0417"],
            "allowed": [{"mac": "02:00:00:00:00:0a", "addresses": ["10.0.0.10"]}],
        }
    },
    "placements": {"train-a-0-net1": {"chassis": "gpu-0417", "is_up": True}},
    "chassis": {
        "gpu-0417": {
            "hostname": "gpu-0417",
            "encapsulations": [{"kind": "vxlan", "address": "172.30.1.1"}],
            "installed": 7,
        }
    },
    "ladder": {"asked": 7, "translated": 7},
}
CHANGE_EXAMPLE = {
    "since": "1042",
    "version": "1043",
    "ports": {"train-a-0-net1": None},
    "placements": {"train-a-0-net1": None},
}
TAKEN = {"controller": "acme", "version": "1042", "ports": 1, "placements": 1, "chassis": 1}
_PATH = "/v1/controllers/{controller:str}/intent"
_JSON = (ContentType.JSON,)


@put(
    _PATH,
    operation_class=takes(WholeIntent, WHOLE_EXAMPLE, forms=_JSON),
    responses={
        200: gives("It was taken.", example=TAKEN),
        400: PROBLEM,
        403: PROBLEM,
        404: PROBLEM,
    },
    tags=["controllers"],
)
async def put_intent(controller: FromPath[str], request: Call) -> Response[bytes]:
    """Say all that should be; replaces what was said before."""
    pushed, caller = _pushed(analyzer_of(request), controller), _caller(request)
    pushed.check(caller)
    pushed.put(await body_of(request, _JSON), caller)
    return as_json(_taken(pushed))


@patch(
    _PATH,
    operation_class=takes(IntentChange, CHANGE_EXAMPLE, forms=_JSON),
    responses={
        200: gives("It was taken.", example=TAKEN),
        400: PROBLEM,
        403: PROBLEM,
        404: PROBLEM,
        409: PROBLEM,
    },
    tags=["controllers"],
)
async def patch_intent(controller: FromPath[str], request: Call) -> Response[bytes]:
    """Say what changed since the version that was said last; 409 asks for the whole."""
    pushed, caller = _pushed(analyzer_of(request), controller), _caller(request)
    pushed.check(caller)
    try:
        pushed.patch(await body_of(request, _JSON), caller)
    except LostChange as error:
        raise Problem(409, str(error), "PUT the whole intent") from error
    return as_json(_taken(pushed))


@get(
    _PATH,
    responses={
        200: gives("What is kept.", WholeIntent, WHOLE_EXAMPLE),
        403: PROBLEM,
        404: PROBLEM,
    },
    tags=["controllers"],
)
async def get_intent(controller: FromPath[str], request: Call) -> Response[bytes]:
    """Return what is kept, as it could be put again; whether it still holds says /v1/intent."""
    analyzer = analyzer_of(request)
    pushed = _pushed(analyzer, controller)
    if _caller(request) not in pushed.clients:
        require_reader(request, analyzer.config)
    kept = pushed.kept()
    if kept is None:
        raise Problem(404, f"nothing was pushed by {controller}", "PUT the whole intent")
    return as_json(kept)


def _caller(request: Call) -> str | None:
    caller: str | None = request.scope["state"].get(PEER)
    return caller


def _pushed(analyzer: Analyzer, name: str) -> PushedController:
    if (pushed := analyzer.pushed.get(name)) is None:
        remedy = f"set [controllers.pushed.{name}] and start again"
        raise Problem(404, f"no controller {name!r} is pushed here", remedy)
    return pushed


def _taken(pushed: PushedController) -> dict[str, Any]:
    intent = pushed.intent
    return {
        "controller": pushed.name,
        "version": pushed.version,
        "ports": len(intent.ports),
        "placements": len(intent.placements),
        "chassis": len(intent.chassis),
    }


@get(
    "/v1/intent/{host:str}/difference",
    responses={200: gives("How it differs."), 403: PROBLEM, 404: PROBLEM, 503: PROBLEM},
    tags=["analyzer"],
)
async def intent_difference(request: Call, host: FromPath[str]) -> Response[bytes]:
    """Return how the flows of a host differ from what its controller wants.

    The host dumps its flows for it, twice where they differ. `cannot` says why nothing could be
    compared; `first` is the first of `layers` that differs, as far as is known.
    """
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    if analyzer.comparisons is None:
        raise Problem(
            404, "no controller is read whose flows can be compared", "set [controllers.ovn]"
        )
    if analyzer.registry.agent(host) is None:
        raise Problem(404, f"no host {host!r}", "`netagent-analyzer endpoints` lists those known")
    compared = await analyzer.comparisons.read(host)
    layers = _layers(compared, analyzer.journal.active())
    first = next((each["name"] for each in layers if each["state"] == DIFFERS), None)
    return as_json({"compared": compared, "layers": layers, "first": first})


DIFFERS = "differs"


def _layers(compared: Compared, incidents: Iterable[Incident]) -> list[dict[str, Any]]:
    """Return what is known of each pair of copies, from the intent down to hardware.

    Those below OpenFlow are compared by the host alone: what is known here of them is in incidents.
    """
    states = {"cannot tell": bool(compared.cannot), DIFFERS: compared.differs}
    told = [
        {"id": each.id, "component": str(part)}
        for each in incidents
        if (part := each.verdict.component) is not None
        and part.layer is Layer.OVERLAY
        and part.name.partition("/")[0] == compared.host
    ]
    below = {
        "state": "not compared here",
        "see": f"on {compared.host}: netagent flows layers",
        "incidents": told,
    }
    state = next((name for name, is_so in states.items() if is_so), "agrees")
    return [
        {"name": "intent, OpenFlow", "state": state},
        {"name": "OpenFlow, datapath, hardware", **below},
    ]


ROUTES = (intent, intent_difference, put_intent, patch_intent, get_intent)
