# SPDX-License-Identifier: Apache-2.0
"""Adds up judged windows, minute by minute, in columns by the flow's number.

Theory of operation. A window has a row for each flow that was probed, and adds it to the flow's
place in the minute: a few passes over some columns, and no object for a flow. What a flow crosses
hardly ever changes. So the routes are kept beside the columns, and where one turns, what the flow
has gathered so far is cut off as a part of its own. All the rest is done once a minute, by
`blocks`, with what a minute was sealed as.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.history.trips import Gathered, Trips
from analyzer.history.ways import Ways
from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.intake.table import WindowTable
from analyzer.localize.incidence import Incidence, grown
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

Ints = NDArray[np.int64]

MINUTE_NS = 60 * 10**9
"""Nanoseconds of a minute."""
LATE_NS = 15 * 10**9
"""Nanoseconds of windows for which a minute stays open behind its end. Chosen: an agent waits ten
seconds at most before it delivers again; a restart reads two minutes, and so all of an open one."""
COLUMNS: Mapping[str, str] = {
    "sent": "u4", "lost": "u4", "refused": "u4",
    "count": "u4", "ln": "f8", "min_ns": "u4", "max_ns": "u4",
}  # fmt: skip
"""What is gathered of a flow, as numpy's types: probes as in `FlowColumns`, and of its `count`
round trips the sum of ln(ns), the least and the largest."""
NO_MIN = np.iinfo(np.uint32).max


@dataclass(frozen=True, slots=True)
class Part:
    """What flows gathered while their ways were the same; arrays are (n_flows,)."""

    flow: Ints
    there: NDArray[np.int32]
    """Row of the route in `incidence`; less than 0 where it, or the one back, was not known."""
    back: NDArray[np.int32]
    incidence: Incidence
    columns: Mapping[str, NDArray[Any]]
    """By the names of COLUMNS."""
    trips: Gathered
    """How their round trips are spread."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A minute to which nothing is added any more."""

    start_ns: int
    windows: int
    """How many windows of it were judged."""
    parts: tuple[Part, ...]
    ends: tuple[NDArray[np.int64], ...]
    """(2, n_flows) of each part: places of sources and targets in `endpoints`."""
    endpoints: tuple[EndpointId, ...]
    rnics: Mapping[EndpointId, tuple[str, str]]
    """Host and device of each."""


@dataclass(slots=True)
class _Minute:
    """A minute that is open."""

    start_ns: int
    windows: int = 0
    """Windows that were added, without what came late of some."""
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    """(n,) by the flow's number."""
    trips: Trips = field(default_factory=Trips)
    parts: list[Part] = field(default_factory=list)
    endpoints: dict[EndpointId, Endpoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = {name: np.zeros(0, of) for name, of in COLUMNS.items()}

    def add(self, rows: WindowRows) -> None:
        """Add the rows of a window, each of another flow."""
        flow, columns = rows.flow, self.columns
        if not len(flow):  # its columns have no types
            return
        size = int(flow.max()) + 1
        for name in COLUMNS:
            columns[name] = grown(columns[name], size, NO_MIN if name == "min_ns" else 0)
        columns["sent"][flow] += rows.sent
        columns["count"][flow] += rows.count
        columns["ln"][flow] += rows.count * rows.mean_ln.astype(np.float64)
        for name in ("lost", "refused"):  # hardly any
            some = np.flatnonzero(getattr(rows, name))
            columns[name][flow[some]] += getattr(rows, name)[some]
        least = np.where(rows.count > 0, rows.min_ns, NO_MIN).astype(np.uint32)
        columns["min_ns"][flow] = np.minimum(columns["min_ns"][flow], least)
        columns["max_ns"][flow] = np.maximum(columns["max_ns"][flow], rows.max_ns)
        self.trips.add(rows)

    def cut(self, flow: Ints, ways: Ways) -> None:
        """Make a part of what flows have gathered on the ways that they took so far."""
        columns = self.columns
        flow = flow[flow < len(columns["sent"])]
        flow = flow[(columns["sent"][flow] > 0) | (columns["count"][flow] > 0)]
        if not len(flow):
            return
        gathered = {name: column[flow] for name, column in columns.items()}
        trips = self.trips.cut(flow)
        self.parts.append(Part(flow, *ways.of(flow), ways.incidence, gathered, trips))
        for name, column in columns.items():
            column[flow] = NO_MIN if name == "min_ns" else 0

    def seal(self, ways: Ways, numbers: FlowNumbers) -> Sealed:
        """Return all that was added."""
        self.cut(np.arange(len(self.columns["sent"])), ways)
        ends = [numbers.ends(part.flow) for part in self.parts]
        is_met = np.zeros(numbers.endpoints, np.bool_)
        for each in ends:
            is_met[each] = True
        met = np.flatnonzero(is_met)
        place = np.cumsum(is_met) - 1
        names = tuple(map(numbers.endpoint, met.tolist()))
        known = self.endpoints
        return Sealed(
            self.start_ns,
            self.windows,
            tuple(self.parts),
            tuple(place[each] for each in ends),
            names,
            {name: (known[name].host, known[name].rnic) for name in names},
        )


class Ledger:
    """The minutes of one diagnosis."""

    def __init__(self, until_ns: int = 0) -> None:
        """Take windows from `until_ns` on; what is before was written before a restart."""
        self._until_ns = self._sealed_ns = until_ns
        self._open: dict[int, _Minute] = {}
        self._ways = Ways()
        self._numbers = FlowNumbers()
        self._newest_ns = -1
        """Start of the newest window."""
        self.late = 0
        """Windows, or single hosts' summaries, that came after their minute was sealed."""

    def wants(self, start_ns: int) -> bool:
        """Return whether a window's minute is open, or will be; count one that is sealed."""
        self.late += self._until_ns <= start_ns < self._sealed_ns
        return start_ns >= self._sealed_ns

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> list[Sealed]:
        """Add a window, or what came late of one; return the minutes that are complete now.

        `table` has flows between `endpoints`.
        """
        window = table.rows.window
        if not self.wants(window.start_ns):
            return []
        start_ns = window.start_ns - window.start_ns % MINUTE_NS
        self._numbers = table.numbers
        self._ways.follow(topology, table.numbers, at_ns=window.start_ns, turned=self._cut)
        minute = self._open.setdefault(start_ns, _Minute(start_ns))
        minute.add(table.rows)
        minute.windows += window.start_ns > self._newest_ns
        self._newest_ns = max(self._newest_ns, window.start_ns)
        minute.endpoints.update(endpoints)
        return self._seal(window.end_ns - LATE_NS)

    def expire(self, before_ns: int) -> list[Sealed]:
        """Return the minutes that began before `before_ns`, sealed.

        Numbers of flows that were seen only before it may be other flows' from now on.
        """
        return self._seal(before_ns + MINUTE_NS - 1)

    def _cut(self, flow: Ints | None) -> None:
        for minute in self._open.values():
            every = np.arange(len(minute.columns["sent"]))
            minute.cut(every if flow is None else flow, self._ways)

    def _seal(self, until_ns: int) -> list[Sealed]:
        """Seal the minutes that ended by then."""
        self._sealed_ns = max(self._sealed_ns, until_ns - until_ns % MINUTE_NS)
        done = sorted(start for start in self._open if start < self._sealed_ns)
        return [self._open.pop(start).seal(self._ways, self._numbers) for start in done]
