# SPDX-License-Identifier: Apache-2.0
"""Whatever packets through one host's flow tables, sorted by how they end.

numpy is imported here, as in `batch`: this is for a process of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ovs_checks.openflow.packet import SLOTS, Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.ends import End
from ovs_checks.walk.host import walk
from ovs_checks.walk.values import LocalWalk

from .run import KINDS, ODD, Batch, Ends
from .state import WIDE, Column, Packets

_APART = tuple(sorted(WIDE | {SLOTS[name] for name in ODD}))
"""Packets that differ in these slots go through the tables apart: no column holds them."""

MIN_TOGETHER = 8
"""Packets that are worth a batch; fewer are walked one by one. Chosen: a batch has a fixed cost of
several walks."""


@dataclass(slots=True)
class Fate:
    """A way to end, and the packets that end so."""

    walk: LocalWalk
    """The walk of one of the packets."""

    packets: list[int] = field(default_factory=list)
    """Which end so, by the order in which they came; not sorted."""


class Sweep:
    """Packets that enter a bridge of a snapshot, grouped by how they end."""

    def __init__(self, snapshot: Snapshot, bridge: str) -> None:
        self._snapshot, self._bridge = snapshot, bridge
        self._batch = Batch(snapshot, bridge)
        self._fates: dict[frozenset[tuple[object, ...]], Fate] = {}
        self.count = 0

    @property
    def fates(self) -> list[Fate]:
        """All ways to end; the one with most packets comes first."""
        return sorted(self._fates.values(), key=lambda fate: -len(fate.packets))

    def add(self, headers: Sequence[Header]) -> None:
        """Carry more packets through the tables; thousands at a time are quickest."""
        for places in _alike(headers):
            if len(places) < MIN_TOGETHER:
                for place in places:
                    self._note(self._walk(headers[place]), [place])
                continue
            ends = self._batch.run(_packets([headers[place] for place in places]))
            for n, walked in ends.walked.items():
                self._note(walked, [places[n]])
            for group in _groups(ends):
                self._note(self._walk(headers[places[group[0]]]), [places[n] for n in group])
        self.count += len(headers)

    def _walk(self, header: Header) -> LocalWalk:
        return walk(self._snapshot, self._bridge, header)

    def _note(self, walked: LocalWalk, places: Sequence[int]) -> None:
        key = frozenset((end.case, *_place(end)) for end in walked.ends)
        fate = self._fates.setdefault(key, Fate(walked))
        fate.packets.extend(self.count + place for place in places)


def _place(end: End) -> tuple[object, ...]:
    """Return what is equal for ends that are one to whoever asks where packets go."""
    match end.kind:
        case "output":
            return end.kind, end.bridge, end.port
        case "tunnelled":
            return end.kind, end.bridge, end.port, end.tun_dst, end.tun_id
        case "missed":
            return end.kind, end.bridge, end.table
        case "dropped" if end.flow:
            return end.kind, end.bridge, end.flow.text
        case "loop":
            return end.kind, end.bridge, tuple(quote.text for quote in end.cycle)
        case _:
            return end.kind, end.reason


def _alike(headers: Sequence[Header]) -> list[list[int]]:
    """Return the places of packets that one `Packets` can hold."""
    found: dict[tuple[int, ...], list[int]] = {}
    for place, header in enumerate(headers):
        found.setdefault(tuple([header[slot] for slot in _APART]), []).append(place)
    return list(found.values())


def _packets(headers: Sequence[Header]) -> Packets:
    columns = {}
    for name, values in zip(Header._fields, zip(*headers, strict=True), strict=True):
        if name == "in_port" or len(set(values)) > 1:
            told, codes = np.unique(np.array(values, np.uint64), return_inverse=True)
            columns[name] = Column(told, codes.astype(np.int32))
    return Packets(headers[0], columns)


_LEFT = [n for n, kind in enumerate(KINDS) if kind in {"output", "tunnelled"}]


def _groups(ends: Ends) -> Iterator[list[int]]:
    """Yield the positions of packets that ended alike, but for those that were walked."""
    flow = np.where(np.isin(ends.kind, _LEFT), -1, ends.flow)
    told = (ends.kind, ends.port, ends.tun_dst, ends.tun_id, flow, ends.table)
    index = np.setdiff1d(np.arange(flow.size), np.fromiter(ends.walked, np.int64))
    rows = np.column_stack([column[index].astype(np.int64) for column in told])
    _, codes = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    for part in np.split(index[order], np.flatnonzero(np.diff(codes[order])) + 1):
        if part.size:
            yield part.tolist()
