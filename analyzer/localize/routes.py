# SPDX-License-Identifier: Apache-2.0
"""Routes by row, and which of them each direction of a flow takes, in columns.

A fabric of 40,000 RNICs has three million directions, on some hundred thousand routes. Nearly all
of a window's flows lose nothing on routes that stood long before it, and are only counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.places import met
from analyzer.localize.incidence import BLOCK, Incidence, Ints, Route, grown
from netagent.model.topology import DeclaredTopology

LEAST_ROUTES = 10_000
"""Routes that are remembered however few directions take them. Chosen: some megabytes."""
NO_ROUTE = -1
UNTRACED = -3
"""Row of a flow that no trace has shown anything of."""
NEVER_NS = np.iinfo(np.int64).min

Rows = NDArray[np.int32]
Numbers = NDArray[np.int32]
Mask = NDArray[np.bool_]
Hashes = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
"""An odd number whose bits are in no order: 2**64 divided by the golden ratio."""


def _none() -> tuple[Hashes, Ints]:
    return np.zeros(0, np.uint64), np.zeros(0, np.int64)


@dataclass(slots=True)
class Routers:
    """Numbers of routers' addresses and names, from 0, which is a silent one's."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"_as_array"})
    """What no recording holds: it follows from the rest."""

    declared: DeclaredTopology = field(default_factory=DeclaredTopology)
    names: list[str] = field(default_factory=lambda: [""])
    _named: list[int] = field(default_factory=lambda: [0])
    """Number of an address -> number of its name."""
    _number: dict[str, int] = field(default_factory=lambda: {"": 0})
    _as_array: Numbers = field(default_factory=lambda: np.zeros(0, np.int32))
    """Cache: `_named`. A fabric has thousands, and each host's paths ask."""

    def numbers(self, hops: Sequence[str]) -> Numbers:
        """Return the numbers (n,) of addresses, new ones where they have none yet."""
        known = list(map(self._number.get, hops))
        if None in known:
            known = [self._add(each) for each in hops]
        return np.array(known, np.int32)

    def number(self, hop: str) -> int:
        """Return the number of an address; -1 where it has none."""
        return self._number.get(hop, -1)

    @property
    def named_at(self) -> Sequence[int]:
        """Return for the number of each address that of its name: of a few, no array is made."""
        return self._named

    def named(self, hops: Numbers) -> Numbers:
        """Return the numbers (n,) of the names of addresses."""
        if len(self._as_array) != len(self._named):
            self._as_array = np.array(self._named, np.int32)
        named: Numbers = self._as_array[hops]
        return named

    def _add(self, hop: str) -> int:
        number = self._number.get(hop)
        if number is None:
            number = self._number[hop] = len(self.names)
            self.names.append(hop)
            self._named.append(number)
            name = self.declared.name(hop)
            self._named[number] = number if name == hop else self._add(name)
        return number


@dataclass(slots=True, eq=False)
class RouteTable(Sequence[Route]):
    """Routes, each once; as a sequence it has them by name."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset(
        {"incidence", "_row", "_many", "_gathered", "turned", "_routes", "_of", "_since_ns"}
    )
    """What no recording holds, since it follows from the routes, or earlier versions' only."""

    routers: Routers = field(default_factory=Routers)
    crossed_ns: Ints = field(default_factory=lambda: np.full(1024, NEVER_NS))
    """(n,): start of the newest window in which a flow's whole route was this one."""
    incidence: Incidence = field(default_factory=Incidence)
    """What those by name cross, as far as it was asked for."""
    _size: int = 0
    _hops: Numbers = field(default_factory=lambda: np.zeros(4096, np.int32))
    """Numbers of the addresses that answered, one route after the other."""
    _begins: Ints = field(default_factory=lambda: np.zeros(1025, np.int64))
    _row: dict[bytes, int] = field(default_factory=dict)
    """Who answered on a route, in order -> its row; without those in `_many`."""
    _many: tuple[Hashes, Ints] = field(default_factory=_none)
    """Hashes of routes, in order, each once, and their rows. Of two million, keys of a dictionary
    take 0.3 GB, and a second of a start."""
    _gathered: int = 0
    """How many rows there were when they were last gathered there."""

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, row: int) -> Route: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[Route]: ...

    def __getitem__(self, row: int | slice) -> Route | Sequence[Route]:
        """Return a route by name; IndexError behind the last one."""
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        if row >= len(self):
            raise IndexError(f"no row {row} among {len(self)} routes")
        names, named = self.routers.names, self.routers.named_at
        return tuple([names[named[hop]] for hop in self._of(row).tolist()])

    def shown(self, row: int) -> Route:
        """Return a route by the addresses that answered."""
        return self._route(self._of(row))

    def last(self, rows: NDArray[Any]) -> Numbers:
        """Return the numbers (n,) of the addresses at which routes end."""
        last: Numbers = self._hops[self._begins[rows + 1] - 1]
        return last

    def ends(self, rows: NDArray[Any]) -> tuple[Numbers, Numbers]:
        """Return the numbers (n,) of the names with which routes begin and end."""
        begin = self.routers.named(self._hops[self._begins[rows]])
        return begin, self.routers.named(self.last(rows))

    def rows(self, routes: Sequence[Route]) -> tuple[Rows, Mask]:
        """Return the rows (n,) of routes, new ones where they have none, NO_ROUTE of empty ones.

        Of a router that spoke for the one behind it, the latter counts as silent. The second says
        where the last one did not answer for itself, or another one.
        """
        lengths = np.fromiter(map(len, routes), np.int64, len(routes))
        begins = np.concatenate([[0], np.cumsum(lengths)])
        hops = self.routers.numbers([hop for route in routes for hop in route])
        of = np.repeat(np.arange(len(routes)), lengths)
        named = self.routers.named(hops)
        twice = (named[1:] == named[:-1]) & (of[1:] == of[:-1]) & (hops[1:] != 0)
        stood_in = np.zeros(len(routes), np.bool_)
        if twice.any():
            answered = list(routes)
            for place in np.unique(of[1:][twice]).tolist():
                answered[place] = self._answered(routes[place])
                stood_in[place] = len(answered[place]) == len(routes[place])
            return self.rows(answered)[0], stood_in
        if not self._row or len(self) - self._gathered > max(BLOCK, self._gathered // 2):
            self._gather()
        known = self._among_many(hops, lengths)
        missing = np.flatnonzero(known == NO_ROUTE)
        if len(missing):
            known[missing] = self._rows_by_key(_keys(hops, begins, len(routes)), missing, hops, of)
        return known, stood_in

    def _rows_by_key(self, keys: list[bytes], which: Ints, hops: Numbers, of: Ints) -> Rows:
        """Return the rows of routes that are not among `_many`, new ones where they have none.

        `of` (n_hops,) says which route each of `hops` is on, and `which` (n,) are wanted.
        """
        wanted = [keys[place] for place in which.tolist()]
        if not self._row.keys() >= set(wanted):
            new = dict[bytes, int]()
            for key, place in zip(wanted, which.tolist(), strict=True):
                if key not in self._row:
                    new.setdefault(key, place)
            self._add(new, hops, of)
        return np.array([self._row[key] for key in wanted], np.int32)

    def _add(self, new: Mapping[bytes, int], hops: Numbers, of: Ints) -> None:
        self._row.update(zip(new, range(len(self), len(self) + len(new)), strict=True))
        mine = np.zeros(int(of[-1]) + 1, np.bool_)
        mine[list(new.values())] = True
        lengths = np.bincount(of)[mine]
        first, size = int(self._begins[len(self)]), len(self) + len(new)
        ends = first + np.cumsum(lengths)
        self._hops = grown(self._hops, int(ends[-1]))
        self._hops[first : ends[-1]] = hops[mine[of]]
        self._begins = grown(self._begins, size + 1)
        self._begins[len(self) + 1 : size + 1] = ends
        self.crossed_ns = grown(self.crossed_ns, size, NEVER_NS)
        self._size = size

    def _gather(self) -> None:
        """Have all rows where they can be looked up."""
        begins = self._begins[: len(self) + 1]
        hashes = _hashes(self._hops[: begins[-1]], np.diff(begins))
        order = hashes.argsort(kind="stable")
        hashes = hashes.take(order)
        is_first = np.ones(len(hashes), np.bool_)
        np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
        self._many, self._gathered = (hashes[is_first], order[is_first]), len(self)
        others = order[~is_first].tolist()
        self._row = {b"": NO_ROUTE} | {self._of(row).tobytes(): row for row in others}

    def _among_many(self, hops: Numbers, lengths: Ints) -> Rows:
        """Return the rows (n,) of routes that are among `_many`, NO_ROUTE of all others."""
        hashes, rows = self._many
        if not len(hashes):
            return np.full(len(lengths), NO_ROUTE, np.int32)
        sought = _hashes(hops, lengths)
        place = np.minimum(hashes.searchsorted(sought), len(hashes) - 1)
        row = rows.take(place)
        same = hashes.take(place) == sought
        same &= self._begins.take(row + 1) - self._begins.take(row) == lengths
        of = np.repeat(np.arange(len(lengths)), lengths)
        places = _places(lengths)
        ours = same[of]
        theirs = self._hops[self._begins[row][of[ours]] + places[ours]]
        same[of[ours][theirs != hops[ours]]] = False
        return np.where(same & (lengths > 0), row, NO_ROUTE).astype(np.int32)

    def _answered(self, hops: Route) -> Route:
        """Return who answered for itself, "" for routers that the one before them spoke for."""
        names = [self.routers.declared.name(hop) if hop else "" for hop in hops]
        answered = ["" if n and names[n] == names[n - 1] else hop for n, hop in enumerate(hops)]
        while len(answered) > 1 and hops[len(answered) - 1] and not answered[-1]:
            answered.pop()
        return tuple(answered)

    def cover(self) -> None:
        """Have all rows in the incidence."""
        known = len(self.incidence)
        if len(self) - known > BLOCK:
            routers = int(self._begins[len(self)] - self._begins[known])
            self.incidence.reserve(len(self) - known, routers)
        for first in range(known, len(self), BLOCK):
            begins = self._begins[first : min(len(self), first + BLOCK) + 1]
            hops = self.routers.named(self._hops[begins[0] : begins[-1]])
            self.incidence.enter(self.routers.names, hops.astype(np.int64), begins - begins[0])

    def routers_of(self, rows: Ints) -> tuple[Ints, Numbers]:
        """Return (n,) how many routers each of `rows` has, and the numbers of their names.

        The latter are row after row; 0 is a silent one.
        """
        first = self._begins[rows]
        lengths = self._begins[rows + 1] - first
        before = np.cumsum(lengths) - lengths
        place = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
        return lengths, self.routers.named(self._hops[place])

    def crossed(self) -> Ints:
        """Return the rows that were a flow's whole route."""
        return np.flatnonzero(self.crossed_ns[: len(self)] != NEVER_NS)

    def links(self) -> set[tuple[int, int]]:
        """Return the numbers of addresses beside each other on flows' whole routes, sorted."""
        mine = self.crossed_ns[: len(self)] != NEVER_NS
        lengths = self._begins[1 : len(self) + 1] - self._begins[: len(self)]
        of = np.repeat(np.arange(len(self)), lengths)
        hops = self._hops[: len(of)].astype(np.int64)
        beside = (of[1:] == of[:-1]) & (hops[1:] != 0) & (hops[:-1] != 0) & mine[of[1:]]
        a, b = hops[:-1][beside], hops[1:][beside]
        keys = np.unique(np.minimum(a, b) << 32 | np.maximum(a, b))
        return {(key >> 32, key & 0xFFFF_FFFF) for key in keys.tolist()}

    def only(self, kept: Mask) -> tuple["RouteTable", Rows]:
        """Return a table of these rows (n,) alone, and for each row what it is there.

        NO_ROUTE is what the others are.
        """
        places = np.flatnonzero(kept)
        now = np.full(len(self), NO_ROUTE, np.int32)
        now[places] = np.arange(len(places))
        table = RouteTable(Routers(self.routers.declared))
        lengths = self._begins[1 : len(self) + 1] - self._begins[: len(self)]
        hops = self._hops[: self._begins[len(self)]][np.repeat(kept, lengths)]
        found, place = met(hops, len(self.routers.names))
        numbers = table.routers.numbers([self.routers.names[hop] for hop in found.tolist()])
        table._hops, table._size = numbers[place], len(places)
        table._begins = np.concatenate([[0], np.cumsum(lengths[places])])
        table.crossed_ns = self.crossed_ns[places]
        return table, now

    def turned(self, rows: Rows, latest: Rows) -> tuple[Mask, tuple[list[tuple[str, str]], Ints]]:
        """Return (n,) where the latest of two routes shows another router than the first.

        And the links of the first at which others, which are as long as they are, end: the
        addresses of their routers, and (n,) the place of each row's among them; -1 where it ends
        at none.
        """
        begins, lengths = self._begins[:-1], np.diff(self._begins)
        first, last = begins[rows], begins[latest]
        count, shown = lengths[rows], lengths[latest]
        turned = np.zeros(len(rows), np.bool_)
        for place in range(int(np.minimum(count, shown).max(initial=0))):
            at = np.flatnonzero((count > place) & (shown > place) & (rows != latest))
            one, other = self._hops[first[at] + place], self._hops[last[at] + place]
            turned[at] |= (one != 0) & (other != 0) & (one != other)
        ends = np.flatnonzero(~turned & (shown > 0) & (shown < count))
        hops = (self._hops[first[ends] + shown[ends] + n].astype(np.int64) for n in (-1, 0))
        keys = next(hops) << 32
        links, place_of = np.unique(keys + next(hops), return_inverse=True)
        gap = np.full(len(rows), -1, np.int64)
        gap[ends] = place_of.reshape(-1)
        names = self.routers.names
        return turned, ([(names[k >> 32], names[k & 0xFFFF_FFFF]) for k in links.tolist()], gap)

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Return the routes as `localize.saved.COLUMNS` has them."""
        begins = self._begins[: len(self) + 1]
        return {
            "hops": self._hops[: begins[-1]],
            "lengths": begins[1:] - begins[:-1],
            "crossed_ns": self.crossed_ns[: len(self)],
        }

    def put(self, names: Sequence[str], columns: Mapping[str, NDArray[Any]]) -> None:
        """Take what `columns` returned, into an empty table; `names` are its routers' addresses."""
        lengths = columns["lengths"].astype(np.int64)
        self._hops, self._size = self.routers.numbers(names)[columns["hops"]], len(lengths)
        self._begins = np.concatenate([[0], np.cumsum(lengths)])
        self.crossed_ns = columns["crossed_ns"].copy()
        self._gather()

    def _of(self, row: int) -> Numbers:
        return self._hops[self._begins[row] : self._begins[row + 1]]

    def _route(self, hops: Numbers) -> Route:
        names = self.routers.names
        return tuple([names[hop] for hop in hops.tolist()])


@dataclass(frozen=True, slots=True)
class Settled:
    """Routes of some flows."""

    there: Ints
    """(n_flows,): row of `routes`; NO_ROUTE where it, or the way back, is not settled, UNTRACED
    where neither was ever traced."""
    back: Ints
    routes: Sequence[Route]
    """By name."""
    incidence: Incidence
    """What they cross."""


@dataclass(slots=True, eq=False)
class Directions:
    """What each direction of a flow takes; arrays are (2, n) by the flow's number, replies last."""

    newest: Rows = field(default_factory=lambda: np.full((2, 1024), NO_ROUTE, np.int32))
    """Row of the newest whole route; NO_ROUTE where the direction was never traced to its end."""
    since_ns: Ints = field(default_factory=lambda: np.zeros((2, 1024), np.int64))
    """Start of the window that first showed it."""
    latest: Rows = field(default_factory=lambda: np.full((2, 1024), NO_ROUTE, np.int32))
    """Row of what the latest trace showed, whole or not; NO_ROUTE where nothing was traced."""
    seen_ns: Ints = field(default_factory=lambda: np.zeros((2, 1024), np.int64))
    """Start of the newest window with a trace."""

    def __len__(self) -> int:
        return len(self.newest[0])

    def cover(self, numbers: Ints) -> None:
        """Have a place for each of these flows."""
        more = int(numbers.max(initial=-1)) + 1 - len(self)
        if more > 0:
            more = max(more, len(self))
            self.newest, self.latest = (
                _longer(each, more, NO_ROUTE) for each in (self.newest, self.latest)
            )
            self.since_ns, self.seen_ns = (
                _longer(each, more, 0) for each in (self.since_ns, self.seen_ns)
            )

    def expire(self, *, before_ns: int) -> Mask:
        """Forget directions that no window since `before_ns` showed; return which (2, n)."""
        gone: Mask = (self.latest != NO_ROUTE) & (self.seen_ns < before_ns)
        self.newest[gone] = self.latest[gone] = NO_ROUTE
        return gone

    def renumber(self, now: Rows) -> None:
        """Take new rows of the routes, as `RouteTable.only` returned them."""
        now = np.append(now, np.int32(NO_ROUTE))  # which -1 is the place of
        self.newest, self.latest = now[self.newest], now[self.latest]


def _places(lengths: Ints) -> Ints:
    """Return (n_hops,) the place of each router on its route."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _hashes(hops: Numbers, lengths: Ints) -> Hashes:
    """Return a number (n,) for each route, most likely another one for another route."""
    found = np.zeros(len(lengths), np.uint64)
    ends = np.cumsum(lengths)
    # Of a million routes at once, what is counted here would be the most that a judge ever needs.
    for first in range(0, len(lengths), BLOCK):
        some = slice(first, first + BLOCK)
        begin, end = ends[first] - lengths[first], ends[some][-1]
        found[some] = _hashed(hops[begin:end], lengths[some])
    return found


def _hashed(hops: Numbers, lengths: Ints) -> Hashes:
    odd = (2 * _places(lengths).astype(np.uint64) + 1) * GOLDEN
    mixed = (hops.astype(np.uint64) + 1) * odd
    mixed = (mixed ^ (mixed >> np.uint64(31))) * GOLDEN
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    found: Hashes = sums[ends] - sums[ends - lengths]
    return found ^ (found >> np.uint64(29))


def _keys(hops: Numbers, begins: Ints, size: int) -> list[bytes]:
    """Return one key for each of the first `size` routes: who answered, in order."""
    data, cuts = hops.tobytes(), (hops.itemsize * begins[: size + 1]).tolist()
    return [data[first:last] for first, last in pairwise(cuts)]


def _longer(columns: NDArray[Any], more: int, fill: int) -> NDArray[Any]:
    grown = np.full((len(columns), more), fill, columns.dtype)
    return np.concatenate([columns, grown], axis=1)
