# SPDX-License-Identifier: Apache-2.0
"""Which groups of different ranks are one, where each knows its own by an address of its own.

Probes of gloo say of a group the rank's place in it, and of its connection to the member at some
other place numbers of two addresses: its own and that member's. One of the two listened at its own,
so that the other one says the same of its peer. Whoever has one in common is in one group.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, UNKNOWN, Group, GroupKind, Kind
from analyzer.operators.rows import Ints

Key = tuple[int, int]
"""Rank, and what it calls a group."""
UNSEEN = "unseen"
"""What probes call an operation whose end was not seen, as some of what they see was shed."""
_SHOWN = 8  # ranks in a group's name
_NEAR = 2  # operations around the nearest in time among which the same one is searched
_FEWEST = 3
"""Fewest operations by which two ranks' numbers are compared. Chosen: two may look alike."""


class Stated(NamedTuple):
    """What a rank says of one of its groups."""

    place: int
    size: int
    ends: Mapping[int, tuple[int, int]]
    """Place of another member -> numbers of the own address and of that member's."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A group of which several ranks say that they are in it."""

    name: str
    places: tuple[int, ...]
    """By place the rank; `UNKNOWN` where nobody is heard of."""

    @property
    def is_whole(self) -> bool:
        """Whether all of its members are known."""
        return UNKNOWN not in self.places

    @property
    def members(self) -> tuple[int, ...]:
        """Return the ranks that are known, in ascending order."""
        return tuple(sorted(each for each in self.places if each != UNKNOWN))


def joined(stated: Mapping[Key, Stated]) -> dict[Key, Joined]:
    """Return the groups of ranks that are in one with another rank, by what each calls it.

    What contradicts itself, as where two ranks claim one place, is left out.
    """
    of = {key: key for key in stated}

    def root(key: Key) -> Key:
        while of[key] != key:
            of[key] = of[of[key]]
            key = of[key]
        return key

    for one, other in _meeting(stated):
        first, last = sorted((root(one), root(other)))
        of[last] = first
    parts = defaultdict[Key, list[Key]](list)
    for key in sorted(stated):
        parts[root(key)].append(key)
    found: dict[Key, Joined] = {}
    names: dict[str, int] = {}
    for part in parts.values():
        places = _places(stated, part)
        if places is not None:
            group = Joined(_name(places, names), places)
            found |= dict.fromkeys(part, group)
    return found


def _meeting(stated: Mapping[Key, Stated]) -> Iterator[tuple[Key, Key]]:
    """Yield groups that have a connection in common, where nobody else claims to have it."""
    mine, its = (defaultdict[int, list[tuple[Key, int]]](list) for _ in range(2))
    for key, said in stated.items():
        for place, (own, other) in said.ends.items():
            mine[own].append((key, place))
            its[other].append((key, place))
    for number in mine.keys() & its.keys():
        if len(mine[number]) == len(its[number]) == 1:
            (one, to), (peer, back) = mine[number][0], its[number][0]
            here, there = stated[one], stated[peer]
            places = (here.place, there.place) == (back, to)
            if one[0] != peer[0] and here.size == there.size and places:
                yield one, peer


def _places(stated: Mapping[Key, Stated], part: Sequence[Key]) -> tuple[int, ...] | None:
    """Return by place the rank of a group; None where it is of one rank, or two claim a place."""
    places = {stated[key].place: key[0] for key in part}
    sizes = {stated[key].size for key in part}
    if not 1 < len(part) == len(places) == len(set(places.values())) or len(sizes) > 1:
        return None
    return tuple(places.get(place, UNKNOWN) for place in range(sizes.pop()))


def _name(places: Sequence[int], names: dict[str, int]) -> str:
    some = ",".join("?" if each == UNKNOWN else str(each) for each in places[:_SHOWN])
    more = f"... ({len(places)})" if len(places) > _SHOWN else ""
    name = f"ranks {some}{more}"
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name} #{names[name]}"


def shift(numbers: Ints, ends: Ints, others: Ints, their_ends: Ints) -> int | None:
    """Return what to add to a rank's numbers of a group's operations to have those of another one.

    Each counts from when it was watched on. All leave an operation at about one time, since nobody
    does before the last has come: this compares two hosts' clocks, which have to differ by less
    than what lies between two operations. None where too few ended at both, in one time, to tell.
    """
    if min(len(ends), len(their_ends)) < _FEWEST:
        return None
    low, high = max(ends[0], their_ends[0]), min(ends[-1], their_ends[-1])
    if low > high:
        return None
    middle = (low + high) / 2
    at, there = (
        min(int(np.searchsorted(each, middle)), len(each) - 1) for each in (ends, their_ends)
    )
    about = int(others[there] - numbers[at])
    best: tuple[float, int, int] | None = None
    for by in range(about - _NEAR, about + _NEAR + 1):
        _, mine, its = np.intersect1d(numbers + by, others, return_indices=True)
        if len(mine) >= _FEWEST:
            off = float(np.median(np.abs(ends[mine] - their_ends[its])))
            best = min(best or (np.inf, 0, 0), (off, abs(by), by))
    return None if best is None else best[2]


def resolved(
    columns: Mapping[str, NDArray[Any]],
    groups: Sequence[Group],
    stated: Mapping[int, Stated],
    world: int,
) -> tuple[dict[str, NDArray[Any]], tuple[Group, ...], bool]:
    """Return what probes saw of several ranks, with groups joined and peers as ranks; and groups.

    Each of `groups`, by place, is of one rank; peers are places in it. `world`: how many ranks the
    job has. The third says whether all groups and peers are known, so that a log of these lacks
    nothing in which these ranks wait.
    """
    made = {name: values.copy() for name, values in columns.items()}
    rank, group, kind = made["rank"], made["group"], made["kind"]
    moves = np.isin(kind, (Kind.SEND, Kind.RECV))
    of_group = _by(group)
    owners = {(int(rank[at[0]]), number): number for number, at in of_group.items() if number >= 0}
    found = joined({key: stated[number] for key, number in owners.items() if number in stated})
    kept = [*groups]
    names: dict[str, int] = {}
    for (_, number), of in found.items():
        if of.name not in names:
            names[of.name] = len(kept)
            every = of.is_whole and len(of.places) == world
            kind_of = GroupKind.WORLD if every else GroupKind.UNKNOWN
            kept.append(Group("world" if every else of.name, kind_of, of.members))
        rows = of_group[number]
        group[rows] = names[of.name]
        _rename(made, rows[moves[rows]], of)
    made["sequence"][moves] = UNKNOWN  # counted from when each was watched on
    of_group = _by(group)
    for number in names.values():
        rows = of_group[number]
        _align(made, rows[~moves[rows]])
    others = moves & ~np.isin(columns["group"], [number for _, number in found])
    made["peer"][others] = UNKNOWN
    known = {names[of.name] for of in found.values() if of.is_whole}
    used = np.unique(group[group >= 0])
    whole = set(used.tolist()) <= known
    whole &= not (moves & (group >= 0) & (made["peer"] < 0)).any()
    made["group"] = np.where(group >= 0, np.searchsorted(used, group), UNKNOWN)
    return made, tuple(kept[number] for number in used.tolist()), bool(whole)


def _by(values: NDArray[Any]) -> dict[int, Ints]:
    """Return the rows that have each value, in order."""
    order = np.argsort(values, kind="stable")
    met, first = np.unique(values[order], return_index=True)
    return dict(zip(met.tolist(), np.split(order, first)[1:], strict=True))


def _rename(made: Mapping[str, NDArray[Any]], rows: Ints, of: Joined) -> None:
    """Have places that transfers name be ranks."""
    places = np.array([*of.places, UNKNOWN], np.int64)
    peer = made["peer"][rows]
    made["peer"][rows] = places[np.where((peer >= 0) & (peer < len(of.places)), peer, -1)]


def _align(made: Mapping[str, NDArray[Any]], rows: Ints) -> None:
    """Have one number be one operation of a group at all of its ranks."""
    number, end = made["sequence"], made["ended_ns"]
    of = [rows[each] for each in _by(made["rank"][rows]).values()]
    over = [each[end[each] != NEVER] for each in of]
    by = [shift(number[each], end[each], number[over[0]], end[over[0]]) for each in over]
    for each, more in zip(of, by, strict=True):
        if more is None or None in by:
            number[each] = UNKNOWN
        else:
            number[each] += more
