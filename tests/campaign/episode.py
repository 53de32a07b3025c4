# SPDX-License-Identifier: Apache-2.0
"""One episode: some failures begin in a fabric that was well, and the diagnosis says what it says.

The diagnosis gets the agents' messages as bytes and the answers to its questions. Which failures
there are is known here only.
"""

import random
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.diagnosis.engine import Diagnosis, IncidentChanged
from analyzer.diagnosis.learning import Learned
from analyzer.intake.paths import paths_of
from analyzer.intake.windows import GRACE_NS
from analyzer.questions import Failed, Question, Reply, Why
from analyzer.roster.registry import Registry
from analyzer.simulate.agents import WIDTH_NS, Agents, Noise
from analyzer.simulate.churn import Churn
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import TYPES, Failure, rehashed
from netagent.model.topology import DeclaredTopology, Fabric, Uplink
from netagent.model.verdict import Incident
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Summary
from tests.campaign.apart import beside
from tests.campaign.baselines import Baselines

LATE_NS = 200_000_000
"""Nanoseconds from a window's end until all its messages are in. Chosen: as in a lab."""


@dataclass(frozen=True)
class Said:
    """An incident, as it stood when it changed."""

    id: str
    at_s: float
    """Seconds from the begin of the episode's failures."""
    component: str | None
    layer: str | None
    confidence: float
    alternatives: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class Truth:
    """A failure that there was."""

    number: int
    name: str
    component: str
    family: str
    also: tuple[str, ...]
    start_s: float
    harmless: bool = False
    """No part is at fault: nobody may be named but `also`."""


@dataclass(frozen=True)
class Outcome:
    """What became of an episode."""

    seed: int
    truths: tuple[Truth, ...]
    said: tuple[Said, ...]
    seconds: float
    """Simulated."""
    broken: tuple[str, ...] = ()
    """Windows that could not be judged."""
    blamed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What simpler methods blame, by their names."""
    alarms: int = 0
    """Windows in which a flow passed a fixed threshold."""
    version: str = ""
    """Commit that was run, if known."""
    warming: bool = False
    """Whether it is the health that all other episodes of a run go on from."""


@dataclass(frozen=True)
class Told:
    """An incident that changed, or a window that could not be judged."""

    now_ns: int
    incident: Incident | None = None
    error: str = ""


@dataclass
class Cluster:
    """A fabric, its agents and an analyzer's diagnosis."""

    shape: Shape
    seed: int = 0
    traced: bool = True
    noise: Noise = field(default_factory=Noise)
    bursts: bool = False
    spray: bool = False
    churn: float = 0.0
    """Containers that start each minute, in a fabric of 40,000 RNICs."""
    rehash: bool = False
    """Whether routers avoid dead links after a while."""
    rotate: int = 0
    """Windows after which an RNIC exchanges one of its source ports; 0: never."""

    def __post_init__(self) -> None:
        if self.churn:
            self.shape = replace(self.shape, least_replicas=4)
        self.clos = Clos(self.shape, self.seed)
        churn = Churn(self.shape.hosts, self.seed, self.churn) if self.churn else None
        self.agents = Agents(
            self.clos, self.seed, self.noise, traced=self.traced, bursts=self.bursts,
            spray=self.spray, churn=churn, rotate=self.rotate,
        )  # fmt: skip
        self.registry = Registry()
        for message in self.agents.registrations():
            self.registry.apply(message, 0)
        declared = DeclaredTopology()
        if self.spray or not self.traced:
            declared = self._declared()
        self.diagnosis = Diagnosis(self.registry, declared)
        self.said = Learned()
        """What hosts said of their paths, for simpler methods."""

    def _declared(self) -> DeclaredTopology:
        """Return the cabling, which an operator declares where traces do not tell it."""
        uplinks = tuple(
            Uplink(end.host, end.rnic, self.clos.leaf(n))
            for n, end in enumerate(self.clos.endpoints)
        )
        fabric = Fabric.SPRAY if self.spray else Fabric.ECMP
        return DeclaredTopology(links=frozenset(self.clos.links), uplinks=uplinks, fabric=fabric)

    @property
    def now_ns(self) -> int:
        """Return when the newest window is told."""
        return self.agents.start_ns + self.agents.window_number * WIDTH_NS + LATE_NS

    def window(self, beside: Baselines | None = None) -> list[Told]:
        """Let a window pass; return what changed, and what could not be judged."""
        overdue_ns = self.agents.now_ns + GRACE_NS
        is_first = not self.agents.window_number
        bodies = [encode(each) for each in self.agents.window()]
        summaries = [decode(body, Summary) for body in bodies]
        news = self.agents.news()
        told: list[Told] = []
        # What did not come with the window before is waited for, and some comes meanwhile.
        for now_ns in ([] if is_first else [overdue_ns]) + [self.now_ns]:
            due = [each for each in summaries if self._comes_ns(each) <= now_ns]
            summaries = [each for each in summaries if self._comes_ns(each) > now_ns]
            while news and news[0][0] <= now_ns:
                self.registry.apply(news[0][1], news.pop(0)[0])
            for each in due:
                self.said.all_of(each.host, paths_of(each), wall_ns=each.start_ns)
            if beside is not None and due:
                beside.know(self.clos.endpoints)
                beside.window(due)
            told += self._take(due, now_ns)
        return told

    def _comes_ns(self, summary: Summary) -> int:
        """Return when a message comes."""
        closed_ns = self.agents.closed_ns.get((summary.host, summary.start_ns))
        return LATE_NS + (self.agents.now_ns if closed_ns is None else closed_ns)

    def _take(self, summaries: list[Summary], now_ns: int) -> list[Told]:
        """Take messages, judge what is complete, and answer questions."""
        for summary in summaries:
            self.registry.heard(summary.host, summary.start_ns, now_ns)
            self.diagnosis.ingest(summary, now_ns)
        told: list[Told] = []
        while questions := self.diagnosis.step(now_ns):
            told += self._told(now_ns)
            replies = [self._reply(each, now_ns) for each in questions]
            now_ns = max(now_ns, *(at_ns for _, at_ns in replies))
            for each, (reply, _) in zip(questions, replies, strict=True):
                self.diagnosis.answer(each.id, reply, now_ns)
        return told + self._told(now_ns)

    def _reply(self, question: Question, now_ns: int) -> tuple[Reply, int]:
        """Return what an agent answers, and when; nobody waits longer than the question says."""
        reply = self.agents.reply(question.host, question.request, now_ns=now_ns)
        if self.agents.replied_ns > question.deadline_ns:
            return Failed(Why.TIMEOUT, "timeout"), question.deadline_ns
        return reply, self.agents.replied_ns

    def _told(self, now_ns: int) -> list[Told]:
        told: list[Told] = []
        while (event := self.diagnosis.next_event()) is not None:
            if isinstance(event, IncidentChanged):
                told.append(Told(now_ns, event.incident))
            elif event.event == "window_not_judged":
                told.append(Told(now_ns, error=repr(event.error)))
        return told

    def warm(self, windows: int) -> Outcome:
        """Let healthy windows pass; return what was said. Nothing is chosen by it."""
        said, broken = self.watch(windows)
        return Outcome(self.seed, (), said, windows * WIDTH_NS / 1e9, broken, warming=True)

    def watch(
        self, windows: int, beside: Baselines | None = None
    ) -> tuple[tuple[Said, ...], tuple[str, ...]]:
        """Let windows pass; return what incidents said, and what could not be judged."""
        began_ns = self.agents.start_ns + self.agents.window_number * WIDTH_NS
        told = [each for _ in range(windows) for each in self.window(beside)]
        said = (_said(e.incident, (e.now_ns - began_ns) / 1e9) for e in told if e.incident)
        return tuple(said), tuple(each.error for each in told if each.incident is None)


def episode(cluster: Cluster, seed: int, numbers: tuple[int, ...], *, windows: int) -> Outcome:
    """Let failures of these types of Table 1 begin in the next window, and watch."""
    agents = cluster.agents
    agents.rng = np.random.default_rng([seed, 3])
    rng = np.random.default_rng([seed, 4])
    failures = _drawn(agents, rng, numbers)
    if cluster.rehash:
        failures = [rehashed(each, rng) for each in failures]
    began_ns = agents.start_ns + agents.window_number * WIDTH_NS
    agents.fail(failures, now_ns=began_ns)
    simpler = Baselines(cluster.said)
    said, broken = cluster.watch(windows, simpler)
    truths = tuple(
        Truth(
            each.number, TYPES[each.number][0], str(each.truth), each.family.value,
            tuple(sorted(map(str, each.also))), each.start_ns / 1e9, each.harmless,
        )
        for each in failures
    )  # fmt: skip
    return Outcome(
        seed, truths, said, windows * WIDTH_NS / 1e9, broken, simpler.blamed(), simpler.alarms
    )


def _drawn(agents: Agents, rng: np.random.Generator, numbers: tuple[int, ...]) -> list[Failure]:
    """Return failures that begin at any moment of a window, none of them on another's part."""
    made: list[Failure] = []
    idle = agents.idle()
    for number in numbers:
        each = beside(made, number, agents.clos, rng, idle)
        made.append(replace(each, start_ns=int(rng.integers(WIDTH_NS))))
    return made


def _said(incident: Incident, at_s: float) -> Said:
    verdict = incident.verdict
    return Said(
        incident.id, round(at_s, 3),
        str(verdict.component) if verdict.component else None,
        verdict.layer.value if verdict.layer else None, verdict.confidence,
        tuple(str(each.component) for each in verdict.alternatives), incident.state.value,
    )  # fmt: skip


def types_of(seed: int, *, most: int, among: tuple[int, ...], same: int = 0) -> tuple[int, ...]:
    """Return which types fail together in an episode: one to `most` of them, or always `same`."""
    rng = random.Random(seed)
    return tuple(rng.choice(among) for _ in range(same or 1 + seed % most))
