# SPDX-License-Identifier: Apache-2.0
"""Which parts of the fabric routes cross, both ways: parts by route, and routes by part.

A route is entered once, when it is first met, and asked about in every window in which something
was lost; a large fabric has a million of them.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netagent.model.path import Component, Kind, link, switch

Route = tuple[str, ...]
"""Routers, nearest first; "" where one is silent."""
Direction = tuple[str, str]
"""Names of two routers: the link from the first to the second."""
Part = Component | Direction
"""What can be at fault on a route: a switch, a link, or a link in one direction."""
Ints = NDArray[np.int64]
Parts = frozenset[Part]


class Incidence:
    """Rows of routes, with the parts that each crosses."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._number: dict[Part, int] = {}
        self._rows: list[array[int]] = []
        """Number of a part -> rows that cross it."""
        self._crossed = array("i")
        """Numbers of the parts of one row after the other."""
        self._begins = array("q", [0])
        self._switches: dict[str, int] = {}
        self._links: dict[Direction, tuple[int, int]] = {}
        """Two routers -> numbers of the link between them, and of this direction of it."""

    def __len__(self) -> int:
        return len(self._begins) - 1

    def cover(self, routes: Sequence[Route]) -> None:
        """Enter those of `routes` that are not yet; the others are its first rows."""
        for row in range(len(self), len(routes)):
            self._enter(self._numbers(routes[row]))

    def put(self, parts: Iterable[Part]) -> None:
        """Enter a row that crosses `parts`."""
        self._enter([self._part(each) for each in parts])

    def _numbers(self, route: Route) -> Iterable[int]:
        found = dict[int, None]()
        for name in route:
            if name:
                found[self._switch(name)] = None
        for ends in pairwise(route):
            if all(ends):
                found.update(dict.fromkeys(self._link(ends)))
        return found

    def _switch(self, name: str) -> int:
        number = self._switches.get(name)
        if number is None:
            number = self._switches[name] = self._part(switch(name))
        return number

    def _link(self, ends: Direction) -> tuple[int, int]:
        both = self._links.get(ends)
        if both is None:
            both = self._links[ends] = self._part(link(*ends)), self._part(ends)
        return both

    def _part(self, part: Part) -> int:
        number = self._number.get(part)
        if number is None:
            number = self._number[part] = len(self._parts)
            self._parts.append(part)
            self._rows.append(array("i"))
        return number

    def _enter(self, numbers: Iterable[int]) -> None:
        row = len(self)
        for number in numbers:
            self._rows[number].append(row)
            self._crossed.append(number)
        self._begins.append(len(self._crossed))

    def rows(self, part: Part) -> Ints:
        """Return the rows that cross a part, in order."""
        number = self._number.get(part)
        return np.array(self._rows[number] if number is not None else (), np.int64)

    def crossed(self, row: int) -> Parts:
        """Return the parts that a row crosses."""
        numbers = self._crossed[self._begins[row] : self._begins[row + 1]]
        return frozenset(self._parts[number] for number in numbers)

    def lengths(self) -> Ints:
        """Return (n_rows,) how many parts each crosses."""
        begins = np.array(self._begins, np.int64)
        return begins[1:] - begins[:-1]

    def count(self, kind: Kind) -> Ints:
        """Return (n_rows,) how many components of a kind each crosses."""
        is_kind = [isinstance(each, Component) and each.kind is kind for each in self._parts]
        mine = np.array([*is_kind, False])[np.array(self._crossed, np.int64)]
        before: Ints = np.concatenate([[0], np.cumsum(mine)])[np.array(self._begins, np.int64)]
        return before[1:] - before[:-1]


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

    def rows(self, part: Part) -> Ints:
        """Return the rows of routes that cross a part."""
        found = self._incidence.rows(part)
        return found[: np.searchsorted(found, self._first)]

    def across(self, parts: Iterable[Part], size: int) -> NDArray[np.bool_]:
        """Return (size,) which rows, of either kind, cross any of `parts`."""
        hit = np.zeros(size, np.bool_)
        for part in parts:
            found = self.rows(part)
            hit[found[: np.searchsorted(found, size)]] = True
            hit[[row for row, crossed in self.others.items() if part in crossed]] = True
        return hit

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
