# SPDX-License-Identifier: Apache-2.0
"""Which windows are complete: watermarks over hosts' summaries. Pure.

A window closes when every expected host has reported it, or GRACE_NS after its end; later while
summaries of it still come in, one after the other, since thousands of them take seconds. A later
one is stored and shows that its host lives, but is not judged. Windows that ended before the
analyzer started are history: it takes their spooled summaries, and they open no incident.
"""

from dataclasses import dataclass, field

from analyzer.intake.flows import WindowRows
from netagent.model.finding import Finding
from netagent.model.window import Window

GRACE_NS = 1_500_000_000
"""Nanoseconds after a window's end until it is judged without missing hosts. Chosen: time for
clocks, delivery and a retry, against a later verdict."""
QUIET_NS = 250_000_000
"""Nanoseconds without a summary of a window after which its burst is over. Chosen: a process that
receives is hardly ever away for as long."""
MOST_NS = 4_000_000_000
"""Nanoseconds after a window's end until it is judged, whatever still comes in. Chosen: less than
the next window takes."""
KEPT = 24
"""Closed windows remembered. Chosen: two minutes of default windows, so that what comes late finds
its window."""
AHEAD_NS = 60_000_000_000
"""Nanoseconds in the future from which a window is refused. Chosen: hosts' clocks differ by less,
and a clock that is wrong must not close all earlier windows."""


@dataclass(slots=True)
class WindowState:
    """The summaries of one window so far."""

    window: Window
    rows: dict[str, WindowRows] = field(default_factory=dict)
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    stalled_ms: dict[str, int] = field(default_factory=dict)
    """Host -> milliseconds that its agent stood still at most."""
    came_ns: int = 0
    """When the newest summary came."""

    @property
    def overdue_ns(self) -> int:
        """Return when it is judged without those that are missing."""
        burst_ns = min(self.came_ns + QUIET_NS, self.window.end_ns + MOST_NS)
        return max(self.window.end_ns + GRACE_NS, burst_ns)


class Watermarks:
    """Collects summaries by window until each can be closed."""

    _gone_ns = 0
    """Start before which windows have no rows any more."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._open: dict[int, WindowState] = {}
        self._closed: dict[int, WindowState] = {}
        self.late = 0
        """Number of summaries that came after their window was closed."""
        self.ahead = 0
        """Number of summaries refused because their host's clock is far ahead."""

    def begin(self, *, now_ns: int) -> list[WindowState]:
        """Judge only windows that end after `now_ns`; return the earlier ones, which are history.

        They are in order, and may be incomplete.
        """
        self._began_ns = now_ns
        states = (self._open[start] for start in sorted(self._open))
        return [state for state in states if state.window.end_ns <= now_ns]

    def add(
        self,
        rows: WindowRows,
        findings: tuple[Finding, ...],
        *,
        now_ns: int,
        stalled_ms: int = 0,
    ) -> None:
        """Take one host's window."""
        start = rows.window.start_ns
        if start > now_ns + AHEAD_NS:
            self.ahead += 1
            return
        state = self._closed.get(start) or self._open.get(start)
        if state is None and start <= max(self._closed, default=-1):
            self.late += 1
            return
        if state is None:
            state = self._open[start] = WindowState(rows.window)
        self.late += start in self._closed
        if start < self._gone_ns:
            return
        if rows.host not in state.rows:
            state.came_ns = max(state.came_ns, now_ns)
        state.rows[rows.host] = rows
        state.findings[rows.host] = findings
        state.stalled_ms[rows.host] = stalled_ms

    def may_close(self, width_ns: int, *, now_ns: int) -> bool:
        """Return whether a window ended that is not closed, or that nobody reported so far."""
        newest = max((*self._closed, *self._open), default=-1)
        if Window.covering(now_ns - width_ns, width_ns=width_ns).start_ns > newest:
            return True
        return any(state.window.end_ns <= now_ns for state in self._open.values())

    def close(self, expected: set[str], *, now_ns: int) -> list[WindowState]:
        """Return the windows that are complete or overdue, in order; each is returned once."""
        closed: list[WindowState] = []
        for start in sorted(self._open):
            state = self._open[start]
            overdue = now_ns >= state.overdue_ns
            ended = now_ns >= state.window.end_ns
            if not (overdue or (ended and expected <= state.rows.keys())):
                break
            closed.append(self._open.pop(start))
            self._closed[start] = state
        while len(self._closed) > KEPT:
            self._closed.pop(min(self._closed))
        return [s for s in closed if s.window.end_ns > self._began_ns]

    def let_go(self, before_ns: int) -> None:
        """Drop the rows of windows that began before: nobody asks for them any more.

        Of 40,000 RNICs those of two minutes are gigabytes.
        """
        self._gone_ns = before_ns
        for start, state in self._closed.items():
            if start < before_ns:
                state.rows, state.findings = {}, {}

    def ensure(self, width_ns: int, *, now_ns: int) -> None:
        """Open the window that just ended although nobody reported it: all may be silent."""
        window = Window.covering(now_ns - width_ns, width_ns=width_ns)
        newest = max((*self._closed, *self._open), default=-1)
        if window.start_ns > newest:
            self._open[window.start_ns] = WindowState(window)

    def set_back(self, *, now_ns: int) -> None:
        """Forget what was opened and closed of a future that only a wrong clock had seen."""
        self._began_ns = min(self._began_ns, now_ns)
        self._gone_ns = min(self._gone_ns, now_ns)
        for windows in (self._open, self._closed):
            for start in [start for start in windows if start > now_ns]:
                del windows[start]

    def overdue_ns(self, width_ns: int) -> int | None:
        """Return when the oldest open window closes at the latest; None before the first window.

        Where no window is open, return it for the window after the newest closed one.
        """
        if self._open:
            return min(self._open.values(), key=lambda s: s.window.start_ns).overdue_ns
        newest = max(self._closed, default=None)
        return None if newest is None else newest + 2 * width_ns + GRACE_NS

    def recent(self, count: int) -> list[WindowState]:
        """Return the newest closed windows, newest first."""
        return [self._closed[start] for start in sorted(self._closed, reverse=True)[:count]]
