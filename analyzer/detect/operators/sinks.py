# SPDX-License-Identifier: Apache-2.0
"""Where chains of waiting end."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


def sinks(
    starts: Iterable[Node], onwards: Callable[[Node], Iterable[Node]]
) -> list[tuple[Node, ...]]:
    """Return the ends of all ways from `starts`: each a node without a way onwards, or a circle.

    A circle is all nodes that lead to each other and to nothing else. Tarjan's algorithm (1972)
    without recursion; `onwards` is asked once of each node.
    """
    search: _Search[Node] = _Search(onwards)
    for start in starts:
        if start not in search.number:
            search.walk(start)
    return search.found


@dataclass(slots=True)
class _Search(Generic[Node]):
    onwards: Callable[[Node], Iterable[Node]]
    number: dict[Node, int] = field(default_factory=dict)
    lowest: dict[Node, int] = field(default_factory=dict)
    open_: dict[Node, None] = field(default_factory=dict)
    leaves: set[Node] = field(default_factory=set)
    """Nodes with a way out of their circle."""
    found: list[tuple[Node, ...]] = field(default_factory=list)
    _path: list[tuple[Node, Iterator[Node]]] = field(default_factory=list)

    def walk(self, start: Node) -> None:
        self._enter(start)
        while self._path:
            node, rest = self._path[-1]
            following = next(rest, None)
            if following is None:
                self._path.pop()
                self._leave(node)
            elif following not in self.number:
                self._enter(following)
            elif following in self.open_:
                self.lowest[node] = min(self.lowest[node], self.number[following])
            else:
                self.leaves.add(node)

    def _enter(self, node: Node) -> None:
        self.number[node] = self.lowest[node] = len(self.number)
        self.open_[node] = None
        self._path.append((node, iter(self.onwards(node))))

    def _leave(self, node: Node) -> None:
        above = self._path[-1][0] if self._path else None
        if self.lowest[node] < self.number[node]:
            if above is not None:
                self.lowest[above] = min(self.lowest[above], self.lowest[node])
            return
        circle = []
        while node in self.open_:
            last, _ = self.open_.popitem()
            circle.append(last)
        if not self.leaves.intersection(circle):
            self.found.append(tuple(reversed(circle)))
        if above is not None:
            self.leaves.add(above)
