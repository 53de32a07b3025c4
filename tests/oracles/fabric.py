# SPDX-License-Identifier: Apache-2.0
"""A simulated leaf-spine fabric: seeded windows of probes, with the truth known.

Slow and literal: every probe crosses each component of its route and of its reply's, and is lost
where a component's coin says so. Nothing here is shared with the analyzer but its nouns.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from analyzer.detect.loss import FlowView
from analyzer.ingest import PathRow
from analyzer.localize.evidence import Evidence
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, rnic, switch
from netagent.model.window import Window
from netagent.wire.messages import PathAnswer

WINDOW = Window(0, 5_000_000_000)


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
    probes: int = 6
    """Probes per flow and window."""
    loss: dict[Component, float] = field(default_factory=dict)
    """Probability that a component loses a packet that crosses it."""
    slow_ns: dict[Component, int] = field(default_factory=dict)
    """What crossing a component adds to a router's round trip."""
    large_only: bool = False
    background: float = 0.0

    def __post_init__(self):
        self.rng = Random(self.seed)
        self.endpoints = {}
        for t in range(self.tasks):
            for h in range(self.hosts):
                for r in range(self.rails):
                    key = EndpointId(f"t{t}-c{h}", r)
                    self.endpoints[key] = Endpoint(
                        key, f"t{t}", f"h{h}", f"10.0.{r}.{h}", "", f"172.30.{r}.{h}", f"rnic{r}",
                        "br-int", f"p{t}{h}{r}",
                    )  # fmt: skip
        self.flows = [
            FlowId(a, b, 40000 + p)
            for a in self.endpoints
            for b in self.endpoints
            if self._probes(a, b)
            for p in range(self.ports)
        ]
        self.routes = {
            (f, reply): self._route(f, reply=reply) for f in self.flows for reply in (False, True)
        }

    def _probes(self, a, b):
        x, y = self.endpoints[a], self.endpoints[b]
        return x.task == y.task and a.rail == b.rail and x.host != y.host

    def leaf(self, endpoint):
        host = int(self.endpoints[endpoint].host[1:])
        return f"leaf-s{host * self.segments // self.hosts}-r{endpoint.rail}"

    def _route(self, flow, *, reply):
        a, b = (flow.target, flow.source) if reply else (flow.source, flow.target)
        first, last = self.leaf(a), self.leaf(b)
        if first == last:
            return (first,)
        return (first, f"spine-{self.rng.randrange(self.spines)}", last)

    def topology(self):
        """Return the topology as traces would teach it."""
        learned = LearnedTopology()
        rows = [PathRow(f, reply, 1, hops) for (f, reply), hops in self.routes.items()]
        for _ in range(2):  # leaves are known only after the first round
            learned.learn(rows, lambda e: self.endpoints[e].underlay)
        return learned

    def _crossed(self, flow, *, reply):
        hops = self.routes[flow, reply]
        ends = [self.endpoints[e] for e in (flow.source, flow.target)]
        return [
            *(rnic(e.host, e.rnic) for e in ends),
            *map(switch, hops),
            *(link(a, b) for a, b in pairwise(hops)),
            *(Component.parse(f"container {e.container}") for e in (flow.source, flow.target)),
        ]

    def _lost(self, flow, *, large):
        rates = dict(self.loss) if large or not self.large_only else {}
        crossed = self._crossed(flow, reply=False) + self._crossed(flow, reply=True)
        # A component that is dead loses both ways; endpoints' own parts are crossed twice as well.
        return self.rng.random() < self.background or any(
            self.rng.random() < rates[c] for c in crossed if c in rates
        )

    def view(self, flow):
        """Return what one window of probes on `flow` saw."""
        outcomes = [(n % 3 == 2, self._lost(flow, large=n % 3 == 2)) for n in range(self.probes)]
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
            run_ms=max(0, run - 1) * 600,
        )

    def count(self, flow, *, packets=100, large=False):
        """Return how many packets reach each router of a flow, as its host would count them."""
        hops = self.routes[flow, False]
        source = self.endpoints[flow.source]
        reached = []
        for n in range(1, len(hops) + 1):
            way = hops[:n]
            crossed = [rnic(source.host, source.rnic), *map(switch, way)]
            crossed += [link(a, b) for a, b in pairwise(way)]
            rates = self.loss if large or not self.large_only else {}
            reached.append(
                sum(
                    all(self.rng.random() >= rates.get(c, 0.0) for c in crossed)
                    for _ in range(packets)
                )
            )
        passed = tuple(max(reached[n:]) for n in range(len(reached)))
        rtts = tuple(self._late_ns(hops[: n + 1]) for n in range(len(hops)))
        return PathAnswer(
            source_port=flow.source_port, outer_port=1, sent=packets, answered=passed, rtt_ns=rtts
        )

    def _late_ns(self, way):
        crossed = [*map(switch, way), *(link(a, b) for a, b in pairwise(way))]
        return 200_000 * len(way) + sum(self.slow_ns.get(c, 0) for c in crossed)

    def evidence(self, **changes):
        """Return a window of every flow's probes."""
        flows = tuple(self.view(flow) for flow in self.flows)
        return Evidence(WINDOW, self.endpoints, flows, **{"findings": (), "silent": {}, **changes})
