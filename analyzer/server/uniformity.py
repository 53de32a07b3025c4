# SPDX-License-Identifier: Apache-2.0
"""The route that tells what RNICs and hosts have, and what of it stands beside an incident."""

from litestar import Response, get

from analyzer.roster.uniformity import Compared
from analyzer.server import views
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_reader
from analyzer.server.pages import LIMIT, After, Limit, page
from analyzer.server.sight import Sight
from netagent.model.verdict import Incident, IncidentState


@get(
    "/v1/uniformity",
    responses={200: gives("Properties, by kind and model."), 403: PROBLEM},
    tags=["analyzer"],
)
async def uniformity(request: Call, after: After = None, limit: Limit = LIMIT) -> Response[bytes]:
    """Return what RNICs and hosts have that most of their kind have not.

    `hosts` counts those of the `agents` that say what they have: older ones do not, and those that
    have been silent for an hour are left out.
    """
    analyzer = analyzer_of(request)
    require_reader(request, analyzer.config)
    found, last = page(analyzer.uniformity.compared(), _aspect, after, limit)
    return as_json(
        {
            "hosts": analyzer.uniformity.hosts,
            "agents": len(analyzer.registry.agents()),
            "properties": [views.compared(each) for each in found],
            "next": _aspect(last) if last else None,
        }
    )


ROUTES = (uniformity,)


def remarks(analyzer: Analyzer, sees: Sight, known: Incident) -> tuple[str, ...]:
    """Return what an incident's component has now that most of its kind have not.

    What it had when an incident that is over began, nobody knows; tenants are told of no hosts.
    """
    component = known.verdict.component
    if component is None or known.state is IncidentState.RECOVERED or not sees.is_whole:
        return ()
    return analyzer.uniformity.remarks(component)


def _aspect(of: Compared) -> str:
    return "\t".join(of.aspect)  # less than whatever a name holds: in the order of aspects
