# SPDX-License-Identifier: Apache-2.0
"""Long work in the loop, piece by piece: between two of them everybody else is served."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_pieces(work: Generator[None, None, T]) -> T:
    """Return what `work` returns; wherever it yields, the loop turns once."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: T = ended.value
            return found
        await asyncio.sleep(0)
