# SPDX-License-Identifier: Apache-2.0
"""The engine over a simulated fabric: summaries in, incidents out, agents answered by fakes.

The same on a real network: tests/ovs/test_end_to_end.py.
"""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from analyzer import diagnosis
from analyzer.diagnosis import Engine
from analyzer.doubts import Doubts
from analyzer.localize import hops
from analyzer.registry import Registry
from netagent.collect.windows import TracedPath, WindowTally
from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, link, switch
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import IncidentState, Symptom
from netagent.model.window import Window
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.messages import Health, PathReply, Registration
from tests.oracles.fabric import Fabric

WIDTH = 5_000_000_000
START = 1_000 * WIDTH
HOSTS = ("h0", "h1", "h2", "h3")


class World:
    """A fabric, its engine, and time."""

    def __init__(self, seed=1, **shape):
        self.fabric = Fabric(seed=seed, **{"probes": 12, **shape})
        self.registry = Registry()
        self.window = 0
        self.silent = {}
        self.findings = {}
        self.stored = []
        for host in HOSTS:
            endpoints = tuple(e for e in self.fabric.endpoints.values() if e.host == host)
            self.registry.apply(
                Registration(
                    host=host, instance="1", generation=1, rpc_url="", endpoints=endpoints
                ),
                START - 60 * 10**9,
            )
        self.engine = Engine(self.registry, DeclaredTopology())
        self.tallies = {host: WindowTally(large_class=2) for host in HOSTS}

    def now_ns(self):
        return START + self.window * WIDTH + WIDTH + 200_000_000

    def summaries(self):
        """One window of every host that speaks, as agents make it."""
        for host in HOSTS:
            tally, seq = self.tallies[host], 0
            for flow in self.fabric.flows:
                if self.fabric.endpoints[flow.source].host != host:
                    continue
                for n in range(self.fabric.probes):
                    seq += 1
                    lost = self.fabric._lost(flow, large=n % 3 == 2)
                    at = (self.window * 12 + n) * 400_000_000
                    tally.add(ProbeLost(flow, seq, n % 3, at) if lost
                              else ProbeReplied(flow, seq, n % 3))  # fmt: skip
            paths = [
                TracedPath(flow, reply=reply, outer_port=1, hops=hops)
                for (flow, reply), hops in self.fabric.routes.items()
                if self.fabric.endpoints[flow.target if reply else flow.source].host == host
            ]
            if host in self.silent:
                continue
            yield tally.close(
                Window(START + self.window * WIDTH, WIDTH), host=host, instance="1", paths=paths,
                findings=self.findings.get(host, ()), health=Health(),
            )  # fmt: skip

    async def status(self, host, *, deadline_s=1.0):
        raise Unreachable(host, self.silent.get(host, "timeout"))

    async def check(self, host, request, *, deadline_s=1.0):
        raise Unreachable(host, "no flow tables in this world")

    async def path(self, host, request, *, deadline_s=1.0):
        flow = next(
            f for f in self.fabric.flows
            if (f.source, f.target, f.source_port)
            == (request.source, request.target, request.source_port)
        )  # fmt: skip
        return PathReply(paths=(self.fabric.count(flow, large=request.size > 1000),))

    async def put_incidents(self, incidents):
        self.stored += incidents

    def live(self, windows):
        """Let windows pass; return the incidents that are open then."""
        for _ in range(windows):
            for summary in self.summaries():
                self.engine.ingest(summary, self.now_ns())
            asyncio.run(self._turn())
            self.window += 1
        return [i for i in self.engine.incidents() if i.state is not IncidentState.RECOVERED]

    async def _turn(self):
        # A silent host's window closes only after the grace.
        late = 2_000_000_000 if self.silent else 0
        expected = self.engine._expected(self.now_ns())
        self.engine._windows.ensure(WIDTH, now_ns=self.now_ns())
        for state in self.engine._windows.close(expected, now_ns=self.now_ns() + late):
            changed = await self.engine._judge(state, expected, self, self.now_ns)
            await self.put_incidents(changed)


def components(incidents):
    return [i.verdict.component for i in incidents]


@pytest.mark.parametrize("seed", range(3))
def test_a_lossy_link_is_found_confirmed_and_recovers(seed):
    world = World(seed)
    assert world.live(4) == []
    truth = link("leaf-s1-r1", "spine-0")
    world.fabric.loss = {truth: 0.2}
    assert components(world.live(2)) == [truth]
    (incident,) = world.engine.incidents()
    assert incident.state is IncidentState.CONFIRMED
    counts = [line for line in incident.verdict.evidence if line.startswith(hops.COUNTED)]
    assert counts  # what broke the tie stays, though it was counted in the first window only
    assert len(counts) == len(set(counts))
    world.fabric.loss = {}
    assert world.live(2) == []
    assert len(world.engine.incidents()) == 1


def test_losses_too_few_for_one_window_are_told_by_two():
    truth, by_two = link("leaf-s1-r0", "spine-0"), 0
    for seed in range(8):
        world = World(seed, rails=1, tasks=1, probes=6)  # half of all probes cross the link
        world.live(3)
        world.fabric.loss = {truth: 0.05}
        first = components(world.live(1))
        (incident,) = world.live(2)
        assert incident.verdict.component == truth
        by_two += not first and any("2 windows" in line for line in incident.verdict.evidence)
        world.fabric.loss = {}
        assert world.live(2) == []
    assert by_two >= 4


@pytest.mark.parametrize("seed", range(6))
def test_one_pairs_losses_that_are_over_accuse_nobody(seed):
    world = World(seed)
    world.live(3)
    one = link("leaf-s1-r1", "spine-0")
    flow = next(f for f in world.fabric.flows if one in world.fabric._crossed(f, reply=False))
    lossy = world.fabric._lost
    world.fabric._lost = lambda f, **size: f == flow and world.fabric.rng.random() < 0.5
    assert world.live(1) == []
    world.fabric._lost = lambda f, **size: world.fabric.rng.random() < 0.004
    assert set(components(world.live(1))) <= {None}
    world.fabric._lost = lossy
    assert world.live(2) == []


def test_a_dead_spine_is_one_incident():
    world = World()
    world.live(3)
    world.fabric.loss = {switch("spine-1"): 1.0}
    assert components(world.live(2)) == [switch("spine-1")]


def test_a_dead_agent_is_no_dead_path_while_it_is_gone_nor_in_the_window_it_returns():
    world = World()
    world.live(3)
    world.silent = {"h2": "refused"}
    gone = [Component.parse(f"container t{t}-c2") for t in (0, 1)]
    world.fabric.loss = dict.fromkeys(gone, 1.0)
    assert components(world.live(2)) == [Component.parse("agent h2")]
    world.silent = {}
    world.fabric.loss = dict.fromkeys(gone, 0.5)  # it came back in the middle of the window
    assert world.live(1) == []
    world.fabric.loss = {}
    assert world.live(2) == []
    assert components(world.engine.incidents()) == [Component.parse("agent h2")]


def test_an_agent_that_does_not_answer_in_time_is_told_of_after_two_windows_and_is_no_dead_path():
    world = World()
    world.live(12)  # it is no young agent any more
    world.silent = {"h2": "timeout"}
    gone = [Component.parse(f"container t{t}-c2") for t in (0, 1)]
    world.fabric.loss = dict.fromkeys(gone, 1.0)
    assert world.live(1) == []
    assert components(world.live(1)) == [Component.parse("agent h2")]


def test_an_agent_that_began_lately_may_be_slow_to_answer_but_not_refuse(monkeypatch):
    monkeypatch.setattr(diagnosis, "YOUNG_NS", 100 * WIDTH)
    world = World()
    world.live(3)
    world.silent = {"h1": "timeout"}
    world.fabric.loss = dict.fromkeys([Component.parse("container t0-c1")], 1.0)
    assert world.live(4) == []
    world.silent = {"h1": "refused"}
    assert components(world.live(1)) == [Component.parse("agent h1")]


def test_an_agent_that_makes_a_trace_may_be_slow_to_answer(monkeypatch):
    world = World()
    world.live(12)
    traced = {"h2"}
    monkeypatch.setattr(Doubts, "tracing", property(lambda _: traced))
    world.silent = {"h2": "timeout"}
    assert world.live(4) == []
    traced.clear()
    assert components(world.live(1)) == [Component.parse("agent h2")]


def test_an_agent_that_stood_still_accuses_nobody():
    world = World()
    world.live(3)
    gone = [Component.parse(f"container t{t}-c1") for t in (0, 1)]
    world.fabric.loss = dict.fromkeys(gone, 0.6)
    make = world.summaries

    def stalled():
        for summary in make():
            health = Health(stalled_ms=3000 if summary.host == "h1" else 0)
            yield structs.replace(summary, health=health)

    world.summaries = stalled
    assert world.live(2) == []


def test_a_hosts_finding_is_believed_for_its_flows():
    world = World()
    world.live(3)
    rnic = Component.parse("rnic h3/rnic0")
    world.fabric.loss = {rnic: 1.0}
    world.findings = {"h3": (Finding(FindingKind.RNIC_DOWN, rnic, "no carrier", 1),)}
    (incident,) = world.live(1)
    assert (incident.verdict.component, incident.state) == (rnic, IncidentState.CONFIRMED)
    assert incident.tasks == ("t0", "t1")
    assert [f.component for f in world.engine.findings()] == [rnic]


def test_endpoints_that_just_registered_are_not_judged():
    world = World()
    world.fabric.loss = {switch("leaf-s0-r0"): 1.0}
    for host in HOSTS:
        endpoints = tuple(
            replace(e, task=e.task) for e in world.fabric.endpoints.values() if e.host == host
        )
        leaving = Registration(host=host, instance="1", generation=2, rpc_url="", endpoints=())
        back = Registration(host=host, instance="1", generation=3, rpc_url="", endpoints=endpoints)
        world.registry.apply(leaving, START)
        world.registry.apply(back, START + 1)
    assert world.live(1) == []


def test_history_from_before_a_restart_opens_nothing_and_restored_incidents_end():
    world = World()
    world.engine._windows.begin(now_ns=START + 10 * WIDTH)
    world.fabric.loss = {switch("spine-0"): 1.0}
    assert world.live(3) == []
    world.fabric.loss = {}
    before = World()
    before.live(3)
    before.fabric.loss = {switch("spine-0"): 1.0}
    before.live(2)
    world.engine.restore(before.engine.incidents())
    assert world.engine._book.standing() == {switch("spine-0")}
    world.window = 10
    assert world.live(2) == []
    assert world.engine.incidents()[0].state is IncidentState.RECOVERED


def test_the_topology_is_told_as_learned():
    world = World()
    world.live(2)
    told = world.engine.topology()
    assert len(told["links"]) == 8
    assert told["leaves"]["172.30.0.0"] == "leaf-s0-r0"


def slowed(world, truth, factor):
    """Make every answered probe that crosses `truth` slower from now on."""
    fabric = world.fabric
    for host, tally in world.tallies.items():
        for flow in fabric.flows:
            if fabric.endpoints[flow.source].host != host:
                continue
            crossed = fabric._crossed(flow, reply=False) + fabric._crossed(flow, reply=True)
            rtt_ns = round(300_000 * (factor if truth in crossed else 1))
            for seq in range(4):
                tally.add(ProbeMeasured(flow, seq, rtt_ns, 0, 0))


def live_slow(world, truth, factor, windows):
    incidents = []
    for _ in range(windows):
        slowed(world, truth, factor)
        incidents = world.live(1)
    return incidents


@pytest.mark.parametrize("elsewhere", [False, True], ids=["alone", "while an agent is dead"])
def test_a_slow_rnic_is_found_whatever_else_is_wrong_and_recovers(elsewhere):
    world, truth = World(), Component.parse("rnic h3/rnic0")
    assert live_slow(world, truth, 1, 6) == []
    if elsewhere:
        world.silent = {"h0": "refused"}
    found = live_slow(world, truth, 20, 2)
    assert truth in components(found)
    (incident,) = (i for i in found if i.verdict.component == truth)
    assert incident.verdict.symptom is Symptom.LATENCY
    assert truth in components(live_slow(world, truth, 20, 10))  # never becomes the norm
    world.silent = {}
    assert live_slow(world, truth, 1, 3) == []


def test_a_slow_link_is_told_from_its_spine_by_where_routers_become_late():
    world, truth = World(), link("leaf-s0-r0", "spine-1")
    assert live_slow(world, truth, 1, 6) == []
    world.fabric.slow_ns = {truth: 5_000_000}
    (incident,) = live_slow(world, truth, 20, 3)
    assert incident.verdict.component == truth
    late = [line for line in incident.verdict.evidence if line.startswith(hops.TIMED)]
    assert any("leaf-s0-r0 200 us, spine-1 5400 us, leaf-s1-r0 5600 us" in line for line in late)


def test_a_slow_link_is_a_tie_where_routers_tell_nothing():
    world, truth = World(), link("leaf-s0-r0", "spine-1")
    assert live_slow(world, truth, 1, 6) == []
    answers = iter(range(99))
    asked = world.path

    async def path(host, request, *, deadline_s=1.0):  # one of four in time, and as ever
        if next(answers) % 4:
            raise Unreachable(host, "timeout")
        return await asked(host, request)

    world.path = path
    (incident,) = live_slow(world, truth, 20, 4)
    assert incident.verdict.component is None
    assert truth in [suspect.component for suspect in incident.verdict.alternatives]


def test_an_odd_summary_is_refused_and_the_rest_is_judged():
    world = World()
    world.live(3)
    world.fabric.loss = {switch("spine-1"): 1.0}
    good = next(world.summaries())
    for change in (
        {"width_ns": 1},
        {"start_ns": good.start_ns + 1},
        {"flows": structs.replace(good.flows, mean_ln=b"\xff\xff\xff\x7f" * 48)},
    ):
        with pytest.raises(RemoteProtocolError):
            world.engine.ingest(structs.replace(good, host="h9", **change), world.now_ns())
    assert components(world.live(2)) == [switch("spine-1")]
