# SPDX-License-Identifier: Apache-2.0
"""What the page holds beside the analyzer's own parts."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.roster.coverage import Uncovered
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.looks import Looks
from analyzer.server.page.series import Series
from analyzer.server.page.streams import Streams
from analyzer.server.pieces import in_pieces
from analyzer.server.unprobed import coverage_of
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding

COVERED_S = 60.0
"""Seconds between two looks for endpoints that nobody probes. Chosen: of 40,000 RNICs one takes a
while, in pieces."""
PATIENCE_S = 0.1
"""Seconds that an answer waits for such a look. Chosen: a small cluster's is done; who asks of a
large one has the look before, and an answer within 0.3 s."""
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
    _uncovered: tuple[Uncovered, ...] | None = None
    _looking: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.looks = Looks(self.analyzer.judge, self.clock_s)
        self.series = Series(self.analyzer, self.clock_s)

    async def uncovered(self) -> tuple[Uncovered, ...] | None:
        """Return the endpoints that nobody probes, as of the newest look of this minute.

        None while they are looked for the first time.
        """
        now_s = self.clock_s()
        if self._looking is None and now_s >= self._covered_s + COVERED_S:
            self._covered_s, self._looking = now_s, asyncio.create_task(self._look())
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=PATIENCE_S)
        return self._uncovered

    async def _look(self) -> None:
        try:
            self._uncovered = tuple(await in_pieces(coverage_of(self.analyzer).uncovered()))
        finally:
            self._looking = None

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
