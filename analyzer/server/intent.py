# SPDX-License-Identifier: Apache-2.0
"""The route that tells what a controller says should be, as far as it is read."""

from dataclasses import asdict
from typing import Any

from litestar import Response, get

from analyzer.intent.model import Intent
from analyzer.intent.ovn import NORTHBOUND, SOUTHBOUND
from analyzer.server.controllers import Controller
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_reader
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.problems import Problem


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
        raise Problem(404, "no controller is read", "set [controllers.ovn] and start again")
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


ROUTES = (intent,)
