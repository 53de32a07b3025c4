# SPDX-License-Identifier: Apache-2.0
"""Writes minutes and hours of what is judged: added up at once, written by a thread.

Nothing here delays a step by more than the adding up. A minute that the disk refuses is lost and
counted, and so is one that finds too many waiting.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import structlog

from analyzer.config import History
from analyzer.history.blocks import block_of
from analyzer.history.figures import Figures
from analyzer.history.ledger import Ledger, Sealed
from analyzer.intake.table import WindowTable
from analyzer.localize.topology import LearnedTopology
from analyzer.store.tiers import Tiers
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.ids import EndpointId

MAX_WAITING = 3
"""Most minutes that wait for the one that is written. Chosen: the disk has stood still for minutes
then, and each takes a hundred megabytes at 40,000 RNICs."""

log = structlog.get_logger()


class Historian:
    """Sees the windows of one diagnosis."""

    def __init__(self, database: str, keep: History, clock: Callable[[], int]) -> None:
        self._keep, self._clock = keep, clock
        self.tiers = Tiers(database, keep)
        self.figures = Figures(clock())
        self._ledger = Ledger()
        self._waiting: deque[Sealed] = deque()
        self._news = asyncio.Event()
        self.lost = 0
        """Minutes that were not written."""

    async def begin(self) -> None:
        """Look at what was written before a restart."""
        if not self._keep.enabled:
            return
        try:
            until_ns = await asyncio.to_thread(self.tiers.begin, self._clock())
        except OSError as error:
            log.warning("history_not_read", error=str(error))
        else:
            self._ledger = Ledger(until_ns)

    # --- what the diagnosis says ----------------------------------------------------------------

    def wants(self, start_ns: int) -> bool:
        """Return whether a window that began then can still be added."""
        return not self._keep.enabled or self._ledger.wants(start_ns)

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Add a window."""
        try:
            self.figures.saw(table, endpoints, topology)
            if not self._keep.enabled:
                return
            self._take(self._ledger.saw(table, endpoints, topology))
        except Exception:  # a bug, but the window is worth judging
            log.exception("history_failed", start_ns=table.rows.window.start_ns)

    def expire(self, before_ns: int) -> None:
        """Seal what is older."""
        try:
            self._take(self._ledger.expire(before_ns))
        except Exception:  # likewise
            log.exception("history_failed", before_ns=before_ns)

    def _take(self, sealed: Sequence[Sealed]) -> None:
        for minute in sealed:
            if not minute.parts:
                continue  # nobody probed anything
            if len(self._waiting) == MAX_WAITING:
                self._lose(minute, "too many wait for the disk")
            else:
                self._waiting.append(minute)
        if sealed:
            self._news.set()

    # --- to the disk ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is sealed, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write(self._waiting.popleft())

    async def _write(self, minute: Sealed) -> None:
        try:
            await asyncio.to_thread(lambda: self.tiers.put(block_of(minute)))
        except (CapabilityMissing, OSError, RemoteProtocolError) as error:
            self._lose(minute, str(error))
        else:
            log.debug("history_written", start_ns=minute.start_ns, windows=minute.windows)

    def _lose(self, minute: Sealed, why: str) -> None:
        self.lost += 1
        log.warning("history_not_written", start_ns=minute.start_ns, error=why, minutes=self.lost)

    def counts(self) -> dict[str, int]:
        """Return what became of minutes since the start."""
        return {
            "files_written": self.tiers.counts.written,
            "minutes_lost": self.lost,
            "late": self._ledger.late,
            "files_damaged": self.tiers.counts.damaged,
        }

    def stop(self) -> None:
        """Let a merge under way end; an analyzer that starts again makes up for it."""
        self.tiers.interrupt()
