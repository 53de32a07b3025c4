# SPDX-License-Identifier: Apache-2.0
"""The ways that flows take, window after window, and which of them turned."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.localize.incidence import Incidence, grown
from analyzer.localize.routes import NO_ROUTE, RouteTable
from analyzer.localize.topology import LearnedTopology

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]

Turned = Callable[[Ints | None], None]
"""Is told of flows before their ways are changed; None: of all."""


@dataclass(slots=True)
class Ways:
    """Rows of flows' routes, by the flow's number."""

    _routes: RouteTable | None = None
    """What the rows are of."""
    _newest: Rows = field(default_factory=lambda: np.zeros((2, 0), np.int32))
    """As of the newest window."""
    _taken: Rows = field(default_factory=lambda: np.zeros((2, 0), np.int32))
    """(2, n): what counts, there and back; NO_ROUTE where either is not settled."""
    _pending: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Flows whose ways are known and not settled: the newest window was the first to show them."""

    @property
    def incidence(self) -> Incidence:
        """Return what the routes cross."""
        return Incidence() if self._routes is None else self._routes.incidence

    def of(self, flow: Ints) -> tuple[Rows, Rows]:
        """Return the rows (n_flows,) of routes, there and back."""
        found = np.full((2, len(flow)), NO_ROUTE, np.int32)
        known = flow < len(self._taken[0])
        found[:, known] = self._taken[:, flow[known]]
        return found[0], found[1]

    def follow(
        self, topology: LearnedTopology, numbers: FlowNumbers, *, at_ns: int, turned: Turned
    ) -> None:
        """Take the ways that count in the window that began at `at_ns`.

        A few flows turn in a window, and only these are asked about.
        """
        newest, routes = topology.taken()
        if routes is not self._routes:  # other rows
            turned(None)
            self._routes = routes
            self._newest = np.full_like(newest, NO_ROUTE)
            self._taken = np.full_like(newest, NO_ROUTE)
            self._pending = np.zeros(0, np.int64)
        if newest.shape != self._newest.shape:
            size = newest.shape[1]
            self._newest, self._taken = (
                np.stack([grown(row, size, NO_ROUTE)[:size] for row in each])
                for each in (self._newest, self._taken)
            )
        changed = (newest != self._newest).any(axis=0)
        changed[self._pending] = True
        flow = np.flatnonzero(changed)
        if not len(flow):
            return
        settled = topology.settled(flow, numbers, at_ns=at_ns)
        now = np.maximum(np.stack([settled.there, settled.back]), NO_ROUTE).astype(np.int32)
        is_other = (now != self._taken[:, flow]).any(axis=0)
        turned(flow[is_other])
        self._taken[:, flow] = now
        self._pending = flow[(now[0] == NO_ROUTE) & (newest[:, flow] != NO_ROUTE).all(axis=0)]
        self._newest = newest.copy()
