# SPDX-License-Identifier: Apache-2.0
"""The last hour by the minute, of a pair or of a task, from the minutes on disk.

Quantiles are null where a minute was written before they were kept, or an agent did not tell how
its round trips are spread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from analyzer.history.files import Tier
from analyzer.history.spread import SHARES
from analyzer.server.analyzer import Analyzer
from analyzer.store.past import Wanted, page
from analyzer.store.together import together
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

log = structlog.get_logger()

HOUR_NS = 3600 * 10**9
FRESH_S = 20.0
"""Seconds for which what was read stands. Chosen: a minute is written seconds after its end."""
MAX_KEPT = 128
"""Most series kept. Chosen: some KB each."""
MINUTES = 61
"""Most minutes of a series: those of an hour, and the one that it begins in."""

Row = list[Any]


class Series:
    """Reads files, one question at a time; others wait."""

    def __init__(self, analyzer: Analyzer, clock_s: Callable[[], float]) -> None:
        self._analyzer, self._clock_s = analyzer, clock_s
        self._known: dict[tuple[str, str], tuple[float, list[Row]]] = {}

    async def of_pair(self, source: str, target: str) -> list[Row]:
        """Return rows of [start, sent, lost, p50, p90, p99, least, mean, largest], times in ns."""

        def read(since_ns: int, until_ns: int) -> list[Row]:
            wanted = Wanted(Tier.MINUTE, since_ns, until_ns, source=source, target=target)
            rows = page(self._analyzer.config.database, wanted, None, MINUTES).rows
            return [
                [each["start_ns"], each["sent"], each["lost"], *(each[name] for name in SHARES)]
                + [
                    each[name] if each["rtt_count"] else None
                    for name in ("rtt_min_ns", "rtt_mean_ns", "rtt_max_ns")
                ]
                for each in rows
            ]

        return await self._read((source, target), read)

    async def of_task(self, task: str, sources: Sequence[str]) -> list[Row]:
        """Return rows of [start, sent, lost, mean round trip, p50, p90, p99], times in ns."""

        def read(since_ns: int, until_ns: int) -> list[Row]:
            wanted = Wanted(Tier.MINUTE, since_ns, until_ns)
            rows = together(self._analyzer.config.database, wanted, sources)
            return [
                [each.start_ns, each.sent, each.lost]
                + [None if each.rtt_mean_ns is None else round(each.rtt_mean_ns)]
                + [getattr(each, name) for name in SHARES]
                for each in rows
            ]

        return await self._read((task, ""), read)

    async def _read(self, key: tuple[str, str], read: Callable[[int, int], list[Row]]) -> list[Row]:
        known = self._fresh(key)
        if known is not None:
            return known
        async with self._analyzer.reading:
            known = self._fresh(key)  # others asked meanwhile
            if known is None:
                now_ns = self._analyzer.clock()
                try:
                    known = await asyncio.to_thread(read, now_ns - HOUR_NS, now_ns)
                except (CapabilityMissing, RemoteProtocolError, OSError) as error:
                    log.warning("series_not_read", error=str(error))
                    known = []
                self._known[key] = self._clock_s(), known
                while len(self._known) > MAX_KEPT:
                    del self._known[next(iter(self._known))]
        return known

    def _fresh(self, key: tuple[str, str]) -> list[Row] | None:
        at_s, found = self._known.get(key, (float("-inf"), []))
        return found if self._clock_s() < at_s + FRESH_S else None
