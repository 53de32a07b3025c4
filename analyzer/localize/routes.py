# SPDX-License-Identifier: Apache-2.0
"""The newest routes of flows by the flows' numbers, as arrays.

A cache of what the topology learned flow by flow: nearly all flows of a window lose nothing on
routes that stood long before it, and are only counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from netagent.model.ids import FlowId

Route = tuple[str, ...]
"""Routers, nearest first; "" where one is silent."""
Ints = NDArray[np.int64]

MOST_ROUTES = 200_000
"""Most routes remembered; beyond, all are looked up again. Chosen: more than a fabric has, and a
host that makes up a new one for each of its flows in every window must not fill the memory."""
NO_ROUTE = -1
UNKNOWN = -2
UNTRACED = -3
"""Row of a flow that no trace has shown anything of."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Routes of some flows."""

    there: Ints
    """(n_flows,): row of `routes`; NO_ROUTE where it, or the way back, is not settled, UNTRACED
    where neither was ever traced."""
    back: Ints
    routes: Sequence[Route]
    """By name."""


@dataclass(slots=True)
class RouteRows:
    """Rows of routes by the number of the flow."""

    turned: set[FlowId] = field(default_factory=set)
    """Flows whose routes changed since they were looked up."""
    _routes: list[Route] = field(default_factory=list)
    _row: dict[Route, int] = field(default_factory=dict)
    _of: Ints = field(default_factory=lambda: np.full((2, 1024), UNKNOWN))
    """(2, n): route there and back."""
    _since_ns: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """Start of the window that first showed the newer of the two."""

    def row(self, route: Route) -> int:
        """Return the row of a route, a new one where it has none yet."""
        if route not in self._row:
            self._row[route] = len(self._routes)
            self._routes.append(route)
        return self._row[route]

    def unknown(self, numbers: Ints, flows: FlowNumbers) -> list[int]:
        """Return those of the flows that have to be looked up."""
        if len(self._routes) > MOST_ROUTES:
            self._routes, self._row = [], {}  # whoever holds the old rows holds the old list
            self._of.fill(UNKNOWN)
        size = self._of.shape[1]
        if len(numbers) and numbers.max() >= size:
            more = max(size, int(numbers.max()) + 1 - size)
            grown = np.full((2, more), UNKNOWN)
            self._of = np.concatenate([self._of, grown], axis=1)
            self._since_ns = np.concatenate([self._since_ns, np.zeros(more, np.int64)])
        for flow in self.turned:
            number = flows.known(flow)
            if number is not None and number < self._of.shape[1]:
                self._of[:, number] = UNKNOWN
        self.turned = set()
        wanted: list[int] = numbers[self._of[0, numbers] == UNKNOWN].tolist()
        return wanted

    def put(self, number: int, routes: tuple[int, int], since_ns: int) -> None:
        """Note a flow's routes, and since when it takes both."""
        self._of[:, number], self._since_ns[number] = routes, since_ns

    def settled(self, numbers: Ints, *, at_ns: int) -> Settled:
        """Return the routes that stand since before `at_ns`."""
        late = self._since_ns[numbers] >= at_ns
        there, back = np.where(late, NO_ROUTE, self._of[:, numbers])
        return Settled(there, back, self._routes)
