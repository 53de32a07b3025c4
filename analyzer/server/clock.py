# SPDX-License-Identifier: Apache-2.0
"""The analyzer's clock: that of the wall, unless somebody sets it and the hosts do not go along.

Windows follow the hosts' wall clocks. An analyzer whose own one is set by minutes would wait for
windows that end in the future, or take all that come for late. So where the wall jumps against the
monotonic clock, time goes on as before, and the hosts decide by when their windows come.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

STEP_NS = 1_000_000_000
"""Nanoseconds from which the wall clock was set; by less it is followed. Chosen: what corrects a
clock slowly stays below, and windows have as much grace."""
EARLY_NS = 1_000_000_000
"""Nanoseconds by which a window may come before its end. Chosen: hosts' clocks differ by less."""
LATE_NS = 15_000_000_000
"""Nanoseconds after its end in which a window comes in time. Chosen: a refused delivery is tried
again within ten, and a disk may be slow."""
RECENT_NS = 30_000_000_000
"""Nanoseconds for which a host's newest window counts. Chosen: six windows."""
HOLD_NS = 10_000_000_000
"""Nanoseconds for which most hosts must go by the wall before it is followed. Chosen: two windows;
who delivers what is old goes by it for a moment."""
ALONE_NS = 60_000_000_000
"""Nanoseconds after which it is followed where no host is heard. Chosen: then nobody knows better,
and clocks are set at boot."""

Clock = Callable[[], int]
"""Nanoseconds."""


@dataclass(frozen=True, slots=True)
class _Heard:
    ahead_ns: int
    """By how much the end of its window is ahead of the monotonic clock."""
    at_ns: int
    """When it came, by the monotonic clock."""


class Steady:
    """Unix time in nanoseconds. Reads two clocks, and does nothing else."""

    def __init__(self, wall: Clock = time.time_ns, steady: Clock | None = None) -> None:
        """Begin with the wall; `steady` is a clock that nobody sets."""
        self._wall = wall
        self._steady = steady or (lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self._ahead_ns = wall() - self._steady()
        self._heard: dict[str, _Heard] = {}
        self._set_ns: int | None = None
        """When the wall was first seen to be set; None while it is followed."""
        self._backed_ns: int | None = None
        """Since when most hosts go by it."""

    def __call__(self) -> int:
        """Return the time."""
        steady_ns = self._steady()
        off_ns = self._wall() - steady_ns - self._ahead_ns
        if abs(off_ns) < STEP_NS:
            self._ahead_ns += off_ns
        return steady_ns + self._ahead_ns

    @property
    def off_ns(self) -> int:
        """Return by how much the wall clock is ahead; 0 while it is followed."""
        off_ns = self._wall() - self._steady() - self._ahead_ns
        return off_ns if abs(off_ns) >= STEP_NS else 0

    def heard(self, host: str, end_ns: int) -> None:
        """Note that a host delivered its window that ends then, by its own clock."""
        now_ns = self._steady()
        self._heard[host] = _Heard(end_ns - now_ns, now_ns)

    def look(self) -> int:
        """Follow the wall where most hosts do; return by how much that sets this clock, mostly 0.

        To be called about once a second.
        """
        off_ns, now_ns = self.off_ns, self._steady()
        recent = {h: each for h, each in self._heard.items() if now_ns - each.at_ns < RECENT_NS}
        self._heard = recent
        if not off_ns:
            self._set_ns = self._backed_ns = None
            return 0
        self._set_ns = now_ns if self._set_ns is None else self._set_ns
        ours, walls = self._backers(0), self._backers(off_ns)
        if not recent:
            is_due = now_ns - self._set_ns >= ALONE_NS
        elif 2 * walls <= len(recent) or walls <= ours:
            self._backed_ns, is_due = None, False
        else:
            self._backed_ns = now_ns if self._backed_ns is None else self._backed_ns
            is_due = now_ns - self._backed_ns >= HOLD_NS
        if not is_due:
            return 0
        self._ahead_ns += off_ns
        self._set_ns = self._backed_ns = None
        return off_ns

    def _backers(self, off_ns: int) -> int:
        """Return how many hosts deliver in time by a clock that is so much ahead of this one."""
        at_ns = self._ahead_ns + off_ns
        late_ns = (at_ns - each.ahead_ns for each in self._heard.values())
        return sum(-EARLY_NS <= each <= LATE_NS for each in late_ns)
