# SPDX-License-Identifier: Apache-2.0
"""What the page asks of the judge: the same question once, however many browsers put it.

The judge decides what is wrong meanwhile, so one question is put at a time, and an answer stands
for a while: a window lasts seconds.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from analyzer.picture.asked import Question

FRESH_S = 1.0
"""Seconds for which an answer stands. Chosen: less than a window, so that no window is missed."""
MAX_KEPT = 64
"""Most answers kept. Chosen: each is 500 KB at most."""

Plain = dict[str, Any]


class Painter(Protocol):
    """`analyzer.server.judge.Judge` in production."""

    async def draw(self, asked: Question) -> Plain:
        """Return what the newest window shows. Raises CapabilityMissing."""


class Looks:
    """Questions under way, and answers that stand."""

    def __init__(self, judge: Painter, clock_s: Callable[[], float]) -> None:
        self._judge, self._clock_s = judge, clock_s
        self._known: dict[Question, tuple[float, asyncio.Task[Plain]]] = {}
        self._one = asyncio.Lock()

    async def at(self, asked: Question) -> Plain:
        """Return what the newest window shows. Raises CapabilityMissing."""
        now_s = self._clock_s()
        self._known = {
            key: each
            for key, each in self._known.items()
            if not each[1].done() or now_s < each[0] + FRESH_S
        }
        if asked not in self._known:
            while len(self._known) >= MAX_KEPT:
                del self._known[next(iter(self._known))]
            self._known[asked] = now_s, asyncio.create_task(self._ask(asked))
        # Who hangs up takes the answer from nobody else.
        return await asyncio.shield(self._known[asked][1])

    async def _ask(self, asked: Question) -> Plain:
        async with self._one:
            return await self._judge.draw(asked)
