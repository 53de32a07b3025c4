# SPDX-License-Identifier: Apache-2.0
"""Gathers how the round trips of a minute are spread, by the flow's number.

A flow's round trips lie beside each other but for a few, so it has WIDE buckets from near its
first one on, in one row of a table; what lies elsewhere is kept aside. One pass over a window's
entries adds it, and a minute of 1.4 million flows takes 50 megabytes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.history.spread import Entries, buckets_of, joined
from analyzer.intake.flows import WindowRows
from analyzer.localize.incidence import grown

Ints = NDArray[np.int64]

WIDE = 16
"""Buckets of a flow's row. Chosen: from three quarters of its first round trip to twice as much."""
BELOW = 4
"""How many of them are below the first one."""
MANY = 1_000
"""Most round trips of an entry in a row. Chosen: twelve windows of STEP such entries fit in 16
bits."""
NEW = -(1 << 14)
"""Lowest bucket of a row that has none yet."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What some flows gathered."""

    low: NDArray[np.int16]
    """(n_flows,) bucket that a row begins with."""
    counts: NDArray[np.uint16]
    """(n_flows, WIDE)"""
    aside: Entries
    """Places among the flows, buckets, and counts."""

    def entries(self) -> Entries:
        """Return places among the flows, buckets and counts, in any order."""
        flat = self.counts.reshape(-1)
        at = np.flatnonzero(flat != 0)
        place = (at // WIDE).astype(np.int32)
        rows = (place, self.low[place] + (at % WIDE).astype(np.int16), flat[at])
        return joined([rows, self.aside])


@dataclass(slots=True)
class Trips:
    """The round trips of a minute that is open."""

    _low: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    _counts: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    _aside: list[Entries] = field(default_factory=list)

    def add(self, rows: WindowRows) -> None:
        """Add the rows of a window, each of another flow."""
        if not len(rows.hist_bucket):
            return
        size = int(rows.flow.max()) + 1
        self._low = grown(self._low, size, NEW)
        self._counts = grown(self._counts, size * WIDE)
        bucket, count = buckets_of(rows.hist_bucket), rows.hist_count
        self._begin(rows.flow, rows.hist_len, bucket)
        at = bucket - np.repeat(self._low[rows.flow], rows.hist_len)
        first = np.repeat(rows.flow * WIDE, rows.hist_len)
        inside = (at >= 0) & (at < WIDE) & (count <= MANY)
        told = count
        if not inside.all():
            other = np.flatnonzero(~inside)
            of = first[other] // WIDE
            self._aside.append((of, bucket[other], count[other].astype(np.int64)))
            at, told = at & (WIDE - 1), count * inside
        np.add.at(self._counts, first + at, told.astype(np.uint16))

    def _begin(self, flow: Ints, lengths: NDArray[Any], bucket: NDArray[np.int16]) -> None:
        """Say where the rows begin of flows that have none yet."""
        new = np.flatnonzero((self._low[flow] == NEW) & (lengths > 0))
        if len(new):
            first = np.cumsum(lengths, dtype=np.int64)[new] - lengths[new]
            self._low[flow[new]] = bucket[first] - BELOW

    def cut(self, flow: Ints) -> Gathered:
        """Take what flows, in order, have gathered so far, so that they begin anew."""
        known = flow < len(self._low)
        low = np.full(len(flow), NEW, np.int16)
        low[known] = self._low[flow[known]]
        counts = np.zeros((len(flow), WIDE), np.uint16)
        table = self._counts.reshape(-1, WIDE)
        counts[known] = table[flow[known]]
        table[flow[known]] = 0
        self._low[flow[known]] = NEW
        return Gathered(low, counts, self._cut_aside(flow))

    def _cut_aside(self, flow: Ints) -> Entries:
        taken, left = list[Entries](), list[Entries]()
        for of, bucket, count in self._aside:
            place = np.minimum(np.searchsorted(flow, of), len(flow) - 1)
            mine = flow[place] == of
            taken.append((place[mine], bucket[mine], count[mine]))
            if not mine.all():
                left.append((of[~mine], bucket[~mine], count[~mine]))
        self._aside = left
        return joined(taken)


def none_of(flows: int) -> Gathered:
    """Return what so many flows gathered of which nothing came back."""
    return Gathered(np.full(flows, NEW, np.int16), np.zeros((flows, WIDE), np.uint16), joined([]))
