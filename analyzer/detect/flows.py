# SPDX-License-Identifier: Apache-2.0
"""Which flows lose probes, and which ordered pairs cannot talk at all.

A window of a fabric has a million flows, and something happens to some of them. So they are columns
(`Flows`), and only what is looked at one by one becomes a `FlowView`.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import WindowTable
from netagent.model.anomaly import Subject
from netagent.model.ids import EndpointId, FlowId

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pair = tuple[EndpointId, EndpointId]

UNCONNECTED_RUN = 3
"""Losses in a row to a target that mean unconnectivity. Chosen: two happen by chance on a lossy
path, more delay the verdict."""
UNCONNECTED_MS = 4_000
"""Milliseconds within which these losses must lie. Chosen: at one probe a minute, losses in a row
are minutes apart and may have different causes."""
AT_ONCE = 4096
"""Flows of which views are made together. Chosen: some milliseconds."""


@dataclass(frozen=True, slots=True)
class FlowView:
    """One flow's probes in one window."""

    flow: FlowId
    sent: int
    lost: int
    refused: int
    sent_large: int
    """Probes sent of the largest size."""
    lost_large: int
    """Probes lost of the largest size."""
    run: int
    """Losses in a row at the end of the window."""
    run_ms: int
    """Milliseconds from the first to the last loss of that run."""
    number: int = field(default=-1, compare=False)
    """Its number in the diagnosis's `FlowNumbers`; -1 where it has none."""

    @property
    def unconnected(self) -> bool:
        """Whether the flow ended the window with three losses in a row, close together."""
        return self.run >= UNCONNECTED_RUN and self.close

    @property
    def close(self) -> bool:
        """Whether any UNCONNECTED_RUN of its losses in a row lie within UNCONNECTED_MS."""
        spacing_ms = self.run_ms / max(1, self.run - 1)
        return spacing_ms * (UNCONNECTED_RUN - 1) <= UNCONNECTED_MS


_COLUMNS = tuple(each.name for each in fields(FlowView))[1:-1]


@dataclass(frozen=True, eq=False)
class Flows(Sequence[FlowView]):
    """Flows of one window, in columns; arrays are (n_flows,), as in `FlowView`."""

    numbers: FlowNumbers
    number: Ints
    ends: Ints
    """(2, n_flows): numbers of their sources and targets."""
    sent: Ints
    lost: Ints
    refused: Ints
    sent_large: Ints
    lost_large: Ints
    run: Ints
    run_ms: Ints

    @classmethod
    def of_table(cls, table: WindowTable) -> Self:
        """Return the flows of a window that sent anything."""
        rows = table.rows
        counts = {name: getattr(rows, name) for name in _COLUMNS}
        flow, ends = rows.flow, table.ends
        if not rows.sent.all():
            mine = np.flatnonzero(rows.sent)
            counts = {name: each[mine] for name, each in counts.items()}
            flow, ends = flow[mine], ends.take(mine, axis=1)
        return cls(
            table.numbers, flow, ends, **{n: each.astype(np.int64) for n, each in counts.items()}
        )

    @classmethod
    def of(cls, views: Iterable[FlowView], numbers: FlowNumbers | None = None) -> Self:
        """Return columns of flows that are looked at one by one already."""
        views = tuple(views)
        numbers = FlowNumbers() if numbers is None else numbers
        number = np.array([numbers.number(view.flow) for view in views], np.int64)
        columns = ([getattr(view, name) for view in views] for name in _COLUMNS)
        counts = (np.array(each, np.int64) for each in columns)
        return cls(numbers, number, numbers.ends(number), *counts)

    def __len__(self) -> int:
        return len(self.number)

    @overload
    def __getitem__(self, place: int) -> FlowView: ...
    @overload
    def __getitem__(self, place: slice) -> "Flows": ...
    def __getitem__(self, place: int | slice) -> "FlowView | Flows":
        if isinstance(place, slice):
            return self._at(place)
        first = range(len(self))[place]  # raises IndexError
        return next(iter(self._at(slice(first, first + 1))))

    def __iter__(self) -> Iterator[FlowView]:
        for first in range(0, len(self), AT_ONCE):  # whoever looks for a few stops early
            number = self.number[first : first + AT_ONCE]
            columns = (getattr(self, name)[first : first + AT_ONCE].tolist() for name in _COLUMNS)
            flows = self.numbers.flows(number)
            for flow, *counts in zip(flows, *columns, number.tolist(), strict=True):
                yield FlowView(flow, *counts)

    def where(self, mask: Mask) -> list[FlowView]:
        """Return the flows that `mask` (n_flows,) has, each by itself."""
        place = np.flatnonzero(mask)
        return list(self._at(place)) if len(place) else []

    def only(self, mask: Mask) -> "Flows":
        """Return the flows that `mask` (n_flows,) has."""
        return self if mask.all() else self._at(np.flatnonzero(mask))

    def among(self, flows: Collection[FlowId]) -> Mask:
        """Return (n_flows,) which are these."""
        if not flows:  # as in most windows, which have a million
            return np.zeros(len(self), np.bool_)
        known = (self.numbers.known(flow) for flow in flows)
        numbers = np.array([each for each in known if each is not None], np.int64)
        found: Mask = np.isin(self.number, numbers)
        return found

    def without(self, flows: Collection[FlowId]) -> "Flows":
        """Return the flows but for these."""
        return self.only(~self.among(flows)) if flows else self

    def outside(self, pairs: Collection[Pair]) -> "Flows":
        """Return the flows but for those of these pairs, either way."""
        return self.only(~self.between(pairs)) if pairs else self

    def as_votes(self, against: Mask) -> "Flows":
        """Return the same flows as one probe each, lost by those that `against` (n_flows,) has."""
        sent, none = np.ones_like(self.sent), np.zeros_like(self.sent)
        lost = against.astype(np.int64)
        return Flows(self.numbers, self.number, self.ends, sent, lost, *[none] * 5)

    def of_any(self, endpoints: Iterable[EndpointId]) -> Mask:
        """Return (n_flows,) which have an end among these."""
        known = (self.numbers.end(each) for each in endpoints)
        return self.of_ends(np.array([n for n in known if n is not None], np.int64))

    def of_ends(self, numbers: Ints) -> Mask:
        """Return (n_flows,) which have an end among endpoints of these numbers."""
        source, target = self._is_among(numbers)
        found: Mask = source | target
        return found

    def between(self, pairs: Collection[Pair], *, ordered: bool = False) -> Mask:
        """Return (n_flows,) which are of these pairs; of either direction unless `ordered`."""
        end = self.numbers.end
        named = [(end(a), end(b)) for a, b in pairs]
        numbered = np.array([each for each in named if None not in each], np.int64).reshape(-1, 2)
        source, target = self._is_among(numbered.reshape(-1))
        found: Mask = source & target
        place = np.flatnonzero(found)
        wanted = _keys(*numbered.T, ordered=ordered)
        found[place] = np.isin(self.pairs(place, ordered=ordered), wanted)
        return found

    def pairs(self, place: Ints | slice = slice(None), *, ordered: bool = False) -> Ints:
        """Return a number for the pair of each flow at `place`: the same for the same ends."""
        return _keys(*self.ends[:, place], ordered=ordered)

    def pair(self, key: int) -> Pair:
        """Return the pair of a number; its ends stand in any order unless `ordered`."""
        return self.numbers.endpoint(key >> 32), self.numbers.endpoint(key & 0xFFFF_FFFF)

    @property
    def unconnected(self) -> Mask:
        """Return (n_flows,) which are `FlowView.unconnected`."""
        found = self.run >= UNCONNECTED_RUN
        found[found] = _close(self.run[found], self.run_ms[found])
        return found

    def _at(self, place: Ints | slice) -> "Flows":
        columns = (getattr(self, name)[place] for name in _COLUMNS)
        return Flows(self.numbers, self.number[place], self.ends[:, place], *columns)

    def _is_among(self, numbers: Ints) -> Mask:
        """Return (2, n_flows) which sources and targets are among these."""
        if not len(numbers):
            return np.zeros(self.ends.shape, np.bool_)
        among = np.zeros(self.numbers.endpoints, np.bool_)
        among[numbers] = True
        found: Mask = among[self.ends]
        return found


def ends_of(flow: FlowId) -> Pair:
    """Return the pair of a flow, smaller endpoint first."""
    a, b = flow.source, flow.target
    return (a, b) if a <= b else (b, a)


def lossy(flows: Iterable[FlowView]) -> list[FlowView]:
    """Return the flows that lost a probe."""
    if isinstance(flows, Flows):
        return flows.where(flows.lost > 0)
    return [view for view in flows if view.lost]


def between(pairs: AbstractSet[Pair], flows: Flows) -> Iterator[tuple[Pair, FlowView]]:
    """Yield the flows of some pairs, each with its own; the pairs are as `ends_of` has them."""
    for view in flows.where(flows.between(pairs)) if pairs else ():
        yield ends_of(view.flow), view


def unobserved(
    subjects: Collection[Subject], flows: Flows, endpoints: Container[EndpointId]
) -> bool:
    """Return whether no probe of these pairs was answered or lost, though they still exist.

    Their agents are silent, or had other targets' turns.
    """
    pairs = {each for each in subjects if isinstance(each, tuple)}
    there = [pair for pair in pairs if all(end in endpoints for end in pair)]
    return bool(there) and not flows.between(pairs).any()


def unconnected_pairs(flows: Flows) -> set[Pair]:
    """Return ordered pairs none of whose flows still gets an answer.

    The last probes of every source port must be lost: UNCONNECTED_RUN or more in all, with some
    port's losses close in time. Where some ports still connect the pair, an ECMP path is at fault
    and not the pair. With many targets each port is probed rarely, so runs of all ports are added.
    """
    doubtful = np.flatnonzero(flows.run)
    if not len(doubtful):
        return set()
    wanted = np.unique(flows.pairs(doubtful, ordered=True))
    sources = np.zeros(flows.numbers.endpoints, np.bool_)
    sources[wanted >> 32] = True
    mine = np.flatnonzero(sources[flows.ends[0]])
    keys = flows.pairs(mine, ordered=True)
    place = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    theirs = wanted[place] == keys
    mine, place = mine[theirs], place[theirs]
    run, run_ms = flows.run[mine], flows.run_ms[mine]
    close = (run > 1) & _close(run, run_ms)
    talks, runs, closes = (np.bincount(place, each, len(wanted)) for each in (run == 0, run, close))
    dead = (talks == 0) & (runs >= UNCONNECTED_RUN) & (closes > 0)
    return {flows.pair(key) for key in wanted[dead].tolist()}


def _close(run: Ints, run_ms: Ints) -> Mask:
    """Return `FlowView.close` of flows with these runs."""
    found: Mask = run_ms * (UNCONNECTED_RUN - 1) <= UNCONNECTED_MS * np.maximum(1, run - 1)
    return found


def _keys(source: Ints, target: Ints, *, ordered: bool) -> Ints:
    if not ordered:
        source, target = np.minimum(source, target), np.maximum(source, target)
    return (source << 32) + target
