# SPDX-License-Identifier: Apache-2.0
"""Which parts of the fabric routes cross, both ways: parts by route, and routes by part.

A route is entered once, when it is first met, and asked about in every window in which something
was lost; a large fabric has a million of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.places import met
from netagent.model.path import Component, Kind, link, switch

Route = tuple[str, ...]
"""Routers, nearest first; "" where one is silent."""
Direction = tuple[str, str]
"""Names of two routers: the link from the first to the second."""
Part = Component | Direction
"""What can be at fault on a route: a switch, a link, or a link in one direction."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Parts = frozenset[Part]

BLOCK = 1 << 17
"""Rows of which entries are summed at once. Chosen: what they need stays in the cache."""
MANY = 64
"""Parts from which all entries are looked at instead of those of each. Chosen: a part is some
thousand entries of millions, or a good share of them."""
UNSORTED = 10_000
"""Entries among which a part is looked for one by one, at least. Chosen: that takes microseconds,
and sorting all of them anew a hundred times as long."""


class Incidence:
    """Rows of routes, with the parts that each crosses."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._number: dict[Part, int] = {}
        self._crossed = np.zeros(1024, np.int32)
        """Numbers of the parts of one row after the other, each once."""
        self._begins = np.zeros(1025, np.int64)
        self._size = 0
        self._sorted = np.zeros(0, np.int64)
        """Places in `_crossed` of the first entries, by the number of the part."""
        self._starts = np.zeros(1, np.int64)
        """Number of a part -> where its own begin among them."""
        self._ends = np.zeros(0, np.int64)
        """Links that were entered, sorted: the numbers of two routers' names, as one."""
        self._links = np.zeros((0, 2), np.int64)
        """For each of them the numbers of the link, and of this direction of it."""
        self._counts: dict[Kind, Ints] = {}
        """Kind -> how many components of it each row crosses, for the rows counted so far."""

    def __len__(self) -> int:
        return self._size

    def enter(self, names: Sequence[str], hops: Ints, begins: Ints) -> None:
        """Enter one more row for each route.

        `hops` are the places of its routers in `names`, one route after the other; they begin at
        `begins` (n_routes + 1,). A name keeps its place from one call to the next.
        """
        lengths = begins[1:] - begins[:-1]
        row = np.repeat(np.arange(len(lengths)), lengths)
        found, place = met(hops, len(names))
        answers = np.array([bool(names[hop]) for hop in found.tolist()], np.bool_)[place]
        numbers = [self._part(switch(names[hop])) if names[hop] else -1 for hop in found.tolist()]
        beside = (row[1:] == row[:-1]) & answers[1:] & answers[:-1]
        a, b = hops[:-1][beside], hops[1:][beside]
        links = self._links_of(names, (a.astype(np.int64) << 32) | b)
        rows = np.concatenate([row[answers], row[1:][beside], row[1:][beside]])
        parts = np.concatenate([np.array(numbers, np.int64)[place][answers], *links.T])
        order = np.argsort(rows, kind="stable")
        self._append(*_once(rows[order], parts[order], _looped(row, hops, answers)), len(lengths))

    def reserve(self, rows: int, routers: int) -> None:
        """Have room for so many more rows of so many routers, before they are entered."""
        entries = int(self._begins[self._size]) + 3 * routers  # each, and a link both ways
        self._crossed = grown(self._crossed, entries)
        self._begins = grown(self._begins, self._size + rows + 1)

    def put(self, parts: Iterable[Part]) -> None:
        """Enter a row that crosses `parts`."""
        numbers = np.array([self._part(each) for each in parts], np.int64)
        self._append(np.zeros(len(numbers), np.int64), numbers, 1)

    def _append(self, rows: Ints, parts: Ints, size: int) -> None:
        """Enter `size` rows: which of them each entry is in, in order, and its part."""
        first = int(self._begins[self._size])
        self._crossed = grown(self._crossed, first + len(parts))
        self._crossed[first : first + len(parts)] = parts
        self._begins = grown(self._begins, self._size + size + 1)
        ends = first + np.cumsum(np.bincount(rows, minlength=size))
        self._begins[self._size + 1 : self._size + size + 1] = ends
        self._size += size

    def _links_of(self, names: Sequence[str], ends: Ints) -> Ints:
        """Return (n, 2) the numbers of links, and of the direction, for what `_ends` has."""
        at = np.searchsorted(self._ends, ends)
        at[at == len(self._ends)] = 0
        new = np.unique(ends[self._ends[at] != ends]) if len(self._ends) else np.unique(ends)
        if len(new):
            first, second = new >> 32, new & 0xFFFF_FFFF
            undirected = (np.minimum(first, second) << 32) | np.maximum(first, second)
            _, place = np.unique(undirected, return_inverse=True)
            known: dict[int, int] = {}
            links: list[tuple[int, int]] = []
            for a, b, at_link in zip(first.tolist(), second.tolist(), place.tolist(), strict=True):
                both = names[a], names[b]
                number = known.get(at_link)
                if number is None:  # a name is long to build, and most links are met both ways
                    number = known[at_link] = self._part(link(*both))
                links.append((number, self._part(both)))
            merged = np.concatenate([self._ends, new])
            order = np.argsort(merged)
            self._ends = merged[order]
            self._links = np.concatenate([self._links, np.array(links, np.int64)])[order]
            at = np.searchsorted(self._ends, ends)
        found: Ints = self._links[at]
        return found

    def _part(self, part: Part) -> int:
        number = self._number.get(part)
        if number is None:
            number = self._number[part] = len(self._parts)
            self._parts.append(part)
        return number

    def _entries(self) -> NDArray[np.int32]:
        return self._crossed[: self._begins[self._size]]

    def rows(self, part: Part) -> Ints:
        """Return the rows that cross a part, in order."""
        number = self._number.get(part)
        if number is None:
            return np.zeros(0, np.int64)
        entries, known = self._entries(), len(self._sorted)
        if len(entries) - known > max(UNSORTED, known // 4):
            self._sorted, known = _in_order(entries), len(entries)
            counts = np.bincount(entries, minlength=len(self._parts))
            self._starts = np.concatenate([[0], np.cumsum(counts)])
        first, last = (
            self._starts[number : number + 2] if number + 1 < len(self._starts) else (0, 0)
        )
        later = known + np.flatnonzero(entries[known:] == number)
        places = np.concatenate([self._sorted[first:last], later])
        found: Ints = np.searchsorted(self._begins[: self._size + 1], places, "right") - 1
        return found

    def across(self, parts: Collection[Part]) -> NDArray[np.bool_]:
        """Return (n_rows,) which rows cross any of `parts`."""
        hit = np.zeros(self._size, np.bool_)
        if len(parts) < MANY:
            for part in parts:
                hit[self.rows(part)] = True
            return hit
        wanted = np.zeros(len(self._parts) + 1, np.bool_)
        wanted[self.numbers(parts)] = True
        wanted[-1] = False  # what no row crosses
        for first in range(0, self._size, BLOCK):
            begins = self._begins[first : min(self._size, first + BLOCK) + 1]
            mine = wanted[self._crossed[begins[0] : begins[-1]]]
            before = np.concatenate([[0], np.cumsum(mine)])[begins - begins[0]]
            hit[first : first + BLOCK] = before[1:] > before[:-1]
        return hit

    def crossed(self, row: int) -> Parts:
        """Return the parts that a row crosses."""
        numbers = self._crossed[self._begins[row] : self._begins[row + 1]]
        return frozenset(self._parts[number] for number in numbers.tolist())

    @property
    def parts(self) -> Sequence[Part]:
        """Return all parts, by their numbers."""
        return self._parts

    def entries(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return (n,) how many parts each of `rows` crosses, and their numbers, row after row."""
        begins = self._begins
        first, lengths = begins[rows], begins[rows + 1] - begins[rows]
        before = np.cumsum(lengths) - lengths
        place = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
        return lengths, self._crossed[place]

    def lengths(self) -> Ints:
        """Return (n_rows,) how many parts each crosses."""
        begins = self._begins[: self._size + 1]
        return begins[1:] - begins[:-1]

    def count(self, kind: Kind) -> Ints:
        """Return (n_rows,) how many components of a kind each crosses."""
        known = self._counts.get(kind, np.zeros(0, np.int64))
        if (first := len(known)) < self._size:
            begins = self._begins[first : self._size + 1]
            is_kind = [isinstance(each, Component) and each.kind is kind for each in self._parts]
            mine = np.array([*is_kind, False])[self._crossed[begins[0] : begins[-1]]]
            before = np.concatenate([[0], np.cumsum(mine)])[begins - begins[0]]
            known = self._counts[kind] = np.concatenate([known, before[1:] - before[:-1]])
        return known

    def numbers(self, parts: Iterable[object]) -> Ints:
        """Return the number (n,) of each part; -1 of what no row crosses."""
        known: Mapping[Any, int] = self._number
        return np.array([known.get(each, -1) for each in parts], np.int64)

    def sums(self, weights: Sequence[Floats]) -> Floats:
        """Return (n_weights, n_parts) the sum over the rows that cross each part.

        Each of `weights` has one number for each of the first rows.
        """
        made = np.zeros((len(weights), len(self._parts)))
        count = len(weights[0])
        for first in range(0, count, BLOCK):
            begins = self._begins[first : min(count, first + BLOCK) + 1]
            parts = self._crossed[begins[0] : begins[-1]].astype(np.int64)
            lengths = begins[1:] - begins[:-1]
            for n, each in enumerate(weights):
                of_entry = np.repeat(each[first : first + BLOCK], lengths)
                made[n] += np.bincount(parts, of_entry, len(self._parts))
        return made


def _in_order(numbers: NDArray[np.int32]) -> Ints:
    """Return the places of numbers in their order; of equal ones, the first comes first."""
    # Of two bytes numpy counts, which takes a fifth of comparing.
    order: Ints = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    high = (numbers >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def _looped(row: Ints, hops: Ints, answers: NDArray[np.bool_]) -> Ints:
    """Return the rows of routes in which a router stands twice, once or more often each."""
    found = [np.zeros(0, np.int64)]
    for apart in range(1, int(np.bincount(row).max(initial=0))):
        same = (row[apart:] == row[:-apart]) & (hops[apart:] == hops[:-apart]) & answers[apart:]
        found.append(row[apart:][same])
    return np.concatenate(found)


def _once(rows: Ints, parts: Ints, looped: Ints) -> tuple[Ints, Ints]:
    """Return entries without those that stand in their row before; only `looped` have such."""
    if not len(looped):
        return rows, parts
    places = np.flatnonzero(np.isin(rows, looped))
    _, first = np.unique((rows[places] << 32) | parts[places], return_index=True)
    kept = np.ones(len(rows), np.bool_)
    kept[places] = False
    kept[places[first]] = True
    return rows[kept], parts[kept]


def grown(column: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    """Return a column with room for `size` items, half of them free at most."""
    if size <= len(column):
        return column
    more = max(size, 2 * len(column)) - len(column)
    return np.concatenate([column, np.full(more, fill, column.dtype)])


class Crossed(Mapping[int, Parts]):
    """What rows cross for certain: rows of routes, and behind them some of another kind.

    As a mapping it has the rows of one window.
    """

    def __init__(
        self, incidence: Incidence, first: int, others: Mapping[int, Parts], numbers: Ints
    ) -> None:
        """Take the `first` rows from `incidence`, and `others` behind them.

        `numbers` are the rows that the mapping has.
        """
        self._incidence, self._first, self.others = incidence, first, others
        self._numbers = numbers

    @classmethod
    def of(cls, parts: Mapping[int, Parts], first: int) -> "Crossed":
        """Return the same as a plain mapping, of which rows from `first` on are of another kind."""
        incidence = Incidence()
        for row in range(first):
            incidence.put(parts.get(row, ()))
        others = {row: crossed for row, crossed in parts.items() if row >= first}
        return cls(incidence, first, others, np.array(list(parts), np.int64))

    def but(self, others: Mapping[int, Parts]) -> "Crossed":
        """Return the same with other ones behind the routes."""
        return Crossed(self._incidence, self._first, others, self._numbers)

    def __getitem__(self, row: int) -> Parts:
        return self._incidence.crossed(row) if row < self._first else self.others[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.tolist())

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def routes(self) -> int:
        """Return how many rows are of routes."""
        return self._first

    def rows(self, part: Part) -> Ints:
        """Return the rows of routes that cross a part."""
        found = self._incidence.rows(part)
        return found[: np.searchsorted(found, self._first)]

    def across(self, parts: Collection[Part], size: int) -> NDArray[np.bool_]:
        """Return (size,) which rows, of either kind, cross any of `parts`."""
        hit = np.zeros(size, np.bool_)
        of_routes = self._incidence.across(parts)[: min(self._first, size)]
        hit[: len(of_routes)] = of_routes
        hit[[row for row, mine in self.others.items() if not mine.isdisjoint(parts)]] = True
        return hit

    def numbers(self, parts: Iterable[object]) -> Ints:
        """Return the number (n,) of each part among those of routes; -1 where it is none."""
        return self._incidence.numbers(parts)

    def sums(self, weights: Sequence[Floats]) -> Floats:
        """Return (n_weights, n_parts) sums over the rows of routes that cross each part."""
        return self._incidence.sums([each[: self._first] for each in weights])

    def lengths(self, size: int) -> Ints:
        """Return (size,) how many parts each row of a route crosses."""
        return self._sized(self._incidence.lengths(), size)

    def count(self, kind: Kind, size: int) -> Ints:
        """Return (size,) how many components of a kind each row, of either kind, crosses."""
        count = self._sized(self._incidence.count(kind), size)
        for row, parts in self.others.items():
            count[row] = sum(isinstance(p, Component) and p.kind is kind for p in parts)
        return count

    def _sized(self, of_routes: Ints, size: int) -> Ints:
        found = np.zeros(size, np.int64)
        mine = of_routes[: min(self._first, size)]
        found[: len(mine)] = mine
        return found
