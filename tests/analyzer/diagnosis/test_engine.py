# SPDX-License-Identifier: Apache-2.0
"""The diagnosis over a simulated fabric: summaries and answers in, questions and events out.

The same on a real network: tests/ovs/test_end_to_end.py.
"""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from analyzer.detect.silence import TIMEOUT_WINDOWS
from analyzer.diagnosis import engine
from analyzer.diagnosis.engine import FORGET_NS, STORING_NS, Diagnosis
from analyzer.diagnosis.incidents import MOST_CLEAN
from analyzer.intake.windows import AHEAD_NS, GRACE_NS, WindowState
from analyzer.localize.sentences import sentences
from analyzer.localize.tracing.wants import Wants
from analyzer.questions import Failed, Why
from netagent.collect.paths import PathsToSay, TracedPath
from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.evidence import EvidenceKind
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, link, switch
from netagent.model.task import Task
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import IncidentState, Symptom
from netagent.model.window import Window
from netagent.probing.session import ProbeMeasured, ProbeReplied
from netagent.wire.columns import pack
from netagent.wire.histogram import bucket_of
from netagent.wire.messages import CheckRequest, FlowColumns, Health, PathColumns, Registration
from tests.analyzer.diagnosis.world import HOSTS, START, WIDTH, World
from tests.length import some
from tests.oracles.rows import items


def said(incident):
    return sentences(incident.verdict.evidence)


def components(incidents):
    return [i.verdict.component for i in incidents]


@pytest.mark.parametrize("seed", range(3))
def test_a_lossy_link_is_found_confirmed_and_recovers(seed):
    world = World(seed)
    assert world.live(4) == []
    truth = link("leaf-s1-r1", "spine-0")
    world.fabric.loss = {truth: 0.2}
    assert components(world.live(2)) == [truth]
    (incident,) = world.told.values()
    assert incident.state is IncidentState.CONFIRMED
    counts = [each for each in incident.verdict.evidence if each.kind is EvidenceKind.COUNTED]
    assert counts  # what broke the tie stays, though it was counted in the first window only
    assert len(counts) == len({str(each) for each in counts})
    world.fabric.loss = {}
    assert world.live(2) == []
    assert len(world.told.values()) == 1


def test_losses_too_few_for_one_window_are_told_by_several():
    truth, by_several = link("leaf-s1-r0", "spine-0"), 0
    for seed in range(8):
        world = World(seed, rails=1, tasks=1, probes=6)  # half of all probes cross the link
        world.live(3)
        world.fabric.loss = {truth: 0.04}
        first = components(world.live(1))
        (incident,) = world.live(4)
        assert incident.verdict.component == truth
        by_several += not first and any("windows" in line for line in said(incident))
        world.fabric.loss = {}
        assert world.live(MOST_CLEAN) == []
    assert by_several >= 1


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_one_pairs_losses_that_are_over_accuse_nobody(seed):
    world = World(seed)
    world.live(3)
    one = link("leaf-s1-r1", "spine-0")
    flow = next(f for f in world.fabric.flows if one in world.fabric.crossed(f, reply=False))
    lossy = world.fabric.lost
    world.fabric.lost = lambda f, **size: f == flow and world.fabric.rng.random() < 0.5
    assert world.live(1) == []
    world.fabric.lost = lambda f, **size: world.fabric.rng.random() < 0.004
    assert set(components(world.live(1))) <= {None}
    world.fabric.lost = lossy
    assert world.live(2) == []


def test_a_dead_spine_is_one_incident():
    world = World()
    world.live(3)
    world.fabric.loss = {switch("spine-1"): 1.0}
    assert components(world.live(2)) == [switch("spine-1")]


class SlowToWalk(World):
    """Hosts that answer a walk when a window's time is almost over, and a count in a second."""

    def __init__(self, **shape):
        super().__init__(**shape)
        self.walked = []
        """Windows in which a walk was answered."""

    def turn(self):
        now_ns = self.now_ns()
        questions = self.diagnosis.step(now_ns)
        while questions:
            walks = any(isinstance(each.request, CheckRequest) for each in questions)
            answered_ns = now_ns + (4_500_000_000 if walks else 1_000_000_000)
            now_ns = min(answered_ns, questions[0].deadline_ns)
            if now_ns == answered_ns:
                self.walked += [self.window] * walks
                for question in questions:
                    self.diagnosis.answer(question.id, self.reply(question), now_ns)
            questions = self.diagnosis.step(now_ns)
        while (event := self.diagnosis.next_event()) is not None:
            self.told[event.incident.id] = event.incident


def test_a_dead_link_is_named_by_counts_where_hosts_take_all_time_for_walks():
    world = SlowToWalk(segments=2)
    dead = link("leaf-s0-r0", "spine-0")
    world.live(3)
    world.fabric.loss = {dead: 1.0}
    assert components(world.live(4)) == [dead]
    world.live(12)
    # A walk that needs a whole window has one after a minute, though the hosts stay as slow.
    assert world.walked[:2] == [3, 16]
    assert components(world.diagnosis.incidents()) == [dead]


@pytest.mark.parametrize("rate", [0.1, 0.3])
@pytest.mark.parametrize("truth", [switch("leaf-s0-r0"), switch("spine-0")], ids=str)
def test_a_switch_that_loses_a_part_is_named_and_no_part_of_it(truth, rate):
    for seed in range(4):
        world = World(seed)
        world.live(3)
        world.fabric.loss = {truth: rate}
        world.live(3)
        named = {i.verdict.component for i in world.told.values()}
        assert named == {truth}, seed


@pytest.mark.parametrize("rate", [0.003, 0.01])
def test_losses_alike_on_all_links_accuse_nobody(rate):
    for seed in range(4):
        world = World(seed)
        world.live(3)
        links = [link(leaf, f"spine-{n}") for leaf in LEAVES for n in (0, 1)]
        world.fabric.loss = dict.fromkeys(links, rate)
        world.live(4)
        assert {i.verdict.component for i in world.told.values()} <= {None}, seed


def test_losses_that_nothing_explains_are_told_all_the_same():
    """A spine was dead before anything was traced across it, and none was declared."""
    world = World(1)
    world.traced = lambda _flow, _reply: False
    world.fabric.loss = {switch("spine-1"): 1.0}
    (incident,) = world.live(3)
    assert incident.verdict.component is None
    assert any("underlay paths" in line for line in incident.verdict.missing)


def test_a_host_speaks_only_for_what_its_own_endpoints_send():
    world = World(1)
    world.live(3)
    window = Window(world.now_ns() // WIDTH * WIDTH - WIDTH, WIDTH)
    lies = tuple(
        TracedPath(flow, reply=reply, outer_port=1, hops=("nowhere",))
        for flow, reply in world.fabric.routes
    )
    summary = world.tallies["h0"].close(
        window, host="h0", instance="1", paths=PathsToSay(lies), findings=(), health=Health()
    )
    world.diagnosis.ingest(summary, world.now_ns())
    told = world.diagnosis.topology()["leaves"]
    own = {e.underlay for e in world.fabric.endpoints.values() if e.host == "h0"}
    assert {underlay for underlay, leaf in told.items() if leaf == "nowhere"} == own


def test_what_is_said_of_a_far_future_is_not_learned():
    world = World(1)
    world.live(3)
    before = world.diagnosis.routes, world.diagnosis.flows
    flow = replace(next(iter(world.fabric.routes))[0], source_port=9)
    host = world.fabric.endpoints[flow.source].host
    after = (before[0] + 1, before[1] + 1)
    for ahead_ns, known in ((AHEAD_NS + 2 * WIDTH, before), (0, after)):
        world.tallies[host].add(ProbeReplied(flow, 1, 0))
        summary = world.tallies[host].close(
            Window(world.now_ns() // WIDTH * WIDTH + ahead_ns, WIDTH), host=host, instance="1",
            paths=PathsToSay((TracedPath(flow, reply=False, outer_port=1, hops=("x",)),)),
            findings=(), health=Health(),
        )  # fmt: skip
        world.diagnosis.ingest(summary, world.now_ns())
        assert (world.diagnosis.routes, world.diagnosis.flows) == known


LEAVES = [f"leaf-s{segment}-r{rail}" for segment in (0, 1) for rail in (0, 1)]
DECLARED = DeclaredTopology(
    links=frozenset((leaf, f"spine-{n}") for leaf in LEAVES for n in (0, 1)),
)


@pytest.mark.parametrize("declared", [DECLARED, DeclaredTopology()], ids=["declared", "learned"])
@pytest.mark.parametrize("windows", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_spine_that_dies_while_few_ways_were_traced_is_no_fault_of_the_other(
    seed, windows, declared
):
    """What a dead spine carries is never traced to its end: the other half of a way is known."""
    world, chance = World(seed, declared), random.Random(seed)
    begun = {key: chance.randrange(12) / 3 for key in world.fabric.routes}
    world.traced = lambda flow, reply: begun[flow, reply] <= world.window
    world.live(windows)
    world.fabric.loss = {switch("spine-1"): 1.0}
    world.live(4)
    named = {i.verdict.component for i in world.told.values()}
    if declared is DECLARED:
        assert named == {switch("spine-1")}
    else:  # hardly anybody told of a second spine
        assert named <= {switch("spine-1"), None}


@pytest.mark.parametrize("known", [True, False], ids=["traced before", "traced in that window"])
@pytest.mark.parametrize("seed", range(4))
def test_what_was_lost_before_routers_turned_is_no_fault_of_the_way_they_turned_to(seed, known):
    world = World(seed, DECLARED)
    world.traced = lambda flow, reply: known or world.window >= 3
    world.live(3)
    fabric, dead = world.fabric, "spine-0"
    hit = {key for key, hops in fabric.routes.items() if dead in hops}
    lossy = fabric.lost
    fabric.lost = lambda f, **size: (
        ({(f, False), (f, True)} & hit and fabric.rng.random() < 0.5) or lossy(f, **size)
    )
    fabric.routes = {
        key: tuple("spine-1" if hop == dead else hop for hop in hops)
        for key, hops in fabric.routes.items()
    }
    world.live(1)
    fabric.lost = lossy
    world.live(3)
    named = {i.verdict.component for i in world.told.values()}
    assert named == {switch(dead)} if known else named <= {switch(dead), None}


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
    assert components(world.told.values()) == [Component.parse("agent h2")]


def test_an_agent_that_does_not_answer_in_time_is_told_of_after_two_windows_and_is_no_dead_path():
    world = World()
    world.live(12)  # it is no young agent any more
    world.silent = {"h2": "timeout"}
    gone = [Component.parse(f"container t{t}-c2") for t in (0, 1)]
    world.fabric.loss = dict.fromkeys(gone, 1.0)
    assert world.live(1) == []
    assert components(world.live(1)) == [Component.parse("agent h2")]


def test_an_agent_that_began_lately_may_be_slow_to_answer_but_not_refuse(monkeypatch):
    monkeypatch.setattr(engine, "YOUNG_NS", 100 * WIDTH)
    world = World()
    world.live(3)
    world.silent = {"h1": "timeout"}
    world.fabric.loss = dict.fromkeys([Component.parse("container t0-c1")], 1.0)
    assert world.live(4) == []
    world.silent = {"h1": "refused"}
    assert world.live(1) == []
    assert components(world.live(1)) == [Component.parse("agent h1")]


def test_an_agent_that_makes_a_trace_may_be_slow_to_answer(monkeypatch):
    world = World()
    world.live(12)
    traced = {"h2"}
    monkeypatch.setattr(Wants, "busy", property(lambda _: traced))
    world.silent = {"h2": "timeout"}
    assert world.live(4) == []
    traced.clear()
    assert components(world.live(1)) == [Component.parse("agent h2")]


def test_a_container_that_ended_before_a_probe_was_lost_is_of_its_task():
    """Its endpoints are off all lists then, and no pair says whose it was."""
    world = World()
    world.live(3)
    crashed = Component.parse("container t0-c1")
    world.findings = {"h1": (Finding(FindingKind.CONTAINER_CRASHED, crashed, "gone", 1),)}
    [incident] = world.live(1)
    assert (incident.verdict.component, incident.tasks) == (crashed, ("t0",))
    assert incident.verdict.failing == ()


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
    assert [f.component for f in world.diagnosis.findings()] == [rnic]


def test_what_a_clock_that_was_ahead_stated_gives_way_once_it_went_back():
    world = World()
    world.live(3)
    rnic = Component.parse("rnic h3/rnic0")
    (summary,) = (each for each in world.summaries() if each.host == "h3")
    stated = (Finding(FindingKind.RNIC_DOWN, rnic, "no carrier", 1),)
    ahead_ns = summary.start_ns + 6 * summary.width_ns
    early = structs.replace(summary, start_ns=ahead_ns, findings=stated)
    world.diagnosis.ingest(early, world.now_ns())
    assert [f.component for f in world.diagnosis.findings()] == [rnic]
    world.live(1)
    assert world.diagnosis.findings() == []


def test_what_was_mended_while_its_last_window_was_judged_is_voted_on_by_nobody():
    """In that window the pairs are dead, and whoever is asked then says that all is well."""
    world = World()
    truth = Component.parse("rnic h1/rnic0")
    world.live(3)
    world.fabric.loss = {truth: 1.0}
    world.findings = {"h1": (Finding(FindingKind.VSWITCH_DOWN, VSWITCH, "gone", 1),)}
    assert components(world.live(2)) == [VSWITCH]
    world.findings = {}
    assert components(world.live(1)) == [VSWITCH]
    world.fabric.loss = {truth: 0.3}
    assert components(world.live(1)) == [VSWITCH]
    assert set(components(world.live(1))) == {VSWITCH, truth}  # it was not mended after all


VSWITCH = Component.parse("vswitch h1")


SPARE = Finding(
    FindingKind.RAIL_ON_SPARE, Component.parse("rnic h3/rnic0"), "no spare", 1, {"bond": "bond0"}
)


def test_a_masked_fault_is_an_incident_beside_any_other_of_its_part():
    world = World()
    world.live(3)
    world.findings = {"h3": (SPARE,)}
    (masked,) = world.live(1)
    assert (masked.verdict.component, masked.verdict.symptom) == (SPARE.component, Symptom.MASKED)
    assert masked.state is IncidentState.CONFIRMED
    world.fabric.loss = {SPARE.component: 0.5}
    lossy = [each for each in world.live(4) if each.id != masked.id]
    assert [each.verdict.component for each in lossy] == [SPARE.component]
    assert lossy[0].verdict.symptom in (Symptom.LOSS, Symptom.UNCONNECTIVITY)
    world.fabric.loss = {}
    assert [each.id for each in world.live(14)] == [masked.id]  # only the loss is over
    world.findings = {}
    assert world.live(1) == []
    assert len(world.told) == 2
    assert all(each.state is IncidentState.RECOVERED for each in world.told.values())


def test_masked_faults_of_two_parts_are_two_incidents():
    world = World()
    world.live(3)
    other = replace(SPARE, component=Component.parse("rnic h2/rnic1"))
    world.findings = {"h3": (SPARE,)}
    world.live(1)
    world.findings = {"h3": (SPARE,), "h2": (other,)}
    named = {each.verdict.component for each in world.live(1)}
    assert named == {SPARE.component, other.component}
    assert len(world.told) == 2


def test_a_masked_fault_changes_nothing_about_other_verdicts():
    def told(findings):
        world = World(3)
        world.findings = findings
        world.live(3)
        world.fabric.loss = {link("leaf-s0-r0", "spine-0"): 0.2}
        world.live(4)
        return [
            (each.verdict, each.state)
            for each in world.told.values()
            if each.verdict.symptom is not Symptom.MASKED
        ]

    assert told({"h3": (SPARE,)}) == told({}) != []


def test_a_masked_fault_survives_a_restart_and_is_no_other_incident_then():
    world = World()
    world.live(3)
    world.findings = {"h3": (SPARE,)}
    before = world.live(1)
    again = World()
    again.diagnosis.restore(before, again.now_ns())
    again.findings = world.findings
    assert [each.id for each in again.live(2)] == [before[0].id]


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
    world.diagnosis.begin(START + 10 * WIDTH)
    world.fabric.loss = {switch("spine-0"): 1.0}
    assert world.live(3) == []
    world.fabric.loss = {}
    before = World()
    before.live(3)
    before.fabric.loss = {switch("spine-0"): 1.0}
    before.live(2)
    world.diagnosis.restore(before.diagnosis.incidents(), START)
    assert components(world.diagnosis.incidents()) == [switch("spine-0")]
    world.window = 10
    assert world.live(2) == []
    assert next(iter(world.told.values())).state is IncidentState.RECOVERED


def test_the_topology_is_told_as_learned():
    world = World()
    world.live(2)
    told = world.diagnosis.topology()
    assert len(told["links"]) == 8
    assert told["leaves"]["172.30.0.0"] == "leaf-s0-r0"


def slowed(world, truth, factor):
    """Make every answered probe that crosses `truth` slower from now on."""
    fabric = world.fabric
    for host, tally in world.tallies.items():
        for flow in fabric.flows:
            if fabric.endpoints[flow.source].host != host:
                continue
            crossed = fabric.crossed(flow, reply=False) + fabric.crossed(flow, reply=True)
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


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_a_rnic_that_was_slow_before_a_restart_is_slow_after_it_where_baselines_were_kept(kept):
    world, truth = World(), Component.parse("rnic h3/rnic0")
    live_slow(world, truth, 1, 6)
    assert truth in components(live_slow(world, truth, 20, 8))  # to the end of a half minute
    before, saved = world.diagnosis, world.diagnosis.baselines()
    world.diagnosis = Diagnosis(world.registry, DeclaredTopology())
    if kept:
        world.diagnosis.adopt(saved, world.now_ns())
    world.diagnosis.restore(before.incidents(), world.now_ns())
    world.diagnosis.begin(world.now_ns())
    assert components(live_slow(world, truth, 20, 14)) == ([truth] if kept else [])
    with pytest.raises(LocalProtocolError):
        world.diagnosis.adopt(saved, world.now_ns())


def test_a_declared_container_that_never_comes_is_an_incident_until_it_comes_and_accuses_nobody():
    world = World()
    containers = sorted({e.container for e in world.fabric.endpoints if e.container[:2] == "t0"})
    world.registry.put_task(Task("t0", (*containers, "t0-late")), START - 60 * 10**9)
    assert world.live(3) == []  # not yet
    world.registry.put_task(Task("t1", ("t1-c0", "t1-late")), START - 20 * 60 * 10**9)
    (incident,) = world.live(1)
    assert incident.verdict.component == Component.parse("container t1-late")
    assert (incident.state, incident.tasks) == (IncidentState.CONFIRMED, ("t1",))
    assert incident.verdict.symptom is Symptom.MISSING
    world.fabric.loss = {switch("spine-1"): 1.0}  # another fault is told beside it
    assert set(components(world.live(3))) == {incident.verdict.component, switch("spine-1")}
    world.fabric.loss = {}
    late = replace(next(iter(world.fabric.endpoints.values())), id=EndpointId("t1-late", 0))
    world.registry.apply(
        Registration(
            host="h9", instance="1", generation=1, rpc_url="", endpoints=(replace(late, host="h9"),)
        ),
        world.now_ns(),
    )
    world.silent = {"h9": "refused"}
    assert incident.verdict.component not in components(world.live(1))


def test_a_spine_that_flaps_is_told_with_its_period_and_which_flows_it_hits():
    world, found = World(), []
    world.live(3)
    for _ in range(7):
        world.fabric.loss = {switch("spine-0"): 0.6}
        found = world.live(2)
        world.fabric.loss = {}
        if _ < 6:
            world.live(4)
    (incident,) = found
    assert incident.verdict.component == switch("spine-0")
    lines = said(incident)
    assert any(line.startswith("comes and goes every 30 s, for about 10 s: ") for line in lines)
    assert any("those that lose are just those that cross switch spine-0" in line for line in lines)


def test_a_slow_link_is_told_from_its_spine_by_where_routers_become_late():
    world, truth = World(), link("leaf-s0-r0", "spine-1")
    assert live_slow(world, truth, 1, 6) == []
    world.fabric.slow_ns = {truth: 5_000_000}
    (incident,) = live_slow(world, truth, 20, 3)
    assert incident.verdict.component == truth
    late = [line for line in said(incident) if line.startswith("how late each router answered")]
    assert any("leaf-s0-r0 200 us, spine-1 5400 us, leaf-s1-r0 5600 us" in line for line in late)


def test_a_slow_link_is_a_tie_where_routers_tell_nothing():
    world, truth = World(), link("leaf-s0-r0", "spine-1")
    assert live_slow(world, truth, 1, 6) == []
    answers = iter(range(99))
    asked = world.path

    def path(request):  # one of four in time, and as ever
        return Failed(Why.TIMEOUT, "timeout") if next(answers) % 4 else asked(request)

    world.path = path
    (incident,) = live_slow(world, truth, 20, 4)
    assert incident.verdict.component is None
    assert truth in [suspect.component for suspect in incident.verdict.alternatives]


@pytest.mark.parametrize("why", ["timeout", "unreachable"])
@pytest.mark.parametrize("trouble", ["refused", "stood_still", "begin", None])
def test_an_analyzer_in_trouble_of_its_own_accuses_no_agent(trouble, why):
    world = World()
    world.live(3)
    if trouble:
        getattr(world.diagnosis, trouble)(world.now_ns())
    world.silent = dict.fromkeys(HOSTS, why)
    world.live(3)
    assert bool(world.told) is (trouble is None)
    world.silent = {}  # they are heard again
    world.live(1)
    world.silent = {"h1": why}
    world.live(2 + engine.IMPAIRED_NS // WIDTH)
    assert [i.verdict.component.name for i in world.diagnosis.incidents()] == ["h1"]


def test_an_analyzer_that_stood_still_reads_what_came_before_it_closes_a_window():
    world, truth = World(), switch("spine-1")
    world.live(4)
    world.fabric.loss = {truth: 1.0}
    woke_ns = world.now_ns() + 60 * 10**9
    for _ in range(2):
        for summary in world.summaries():
            world.diagnosis.ingest(summary, woke_ns)
        world.window += 1
    late = list(world.summaries())  # these are still to be read
    world.diagnosis.stood_still(woke_ns)
    assert world.diagnosis.step(woke_ns) == []
    assert world.diagnosis.deadline() == woke_ns + GRACE_NS
    assert world.diagnosis.incidents() == []
    for summary in late:
        world.diagnosis.ingest(summary, woke_ns + 1)
    world.window = (woke_ns + GRACE_NS - START) // WIDTH
    world.turn()
    assert components(world.diagnosis.incidents()) == [truth]


def test_an_analyzer_whose_clock_was_ahead_goes_on_at_once_when_it_is_set_right():
    """It closed windows of that time, which hosts come to only now."""
    world, truth = World(), switch("spine-1")
    world.live(3)
    ahead_ns = world.now_ns() + 180 * 10**9
    world.diagnosis.begin(ahead_ns)
    world.diagnosis.stood_still(ahead_ns)
    world.diagnosis.step(ahead_ns + GRACE_NS)
    world.diagnosis.stood_still(ahead_ns)
    world.silent = dict.fromkeys(HOSTS, "timeout")
    world.diagnosis.step(world.now_ns())
    world.silent = {}
    world.live(2)
    assert world.told == {}
    world.fabric.loss = {truth: 1.0}
    assert components(world.live(2)) == [truth]


@pytest.mark.parametrize("told", [True, False])
def test_a_window_waits_for_what_is_being_stored(told):
    world = World()
    world.live(3)
    early, *late = list(world.summaries())
    world.diagnosis.ingest(early, world.now_ns())
    overdue_ns = world.now_ns() + GRACE_NS
    if told:
        world.diagnosis.arriving(world.now_ns() + 10**8, overdue_ns)
    assert bool(world.diagnosis.step(overdue_ns)) is not told  # else it asks who is silent
    if told:
        for each in late:
            world.diagnosis.ingest(each, world.now_ns() + 10**8)
        assert world.diagnosis.step(overdue_ns + 10**8) == []
        assert not world.diagnosis.judging


def test_it_waits_for_a_disk_that_is_busy_and_no_longer_and_accuses_nobody_then():
    world = World()
    world.live(3)
    world.diagnosis.ingest(next(iter(world.summaries())), world.now_ns())
    came_ns = world.now_ns() + 10**8
    for waited_ns in (STORING_NS, STORING_NS + WIDTH):
        world.diagnosis.arriving(came_ns, came_ns + waited_ns)
        questions = world.diagnosis.step(came_ns + waited_ns)
    assert len(questions) == len(HOSTS) - 1
    for _ in range(2 * TIMEOUT_WINDOWS):
        for each in questions:
            world.diagnosis.answer(each.id, Failed(Why.TIMEOUT, "timeout"), came_ns + waited_ns)
        waited_ns += WIDTH
        world.diagnosis.arriving(came_ns, came_ns + waited_ns)
        questions = world.diagnosis.step(came_ns + waited_ns)
    assert world.diagnosis.incidents() == []


@pytest.mark.parametrize("told", [True, False])
def test_agents_have_as_much_time_to_answer_where_judging_took_long(told):
    world = World()
    world.live(3)
    world.fabric.loss = {link("leaf-s1-r1", "spine-0"): 0.3}
    for summary in world.summaries():
        world.diagnosis.ingest(summary, world.now_ns())
    asked_ns = world.now_ns()
    assert world.diagnosis.step(asked_ns)
    took_ns = 30 * 10**9
    if told:
        world.diagnosis.put_late(asked_ns + took_ns)
    world.diagnosis.step(asked_ns + took_ns + 10**9)
    assert world.diagnosis.judging is told  # it waits for answers


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
            world.diagnosis.ingest(structs.replace(good, host="h9", **change), world.now_ns())
    assert components(world.live(2)) == [switch("spine-1")]


def test_each_symptom_has_exactly_one_detector():
    raised = [symptom for each in World().diagnosis._detectors for symptom in each.symptoms]
    assert sorted(raised) == sorted(Symptom)


def test_what_is_not_observed_is_not_over():
    """The management network fails while a link loses: nobody knows how the link is."""
    truth = link("leaf-s0-r0", "spine-1")
    world = World(2)
    world.live(3)
    world.fabric.loss = {truth: 0.3}
    assert components(world.live(3)) == [truth]
    world.silent = dict.fromkeys(HOSTS, "unreachable")
    world.fabric.loss = {}
    assert truth in components(world.live(1))

    def told():
        (incident,) = (i for i in world.told.values() if i.verdict.component == truth)
        return incident

    assert told().unobserved_ns is None
    assert truth in components(world.live(2))
    assert told().unobserved_ns is not None
    assert told().state is IncidentState.CONFIRMED
    world.silent = {}
    world.live(2)
    assert told().state is IncidentState.RECOVERED
    assert told().unobserved_ns is None


def roam(world):
    """Let each pair go on from another source port, as agents do, by ways drawn anew."""
    fabric, last = world.fabric, world.fabric.ports - 1
    for number, flow in enumerate(fabric.flows):
        if (flow.source_port - 40000) % 10 == last:
            new = fabric.flows[number] = replace(flow, source_port=flow.source_port + 10)
            for reply in (False, True):
                del fabric.routes[flow, reply]
                fabric.routes[new, reply] = fabric._route(new, reply=reply)


@pytest.mark.parametrize("seed", range(4))
def test_ports_that_roam_raise_nothing_and_hide_nothing(seed):
    world, bad = World(seed, background=0.0001), link("leaf-s0-r0", "spine-0")
    for _ in range(8):
        roam(world)
        assert world.live(2) == []
    world.fabric.loss = {bad: 0.3}
    for _ in range(2):
        roam(world)
        world.live(2)
    assert {each.verdict.component for each in world.told.values()} == {bad}
    world.fabric.loss = {}
    for _ in range(6):
        roam(world)
        world.live(2)
    assert all(each.state is IncidentState.RECOVERED for each in world.told.values())


def test_what_a_host_reports_of_others_flows_is_not_believed():
    """h0 says that every flow of h1 is slow, and lost; its own rows count as before."""
    world = World()
    world.live(3)
    theirs = [f for f in world.fabric.flows if world.fabric.endpoints[f.source].host == "h1"]
    (summary,) = (each for each in world.summaries() if each.host == "h0")
    before = world.diagnosis.ingest(with_rows(summary, theirs), world.now_ns()).rows
    state = WindowState(before.window, {"h0": before})
    after = world.diagnosis._of_owners(state).rows
    assert len(before.flow) == len(after.flow) + len(theirs)
    sources = {world.diagnosis._numbers.flow(n).source for n in after.flow.tolist()}
    assert {world.fabric.endpoints[each].host for each in sources} == {"h0"}
    assert after.hist_len.sum() == len(after.hist_bucket) == len(after.hist_count)


def with_rows(summary, flows):
    """Return a summary that has rows of these flows as well, each with one very late round trip."""
    ends = list(
        dict.fromkeys([*summary.endpoints, *(e for f in flows for e in (f.source, f.target))])
    )
    late_ns, n = 5_000_000, len(flows)
    more = {
        "source": [ends.index(f.source) for f in flows],
        "target": [ends.index(f.target) for f in flows],
        "source_port": [f.source_port for f in flows],
        "hist_bucket": [bucket_of(late_ns)] * n, "hist_count": [1] * n, "hist_len": [1] * n,
        "count": [1] * n, "min_ns": [late_ns] * n, "max_ns": [late_ns] * n,
        "mean_ln": [math.log(late_ns)] * n,
    }  # fmt: skip
    columns = {
        name: items(summary.flows, name) + more.get(name, [0] * n)
        for name in FlowColumns.__struct_fields__
    }
    flows = pack(FlowColumns, **columns)
    return structs.replace(summary, endpoints=tuple(ends), flows=flows, stamps=b"")


def test_a_clock_that_jumps_takes_no_number_from_flows_of_a_window_that_waits():
    """Other flows would get them while it is judged, and be blamed for what these lost."""
    world = World()
    world.live(2)
    known = world.diagnosis.flows
    for summary in world.summaries():
        world.diagnosis.ingest(summary, world.now_ns())
    world.diagnosis.step(world.now_ns() + 2 * FORGET_NS)
    assert world.diagnosis.flows == known > 0


def test_endpoints_of_refused_summaries_count_against_the_host_that_names_them(monkeypatch):
    monkeypatch.setattr(engine, "MAX_NEW_FLOWS", 100)
    world = World()
    summary = next(iter(world.summaries()))
    twice = structs.replace(
        summary.flows, source=bytes(80), target=np.repeat(np.arange(20, dtype="<u2"), 2).tobytes(),
        source_port=bytes(80),
    )  # fmt: skip
    words = set()
    for n in range(10):
        ends = tuple(EndpointId(f"invented-{n}", rail) for rail in range(20))
        odd = structs.replace(summary, endpoints=ends, flows=twice, stamps=b"")
        with pytest.raises(RemoteProtocolError) as raised:
            world.diagnosis.ingest(odd, world.now_ns())
        words.add(str(raised.value))
    assert words == {
        "a flow stands in two rows",
        "more than 100 new flows or routes in ten minutes",
    }


def test_a_host_that_invents_flows_fills_no_memory_and_is_heard_again_later(monkeypatch):
    monkeypatch.setattr(engine, "MAX_NEW_FLOWS", 100)
    world = World()
    world.live(1)
    summary = next(iter(world.summaries()))
    ports = np.frombuffer(summary.flows.source_port, "<u2")
    invented = [
        structs.replace(
            summary, flows=structs.replace(summary.flows, source_port=(ports - 300 * n).tobytes())
        )
        for n in range(100)
    ]

    def all_of_them():
        for each in invented:
            world.diagnosis.ingest(each, world.now_ns())

    with pytest.raises(RemoteProtocolError, match="new flows"):
        all_of_them()
    assert world.diagnosis.flows < 100 + 3 * len(world.fabric.flows)
    world.diagnosis.step(world.now_ns() + FORGET_NS)
    world.diagnosis.ingest(summary, world.now_ns())


def test_a_host_that_invents_routers_is_refused_likewise(monkeypatch):
    monkeypatch.setattr(engine, "MAX_NEW_FLOWS", 100)
    world = World()
    world.live(1)
    summary = next(iter(world.summaries()))
    many = np.arange(len(summary.endpoints), dtype="<u2")

    def invented(n):
        paths = PathColumns(
            source=many.tobytes(), target=many[::-1].tobytes(), source_port=many.tobytes(),
            reply=bytes(len(many)), outer_port=many.tobytes(), route=many.tobytes(),
            routes=tuple((f"leaf-{n}", f"{n}-{each}") for each in many.tolist()),
        )  # fmt: skip
        return structs.replace(summary, paths=paths)

    def all_of_them():
        for n in range(100):
            world.diagnosis.ingest(invented(n), world.now_ns())

    with pytest.raises(RemoteProtocolError, match="new flows or routes"):
        all_of_them()


def test_a_clock_that_was_ahead_for_a_while_delivers_nothing():
    world = World()
    world.live(3)
    host = HOSTS[0]
    for ahead_ns in (0, 3600 * 10**9):
        start_ns = START + (world.window - 1) * WIDTH
        world.registry.heard(host, start_ns + ahead_ns, world.now_ns())
        for summary in world.summaries():
            if summary.host != host:
                world.diagnosis.ingest(summary, world.now_ns())
        state = world.diagnosis._windows._open[START + world.window * WIDTH]
        seen = world.diagnosis._seen(state, frozenset(HOSTS), world.now_ns())
        assert seen.absent == {host}
        assert seen.delivering == (set() if ahead_ns else {host})


def test_routes_are_kept_as_of_what_was_ingested_and_not_of_what_waits():
    world = World()
    assert world.diagnosis.routes_saved() is None
    world.live(2)
    stepped_ns = world.diagnosis.routes_saved().at_ns
    assert stepped_ns < world.now_ns()
    for waits_ns in (10**8, 3 * STORING_NS):  # on its way to us, for so long
        now_ns = world.now_ns() + 3 * STORING_NS
        world.diagnosis.arriving(now_ns - waits_ns, now_ns)
        world.diagnosis.step(now_ns)
        assert world.diagnosis.routes_saved().at_ns == now_ns - waits_ns
