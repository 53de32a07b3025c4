# SPDX-License-Identifier: Apache-2.0
"""The route that tells what a controller says should be, as far as it is read."""

from dataclasses import asdict
from typing import Any

from litestar import Response, get

from analyzer.intent.model import Intent
from analyzer.intent.ovn import NORTHBOUND, SOURCE, SOUTHBOUND
from analyzer.server.controllers import Controller
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_reader
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.problems import Problem
from analyzer.server.zones import Zones


@get(
    "/v1/intent",
    responses={200: gives("What should be."), 403: PROBLEM, 404: PROBLEM},
    tags=["analyzer"],
)
async def intent(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return ports and where they were put, in pages; hosts and generations on the first of them.

    `away` says which database cannot be read now, and why; what is said of it was read last. Where
    each host has a controller of its own, that is by `zone`, and so are ports and chassis: one of
    them may be said by two.
    """
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    controller = analyzer.controller
    if controller is None:
        raise Problem(404, "no controller is read", "set [controllers.ovn] and start again")
    intents = controller.intents
    of = {
        f"{name} {told.zone}".rstrip(): (name, told)
        for told in intents
        for name in told.ports.keys() | told.placements.keys()
    }
    found, last = page(sorted(of), str, after, limit)
    answer = {
        "source": next((told.source for told in intents), SOURCE),
        "wall_ns": max((told.wall_ns for told in intents), default=0),
        "away": controller.away,
        "ports": [_port(*of[key]) for key in found],
        "next": last,
    }
    if after is None:
        answer |= {
            "databases": _databases(controller),
            "chassis": [
                asdict(told.chassis[name]) | _zone_of(told)
                for told in intents
                for name in sorted(told.chassis)
            ],
        }
        if isinstance(controller, Zones):
            answer["zones"] = [
                {"zone": told.zone, "wall_ns": told.wall_ns, "away": told.away,
                 "ladder": told.ladder}
                for told in intents
            ]  # fmt: skip
        else:
            answer["ladder"] = controller.intent.ladder
    return as_json(answer)


def _zone_of(told: Intent) -> dict[str, str]:
    return {"zone": told.zone} if told.zone else {}


def _port(name: str, told: Intent) -> dict[str, Any]:
    """Return a port and its place; one of them may be missing."""
    port, placed = told.ports.get(name), told.placements.get(name)
    both = {"port": port and asdict(port), "placement": placed and asdict(placed)}
    return {"name": name, **both, **_zone_of(told)}


def _databases(controller: Controller | Zones) -> list[dict[str, Any]]:
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


ROUTES = (intent,)
