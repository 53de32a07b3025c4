# SPDX-License-Identifier: Apache-2.0
"""Routes by row, and which of them each direction of a flow takes, in columns.

A fabric of 40,000 RNICs has three million directions, on some hundred thousand routes. Nearly all
of a window's flows lose nothing on routes that stood long before it, and are only counted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.localize.incidence import Incidence, Ints, Route

LEAST_ROUTES = 10_000
"""Routes that are remembered however few directions take them. Chosen: some megabytes."""
NO_ROUTE = -1
UNTRACED = -3
"""Row of a flow that no trace has shown anything of."""
NEVER_NS = np.iinfo(np.int64).min

Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]


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


@dataclass(slots=True)
class RouteTable:
    """Routes, each once."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset(
        {"incidence", "turned", "_routes", "_of", "_since_ns"}
    )
    """What no recording holds, since it follows from the routes, or earlier versions' only."""

    shown: list[Route] = field(default_factory=list)
    """By the addresses that answered."""
    named: list[Route] = field(default_factory=list)
    """By name."""
    crossed_ns: Ints = field(default_factory=lambda: np.full(1024, NEVER_NS))
    """(n,): start of the newest window in which a flow's whole route was this one."""
    incidence: Incidence = field(default_factory=Incidence)
    """What those by name cross, as far as it was asked for."""
    _row: dict[Route, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.shown)

    def __contains__(self, route: Route) -> bool:
        return route in self._row

    def row(self, route: Route, name: Callable[[Route], Route]) -> int:
        """Return the row of a route, a new one where it has none yet."""
        row = self._row.get(route)
        if row is None:
            row = self._row[route] = len(self.shown)
            self.shown.append(route)
            self.named.append(name(route))
            if row == len(self.crossed_ns):
                self.crossed_ns = np.concatenate(
                    [self.crossed_ns, np.full_like(self.crossed_ns, NEVER_NS)]
                )
        return row

    def crossed(self) -> Iterable[int]:
        """Return the rows that were a flow's whole route."""
        found: list[int] = np.flatnonzero(self.crossed_ns != NEVER_NS).tolist()
        return found

    def only(self, kept: Mask) -> Rows:
        """Keep these rows (n,); return for each row what it is now, NO_ROUTE where it is gone.

        Whoever holds the rows as they were holds the routes as they were, too.
        """
        places = np.flatnonzero(kept)
        now = np.full(len(self), NO_ROUTE, np.int32)
        now[places] = np.arange(len(places))
        crossed_ns = np.full(max(1024, 2 * len(places)), NEVER_NS)
        crossed_ns[: len(places)] = self.crossed_ns[places]
        self.crossed_ns = crossed_ns
        self.shown = [self.shown[row] for row in places.tolist()]
        self.named = [self.named[row] for row in places.tolist()]
        self._row = {route: row for row, route in enumerate(self.shown)}
        self.incidence = Incidence()
        return now


@dataclass(slots=True)
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


def _longer(columns: NDArray[Any], more: int, fill: int) -> NDArray[Any]:
    grown = np.full((len(columns), more), fill, columns.dtype)
    return np.concatenate([columns, grown], axis=1)
