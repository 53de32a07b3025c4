# SPDX-License-Identifier: Apache-2.0
"""Which way packets of a simulated fabric take, and what traces show of it.

Routers turn away from what is dead after a time, if ever. A trace ends before what is dead. Both
are looked at once a window, at its end.
"""

from collections.abc import Sequence

import numpy as np

from analyzer.simulate.clos import Clos, Ints, Route
from analyzer.simulate.failures import Effect, Failure
from analyzer.simulate.spray import Spray
from netagent.model.path import Component, Kind

DEAD = 0.999
"""Probability of loss from which traces end before a component."""

At = Component | tuple[str, str]
"""A component, or a direction of a link."""


class Routing:
    """The routes in force; with a `spray`, each packet draws its own."""

    def __init__(self, clos: Clos, spray: Spray | None = None) -> None:
        self.clos, self.spray = clos, spray
        self.turned: frozenset[str] = frozenset()
        """Names of switches and links that routers avoid by now."""
        self.version = 0
        """Grows whenever traces may show other routes than before."""
        self._cut: frozenset[str] = frozenset()
        """Names of switches and links that let nothing through."""
        self._shown: dict[Route, Route] = {}
        self._of_route: dict[At, Ints] = {}
        """Switch, link or direction -> (n_routes,) how often each route crosses it."""

    def taken(self, flow: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the rows of the routes that probes of these flows, and their replies, take."""
        if self.spray is not None:
            return self.spray.drawn(flow, rng)
        return self.clos.there[flow], self.clos.back[flow]

    def crossings(self, at: At, there: Ints, back: Ints) -> Ints:
        """Return how often probes that take these routes cross a switch, link or direction."""
        known = self._of_route.get(at)
        if known is None or len(known) < len(self.clos.routes):
            known = self._of_route[at] = self.clos.crossings(at)
        return known[there] + known[back]

    def moved(self) -> None:
        """Take other flows than before."""
        if self.spray is not None:
            self.spray.lay(self.turned)
        self.version += 1

    def shown(self, route: Route) -> Route:
        """Return what a trace shows of a route: it ends before what is dead."""
        known = self._shown.get(route)
        if known is None:
            known = self._shown[route] = self._until_cut(route)
        return known

    def ways(self, flow: int) -> list[Route]:
        """Return the routes that packets between a flow's ends may take."""
        return self.clos.ways(flow, reply=False, without=self.turned)

    def turn(
        self, failures: Sequence[Failure], began_ns: int, now_ns: int, rng: np.random.Generator
    ) -> None:
        """Let routers avoid what they know to be dead by now, and traces end before it."""
        cut = set[str]()
        for failure in failures:
            since_ns = now_ns - began_ns - failure.start_ns
            for at, effect in _deaths(failure):
                if since_ns >= 0:
                    cut.add(at.name)
                late = effect.reroute_ns and since_ns >= effect.reroute_ns
                if late and at.name not in self.turned:
                    self.turned |= {at.name}
                    self._rerouted(rng)
        if self.spray is not None:
            self.spray.turn()
            self.version += 1
        if cut != self._cut:
            self._cut = frozenset(cut)
            self._shown.clear()
            self.version += 1

    def _until_cut(self, route: Route) -> Route:
        for n, hop in enumerate(route):
            if hop in self._cut or (n and " -- ".join(sorted((route[n - 1], hop))) in self._cut):
                return route[:n]
        return route

    def _rerouted(self, rng: np.random.Generator) -> None:
        clos = self.clos
        for reply, rows in ((False, clos.there), (True, clos.back)):
            gone = np.asarray([clos.crosses(route, self.turned) for route in clos.routes])
            flows = np.flatnonzero(gone[rows])
            draws = rng.integers(1 << 30, size=len(flows))
            rows[flows] = [
                clos.route(flow, draw, reply=reply, without=self.turned)
                for flow, draw in zip(flows.tolist(), draws.tolist(), strict=True)
            ]
        self.moved()


def _deaths(failure: Failure) -> list[tuple[Component, Effect]]:
    """Return the switches and links that a failure kills, for good."""
    return [
        (effect.at, effect)
        for effect in failure.effects
        if isinstance(effect.at, Component)
        and effect.at.kind in (Kind.SWITCH, Kind.LINK)
        and effect.loss >= DEAD
        and not effect.period_ns
    ]
