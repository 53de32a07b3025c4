# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster and its diagnosis: summaries and answers in, questions and events out."""

from collections.abc import Callable, Iterator
from typing import Any

from analyzer.diagnosis.engine import Diagnosis, IncidentChanged
from analyzer.questions import Failed, Question, Reply, StatusRequest, Why
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.collect.paths import PathNews, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.finding import Finding
from netagent.model.ids import FlowId
from netagent.model.path import switch
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.model.window import Window
from netagent.probing.session import ProbeLost, ProbeReplied
from netagent.wire.messages import Health, PathReply, PathRequest, Registration, Summary

WIDTH = 5_000_000_000
START = 1_000 * WIDTH
HOSTS = ("h0", "h1", "h2", "h3")


class World:
    """A fabric, its engine, and time."""

    def __init__(
        self,
        seed: int = 1,
        declared: DeclaredTopology = DeclaredTopology(),  # noqa: B008 - frozen
        **shape: Any,
    ) -> None:
        self.fabric = Fabric(seed=seed, **{"probes": 12, **shape})
        self.registry = Registry()
        self.window = 0
        self.silent: dict[str, str] = {}
        """Hosts that say nothing, and why (`Why`)."""

        self.findings: dict[str, tuple[Finding, ...]] = {}
        self.told: dict[str, Incident] = {}
        """The latest of each incident."""

        self.traced: Callable[[FlowId, bool], bool] = lambda _flow, _reply: True
        """Whether a way was traced by now."""
        for host in HOSTS:
            endpoints = tuple(e for e in self.fabric.endpoints.values() if e.host == host)
            self.registry.apply(
                Registration(
                    host=host, instance="1", generation=1, rpc_url="", endpoints=endpoints
                ),
                START - 60 * 10**9,
            )
        self.diagnosis = Diagnosis(self.registry, declared)
        self.tallies = {host: WindowTally(large_class=2) for host in HOSTS}
        self.news = {host: PathNews(host) for host in HOSTS}

    def now_ns(self) -> int:
        """Return when a window is told: shortly after its end."""
        return START + self.window * WIDTH + WIDTH + 200_000_000

    def summaries(self) -> Iterator[Summary]:
        """One window of every host that speaks, as agents make it."""
        for host in HOSTS:
            tally, seq = self.tallies[host], 0
            for flow in self.fabric.flows:
                if self.fabric.endpoints[flow.source].host != host:
                    continue
                for n in range(self.fabric.probes):
                    seq += 1
                    lost = self.fabric.lost(flow, large=n % 3 == 2)
                    at = (self.window * 12 + n) * 400_000_000
                    tally.add(ProbeLost(flow, seq, n % 3, at) if lost
                              else ProbeReplied(flow, seq, n % 3))  # fmt: skip
            paths = [
                TracedPath(flow, reply=reply, outer_port=1, hops=self.trace(hops))
                for (flow, reply), hops in self.fabric.routes.items()
                if self.fabric.endpoints[flow.target if reply else flow.source].host == host
                and self.traced(flow, reply)
            ]
            if host in self.silent:
                continue
            yield tally.close(
                Window(START + self.window * WIDTH, WIDTH), host=host, instance="1",
                paths=self.news[host].of(paths, start_ns=START + self.window * WIDTH),
                findings=self.findings.get(host, ()), health=Health(),
            )  # fmt: skip

    def trace(self, hops: tuple[str, ...]) -> tuple[str, ...]:
        """Return what a trace shows of a route: it ends before a switch that is dead."""
        dead = [n for n, hop in enumerate(hops) if self.fabric.loss.get(switch(hop)) == 1.0]
        return hops[: dead[0]] if dead else hops

    def reply(self, question: Question) -> Reply | None:
        """Answer as the host's agent would; None if it lets the deadline pass."""
        request = question.request
        if isinstance(request, StatusRequest):
            why = self.silent.get(question.host, "timeout")
            return Failed(Why(why), why)
        if isinstance(request, PathRequest):
            return self.path(request)
        return Failed(Why.UNREACHABLE, "no flow tables in this world")

    def path(self, request: PathRequest) -> PathReply | Failed:
        """Count along the path that is asked for; these hosts cannot find ways by themselves."""
        if request.ways:
            return Failed(Why.CANNOT, "no ways are looked for")
        flow = next(
            f for f in self.fabric.flows
            if (f.source, f.target, f.source_port)
            == (request.source, request.target, request.source_port)
        )  # fmt: skip
        return PathReply(paths=(self.fabric.count(flow, large=request.size > 1000),))

    def live(self, windows: int) -> list[Incident]:
        """Let windows pass; return the incidents that are open then."""
        for _ in range(windows):
            for summary in self.summaries():
                self.diagnosis.ingest(summary, self.now_ns())
            self.turn()
            self.window += 1
        return self.diagnosis.incidents()

    def turn(self) -> None:
        """Let the diagnosis judge, and note what it tells."""
        # A silent host's window closes only after the grace.
        now_ns = self.now_ns() + (2_000_000_000 if self.silent else 0)
        questions = self.diagnosis.step(now_ns)
        while questions:
            for question in questions:
                if (reply := self.reply(question)) is not None:
                    self.diagnosis.answer(question.id, reply, now_ns)
            questions = self.diagnosis.step(now_ns)
        while (event := self.diagnosis.next_event()) is not None:
            assert isinstance(event, IncidentChanged), event
            self.told[event.incident.id] = event.incident
