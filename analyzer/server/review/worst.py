# SPDX-License-Identifier: Apache-2.0
"""The route that tells which components lost most, and how much of a time was judged."""

import asyncio
from dataclasses import asdict
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from analyzer.history.ledger import MINUTE_NS
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_admin
from analyzer.store.worst import first_ns as first_of
from analyzer.store.worst import worst as worst_of
from netagent.model.errors import RemoteProtocolError
from netagent.model.path import Kind

MOST_NS = 92 * 86400 * 10**9
"""Most nanoseconds that are looked at for one question. Chosen: a quarter of a year, which is two
thousand files."""

WRITTEN_NS = 240 * 10**9
"""Nanoseconds after which a window is on disk. Chosen: what comes late is waited for some two
minutes, then its minute is written as a whole."""

Ns = Annotated[int, QueryParameter(ge=0, le=2**62, description="Unix nanoseconds.")]


@get(
    "/v1/history/worst",
    responses={200: gives("Components."), 400: PROBLEM, 403: PROBLEM, 503: PROBLEM},
    tags=["incidents"],
)
async def worst(
    request: Call,
    since_ns: Ns,
    until_ns: Ns,
    kind: Annotated[Kind, QueryParameter(description="Of which kind.")] = Kind.LINK,
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="Most of them.")] = 10,
) -> Response[bytes]:
    """Return the components of a kind that lost the largest share of the probes that cross them.

    `windows` of `expected` ones were judged, from `first_ns` on: the beginning of that time, or
    when the first window was judged that is known; and until minutes ago, as far as it is written.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    until_ns = min(until_ns, analyzer.clock())
    if not 0 < until_ns - since_ns <= MOST_NS:
        raise RemoteProtocolError("since_ns is before until_ns, by 92 days at most")
    database = analyzer.config.database
    async with analyzer.reading:
        settled_ns = min(until_ns, analyzer.clock() - WRITTEN_NS)
        settled_ns -= settled_ns % MINUTE_NS  # whole minutes are on disk
        known_ns = await asyncio.to_thread(first_of, database)
        found = await asyncio.to_thread(
            worst_of, database, kind.value, since_ns, until_ns, limit, settled_ns=settled_ns
        )
    first_ns = max(since_ns, settled_ns if known_ns is None else known_ns)
    first_ns += -first_ns % MINUTE_NS
    expected = max(0, settled_ns - first_ns) // (analyzer.config.window_s * 10**9)
    return as_json(
        {
            "kind": kind.value,
            "since_ns": since_ns,
            "until_ns": until_ns,
            "worst": [asdict(each) for each in found.lossy],
            # An hour that is merged is counted whole, and may end after what is settled.
            "windows": min(found.windows, expected),
            "expected": expected,
            "first_ns": first_ns,
            "damaged": found.damaged,
        }
    )


ROUTES = (worst,)
