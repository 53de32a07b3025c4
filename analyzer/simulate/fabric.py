# SPDX-License-Identifier: Apache-2.0
"""A simulated leaf-spine fabric: seeded windows of probes, with the truth known.

Slow and literal: every probe crosses each component of its route and of its reply's, and each
component loses it with its own probability. The code that judges a window shares only nouns with
this module.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from analyzer.detect.flows import Flows, FlowView
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize.case import Case
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link, rnic, switch
from netagent.model.window import Window
from netagent.wire.messages import PathAnswer

WINDOW = Window(0, 5_000_000_000)
RUN_MS = 600
"""Milliseconds between two probes of a flow. Chosen: six probes fill most of a 5 s window."""
LARGE_EVERY = 3
"""Of this many probes of a flow, one is of the largest size. Chosen: both sizes occur in a
window."""
ROUTER_NS = 200_000
"""Nanoseconds that each router adds to a packet's round trip. Chosen: below the least shift that
counts, 500 us."""


@dataclass
class Fabric:
    """Hosts h0…, a container per task on each; a leaf per (segment, rail), each to every spine."""

    seed: int = 0
    hosts: int = 4
    rails: int = 2
    segments: int = 2
    spines: int = 2
    tasks: int = 2
    ports: int = 4
    """Flows per ordered pair."""
    probes: int = 6
    """Probes per flow and window."""
    loss: dict[Component, float] = field(default_factory=dict)
    """Probability that a component loses a packet that crosses it."""
    loss_one_way: dict[tuple[str, str], float] = field(default_factory=dict)
    """Probability that a link loses a packet that crosses it from the first router to the second.
    """
    slow_ns: dict[Component, int] = field(default_factory=dict)
    """Nanoseconds that crossing a component adds to a router's round trip."""
    loss_large: dict[Component, float] = field(default_factory=dict)
    """Probability that a component loses a packet of the largest size, where it loses no others."""
    background: float = 0.0
    """Probability that a probe is lost for no reason."""
    rng: Random = field(init=False)
    endpoints: dict[EndpointId, Endpoint] = field(init=False)
    flows: list[FlowId] = field(init=False)
    numbers: FlowNumbers = field(init=False, default_factory=FlowNumbers)
    routes: dict[tuple[FlowId, bool], tuple[str, ...]] = field(init=False)
    """Flow, and whether it is its reply -> names of the routers, nearest first."""
    _crossed: dict[tuple[FlowId, tuple[str, ...]], list[Component]] = field(
        init=False, default_factory=dict, repr=False
    )
    """Cache: flow and routers -> what a packet crosses."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.endpoints = {e.id: e for e in self._endpoints()}
        self.flows = [
            FlowId(a, b, 40000 + port)
            for a in self.endpoints
            for b in self.endpoints
            if self._probes(a, b)
            for port in range(self.ports)
        ]
        self.routes = {
            (flow, reply): self._route(flow, reply=reply)
            for flow in self.flows
            for reply in (False, True)
        }

    def _endpoints(self) -> Iterable[Endpoint]:
        for t in range(self.tasks):
            for h in range(self.hosts):
                for r in range(self.rails):
                    yield Endpoint(
                        EndpointId(f"t{t}-c{h}", r), f"t{t}", f"h{h}", f"10.0.{r}.{h}", "",
                        f"172.30.{r}.{h}", f"rnic{r}", "br-int", f"p{t}{h}{r}",
                    )  # fmt: skip

    def _probes(self, a: EndpointId, b: EndpointId) -> bool:
        x, y = self.endpoints[a], self.endpoints[b]
        return x.task == y.task and a.rail == b.rail and x.host != y.host

    def leaf(self, endpoint: EndpointId) -> str:
        """Return the name of the leaf that an endpoint's RNIC is cabled to."""
        host = int(self.endpoints[endpoint].host[1:])
        return f"leaf-s{host * self.segments // self.hosts}-r{endpoint.rail}"

    def _route(self, flow: FlowId, *, reply: bool) -> tuple[str, ...]:
        a, b = (flow.target, flow.source) if reply else (flow.source, flow.target)
        first, last = self.leaf(a), self.leaf(b)
        if first == last:
            return (first,)
        return (first, f"spine-{self.rng.randrange(self.spines)}", last)

    def crossed(self, flow: FlowId, *, reply: bool) -> list[Component]:
        """Return what one direction of a flow crosses, in no order."""
        hops = self.routes[flow, reply]
        known = self._crossed.get((flow, hops))
        if known is None:
            known = self._crossed[flow, hops] = self._across(flow, hops)
        return known

    def _across(self, flow: FlowId, hops: tuple[str, ...]) -> list[Component]:
        ends = [self.endpoints[e] for e in (flow.source, flow.target)]
        return [
            *(rnic(e.host, e.rnic) for e in ends),
            *map(switch, hops),
            *(link(a, b) for a, b in pairwise(hops)),
            *(Component(Kind.CONTAINER, e.container) for e in (flow.source, flow.target)),
        ]

    def lost(self, flow: FlowId, *, large: bool) -> bool:
        """Send a probe; return whether it, or its reply, is lost."""
        rates = self._rates(large=large)
        crossed = self.crossed(flow, reply=False) + self.crossed(flow, reply=True) if rates else []
        # A component that is dead loses both ways; endpoints' own parts are crossed twice as well.
        return (
            self.rng.random() < self.background
            or any(self.rng.random() < rates[c] for c in crossed if c in rates)
            or any(self._lost_on(self.routes[flow, reply]) for reply in (False, True))
        )

    def _rates(self, *, large: bool) -> dict[Component, float]:
        return self.loss | self.loss_large if large else self.loss

    def _lost_on(self, way: tuple[str, ...]) -> bool:
        """Send a packet through these routers; return whether a link's direction loses it."""
        rates = self.loss_one_way
        return any(self.rng.random() < rates[ends] for ends in pairwise(way) if ends in rates)

    def view(self, flow: FlowId) -> FlowView:
        """Return what one window of probes on `flow` saw."""
        sizes = [n % LARGE_EVERY == LARGE_EVERY - 1 for n in range(self.probes)]
        outcomes = [(large, self.lost(flow, large=large)) for large in sizes]
        run = 0
        for _, lost in outcomes:
            run = run + 1 if lost else 0
        return FlowView(
            flow,
            sent=self.probes,
            lost=sum(lost for _, lost in outcomes),
            refused=0,
            sent_large=sum(large for large, _ in outcomes),
            lost_large=sum(lost for large, lost in outcomes if large),
            run=run,
            run_ms=max(0, run - 1) * RUN_MS,
            number=self.numbers.number(flow),
        )

    def count(self, flow: FlowId, *, packets: int = 100, large: bool = False) -> PathAnswer:
        """Return how many packets reach each router of a flow, as its host would count them."""
        hops = self.routes[flow, False]
        rates = self._rates(large=large)
        ways = [hops[:n] for n in range(1, len(hops) + 1)]
        reached = [sum(self._passes(flow, way, rates) for _ in range(packets)) for way in ways]
        passed = tuple(max(reached[n:]) for n in range(len(reached)))
        rtts = tuple(map(self._late_ns, ways))
        return PathAnswer(
            source_port=flow.source_port, outer_port=1, sent=packets, answered=passed, rtt_ns=rtts
        )

    def _passes(self, flow: FlowId, way: tuple[str, ...], rates: dict[Component, float]) -> bool:
        source = self.endpoints[flow.source]
        crossed = [rnic(source.host, source.rnic), *map(switch, way)]
        crossed += [link(a, b) for a, b in pairwise(way)]
        # A router's answer comes back the way that the packet went, and crosses all but the router.
        crossed += [c for c in crossed if c != switch(way[-1])]
        if any(self.rng.random() < rates.get(c, 0.0) for c in crossed):
            return False
        return not any(self._lost_on(each) for each in (way, way[::-1]))

    def _late_ns(self, way: tuple[str, ...]) -> int:
        crossed = [*map(switch, way), *(link(a, b) for a, b in pairwise(way))]
        return ROUTER_NS * len(way) + sum(self.slow_ns.get(c, 0) for c in crossed)

    def topology(self) -> LearnedTopology:
        """Return the topology as traces before the window would teach it."""
        learned = LearnedTopology()
        for _ in range(2):  # leaves are known only after the first round
            learned.learn(self.paths(), self.underlay, wall_ns=-WINDOW.width_ns)
        return learned

    def paths(self) -> PathTable:
        """Return all routes as traces show them."""
        return PathTable.of(
            PathRow(flow, reply, 1, hops) for (flow, reply), hops in self.routes.items()
        )

    def underlay(self, endpoint: EndpointId) -> str:
        """Return the address of an endpoint's VTEP."""
        return self.endpoints[endpoint].underlay

    def case(self, **changes: Any) -> Case:
        """Return a window of every flow's probes."""
        flows = Flows.of(map(self.view, self.flows), self.numbers)
        return Case(WINDOW, self.endpoints, flows, numbers=self.numbers, **changes)
