# SPDX-License-Identifier: Apache-2.0
"""What simulated hosts answer to questions: the packets that they count meet the same failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from msgspec import structs

from analyzer.simulate.clos import PORTS, Clos, Route
from analyzer.simulate.failures import Effect
from analyzer.simulate.routing import DEAD, Routing
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, switch
from netagent.wire.messages import PathAnswer, PathReply, PathRequest

HOP_NS, ANSWER_STD_NS = 5_000, 3_000
"""Round trip to each further router, and by how much medians of their answers differ. Chosen."""
MAX_WAYS, PORTS_PER_WAY, MAX_PACKETS = 32, 4, 2_000
"""As `netagent.probing.ways`."""
PACKETS_PER_S, LOOK_NS = 600, 900_000_000
"""As `netagent.adapters.paths.tracer`, and what an agent needs until it knows the ways."""
SLICES = 10
"""Instants, one after the other, that packets are counted at."""


@dataclass
class Counting:
    """Counts packets on routes, from one instant on."""

    clos: Clos
    routing: Routing
    rng: np.random.Generator
    active: Callable[[int], Sequence[Effect]]
    """Instant (ns) -> what is at fault then."""
    now_ns: int
    until_ns: int = 0
    """When the last answer is complete."""

    def path(self, request: PathRequest) -> PathReply:
        """Return what is counted on the way of a flow."""
        flow = PORTS * self._pair(request.source, request.target)
        ports = self.clos.port[flow : flow + PORTS].tolist()
        # That of a port that was exchanged since is the one in its place.
        flow += ports.index(request.source_port) if request.source_port in ports else PORTS - 1
        if self.routing.spray is not None:
            ways = self.routing.ways(flow)
            return PathReply(paths=(self._counted(request, self.routing.spray.mixed(ways), ways),))
        route = self.clos.routes[int(self.clos.there[flow])]
        self._takes(request.count * len(route))
        return PathReply(paths=(self._counted(request, route, [route]),))

    def survey(self, request: PathRequest) -> PathReply:
        """Return what a host counts on the ways that it finds."""
        flow = PORTS * self._pair(request.source, request.target)
        routes = self.routing.ways(flow)
        most = min(request.ways, MAX_WAYS)
        drawn = self.rng.integers(len(routes), size=PORTS_PER_WAY * most)
        spray = self.routing.spray
        drawn_routes = (spray.mixed(routes) if spray is not None else routes[d] for d in drawn)
        met = {each: n for n, each in enumerate(drawn_routes) if self.routing.shown(each) == each}
        count = min(request.count, MAX_PACKETS // max(1, len(routes[0]) * min(len(met), most)))
        request = structs.replace(request, count=count)
        self.now_ns += LOOK_NS
        self._takes(count * len(routes[0]) * min(len(met), most), request.over_ms * 1_000_000)
        return PathReply(
            paths=tuple(
                structs.replace(
                    self._counted(request, route, [route] if spray is None else routes),
                    outer_port=49_152 + n,
                )
                for route, n in sorted(met.items())[:most]
            )
        )

    def _pair(self, source: EndpointId, target: EndpointId) -> int:
        clos = self.clos
        a, b = clos.number(source), clos.number(target)
        pairs = slice(*clos.first_pair[a : a + 2])
        return int(clos.first_pair[a] + np.flatnonzero(clos.target[pairs] == b)[0])

    def _counted(self, request: PathRequest, route: Route, ways: Sequence[Route]) -> PathAnswer:
        """Return how many packets reach each router, and how late they answer.

        Each packet takes one of `ways`; `route` are the routers that are told.
        """
        own = self.clos.rnic(self.clos.number(request.source))
        times_ns = np.linspace(self.now_ns, self.until_ns, SLICES).astype(int).tolist()
        active = [self.active(at_ns) for at_ns in times_ns]
        met = [[self._met(way, own, each) for way in ways] for each in active]
        counts = np.diff(np.linspace(0, request.count, SLICES + 1).astype(int))
        answered, rtt_ns = [], []
        for n in range(len(route)):
            passes = [sum(each[n][0] for each in now) / len(now) for now in met]
            late_ns = median(sum(each[n][1] for each in now) / len(now) for now in met)
            answered.append(int(self.rng.binomial(counts, passes).sum()))
            # Routers answer in software: the median of many answers still differs.
            rtt_ns.append(int((n + 1) * HOP_NS + late_ns + self.rng.normal(0, ANSWER_STD_NS)))
        reached = [max(answered[n:]) for n in range(len(answered))]
        return PathAnswer(
            source_port=request.source_port, outer_port=1, hops=tuple(route), sent=request.count,
            answered=tuple(reached), rtt_ns=tuple(max(1, each) for each in rtt_ns),
        )  # fmt: skip

    def _takes(self, packets: int, over_ns: int = 0) -> None:
        self.until_ns = self.now_ns + max(over_ns, packets * 1_000_000_000 // PACKETS_PER_S)

    def _met(
        self, way: Route, own: Component, active: Sequence[Effect]
    ) -> list[tuple[float, float]]:
        """Return what share of packets each router of a way gets, and how late (ns)."""
        passes, late_ns, met = 1.0, 0.0, []
        for n in range(len(way)):
            for effect in active:
                hits = _hits(effect, way, n, own)
                passes *= (1.0 - effect.loss) ** hits
                late_ns += effect.delay_ns * min(hits, 1)
            met.append((passes, late_ns))
        return met


def _hits(effect: Effect, route: Route, n: int, own: Component) -> int:
    """Return how often a packet to the n-th router meets an effect after the router before it."""
    at, hop = effect.at, route[n]
    if isinstance(at, tuple):
        return [(route[n - 1], hop), (hop, route[n - 1])].count(at) if n else 0
    if at.kind is Kind.SWITCH:
        # A router answers what ends at it, unless it is dead.
        return (n > 0 and switch(route[n - 1]) == at) + (at.name == hop and effect.loss >= DEAD)
    if at.kind is Kind.LINK and n:
        return 2 * (at.name == " -- ".join(sorted((route[n - 1], hop))))
    return 2 * (at == own and not n)
