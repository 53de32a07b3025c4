# SPDX-License-Identifier: Apache-2.0
"""The routes that tell what a controller says should be, and how a host differs from that."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from litestar import Response, get
from litestar.params import FromPath

from analyzer.intent.model import Intent
from analyzer.intent.ovn import NORTHBOUND, SOUTHBOUND
from analyzer.server.comparing import Compared
from analyzer.server.controllers import Controller
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_reader
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.problems import Problem
from netagent.model.path import Layer
from netagent.model.verdict import Incident


@get(
    "/v1/intent",
    responses={200: gives("What should be."), 403: PROBLEM, 404: PROBLEM},
    tags=["analyzer"],
)
async def intent(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return ports and where they were put, in pages; hosts and generations on the first of them.

    `away` says which database cannot be read now, and why; what is said of it was read last.
    """
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    controller = analyzer.controller
    if controller is None:
        raise _none_is_read()
    told = controller.intent
    found, last = page(sorted(told.ports.keys() | told.placements.keys()), str, after, limit)
    answer = {
        "source": told.source,
        "wall_ns": told.wall_ns,
        "away": told.away,
        "ports": [_port(name, told) for name in found],
        "next": last,
    }
    if after is None:
        answer |= {
            "ladder": told.ladder,
            "databases": _databases(controller),
            "chassis": [told.chassis[name] for name in sorted(told.chassis)],
        }
    return as_json(answer)


def _port(name: str, told: Intent) -> dict[str, Any]:
    """Return a port and its place; one of them may be missing."""
    port, placed = told.ports.get(name), told.placements.get(name)
    return {"name": name, "port": port and asdict(port), "placement": placed and asdict(placed)}


def _databases(controller: Controller) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "remote": source.remote if source else "",
            "lacks": source.lacks if source else (),
        }
        for name in (NORTHBOUND, SOUTHBOUND)
        for source in (controller.sources.get(name),)
    ]


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
        raise _none_is_read()
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


def _none_is_read() -> Problem:
    return Problem(404, "no controller is read", "set [controllers.ovn] and start again")


ROUTES = (intent, intent_difference)
