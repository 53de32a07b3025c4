# SPDX-License-Identifier: Apache-2.0
"""When the prober runs: at the times that it asks for, and soon after packets arrive.

On a busy host packets may gather before they are read (`netagent.adapters.probes.bell`); on a
quiet one the first packet is answered at once.
"""

import asyncio
from collections import deque
from typing import Protocol

from netagent.adapters.clock import now_ns

QUIET_NS = 10_000_000
"""Nanoseconds without a step after which a host is quiet. Chosen: a quiet host answers at once
instead of gathering packets."""
STALL_NS = 50_000_000
"""Nanoseconds by which a step must end late to be a stall. Chosen: ten times what scheduling alone
costs (decision 22)."""
STALLS_KEPT = 128
"""Stalls kept until their window is closed; the oldest go first. Chosen: it bounds memory, and a
window needs only the longest."""


class Steps(Protocol):
    """What is paced."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when something arrived."""

    @property
    def gather_ns(self) -> int:
        """How long what arrived may wait."""

    def hush(self) -> None:
        """Keep the descriptor quiet until the next step."""

    def step(self) -> int:
        """Do what is due; return when to come again (monotonic ns)."""


class Pace:
    """Steps the prober, from callbacks: a task would cost the loop a second turn per step."""

    def __init__(self, prober: Steps) -> None:
        self._prober = prober
        self._stepped_ns = 0
        self._due_ns = 0
        self._stalls: deque[tuple[int, int]] = deque(maxlen=STALLS_KEPT)
        """How long, and when each ended (monotonic ns)."""
        self._timer: asyncio.TimerHandle | None = None
        self._failed: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Step until cancelled, or until a step raises."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._prober.fileno(), self._arrived)
        self._failed = loop.create_future()
        self._due_ns = now_ns()
        self._step()
        try:
            await self._failed
        finally:
            loop.remove_reader(self._prober.fileno())
            if self._timer is not None:
                self._timer.cancel()

    def take_stalled_ns(self, *, until_ns: int) -> int:
        """Return how long the prober stood still at most since the last call.

        A stall that ended after `until_ns` (monotonic) counts the next time too: its peers count
        what it cost them on both sides of that moment.
        """
        longest = max((stalled for stalled, _ in self._stalls), default=0)
        self._stalls = deque((s for s in self._stalls if s[1] > until_ns), STALLS_KEPT)
        return longest

    def _step(self) -> None:
        self._stepped_ns = now_ns()
        try:
            due_ns = self._prober.step()
        except Exception as error:  # noqa: BLE001 - carried over to `run`, which is supervised
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(error)
            return
        stalled_ns = (ended_ns := now_ns()) - self._due_ns
        if stalled_ns > STALL_NS:
            self._stalls.append((stalled_ns, ended_ns))
        self._step_at(due_ns)

    def _arrived(self) -> None:
        self._prober.hush()
        at_ns = now_ns()
        quiet = at_ns - self._stepped_ns > QUIET_NS
        due_ns = at_ns if quiet else at_ns + self._prober.gather_ns
        if due_ns < self._due_ns:
            self._forget_timer()
            self._due_ns = due_ns
            if due_ns <= at_ns:
                self._step()
            else:
                self._step_at(due_ns)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _step_at(self, due_ns: int) -> None:
        self._forget_timer()
        self._due_ns = due_ns
        after_s = max(0, due_ns - now_ns()) / 1e9
        self._timer = asyncio.get_running_loop().call_later(after_s, self._step)
