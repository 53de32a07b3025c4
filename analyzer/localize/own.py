# SPDX-License-Identifier: Apache-2.0
"""What packets of endpoints cross on their own hosts, in columns.

A fabric of 40,000 RNICs has 160,000 such parts, and a window's losses ask for some of them. So they
are numbered by name, and become components only where somebody asks for all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netagent.model.endpoint import Endpoint
from netagent.model.path import Component, Kind, rnic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Parts = frozenset[Component]
KINDS = (Kind.HOST, Kind.CONTAINER, Kind.ENDPOINT, Kind.RNIC)
"""What a packet crosses at each of its ends, one of each kind."""
ROW = {kind: row for row, kind in enumerate(KINDS)}


Numbered = tuple[list[dict[str, int]], Ints]
"""Name -> number, for each kind, and (n_kinds, n) the numbers of endpoints' parts."""


class Own(Mapping[int, Parts]):
    """Number of an endpoint -> what all packets of it cross on its own host."""

    def __init__(
        self, numbers: Ints, look: Callable[[int], Endpoint], before: "Before | None" = None
    ) -> None:
        """Take endpoints by their `numbers` (n,); `look` has each one.

        What `before` has is looked up no more: from window to window few endpoints change.
        """
        self.numbers = numbers
        self._look = look
        self._before = before

    @classmethod
    def of(cls, parts: Mapping[int, Parts]) -> "Own":
        """Return the same as a plain mapping, as recordings have it."""
        made = cls(np.array(sorted(parts), np.int64), dict[int, Endpoint]().__getitem__)
        made._made = dict(parts)
        names = ({each.kind: each.name for each in parts[n]} for n in made.numbers.tolist())
        made._numbered = _numbered(tuple(mine[kind] for kind in KINDS) for mine in names)
        return made

    def __getitem__(self, number: int) -> Parts:
        return self._made[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __len__(self) -> int:
        return len(self.numbers)

    def __reduce__(self) -> tuple[type, tuple[dict[int, Parts]]]:
        return dict, (self._made,)  # as recordings have it: what it looks up is not copied

    @property
    def size(self) -> int:
        """Return one more than the largest number."""
        return 1 + int(self.numbers.max(initial=-1))

    def ends_of(self, parts: Iterable[object]) -> Ints:
        """Return the numbers of the endpoints whose packets cross any of some parts."""
        wanted = [np.zeros(len(each) + 1, np.bool_) for each in self._number]  # the last: nobody
        for row, number in map(self._place, parts):
            wanted[row][number] = number >= 0
        hit = np.zeros(len(self.numbers), np.bool_)
        for mine, numbers in zip(wanted, self._columns, strict=True):
            hit |= mine[numbers]
        found: Ints = self.numbers[hit]
        return found

    def sums(self, parts: Iterable[object], weight: Floats) -> Floats:
        """Return (n_parts,) the sum of the weights of the endpoints whose packets cross each.

        `weight` is by number.
        """
        sums = [np.bincount(each, weight[self.numbers]) for each in self._columns]
        places = map(self._place, parts)
        return np.array([sums[row][number] if number >= 0 else 0.0 for row, number in places])

    def _place(self, part: object) -> tuple[int, int]:
        """Return the row of a part's kind, and its number there; -1 where nobody has it."""
        if not isinstance(part, Component) or part.kind not in ROW:
            return 0, -1
        row = ROW[part.kind]
        return row, self._number[row].get(part.name, -1)

    @cached_property
    def _made(self) -> dict[int, Parts]:
        return {number: parts_of_host(self._look(number)) for number in self.numbers.tolist()}

    @cached_property
    def _numbered(self) -> Numbered:
        ends = list(map(self._look, self.numbers.tolist()))
        if self._before is None:
            return _numbered(map(_names_of, ends))
        if self._before.ends != ends:
            self._before.ends, self._before.numbered = ends, _numbered(map(_names_of, ends))
        return self._before.numbered

    @property
    def _number(self) -> list[dict[str, int]]:
        """Name -> number, for each kind."""
        return self._numbered[0]

    @property
    def _columns(self) -> Ints:
        """(n_kinds, n): numbers of the endpoints' parts."""
        return self._numbered[1]


@dataclass(slots=True)
class Before:
    """The endpoints whose parts were numbered last."""

    ends: list[Endpoint] = field(default_factory=list)
    numbered: Numbered = field(default_factory=lambda: _numbered(()))


def _numbered(ends: Iterable[tuple[str, ...]]) -> Numbered:
    """Return numbers of the parts of some endpoints; each has its names, by kind."""
    number = [dict[str, int]() for _ in KINDS]
    columns = [list[int]() for _ in KINDS]
    for names in ends:
        for known, column, name in zip(number, columns, names, strict=True):
            column.append(known.setdefault(name, len(known)))
    return number, np.array(columns, np.int64).reshape(len(KINDS), -1)


def _names_of(end: Endpoint) -> tuple[str, ...]:
    """Return the names of `parts_of_host`, by kind."""
    return end.host, end.id.container, str(end.id), rnic(end.host, end.rnic).name


def parts_of_host(end: Endpoint) -> Parts:
    """Return what all packets of an endpoint cross on its own host."""
    return frozenset(map(Component, KINDS, _names_of(end)))
