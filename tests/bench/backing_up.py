# SPDX-License-Identifier: Apache-2.0
"""What a backup costs while summaries come, against DuckDB's own copy of a database.

Rows of windows are made by SQL; their payloads are not there, for links to them cost nothing. The
longest of many waits grows with their number: what a copy costs those who wait is compared with as
many summaries without one.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import duckdb

from analyzer.store.tables import Store

ROWS = 400_000, 4_000_000
"""Summaries that the database knows: 2 GiB of those of 2,048 RNICs, and ten times as many."""
AT_ONCE = 1_000_000
"""Rows made in one transaction: a larger one exceeds DuckDB's memory."""
HOSTS = 256
REST_S = 0.02
"""Seconds between two summaries that come meanwhile."""
ROUNDS = 5
"""Backups. Chosen: during a single one so few summaries come that the longest wait is chance."""


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
        numbers = count()
        backups, quiet_s = list[_Copy](), list[float]()
        for name in map(str, range(ROUNDS)):
            backups.append(await _copied(store, numbers, store.back_up(name)))
            quiet_s += await _without(store, numbers, len(backups[-1].waits_s))
            await store.drop_old_backups()
        summaries, _ = await store.usage()
        other = await _copied(store, numbers, _other(store, path))
        other_quiet_s = await _without(store, numbers, len(other.waits_s))
    finally:
        await store.close()
    return {
        "summaries": summaries,
        "backups_s": [round(each.took_s, 2) for each in backups],
        "backup_cpu_s": round(sum(each.cpu_s for each in backups) / ROUNDS, 2),
        "puts": len(quiet_s),
        "longest_wait_ms": round(1000 * max(max(each.waits_s) for each in backups)),
        "longest_wait_without_ms": round(1000 * max(quiet_s)),
        "copy_from_database_s": round(other.took_s, 2),
        "copy_from_database_cpu_s": round(other.cpu_s, 2),
        "its_puts": len(other_quiet_s),
        "its_longest_wait_ms": round(1000 * max(other.waits_s)),
        "its_longest_wait_without_ms": round(1000 * max(other_quiet_s)),
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


@dataclass(frozen=True)
class _Copy:
    """What a copy took while summaries came, and how long each of these waited."""

    took_s: float
    cpu_s: float
    """Of this process, the summaries' included."""
    waits_s: list[float]


async def _copied(store: Store, numbers: Iterator[int], work: Awaitable[object]) -> _Copy:
    async def timed() -> float:
        began_s = time.monotonic()
        await work
        return time.monotonic() - began_s

    began_s, waits_s = time.process_time(), list[float]()
    working = asyncio.ensure_future(timed())
    while not working.done():
        waits_s.append(await _put(store, numbers))
        await asyncio.wait([working], timeout=REST_S)
    return _Copy(await working, time.process_time() - began_s, waits_s)


async def _without(store: Store, numbers: Iterator[int], puts: int) -> list[float]:
    waits_s = list[float]()
    for _ in range(puts):
        await asyncio.sleep(REST_S)
        waits_s.append(await _put(store, numbers))
    return waits_s


async def _put(store: Store, numbers: Iterator[int]) -> float:
    """Return how long a summary waited until it was stored, in seconds."""
    number, began_s = next(numbers), time.monotonic()
    await store.put(("other", number, 0), number, b"x" * 6_000)
    return time.monotonic() - began_s


async def _other(store: Store, path: Path) -> None:
    cursor = await store._run(lambda c: c.cursor(), alone=True)
    with cursor:
        cursor.execute("ATTACH ? AS other", [f"{path}.other"])
        await asyncio.to_thread(cursor.execute, "COPY FROM DATABASE a TO other")
        cursor.execute("DETACH other")
