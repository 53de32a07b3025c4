# SPDX-License-Identifier: Apache-2.0
"""One minute by pair and by component, as columns with dictionaries of names.

A component counts a probe once, whether it, its reply or both crossed it. The sums over routes
there and those over routes back count twice what both cross, so that is taken off again: a pass
over routes, and one over flows, of which each is compared with few parts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.history.crossing import AT_ONCE, crossing
from analyzer.history.ledger import NO_MIN, Part, Sealed
from analyzer.history.spread import NOTHING, Entries, Spread, merged
from analyzer.localize.incidence import Incidence
from netagent.model.path import Component, rnic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

SUMMED = ("sent", "lost", "refused", "count", "ln")
NO_PART = -1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in the order of their names; arrays are (n_rows,)."""

    names: tuple[str, ...]
    """What the columns of `keys` are places in."""
    keys: Columns
    """`source` and `target`, or `component`."""
    columns: Columns
    """`sent`, `lost`, `refused`, `rtt_count`, and where there are some `rtt_min_ns`, `rtt_mean_ns`
    (the geometric mean) and `rtt_max_ns`; these are 0 where `rtt_count` is. The quantiles of SHARES
    are 0 also where it is not known how the round trips are spread."""
    spread: Spread = NOTHING
    """Of the round trips, by row."""

    def __len__(self) -> int:
        return len(self.columns["sent"])


@dataclass(frozen=True, slots=True)
class Block:
    """One minute."""

    start_ns: int
    windows: int
    """How many windows of it were judged."""
    pairs: Table
    components: Table
    """RNICs of all probes; switches and links of those whose ways there and back are known."""


def block_of(minute: Sealed) -> Block:
    """Return a minute by pair and by component."""
    entries = [part.trips.entries() for part in minute.parts]
    source, target, columns, pair = _by_pair(minute)
    names = [str(each) for each in minute.endpoints]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.zeros(len(names), np.int64)
    rank[order] = np.arange(len(names))
    place = np.lexsort((rank[target], rank[source]))
    source, target, pair = source[place], target[place], _inverse(place)[pair]
    trips = merged((pair[at], bucket, count) for at, bucket, count in _laid(minute.parts, entries))
    columns = {name: column[place] for name, column in columns.items()}
    pairs = Table(
        tuple(names[each] for each in order),
        {"source": rank[source], "target": rank[target]},
        _told(columns, trips),
        trips,
    )
    components = _components(minute, entries, columns, trips, (source, target))
    return Block(minute.start_ns, minute.windows, pairs, components)


def _inverse(place: Ints) -> Ints:
    found = np.empty_like(place)
    found[place] = np.arange(len(place))
    return found


def _by_pair(minute: Sealed) -> tuple[Ints, Ints, dict[str, NDArray[Any]], Ints]:
    """Return places of sources and targets of pairs, what was gathered of each, and flows' pairs.

    The last is (n_flows,), of the flows of all parts.
    """
    parts = minute.parts
    ends = np.concatenate([np.zeros((2, 0), np.int64), *minute.ends], axis=1)
    columns = {name: _joined(parts, name) for name in (*SUMMED, "min_ns", "max_ns")}
    key = (ends[0] << 32) | ends[1]
    order = np.argsort(key, kind="stable")
    key = key[order]
    is_first = np.concatenate([[True], key[1:] != key[:-1]])[: len(key)]
    first = np.flatnonzero(is_first)
    if not len(first):
        return key, key, columns, key
    found = {
        name: np.add.reduceat(columns[name][order], first, dtype=_wide(columns[name]))
        for name in SUMMED
    }
    found["min_ns"] = np.minimum.reduceat(columns["min_ns"][order], first)
    found["max_ns"] = np.maximum.reduceat(columns["max_ns"][order], first)
    pair = np.empty_like(order)
    pair[order] = np.cumsum(is_first) - 1
    return key[first] >> 32, key[first] & 0xFFFF_FFFF, found, pair


def _laid(parts: Sequence[Part], trips: Sequence[Entries]) -> Iterator[Entries]:
    """Yield the round trips of each part, by place among the flows of all of them."""
    before = 0
    for part, (place, bucket, count) in zip(parts, trips, strict=True):
        yield place + before, bucket, count
        before += len(part.flow)


def _joined(parts: Sequence[Part], name: str) -> NDArray[Any]:
    columns = [part.columns[name] for part in parts]
    return np.concatenate(columns) if columns else np.zeros(0, np.uint32)


def _wide(column: NDArray[Any]) -> type[np.float64 | np.int64]:
    return np.float64 if column.dtype.kind == "f" else np.int64


def _moved(entries: Iterable[Entries], to: Ints) -> Iterator[Entries]:
    """Yield entries with each place p moved to to[p]; without those where that is less than 0."""
    for place, bucket, count in entries:
        now = to[place]
        if (now >= 0).all():
            yield now, bucket, count
        else:
            mine = now >= 0
            yield now[mine], bucket[mine], count[mine]


def _told(columns: Columns, trips: Spread) -> Columns:
    """Return columns as they are kept."""
    count = columns["count"].astype(np.int64)
    told = {name: columns[name].astype(np.uint32) for name in ("sent", "lost", "refused")}
    told["rtt_count"] = count.astype(np.uint32)
    if "min_ns" in columns:
        least = columns["min_ns"]
        told["rtt_min_ns"] = np.where(least == NO_MIN, 0, least).astype(np.uint32)
    mean = np.exp(columns["ln"] / np.maximum(1, count))
    told["rtt_mean_ns"] = np.where(count > 0, np.rint(mean), 0).astype(np.uint32)
    if "max_ns" in columns:
        told["rtt_max_ns"] = columns["max_ns"].astype(np.uint32)
    for name, value in trips.quantiles(count).items():
        told[name] = value
        if "max_ns" in columns:  # a representative may lie beyond
            inside = np.clip(value, told["rtt_min_ns"], told["rtt_max_ns"])
            told[name] = np.where(value > 0, inside, 0)
    return told


# --- components ---------------------------------------------------------------------------------


def _components(
    minute: Sealed,
    entries: Sequence[Entries],
    pairs: Columns,
    trips: Spread,
    ends: tuple[Ints, Ints],
) -> Table:
    of_pairs = np.stack([pairs[name].astype(np.float64) for name in SUMMED])
    found = [_of_rnics(minute, of_pairs, trips, *ends)]
    by_incidence: dict[int, list[int]] = {}
    for n, part in enumerate(minute.parts):
        by_incidence.setdefault(id(part.incidence), []).append(n)
    found += [
        _of_fabric([minute.parts[n] for n in mine], [entries[n] for n in mine])
        for mine in by_incidence.values()
    ]
    names = sorted({name for each in found for name in each.names})
    number = {name: place for place, name in enumerate(names)}
    sums = np.zeros((len(SUMMED), len(names)))
    moved = list[Entries]()
    for each in found:
        place = np.array([number[name] for name in each.names], np.int64)
        sums[:, place] += each.sums
        moved.append((place[each.trips.place], each.trips.bucket, each.trips.count))
    spread = merged(moved)
    told = _told(dict(zip(SUMMED, sums, strict=True)), spread)
    return Table(tuple(names), {"component": np.arange(len(names))}, told, spread)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What crossed some components, each of another name."""

    names: Sequence[str]
    sums: Floats
    """(n_sums, n)"""
    trips: Spread


def _of_rnics(minute: Sealed, sums: Floats, trips: Spread, source: Ints, target: Ints) -> _Sums:
    """Return what crossed each RNIC; one that a pair shares is crossed once."""
    names = [str(rnic(*minute.rnics[each])) for each in minute.endpoints]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    number = np.array([numbers[name] for name in names], np.int64)
    a, b = number[source], number[target]
    total = _summed(a, sums, len(numbers))
    apart = a != b
    total += _summed(b[apart], sums[:, apart], len(numbers))
    every = (trips.place, trips.bucket, trips.count)
    spread = merged(
        moved for each in (a, np.where(apart, b, -1)) for moved in _moved([every], each)
    )
    return _Sums(tuple(numbers), total, spread)


def _summed(place: NDArray[Any], sums: Floats, size: int) -> Floats:
    """Return (n_sums, size) the sums (n_sums, n) by place (n,)."""
    none = np.zeros(size)
    return np.stack([np.bincount(place, each, size) if each.any() else none for each in sums])


def _of_fabric(parts: Sequence[Part], entries: Sequence[Entries]) -> _Sums:
    """Return what crossed each switch and link; `parts` are of one incidence."""
    there, back = (np.concatenate([getattr(p, name) for p in parts]) for name in ("there", "back"))
    is_known = (there >= 0) & (back >= 0)
    known = np.flatnonzero(is_known)
    if not len(known):
        return _Sums((), np.zeros((len(SUMMED), 0)), NOTHING)
    sums = np.stack([_joined(parts, name)[known].astype(np.float64) for name in SUMMED])
    there, back = there[known], back[known]
    rows, place = _met(len(parts[0].incidence), there, back)
    there, back = place[there], place[back]
    crossed, names = _crossed(parts[0].incidence, rows)
    by_row = _summed(there, sums, len(rows)) + _summed(back, sums, len(rows))
    total = np.zeros((len(SUMMED), len(names) + 1))
    for column in crossed.T:
        total += _summed(column, by_row, len(names) + 1)
    trips = _moved(_laid(parts, entries), np.where(is_known, np.cumsum(is_known) - 1, -1))
    spread = crossing(trips, crossed[there], crossed[back], len(names))
    for first in range(0, len(known), AT_ONCE):
        mine = slice(first, first + AT_ONCE)
        ways = crossed[there[mine]], crossed[back[mine]]
        total -= _twice(*ways, sums[:, mine], len(names) + 1)
    return _Sums(names, total[:, :-1], spread)  # the last one is none


def _crossed(incidence: Incidence, rows: Ints) -> tuple[NDArray[np.int32], list[str]]:
    """Return (n_rows, n) places of the components that each row crosses, and their names.

    Rows that cross fewer have places behind the names.
    """
    lengths, entries = incidence.entries(rows)
    parts = incidence.parts
    met, _ = _met(len(parts), entries)
    mine = [number for number in met.tolist() if isinstance(parts[number], Component)]
    names = [str(parts[number]) for number in mine]
    number = np.full(len(parts), len(names), np.int32)
    number[mine] = np.arange(len(mine))
    crossed = np.full((len(rows), int(lengths.max(initial=0))), len(names), np.int32)
    crossed[np.arange(crossed.shape[1]) < lengths[:, None]] = number[entries]
    crossed.sort(axis=1)  # what is no component stands last
    width = int((crossed < len(names)).sum(axis=1).max(initial=0))
    return crossed[:, :width], names


def _met(size: int, *numbers: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return which numbers below `size` are met, and (size,) the place of each among them."""
    is_met = np.zeros(size, np.bool_)
    for each in numbers:
        is_met[each] = True
    return np.flatnonzero(is_met), np.cumsum(is_met) - 1


def _twice(there: NDArray[np.int32], back: NDArray[np.int32], sums: Floats, size: int) -> Floats:
    """Return (n_sums, size) what crossed each component both ways."""
    both = np.zeros(there.shape, np.bool_)
    for column in back.T:
        both |= there == column[:, None]
    both &= there < size - 1
    flow, at = np.nonzero(both)
    return _summed(there[flow, at], sums[:, flow], size)
