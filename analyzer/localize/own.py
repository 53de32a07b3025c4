# SPDX-License-Identifier: Apache-2.0
"""What packets of endpoints cross on their own hosts, in columns.

A fabric of 40,000 RNICs has 160,000 such parts, and a window's losses ask for some of them. So they
are numbered by name, and become components only where somebody asks for all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netagent.model.endpoint import Endpoint
from netagent.model.path import Component, Kind, rnic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Parts = frozenset[Component]
Names = tuple[str, ...]
KINDS = (Kind.HOST, Kind.CONTAINER, Kind.ENDPOINT, Kind.RNIC)
"""What a packet crosses at each of its ends, one of each kind."""
ROW = {kind: row for row, kind in enumerate(KINDS)}


class Own(Mapping[int, Parts]):
    """Number of an endpoint -> what all packets of it cross on its own host."""

    def __init__(self, numbers: Ints, look: Callable[[int], Names]) -> None:
        """Take endpoints by their `numbers` (n,); `look` has the names of each one's parts."""
        self.numbers = numbers
        self._look = look

    @classmethod
    def of(cls, parts: Mapping[int, Parts]) -> "Own":
        """Return the same as a plain mapping, as recordings have it."""
        names = {n: {each.kind: each.name for each in mine} for n, mine in parts.items()}
        numbers = np.array(sorted(parts), np.int64)
        return cls(numbers, lambda number: tuple(names[number][kind] for kind in KINDS))

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
        found = [np.zeros(0, np.int64)]
        for row, number in map(self._place, parts):
            if number >= 0:
                found.append(self.numbers[self._columns[row] == number])
        return np.concatenate(found)

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
        return {
            number: frozenset(map(Component, KINDS, self._look(number)))
            for number in self.numbers.tolist()
        }

    @cached_property
    def _numbered(self) -> tuple[list[dict[str, int]], Ints]:
        number = [dict[str, int]() for _ in KINDS]
        columns = [list[int]() for _ in KINDS]
        for names in map(self._look, self.numbers.tolist()):
            for known, column, name in zip(number, columns, names, strict=True):
                column.append(known.setdefault(name, len(known)))
        return number, np.array(columns, np.int64).reshape(len(KINDS), -1)

    @property
    def _number(self) -> list[dict[str, int]]:
        """Name -> number, for each kind."""
        return self._numbered[0]

    @property
    def _columns(self) -> Ints:
        """(n_kinds, n): numbers of the endpoints' parts."""
        return self._numbered[1]


def names_of(end: Endpoint) -> Names:
    """Return the names of what all packets of an endpoint cross on its own host, by kind."""
    return end.host, end.id.container, str(end.id), rnic(end.host, end.rnic).name
