# SPDX-License-Identifier: Apache-2.0
"""Databases with something in them, and backups of them, for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from analyzer.config import History
from analyzer.history.files import HISTORY
from analyzer.store.tables import Store
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block

T = TypeVar("T")


def using(path: Path, work: Callable[[Store], Awaitable[T]]) -> T:
    """Run `work(store)` on the database at `path`, which is closed afterwards."""

    async def inside() -> T:
        store = Store(str(path))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def filled(path: Path, *summaries: bytes) -> None:
    """Store summaries of the host `h0` in the database at `path`."""

    async def work(store: Store) -> None:
        for n, body in enumerate(summaries):
            await store.put(("h0", n, 0), n, body)

    using(path, work)


def held(path: Path) -> list[bytes]:
    """Return the summaries that a database has."""

    async def work(store: Store) -> list[bytes]:
        return [body async for _, body in store.replay(0)]

    return using(path, work)


def made(path: Path) -> Path:
    """Return a backup of a database at `path`, with three summaries."""
    filled(path, b"one", b"two", b"three")
    return using(path, lambda store: store.back_up("one"))[0]


def remembered(path: Path, starts: Sequence[int]) -> dict[str, bytes]:
    """Write minutes of history beside the database at `path`; return all of it."""
    tiers = Tiers(str(path), History())
    tiers.begin(max(starts) + MINUTE_NS)
    for start_ns in starts:
        tiers.put(block(start_ns))
    return history(path)


def history(path: Path) -> dict[str, bytes]:
    """Return the files of the history beside a database, by name."""
    folder = path.with_name(path.name + HISTORY)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
