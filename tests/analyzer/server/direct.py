# SPDX-License-Identifier: Apache-2.0
"""A judge without a process: its bench in the test's own event loop, which tests look into."""

import asyncio
from collections.abc import Callable
from typing import Any

from analyzer.judge import messages
from analyzer.judge.bench import Bench
from analyzer.judge.messages import HEAD, Down, Open, Ready, Up
from analyzer.replay.records import Roster
from analyzer.server.link import LinkClosed


class Direct:
    """A link to a bench; `standing_in` replaces its diagnosis."""

    backlog_bytes = 0

    def __init__(self, clock: Callable[[], int], standing_in: Any = None) -> None:
        self._clock, self._standing_in = clock, standing_in
        self._told: asyncio.Queue[Down | None] = asyncio.Queue()
        self._said: asyncio.Queue[Up | None] = asyncio.Queue()
        self._bench: Bench | None = None
        self._say(Ready(pid=0))
        self._work = asyncio.create_task(self._judge())

    async def open(self) -> "Direct":
        """Be the judge that is started."""
        return self

    @property
    def bench(self) -> Bench:
        """Return the bench, once all that it is told first was taken."""
        assert self._bench is not None
        return self._bench

    @property
    def diagnosis(self) -> Any:
        """Return the diagnosis of the bench."""
        return self.bench.fed.diagnosis

    async def _judge(self) -> None:
        opening, roster = await self._next(), await self._next()
        assert isinstance(opening, Open)
        assert isinstance(roster, Roster)
        self._bench = bench = Bench(opening, roster, self._clock, self._say)
        if self._standing_in is not None:
            bench.fed.diagnosis = self._standing_in
            bench.baselines._diagnosis = bench.routes._diagnosis = self._standing_in
        await bench.start()
        try:
            while (message := await self._told.get()) is not None:
                bench.take(message)
                self._told.task_done()
        finally:
            await bench.stop()
            self._said.put_nowait(None)

    async def _next(self) -> Down | None:
        message = await self._told.get()
        self._told.task_done()
        return message

    def _say(self, message: Up) -> None:
        self._said.put_nowait(messages.up(messages.framed(message)[HEAD.size :]))

    def send(self, frame: bytes) -> None:
        """Give the bench a message."""
        self._told.put_nowait(messages.down(frame[HEAD.size :]))

    async def drain(self) -> None:
        """Need no time: nothing is bounded here."""

    async def all_taken(self) -> None:
        """Wait until the bench has taken what it was given, or broke."""
        taken = asyncio.create_task(self._told.join())
        await asyncio.wait([taken, self._work], return_when=asyncio.FIRST_COMPLETED)
        if self._work.done():
            await self._work

    async def receive(self) -> Up:
        """Return what the bench says next."""
        said = await self._said.get()
        if said is None:
            raise LinkClosed
        return said

    async def close(self) -> None:
        """Let it end."""
        self._told.put_nowait(None)
        await asyncio.gather(self._work, return_exceptions=True)
