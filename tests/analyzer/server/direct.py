# SPDX-License-Identifier: Apache-2.0
"""A judge without a process: its bench in the test's own event loop, which tests look into."""

import asyncio

from analyzer.judge import messages
from analyzer.judge.bench import Bench
from analyzer.judge.messages import Ready
from analyzer.server.link import LinkClosed


class Direct:
    """A link to a bench; `standing_in` replaces its diagnosis."""

    def __init__(self, clock, standing_in=None):
        self._clock, self._standing_in = clock, standing_in
        self._told, self._said = asyncio.Queue(), asyncio.Queue()
        self.bench, self.sent, self.backlog_bytes = None, [], 0
        self._said.put_nowait(Ready(pid=0))
        self._work = asyncio.create_task(self._judge())

    async def open(self):
        """Be the judge that is started."""
        return self

    @property
    def diagnosis(self):
        """Return the diagnosis of the bench."""
        return self.bench.fed.diagnosis

    async def _judge(self):
        opening, roster = await self._told.get(), await self._told.get()
        for _ in (opening, roster):
            self._told.task_done()
        self.bench = Bench(opening, roster, self._clock, self._say)
        if self._standing_in is not None:
            self.bench.fed.diagnosis = self._standing_in
            self.bench.baselines._diagnosis = self._standing_in
        await self.bench.start()
        try:
            while (message := await self._told.get()) is not None:
                self.bench.take(messages.down(messages.framed(message)[messages.HEAD.size :]))
                self._told.task_done()
        finally:
            await self.bench.stop()
            self._said.put_nowait(None)

    def _say(self, message):
        self._said.put_nowait(messages.up(messages.framed(message)[messages.HEAD.size :]))

    def send(self, message):
        """Give the bench a message."""
        self.sent.append(message)
        self._told.put_nowait(message)

    async def drain(self):
        """Need no time: nothing is bounded here."""

    async def all_taken(self):
        """Wait until the bench has taken what it was given, or broke."""
        taken = asyncio.create_task(self._told.join())
        await asyncio.wait([taken, self._work], return_when=asyncio.FIRST_COMPLETED)
        if self._work.done():
            await self._work

    async def receive(self):
        """Return what the bench says next."""
        said = await self._said.get()
        if said is None:
            raise LinkClosed
        return said

    def kill(self):
        """Let it end as a process does that is killed."""
        self._work.cancel()

    async def close(self):
        """Let it end."""
        self._told.put_nowait(None)
        await asyncio.gather(self._work, return_exceptions=True)
