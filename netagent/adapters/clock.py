# SPDX-License-Identifier: Apache-2.0
"""The two clocks, and whether the wall clock was set."""

import time

STEP_NS = 50_000_000
"""Nanoseconds by which the wall clock must leave the monotonic clock between two looks to count as
set. Chosen: adjtime slews by 500 us per second, which is 30 ms in the minute between two looks."""


# Plain names: a stamp should not wait for another call of Python.

wall_ns = time.time_ns
"""Return nanoseconds since the Unix epoch."""

now_ns = time.monotonic_ns
"""Return nanoseconds of CLOCK_MONOTONIC, which is never set."""


class StepDetector:
    """Compares the clocks between two looks. Reads neither itself."""

    def __init__(self) -> None:
        self._offset_ns: int | None = None
        self.steps = 0
        """Steps seen since the start."""

    def observe(self, *, wall_ns: int, now_ns: int) -> int:
        """Return by how many nanoseconds the wall clock was set since the last call; 0 if not."""
        offset_ns = wall_ns - now_ns
        previous_ns, self._offset_ns = self._offset_ns, offset_ns
        if previous_ns is None or abs(offset_ns - previous_ns) <= STEP_NS:
            return 0
        self.steps += 1
        return offset_ns - previous_ns
