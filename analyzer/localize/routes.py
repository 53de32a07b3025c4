# SPDX-License-Identifier: Apache-2.0
"""The newest routes of flows by the flows' numbers, as arrays.

A cache of what the topology learned flow by flow: nearly all flows of a window lose nothing on
routes that stood long before it, and are only counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from analyzer.intake.flows import FlowNumbers
from analyzer.localize.incidence import Incidence, Ints, Route
from netagent.model.ids import FlowId

LEAST_ROUTES = 10_000
"""Routes that are remembered however few flows there are. Chosen: some megabytes."""
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
    incidence: Incidence
    """What they cross."""


@dataclass(slots=True)
class RouteRows:
    """Rows of routes by the number of the flow."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"_incidence"})
    """What no recording holds: it follows from the routes."""

    turned: set[FlowId] = field(default_factory=set)
    """Flows whose routes changed since they were looked up."""
    _routes: list[Route] = field(default_factory=list)
    _row: dict[Route, int] = field(default_factory=dict)
    _of: Ints = field(default_factory=lambda: np.full((2, 1024), UNKNOWN))
    """(2, n): route there and back."""
    _since_ns: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """Start of the window that first showed the newer of the two."""
    _incidence: Incidence = field(default_factory=Incidence)

    def row(self, route: Route) -> int:
        """Return the row of a route, a new one where it has none yet."""
        if route not in self._row:
            self._row[route] = len(self._routes)
            self._routes.append(route)
        return self._row[route]

    def unknown(self, numbers: Ints, flows: FlowNumbers) -> list[int]:
        """Return those of the flows that have to be looked up."""
        # No more than two a flow are in use. A host that makes up new ones in every window must not
        # fill the memory.
        if len(self._routes) > max(LEAST_ROUTES, 2 * len(flows)):
            # Whoever holds the old rows holds these, too.
            self._routes, self._row, self._incidence = [], {}, Incidence()
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
        self._incidence.cover(self._routes)
        return Settled(there, back, self._routes, self._incidence)
