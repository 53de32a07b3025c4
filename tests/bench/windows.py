# SPDX-License-Identifier: Apache-2.0
"""Windows as agents really send them: each endpoint's own schedule decides which flows are in one.

With more targets than an endpoint visits in a window, no two windows hold the same flows.
"""

import os
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from zlib import crc32

from analyzer.roster.registry import Registry
from netagent.collect.paths import PathNews, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, switch
from netagent.model.pinglist import Target
from netagent.model.window import Window
from netagent.probing.schedule import Rates, Schedule
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.codec import deflated, encode
from netagent.wire.messages import Health, Registration

WIDTH_NS = 5_000_000_000
STEP_NS = 10_000_000
RATES = Rates(probes_per_s=20, pings_per_visit=4, ports=4, sizes=3)
"""The defaults of the agent's configuration."""
HOSTS_LN = 9.9, 10.3
"""Means of ln(ns) of what probers and responders take."""
HOSTS_PER_LEAF = 16
SPINES = 8
ROTATE = int(os.environ.get("NETAGENT_BENCH_ROTATE", "36"))
"""Windows after which an endpoint exchanges one of its ports: agents' default by UDP is three
minutes. 0: never, as by RDMA."""
WARM_WINDOWS = 12
"""Windows after which agents have traced what they probe."""


@dataclass
class Cluster:
    """`hosts` hosts with `rails` RNICs each, one task; every endpoint probes all of its rail."""

    hosts: int = 32
    rails: int = 8
    seed: int = 1
    loss: dict[Component, float] = field(default_factory=dict)
    """Probability that a switch or link loses a packet that crosses it."""
    origin_ns: int = 0
    """Start of the first window."""

    def __post_init__(self) -> None:
        self.rng, self.quiet = Random(self.seed), Random(self.seed + 1)
        self.endpoints = {
            (host, rail): Endpoint(
                EndpointId(f"c{host}", rail), "t", f"h{host}", f"10.{rail}.0.{host}", "",
                f"172.{16 + rail}.0.{host}", f"rnic{rail}", "br-int", f"p{host}-{rail}",
            )
            for host in range(self.hosts)
            for rail in range(self.rails)
        }  # fmt: skip
        self.schedules = {key: self._schedule(*key) for key in self.endpoints}
        self.tallies = [WindowTally(large_class=2) for _ in range(self.hosts)]
        self.met: list[dict[tuple[FlowId, bool], None]] = [{} for _ in range(self.hosts)]
        """Host -> flow and direction of what its endpoints sent."""
        self.news = [PathNews(f"h{host}") for host in range(self.hosts)]
        self.window = 0

    def _schedule(self, host: int, rail: int) -> Schedule:
        made = Schedule(RATES, self.rng, now_ns=0)
        own = self.endpoints[host, rail].id
        made.replace(
            [
                Target(own, self.endpoints[other, rail].id, "", "", host=f"h{other}")
                for other in range(self.hosts)
                if other != host
            ]
        )
        return made

    def registry(self) -> Registry:
        """Return a registry that knows every endpoint since long ago."""
        made = Registry()
        for host in range(self.hosts):
            endpoints = tuple(self.endpoints[host, rail] for rail in range(self.rails))
            message = Registration(
                host=f"h{host}", instance="i", generation=1, rpc_url="", endpoints=endpoints
            )
            made.apply(message, 0)
        return made

    def route(self, flow: FlowId, *, reply: bool) -> tuple[str, ...]:
        """Return the routers that one direction of a flow crosses."""
        ends = (flow.target, flow.source) if reply else (flow.source, flow.target)
        first, last = (
            f"leaf-{int(end.container[1:]) // HOSTS_PER_LEAF}-{end.rail}" for end in ends
        )
        if first == last:
            return (first,)
        return first, f"spine-{crc32(f'{flow}{reply}'.encode()) % SPINES}", last

    def bodies(self) -> list[bytes]:
        """Return the next window of every host, as it is sent."""
        start_ns = self.window * WIDTH_NS
        for now_ns in range(start_ns, start_ns + WIDTH_NS, STEP_NS):
            for (host, _), schedule in self.schedules.items():
                for ping in schedule.due(now_ns=now_ns):
                    target = ping.target
                    flow = FlowId(target.source, target.target, 40000 + ping.port_index)
                    self._probe(host, flow, ping.size_class, now_ns, schedule)
        window = Window(self.origin_ns + start_ns, WIDTH_NS)
        self.window += 1
        return [deflated(encode(self._summary(host, window))) for host in range(self.hosts)]

    def _probe(self, host: int, flow: FlowId, size: int, now_ns: int, schedule: Schedule) -> None:
        tally = self.tallies[host]
        self.met[host][flow, False] = None
        self.met[int(flow.target.container[1:])][flow, True] = None
        if self._is_lost(flow):
            tally.add(ProbeLost(flow, 0, size, now_ns))
            schedule.lost(flow.target, now_ns=now_ns)
            return
        tally.add(ProbeReplied(flow, 0, size))
        rtt_ns = round(self.rng.lognormvariate(11.7, 0.14))
        prober_ns, responder_ns = (round(self.quiet.lognormvariate(each, 0.3)) for each in HOSTS_LN)
        tally.add(ProbeMeasured(flow, 0, rtt_ns, prober_ns, responder_ns))

    def _is_lost(self, flow: FlowId) -> bool:
        if not self.loss:
            return False
        ways = [self.route(flow, reply=reply) for reply in (False, True)]
        crossed = [switch(hop) for way in ways for hop in way]
        crossed += [link(a, b) for way in ways for a, b in pairwise(way)]
        return any(self.rng.random() < self.loss.get(each, 0.0) for each in crossed)

    def _summary(self, host: int, window: Window) -> object:
        paths = [
            TracedPath(flow, reply=reply, outer_port=1, hops=self.route(flow, reply=reply))
            for flow, reply in self.met[host]
        ]
        return self.tallies[host].close(
            window, host=f"h{host}", instance="i", findings=(), health=Health(),
            paths=self.news[host].of(paths, start_ns=window.start_ns),
        )  # fmt: skip
