# SPDX-License-Identifier: Apache-2.0
"""Which windows an agent closes whose wall clock jumps: its own loop, over simulated time.

It follows `netagent.agent.windows`: the loop looks at least once a second, a clock that is set
ahead ends the window at once and skips others, and one that is set back sends nothing until it has
caught up, for no window is sent twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netagent.model.window import Window

SLEEP_NS = 1_000_000_000
"""Nanoseconds, at most, between two looks at the clock, as the agent's loop has it."""


@dataclass(frozen=True)
class Closed:
    """A window that is sent."""

    start_ns: int
    """By the host's clock."""
    true_ns: int
    """When it is closed."""
    steps: int
    """Jumps of the clock until then."""


class SteppedClock:
    """The loop of one agent, from an instant at which its clock was right and a window began."""

    def __init__(self, steps: Sequence[tuple[int, int]], start_ns: int, width_ns: int) -> None:
        """Take (instant, nanoseconds) of each jump."""
        self._steps = sorted(steps)
        self._now_ns = start_ns
        self._window = Window(start_ns, width_ns)
        self._sent_ns = start_ns - width_ns

    def wall_ns(self, true_ns: int) -> int:
        """Return what the clock shows at an instant."""
        return true_ns + sum(by for at, by in self._steps if at <= true_ns)

    def until(self, true_ns: int) -> Iterator[Closed]:
        """Yield the windows that are closed until an instant, and go on from there next time."""
        while self._now_ns <= true_ns:
            wall_ns = self.wall_ns(self._now_ns)
            left_ns, width_ns = self._window.end_ns - wall_ns, self._window.width_ns
            if 0 < left_ns <= 2 * width_ns:
                self._now_ns += min(left_ns, SLEEP_NS)
                continue
            if left_ns <= 0 and self._window.start_ns > self._sent_ns:
                self._sent_ns = self._window.start_ns
                count = sum(at <= self._now_ns for at, _ in self._steps)
                yield Closed(self._window.start_ns, self._now_ns, count)
            # A window that is left long before its end was one of a clock that was ahead.
            self._window = Window.covering(wall_ns, width_ns=width_ns)
