# SPDX-License-Identifier: Apache-2.0
"""What windows add up to since the start, by task and rails: for metrics. Pure.

However large the cluster, there are few groups: who comes once all are taken is added to one of all
others. A group keeps what it has, so that counters only grow; one that is not probed any more
leaves its place to another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET, FlowNumbers
from analyzer.intake.table import NOBODY, WindowTable
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.histogram import value_of

Ints = NDArray[np.int64]

MAX_GROUPS = 256
"""Most groups, the one of all others included. Chosen: 32 tasks of eight rails; each has nineteen
series (`docs/metrics.md`)."""
OTHERS = "(others)"
"""Task and rails of the group of all others; no task's name begins with a parenthesis."""
MAX_RAIL = 15
"""Last rail that is told apart. Chosen: hosts have eight."""
RAILS = MAX_RAIL + 2
FORGET_NS = 3600 * 10**9
"""Nanoseconds without probes after which a group leaves its place. Chosen: a job that is restarted
goes on with its counters."""
AGAIN_NS = 60 * 10**9
"""Nanoseconds after which is looked anew which endpoint is of which task. Chosen: declarations
come seldom, and of 40,000 RNICs it takes a tenth of a second."""

LE_S = (
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
    0.5,
)  # fmt: skip
"""Upper bounds of the histogram's buckets, in seconds; the last one is open. Chosen: from an idle
fabric's round trip to the timeout of a probe."""
_BUCKETS = len(LE_S) + 1
_VALUES_S = np.array([value_of(n) for n in range(MAX_BUCKET + 1)]) / 1e9
"""What a bucket of a summary stands for, within 1 %: so what lies that near to a bound of `LE_S`
may be counted on its other side."""
_PLACES = np.searchsorted(LE_S, _VALUES_S)


class Group(Struct, frozen=True, kw_only=True):
    """Probes of one task between two rails, since the start."""

    task: str
    source: str
    """Rail, or `OTHERS`."""
    target: str
    sent: int
    lost: int
    buckets: tuple[int, ...]
    """Round trips in each bucket of `LE_S`, not cumulated; the last one is of all longer ones."""
    sum_s: float
    round_s: float
    """Mean seconds between two probes of a flow in the newest window that had any; 0 before."""


class Told(Struct, frozen=True, kw_only=True):
    """All that is told of windows, findings and history."""

    groups: tuple[Group, ...] = ()
    windows: int = 0
    """Windows judged."""
    newest_end_ns: int = 0
    """End of the newest window judged, by hosts' clocks; 0 before the first."""
    flows: int = 0
    """Flows of that window, and of how many of these it is not known which way they go."""
    unknown_paths: int = 0
    findings: dict[str, int] = {}
    """Kind of a finding -> how many hold."""
    history: dict[str, int] = {}


Key = tuple[str, int, int]


@dataclass(slots=True)
class _Numbers:
    """Numbers of endpoints, of one `FlowNumbers` in one state."""

    of: FlowNumbers | None = None
    changes: int = -1
    until_ns: int = 0
    task: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rail: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


class Figures:
    """Adds windows up. `since_ns`: what ended before it was counted before a restart."""

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._places: dict[Key, int] = {}
        self._free = list(range(MAX_GROUPS - 1, 0, -1))
        self._seen_ns = np.zeros(MAX_GROUPS, np.int64)
        self._sent, self._lost = (np.zeros(MAX_GROUPS, np.int64) for _ in range(2))
        self._buckets = np.zeros((MAX_GROUPS, _BUCKETS), np.int64)
        self._sum_s, self._round_s = np.zeros(MAX_GROUPS), np.zeros(MAX_GROUPS)
        self._tasks: list[str] = [OTHERS]
        self._numbers = _Numbers()
        self._windows = self._newest_ns = self._flows = self._unknown = 0

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Add a window's flows between `endpoints`, or what came late of one."""
        window = table.rows.window
        if window.end_ns <= self._since_ns:
            return
        if is_new := window.end_ns > self._newest_ns:
            self._windows += 1
            self._newest_ns = window.end_ns
            self._flows, self._unknown = len(table.rows.flow), _unknown(table, topology)
            self._forget(window.end_ns)
        if len(table.rows.flow):
            self._add(table, self._groups_of(table, endpoints), is_new=is_new)

    def _add(self, table: WindowTable, group: Ints, *, is_new: bool) -> None:
        rows = table.rows
        sent = _summed(group, rows.sent)
        self._sent += sent.astype(np.int64)
        self._lost += _summed(group, rows.lost).astype(np.int64)
        met = np.flatnonzero(np.bincount(group, minlength=MAX_GROUPS))
        self._seen_ns[met] = np.maximum(self._seen_ns[met], rows.window.end_ns)
        if len(rows.hist_len):
            number = rows.hist_bucket
            of_entry = np.repeat(group, rows.hist_len)
            place = of_entry * _BUCKETS + _PLACES[number]
            found = np.bincount(place, rows.hist_count, MAX_GROUPS * _BUCKETS)
            self._buckets += found.reshape(MAX_GROUPS, _BUCKETS).astype(np.int64)
            self._sum_s += _summed(of_entry, rows.hist_count * _VALUES_S[number])
        if is_new:
            flows = np.bincount(group, minlength=MAX_GROUPS)
            probed = sent > 0
            width_s = (rows.window.end_ns - rows.window.start_ns) / 1e9
            self._round_s[probed] = width_s * flows[probed] / sent[probed]

    def _groups_of(self, table: WindowTable, endpoints: Mapping[EndpointId, Endpoint]) -> Ints:
        """Return (n_rows,) the rows' groups."""
        source, target = table.ends
        numbers = self._numbers
        if not self._holds(table) or (numbers.task[source] == NOBODY).any():
            numbers = self._numbers = self._look(table, endpoints)
        task = np.maximum(numbers.task[source], 0)
        key = (task * RAILS + numbers.rail[source]) * RAILS + numbers.rail[target]
        size = len(self._tasks) * RAILS * RAILS
        place = np.zeros(size, np.int64)
        for each in np.flatnonzero(np.bincount(key, minlength=size)).tolist():
            rest, to = divmod(each, RAILS)
            of, rail = divmod(rest, RAILS)
            place[each] = self._place((self._tasks[of], rail, to)) if of else 0
        groups: Ints = place[key]
        return groups

    def _place(self, key: Key) -> int:
        place = self._places.get(key)
        if place is None:
            if not self._free:
                return 0
            place = self._places[key] = self._free.pop()
        return place

    def _holds(self, table: WindowTable) -> bool:
        known, numbers = self._numbers, table.numbers
        return (
            known.of is numbers
            and known.changes == numbers.changes
            and table.rows.window.end_ns < known.until_ns
        )

    def _look(self, table: WindowTable, endpoints: Mapping[EndpointId, Endpoint]) -> _Numbers:
        """Return places of endpoints' tasks in `_tasks`, and their rails.

        A task has a place where a group of it has one, or may get one.
        """
        numbers = table.numbers
        places = {task: number for number, task in enumerate(dict.fromkeys(self._all_tasks()))}
        task, rail = np.zeros((2, numbers.endpoints), np.int64)
        task[:] = NOBODY
        for number, name in numbers.ends_in_use():
            rail[number] = min(name.rail, MAX_RAIL + 1)
            endpoint = endpoints.get(name)
            if endpoint is None:
                continue
            of = endpoint.task
            if of and len(places) <= MAX_GROUPS:
                task[number] = places.setdefault(of, len(places))
            else:
                task[number] = places.get(of, 0)
        self._tasks = list(places)
        until_ns = table.rows.window.end_ns + AGAIN_NS
        return _Numbers(numbers, numbers.changes, until_ns, task, rail)

    def _all_tasks(self) -> list[str]:
        return [OTHERS, *(task for task, _, _ in self._places)]

    def _forget(self, now_ns: int) -> None:
        for key, place in list(self._places.items()):
            if self._seen_ns[place] < now_ns - FORGET_NS:
                del self._places[key]
                self._free.append(place)
                for column in (self._sent, self._lost, self._buckets, self._sum_s, self._round_s):
                    column[place] = 0

    def told(self, *, findings: Mapping[str, int], history: Mapping[str, int]) -> Told:
        """Return all, with what others know."""
        named = [
            ((task, _rail(a), _rail(b)), place) for (task, a, b), place in self._places.items()
        ]
        every = [*named, ((OTHERS, OTHERS, OTHERS), 0)] if self._sent[0] else named
        return Told(
            groups=tuple(self._group(*each) for each in sorted(every)),
            windows=self._windows,
            newest_end_ns=self._newest_ns,
            flows=self._flows,
            unknown_paths=self._unknown,
            findings=dict(findings),
            history=dict(history),
        )

    def _group(self, name: tuple[str, str, str], place: int) -> Group:
        task, source, target = name
        return Group(
            task=task, source=source, target=target,
            sent=int(self._sent[place]), lost=int(self._lost[place]),
            buckets=tuple(self._buckets[place].tolist()),
            sum_s=float(self._sum_s[place]), round_s=float(self._round_s[place]),
        )  # fmt: skip


def _rail(rail: int) -> str:
    return str(rail) if rail <= MAX_RAIL else OTHERS


def _summed(group: Ints, values: NDArray[Any]) -> NDArray[np.float64]:
    return np.bincount(group, values, MAX_GROUPS).astype(np.float64)


def _unknown(table: WindowTable, topology: LearnedTopology) -> int:
    """Return how many flows of a window have no whole route, there or back."""
    newest, _ = topology.taken()
    flow = table.rows.flow
    traced = flow[flow < newest.shape[1]]
    there, back = newest.take(traced, axis=1) != NO_ROUTE
    return len(flow) - int(np.count_nonzero(there & back))
