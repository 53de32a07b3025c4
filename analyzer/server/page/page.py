# SPDX-License-Identifier: Apache-2.0
"""What the page holds beside the analyzer's own parts."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.roster.coverage import Uncovered
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.looks import Looks
from analyzer.server.page.series import Series
from analyzer.server.page.streams import Streams
from analyzer.server.unprobed import coverage_of
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding

COVERED_S = 60.0
"""Seconds between two looks for endpoints that nobody probes. Chosen: of 40,000 RNICs one takes the
loop more than a second."""
FRESH_S = 5.0
"""Seconds for which hosts' findings are not asked for again. Chosen: a window."""


@dataclass(slots=True)
class Page:
    """One analyzer, and who looks at it."""

    analyzer: Analyzer
    clock_s: Callable[[], float] = time.monotonic
    streams: Streams = field(default_factory=Streams)
    looks: Looks = field(init=False)
    series: Series = field(init=False)
    _findings: tuple[float, list[Finding]] = (float("-inf"), [])
    _covered_s: float = float("-inf")
    _uncovered: tuple[Uncovered, ...] = ()

    def __post_init__(self) -> None:
        self.looks = Looks(self.analyzer.judge, self.clock_s)
        self.series = Series(self.analyzer, self.clock_s)

    def uncovered(self) -> tuple[Uncovered, ...]:
        """Return the endpoints that nobody probes, as of the newest minute."""
        now_s = self.clock_s()
        if now_s >= self._covered_s + COVERED_S:
            self._covered_s = now_s
            self._uncovered = tuple(coverage_of(self.analyzer).uncovered())
        return self._uncovered

    async def findings(self) -> list[Finding]:
        """Return what hosts state, as of the newest seconds; nothing while the judge is away."""
        now_s = self.clock_s()
        if now_s >= self._findings[0] + FRESH_S:
            try:
                found = await self.analyzer.judge.look("findings", list[Finding])
            except CapabilityMissing:
                return []
            self._findings = now_s, found
        return self._findings[1]
