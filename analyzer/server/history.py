# SPDX-License-Identifier: Apache-2.0
"""The route that tells of minutes and hours that are past."""

import asyncio
from typing import Annotated

from litestar import Response, get
from litestar.params import FromQuery, QueryParameter

from analyzer.history.files import Tier
from analyzer.server.analyzer import Analyzer
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_admin
from analyzer.server.pages import LIMIT, After, Limit
from analyzer.server.problems import Problem
from analyzer.store.past import Place, Wanted, page
from analyzer.store.together import together
from netagent.model.errors import RemoteProtocolError

DEFAULT_NS = 3600 * 10**9
"""Nanoseconds that are told of where nobody says since when. Chosen: an hour is sixty lines."""

Of = Annotated[str | None, QueryParameter(description="KIND NAME, as incidents name it.")]
End = Annotated[str | None, QueryParameter(description="CONTAINER/railN.")]
Ns = FromQuery[int | None]


@get(
    "/v1/history",
    responses={200: gives("Rows in the order of time."), 400: PROBLEM, 403: PROBLEM, 503: PROBLEM},
    tags=["incidents"],
)
async def history(
    request: Call,
    component: Of = None,
    source: End = None,
    target: End = None,
    endpoint: End = None,
    since_ns: Ns = None,
    until_ns: Ns = None,
    tier: FromQuery[str] = Tier.MINUTE.value,
    after: After = None,
    limit: Limit = LIMIT,
) -> Response[bytes]:
    """Return what a component, or pairs of endpoints, lost, and how long their round trips took.

    One row for each minute, or hour; `windows` says how many windows of it were judged. Quantiles
    (`rtt_p50_ns` and others) are null where they are not known. Without
    `since_ns` and `until_ns` (Unix nanoseconds), the last hour.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    given = {"component": component, "source": source, "target": target, "endpoint": endpoint}
    wanted = _wanted(analyzer, given, since_ns, until_ns, tier)
    begin = _place(after)
    async with analyzer.reading:
        found = await asyncio.to_thread(page, analyzer.config.database, wanted, begin, limit)
    return as_json(
        {
            "tier": wanted.tier.value,
            "width_ns": wanted.tier.width_ns,
            "since_ns": wanted.since_ns,
            "until_ns": wanted.until_ns,
            "rows": found.rows,
            "damaged": found.damaged,
            "next": str(found.following) if found.following else None,
        }
    )


@get(
    "/v1/history/together",
    responses={200: gives("Rows in the order of time."), 400: PROBLEM, 403: PROBLEM, 503: PROBLEM},
    tags=["incidents"],
)
async def as_one(
    request: Call,
    source: End = None,
    target: End = None,
    endpoint: End = None,
    since_ns: Ns = None,
    until_ns: Ns = None,
    tier: FromQuery[str] = Tier.MINUTE.value,
) -> Response[bytes]:
    """Return what many pairs lost together, and how long their round trips took.

    One row for each minute, or hour. Quantiles are of all round trips of all these pairs; null
    where that is not known of some, or not any more: of minutes for a day.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    given = {"component": None, "source": source, "target": target, "endpoint": endpoint}
    wanted = _wanted(analyzer, given, since_ns, until_ns, tier)
    async with analyzer.reading:
        rows = await asyncio.to_thread(together, analyzer.config.database, wanted)
    return as_json({"tier": wanted.tier.value, "rows": [each._asdict() for each in rows]})


@get("/v1/history/counts", responses={403: PROBLEM}, tags=["incidents"])
async def counts(request: Call) -> Response[bytes]:
    """Return what became of minutes since the judge started.

    `minutes_lost` were not written, `late` counts what hosts delivered after its minute was.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    return as_json(await analyzer.judge.look("history", dict[str, int]))


ROUTES = (history, as_one, counts)


def _wanted(
    analyzer: Analyzer,
    given: dict[str, str | None],
    since_ns: int | None,
    until_ns: int | None,
    tier: str,
) -> Wanted:
    if tier not in {*Tier}:
        raise Problem(400, f"{tier!r} is no tier", f"use {' or '.join(Tier)}")
    kinds = {"pair" if name in {"source", "target"} else name for name, v in given.items() if v}
    if len(kinds) != 1:
        raise Problem(
            400,
            "what is asked for is not one thing",
            "name a component, or an endpoint, or source and target or one of them",
        )
    now_ns = analyzer.clock()
    until_ns = now_ns if until_ns is None else min(until_ns, now_ns)
    since_ns = until_ns - DEFAULT_NS if since_ns is None else since_ns
    if not 0 <= since_ns < until_ns:
        raise RemoteProtocolError("since_ns is not before until_ns")
    return Wanted(Tier(tier), since_ns, until_ns, **given)


def _place(after: str | None) -> Place | None:
    if after is None:
        return None
    try:
        return Place.parse(after)
    except ValueError as error:
        raise Problem(400, str(error), "give `next` of the page before as it is") from error
