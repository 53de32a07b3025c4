# SPDX-License-Identifier: Apache-2.0
"""What a backup costs while summaries come, against DuckDB's own copy of a database.

Rows of windows are made by SQL; their payloads are not there, for links to them cost nothing.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb

from analyzer.store.tables import Store

ROWS = 400_000, 4_000_000
"""Summaries that the database knows: 2 GiB of those of 2,048 RNICs, and ten times as many."""
AT_ONCE = 1_000_000
"""Rows made in one transaction: a larger one exceeds DuckDB's memory."""
HOSTS = 256
REST_S = 0.02
"""Seconds between two summaries that come meanwhile."""

T = TypeVar("T")


def run() -> Iterable[dict[str, object]]:
    """Yield a row for each size."""
    for rows in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.duckdb"
            told = asyncio.run(_measured(path, rows))
            yield {"database_mb": round(path.stat().st_size / 1e6), **told}


async def _measured(path: Path, rows: int) -> dict[str, object]:
    store = Store(str(path))
    try:
        for first in range(0, rows, AT_ONCE):
            await store._run(partial(_make, first=first, count=min(AT_ONCE, rows - first)))
        quiet_s, _ = await _longest(store, 0, asyncio.sleep(2.0))
        backup_s, cpu_s = await _longest(store, 10**6, store.back_up("one"))
        began_s = time.monotonic()
        await store.back_up("two")
        took_s = time.monotonic() - began_s
        summaries, _ = await store.usage()
        other_s, other_cpu_s = await _longest(store, 2 * 10**6, _other(store, path))
    finally:
        await store.close()
    return {
        "summaries": summaries,
        "backup_s": round(took_s, 2),
        "backup_cpu_s": round(cpu_s, 2),
        "longest_wait_ms": round(1000 * backup_s),
        "longest_wait_without_ms": round(1000 * quiet_s),
        "copy_from_database_cpu_s": round(other_cpu_s, 2),
        "its_longest_wait_ms": round(1000 * other_s),
    }


def _make(connection: duckdb.DuckDBPyConnection, first: int, count: int) -> None:
    connection.execute(
        """
        INSERT INTO windows SELECT 'host-' || (i % ?), (i // ?) * 5000000000, 0, i * 20000000,
            1 + i // 5000, (i % 5000) * 6000, 5700 + (hash(i) % 600)::BIGINT
        FROM range(?, ?) t(i)
        """,
        [HOSTS, HOSTS, first, first + count],
    )


async def _longest(store: Store, first: int, work: Awaitable[T]) -> tuple[float, float]:
    """Return how long a summary waited at most until `work` was done, and this process's CPU."""
    began_s, longest_s, n = time.process_time(), 0.0, first
    working = asyncio.ensure_future(work)
    while not working.done():
        before_s = time.monotonic()
        await store.put(("other", n, 0), n, b"x" * 6_000)
        longest_s, n = max(longest_s, time.monotonic() - before_s), n + 1
        await asyncio.wait([working], timeout=REST_S)
    await working
    return longest_s, time.process_time() - began_s


async def _other(store: Store, path: Path) -> None:
    cursor = await store._run(lambda c: c.cursor(), alone=True)
    with cursor:
        cursor.execute("ATTACH ? AS other", [f"{path}.other"])
        await asyncio.to_thread(cursor.execute, "COPY FROM DATABASE a TO other")
        cursor.execute("DETACH other")
