# SPDX-License-Identifier: Apache-2.0
"""The routes by which `netagent-analyzer export` fetches files of history, and stored windows."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path, PurePath

from litestar import Response, get
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from analyzer.history.files import HISTORY, Piece, Tier
from analyzer.replay.frames import frame
from analyzer.server.documents import PROBLEM, gives
from analyzer.server.http import Call, analyzer_of, as_json
from analyzer.server.identity import require_admin
from analyzer.server.pages import LIMIT, After, Limit
from analyzer.server.pages import page as paged
from analyzer.server.problems import Problem
from analyzer.store.listing import pieces_between, whole_pieces
from netagent.model.errors import RemoteProtocolError


@get(
    "/v1/history/files",
    responses={200: gives("Files, in the order of their names."), 400: PROBLEM, 403: PROBLEM},
    tags=["incidents"],
)
async def files(
    request: Call,
    since_ns: FromQuery[int],
    until_ns: FromQuery[int],
    tier: FromQuery[str] = Tier.MINUTE.value,
    after: After = None,
    limit: Limit = LIMIT,
) -> Response[bytes]:
    """Return the files of a tier with what lies between two instants (Unix nanoseconds).

    Minutes of an hour that is over, or hours of a day, are in one file, which has all of them.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    if tier not in {*Tier}:
        raise Problem(400, f"{tier!r} is no tier", f"use {' or '.join(Tier)}")
    _check(since_ns, until_ns)
    folder = Path(analyzer.config.database + HISTORY)
    found = await asyncio.to_thread(
        lambda: whole_pieces([*pieces_between(folder, Tier(tier), since_ns, until_ns)])[0]
    )
    told, last = paged(sorted(str(each.path) for each in found), str, after, limit)
    return as_json({"files": told, "next": last})


@get(
    "/v1/history/files/{tier:str}/{day:str}/{name:str}",
    responses={403: PROBLEM, 404: PROBLEM},
    tags=["incidents"],
)
async def file(
    request: Call, tier: FromPath[str], day: FromPath[str], name: FromPath[str]
) -> Response[bytes]:
    """Return one file, as Parquet."""
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    piece = Piece.of(PurePath(tier, day, name))
    path = None if piece is None else Path(analyzer.config.database + HISTORY) / piece.path
    try:
        body = b"" if path is None else await asyncio.to_thread(path.read_bytes)
    except FileNotFoundError:
        body = b""
    if not body:
        raise Problem(404, f"no file {tier}/{day}/{name}", "GET /v1/history/files lists them")
    return Response(body, media_type="application/vnd.apache.parquet")


@get("/v1/history/windows", responses={400: PROBLEM, 403: PROBLEM}, tags=["incidents"])
async def windows(request: Call, since_ns: FromQuery[int], until_ns: FromQuery[int]) -> Stream:
    """Return stored summaries of windows that begin between two instants, oldest first.

    Each is msgpack, maybe deflated, in a frame as recordings have them.
    """
    analyzer = analyzer_of(request)
    require_admin(request, analyzer.config.admins)
    _check(since_ns, until_ns)
    store = analyzer.store
    hosts = [host for host, _, _ in await store.heard(0)]

    async def frames() -> AsyncIterator[bytes]:
        async for payloads in store.of_hosts(hosts, since_ns, until_ns - 1):
            for payload in payloads:
                yield frame(payload)

    return Stream(frames(), media_type="application/octet-stream")


ROUTES = (files, file, windows)


def _check(since_ns: int, until_ns: int) -> None:
    if not 0 <= since_ns < until_ns < 1 << 63:
        raise RemoteProtocolError("since_ns is not before until_ns")
