# SPDX-License-Identifier: Apache-2.0
"""One minute by pair and by component, as columns with dictionaries of names.

A component counts a probe once, whether it, its reply or both crossed it. The sums over routes
there and those over routes back count twice what both cross, so that is taken off again: a pass
over routes, and one over flows, of which each is compared with few parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.history.ledger import NO_MIN, Part, Sealed
from analyzer.localize.incidence import Incidence
from netagent.model.path import Component, rnic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

AT_ONCE = 1 << 16
"""Flows that are compared with their ways together. Chosen: some megabytes."""
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
    (the geometric mean) and `rtt_max_ns`; these are 0 where `rtt_count` is."""

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
    source, target, columns = _by_pair(minute)
    names = [str(each) for each in minute.endpoints]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.zeros(len(names), np.int64)
    rank[order] = np.arange(len(names))
    place = np.lexsort((rank[target], rank[source]))
    keys = {"source": rank[source][place], "target": rank[target][place]}
    pairs = Table(
        tuple(names[each] for each in order),
        keys,
        _told({name: column[place] for name, column in columns.items()}),
    )
    return Block(
        minute.start_ns, minute.windows, pairs, _components(minute, columns, source, target)
    )


def _by_pair(minute: Sealed) -> tuple[Ints, Ints, dict[str, NDArray[Any]]]:
    """Return places of sources and targets, and what was gathered of each such pair."""
    parts = minute.parts
    ends = np.concatenate([np.zeros((2, 0), np.int64), *minute.ends], axis=1)
    columns = {name: _joined(parts, name) for name in (*SUMMED, "min_ns", "max_ns")}
    key = (ends[0] << 32) | ends[1]
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])[: len(key)])
    if not len(first):
        return key, key, columns
    found = {
        name: np.add.reduceat(columns[name][order], first, dtype=_wide(columns[name]))
        for name in SUMMED
    }
    found["min_ns"] = np.minimum.reduceat(columns["min_ns"][order], first)
    found["max_ns"] = np.maximum.reduceat(columns["max_ns"][order], first)
    return key[first] >> 32, key[first] & 0xFFFF_FFFF, found


def _joined(parts: Sequence[Part], name: str) -> NDArray[Any]:
    columns = [part.columns[name] for part in parts]
    return np.concatenate(columns) if columns else np.zeros(0, np.uint32)


def _wide(column: NDArray[Any]) -> type[np.float64 | np.int64]:
    return np.float64 if column.dtype.kind == "f" else np.int64


def _told(columns: Columns) -> Columns:
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
    return told


# --- components ---------------------------------------------------------------------------------


def _components(minute: Sealed, pairs: Columns, source: Ints, target: Ints) -> Table:
    of_pairs = np.stack([pairs[name].astype(np.float64) for name in SUMMED])
    found = _of_rnics(minute, of_pairs, source, target)
    by_incidence: dict[int, list[Part]] = {}
    for part in minute.parts:
        by_incidence.setdefault(id(part.incidence), []).append(part)
    for parts in by_incidence.values():
        for name, sums in _of_fabric(parts).items():
            found[name] = found[name] + sums if name in found else sums
    names = sorted(found)
    sums = np.array([found[name] for name in names], np.float64).reshape(-1, len(SUMMED)).T
    return Table(
        tuple(names),
        {"component": np.arange(len(names))},
        _told(dict(zip(SUMMED, sums, strict=True))),
    )


def _of_rnics(minute: Sealed, sums: Floats, source: Ints, target: Ints) -> dict[str, Floats]:
    """Return what crossed each RNIC, by its name; one that a pair shares is crossed once."""
    names = [str(rnic(*minute.rnics[each])) for each in minute.endpoints]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    number = np.array([numbers[name] for name in names], np.int64)
    a, b = number[source], number[target]
    total = _summed(a, sums, len(numbers))
    apart = a != b
    total += _summed(b[apart], sums[:, apart], len(numbers))
    return dict(zip(numbers, total.T, strict=True))


def _summed(place: NDArray[Any], sums: Floats, size: int) -> Floats:
    """Return (n_sums, size) the sums (n_sums, n) by place (n,)."""
    none = np.zeros(size)
    return np.stack([np.bincount(place, each, size) if each.any() else none for each in sums])


def _of_fabric(parts: Sequence[Part]) -> dict[str, Floats]:
    """Return what crossed each switch and link, by its name; `parts` are of one incidence."""
    there, back = (np.concatenate([getattr(p, name) for p in parts]) for name in ("there", "back"))
    known = np.flatnonzero((there >= 0) & (back >= 0))
    if not len(known):
        return {}
    sums = np.stack([_joined(parts, name)[known].astype(np.float64) for name in SUMMED])
    there, back = there[known], back[known]
    rows, place = _met(len(parts[0].incidence), there, back)
    there, back = place[there], place[back]
    crossed, names = _crossed(parts[0].incidence, rows)
    by_row = _summed(there, sums, len(rows)) + _summed(back, sums, len(rows))
    total = np.zeros((len(SUMMED), len(names) + 1))
    for column in crossed.T:
        total += _summed(column, by_row, len(names) + 1)
    for first in range(0, len(known), AT_ONCE):
        mine = slice(first, first + AT_ONCE)
        total -= _twice(crossed[there[mine]], crossed[back[mine]], sums[:, mine], len(names) + 1)
    return dict(zip(names, total.T, strict=False))  # the last one is none


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
