# SPDX-License-Identifier: Apache-2.0
"""Databases with something in them, and backups of them, for tests."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from analyzer.store.tables import Store

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
            await store.put("h0", n, n, body)

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
