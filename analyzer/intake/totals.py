# SPDX-License-Identifier: Apache-2.0
"""What agents report of themselves and their RNICs, added up over all hosts since the start. Pure.

A host says whatever it wants: a number counts up to a bound, and of names there are few.
"""

from collections import Counter

from analyzer.intake.reports import Report

REASONS = ("capped", "delayed", "pending", "send_errors", "unanswered", "bad_frames")
"""Fields of `Health` on probes that are none, or prove less, by the agent's own making."""
MOST_OF_WINDOW = 1 << 32
"""Most that counts of one number in a host's window. Chosen: hosts send far fewer probes."""
MOST_OF_COUNTER = 1 << 40
"""The same of an RNIC's counter. Chosen: bytes by fours, of a minute at 400 Gbit/s."""
MAX_COUNTERS = 128
"""Most names of counters; further ones are one. Chosen: twice what drivers have."""
MAX_NAME = 64
"""Most characters of a name. Chosen: the longest in Linux has 30."""
OTHERS = "(others)"


class Totals:
    """Sums over hosts and windows."""

    def __init__(self) -> None:
        self.probes = dict.fromkeys(("sent", "answered", *REASONS), 0)
        self.counters = Counter[str]()
        """Name of an RNIC's counter -> how much it grew."""
        self.omitted = 0
        """Counters that agents left out, as there were too many."""

    def add(self, report: Report) -> None:
        """Add what a host reports of a window."""
        for name in self.probes:
            self.probes[name] += _within(getattr(report.health, name), MOST_OF_WINDOW)
        self.omitted += _within(report.omitted, MOST_OF_WINDOW)
        for counters in report.counters.values():
            for name, grown in counters.items():
                self.counters[self._known(name)] += _within(grown, MOST_OF_COUNTER)

    def _known(self, name: str) -> str:
        if name in self.counters:
            return name
        is_full = len(self.counters) - (OTHERS in self.counters) >= MAX_COUNTERS - 1
        return OTHERS if is_full or len(name) > MAX_NAME or not name.isidentifier() else name


def _within(number: int, most: int) -> int:
    return min(max(0, number), most)
