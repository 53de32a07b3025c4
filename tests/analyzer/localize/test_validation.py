# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.case import Case, Explained, pair_of, pairs_quoted
from analyzer.localize.contract import Context
from analyzer.localize.sentences import sentences
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.validating.judge import SLOWS, STATED
from analyzer.localize.validating.wants import MAX_HOSTS
from analyzer.localize.validation import (
    CONFIDENCE,
    MAX_PAIRS,
    SOFTWARE_CONFIDENCE,
    WANTED,
    Validation,
    comparing,
)
from analyzer.localize.voting.ballots import Counted, by_votes, poll
from analyzer.questions import Failed, Why
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, flow_table, link, rnic, switch, vswitch
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Symptom, Verdict
from netagent.model.window import Window
from tests.analyzer.asking import drive
from tests.analyzer.localize.validating.test_judge import found, reply

S = 1_000_000_000
A, B, C, D = (EndpointId(name, 0) for name in "abcd")
ENDPOINTS = {
    each: Endpoint(
        each, "t", f"h{n}", f"10.0.0.1{n}", f"02::{n}", f"172.30.{n}.1", "rnic0", "br-int", "p"
    )
    for n, each in enumerate((A, B, C, D))
}
CANNOT = Failed(Why.CANNOT, "no Open vSwitch")


def view(source, target, lost=20, port=1):
    return FlowView(FlowId(source, target, port), 20, lost, 0, 0, 0, lost, 4000)


def undecided(*views, symptom=Symptom.LOSS, missing=(WANTED,)):
    """Return a verdict that names nobody over these flows."""
    verdict = Verdict(
        None, None, symptom, 0.5, "insufficient evidence", failing=pairs_quoted(views),
        missing=missing,
    )  # fmt: skip
    return Explained(verdict, views)


def slow_at(component, *views):
    verdict = Verdict(
        component, component.layer, Symptom.LATENCY, 0.9, "slow", failing=pairs_quoted(views)
    )
    return Explained(verdict, views)


class World:
    """A localiser at work; `says` are the answers of hosts, each that of a host that is well."""

    def __init__(self, **says):
        self.context = Context(
            Registry(), LearnedTopology(DeclaredTopology()), Doubts(18515), 18515
        )
        self.localizer, self.says = Validation(self.context), says
        self.asked, self.at_s, self.endpoints = [], 0, ENDPOINTS

    def window(self, *explained, flows=None, **changes):
        """Judge one window in which others said this; return (own verdicts, the others' now)."""
        self.at_s += 5
        views = tuple(v for each in explained for v in each.flows) if flows is None else flows
        case = Case(
            Window(0, 5 * S), self.endpoints, Flows.of(views), now_ns=self.at_s * S, **changes
        )
        case.explain(explained)
        own = drive(self.localizer.explain(case), None)
        others = list(case.explained)
        case.explain(own)
        self._answer()
        return own, others

    def _answer(self):
        for look, _ in self.context.comparisons.due():
            self.asked.append((look.host, look.pair))
            said = self.says.get(look.host, reply())
            if look.host not in self.says:
                said = structs.replace(said, host=look.host)
            now_ns = (self.at_s + 1) * S
            self.context.comparisons.answer(look, said, self.endpoints, now_ns=now_ns)


LOST = undecided(view(A, B))
STALE = reply(found("stale-megaflow"))


def test_trouble_of_two_windows_without_a_name_has_both_hosts_asked():
    world = World()
    assert world.window(LOST) == ([], [LOST])
    assert world.asked == []
    world.window(LOST)
    assert world.asked == [("h0", (A, B)), ("h1", (B, A))]
    world.window(LOST)
    assert len(world.asked) == 2  # hosts are left alone afterwards


@pytest.mark.parametrize(
    "between", [(), (undecided(view(A, C)),), (undecided(view(A, B), symptom=Symptom.LATENCY),)]
)
def test_what_does_not_last_disturbs_no_host(between):
    world = World()
    for _ in range(3):
        world.window(LOST)
        world.window(*between)
    assert world.asked == []


def test_what_differs_names_the_part_with_the_entries_and_takes_the_losses_over():
    world = World(h0=STALE)
    for _ in range(2):
        world.window(LOST)
    (own,), others = world.window(LOST)
    assert others == []
    assert own.verdict.component == flow_table("h0", "br-int", 10)
    assert (own.verdict.symptom, own.flows) == (Symptom.LOSS, LOST.flows)
    assert own.verdict.confidence == CONFIDENCE
    assert [(p.source, p.target) for p in own.verdict.failing] == [(A, B)]
    assert "stale megaflow on h0: they differ" in own.verdict.summary
    assert "  intent: intent entry" in sentences(own.verdict.evidence)


def test_what_was_named_stays_named_while_its_losses_are_kept_from_the_vote():
    """What is stated heals visibly: votes leave such a pair out of the next window."""
    world = World(h0=STALE)
    for _ in range(3):
        world.window(LOST)
    for _ in range(20):
        ((own,), _) = world.window(flows=(view(A, B, lost=3),))
        assert own.verdict.component == flow_table("h0", "br-int", 10)
    assert world.window(flows=(view(A, B, lost=0),)) == ([], [])
    assert world.window(flows=(view(A, B, lost=1),)) == ([], [])  # healed, and a stray loss


def test_other_pairs_of_the_same_verdict_stay_open():
    world = World(h0=STALE)
    both = undecided(view(A, B), view(C, D, lost=10))
    for _ in range(2):
        world.window(both)
    (own,), (rest,) = world.window(both)
    assert own.flows == (both.flows[0],)
    assert rest.flows == (both.flows[1],)
    assert rest.verdict.component is None
    assert [(p.source, p.target) for p in rest.verdict.failing] == [(C, D)]


def test_what_agrees_is_evidence_and_is_missing_no_more():
    world = World()
    for _ in range(2):
        _, (given,) = world.window(LOST)
        assert given.verdict.missing == (WANTED,)
    own, (given,) = world.window(LOST)
    assert own == []
    assert given.verdict.missing == ()
    hosts = [each.values["host"] for each in given.verdict.evidence]
    assert hosts == ["h0", "h1"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (CANNOT, "no Open vSwitch"),
        (reply(host="h3"), "it speaks of another host"),
        (reply(host="h1", flows=0, judged=0), "its datapath held no flow of these packets"),
        (reply(host="h1", judged=0, unread=("tables: ct",)), "it cannot tell; tables: ct"),
    ],
)
def test_a_host_that_could_not_compare_is_said_to_be_missing(said, why):
    world = World(h1=said)
    for _ in range(2):
        world.window(LOST)
    own, (given,) = world.window(LOST)
    assert own == []
    assert given.verdict.missing == (f"a comparison of the flow tables of h1: {why}",)


def test_what_is_wanted_is_what_votes_name_as_missing():
    """Else it would never be taken away."""
    said = set()
    for seed in range(6):
        fabric = Fabric(seed=seed, loss={switch("spine-0"): 0.01}, probes=12)
        case, topology = fabric.case(), fabric.topology()
        for each in by_votes(case, poll(case, case.flows, topology), topology, Counted()):
            said |= set(each.verdict.missing)
    assert WANTED in said


def test_a_single_pair_that_is_too_few_for_a_vote_is_looked_at():
    world, one = World(h0=STALE), (view(A, B, lost=4),)
    for _ in range(2):
        assert world.window(flows=one) == ([], [])
    ((own,), _) = world.window(flows=one)
    assert own.verdict.component == flow_table("h0", "br-int", 10)
    assert own.verdict.symptom is Symptom.UNCONNECTIVITY


@pytest.mark.parametrize(
    ("lost", "changes"),
    [
        (3, {}),
        (20, {"mute": frozenset({"h1"})}),
        (20, {"healing": frozenset({(A, B)})}),
    ],
)
def test_losses_that_prove_nothing_disturb_no_host(lost, changes):
    world = World()
    for _ in range(4):
        world.window(flows=(view(A, B, lost=lost),), **changes)
    assert world.asked == []


def test_a_stolen_key_accuses_nobody_else():
    lies = reply(found("stale-megaflow", component=flow_table("h1", "br-int", 0)))
    world = World(h0=lies)
    for _ in range(3):
        own, (given,) = world.window(LOST)
    assert own == []
    assert given.verdict.component is None
    assert "it speaks of another host" in given.verdict.missing[0]


# --- slowness ------------------------------------------------------------------------------------


def soft(host):
    """Return what a host says whose RNIC does not hold the flows."""
    return reply(found("in-software", component=vswitch(host)), host=host)


PORTS = (1, 2, 3, 4)
SLOW = tuple(view(A, B, lost=0, port=port) for port in PORTS)
SHIFTS = {each.flow: (1e5, 9e5) for each in SLOW}


def test_a_slow_pair_that_no_verdict_covers_is_looked_at_too():
    world = World(h1=soft("h1"))
    for _ in range(2):
        assert world.window(flows=SLOW, slow=SHIFTS) == ([], [])
    ((own,), _) = world.window(flows=SLOW, slow=SHIFTS)
    assert own.verdict.component == rnic("h1", "rnic0")
    assert (own.verdict.symptom, own.verdict.confidence) == (Symptom.LATENCY, SOFTWARE_CONFIDENCE)
    assert {each.flow for each in own.flows} == set(SHIFTS)


def test_a_pair_few_of_whose_flows_are_slow_is_left_alone():
    world = World(h1=soft("h1"))
    for _ in range(4):
        assert world.window(flows=SLOW, slow={SLOW[0].flow: (1e5, 9e5)}) == ([], [])
    assert world.asked == []


def test_what_forwards_in_software_explains_no_loss():
    world = World(h0=soft("h0"), h1=soft("h1"))
    for _ in range(2):
        world.window(LOST)
    own, (given,) = world.window(LOST)
    assert own == []
    assert given.verdict.component is None


@pytest.mark.parametrize(
    "component",
    [
        rnic("h1", "rnic0"),
        Component(Kind.HOST, "h1"),
        Component(Kind.ENDPOINT, str(B)),
        Component(Kind.CONTAINER, "b"),
    ],
    ids=str,
)
def test_a_vote_that_ends_on_a_host_has_only_that_host_asked(component):
    world, voted = World(h0=soft("h0"), h1=soft("h1")), slow_at(component, *SLOW)
    for _ in range(2):
        assert world.window(voted) == ([], [voted])
    assert world.asked == [("h1", (B, A))]
    own, (given,) = world.window(voted)
    assert own == []  # the verdict is the vote's, made better: its flows are voted on again
    assert given.verdict.component == rnic("h1", "rnic0")
    assert given.verdict.confidence == voted.verdict.confidence  # it may have been so before
    assert given.verdict.summary.startswith("slow; in software on h1: ")
    assert given.flows == voted.flows


def test_a_vote_on_a_host_whose_tables_agree_keeps_its_name_and_gets_evidence():
    world, voted = World(), slow_at(rnic("h1", "rnic0"), *SLOW)
    for _ in range(2):
        world.window(voted)
    own, (given,) = world.window(voted)
    assert own == []
    assert given.verdict.component == rnic("h1", "rnic0")
    assert given.verdict.confidence == voted.verdict.confidence
    assert "they agree" in sentences(given.verdict.evidence)[0]


@pytest.mark.parametrize("component", [link("leaf", "spine"), switch("leaf")])
def test_a_vote_on_the_fabric_disturbs_no_host(component):
    world = World()
    for _ in range(4):
        world.window(slow_at(component, *SLOW))
    assert world.asked == []


# --- bounds --------------------------------------------------------------------------------------


def test_hosts_that_are_busy_are_spared():
    world = World()
    for _ in range(4):
        world.window(LOST, tired=frozenset({"h0", "h1"}))
    assert world.asked == []


def test_few_pairs_of_many_have_their_hosts_asked():
    pairs = [(a, b) for a in ENDPOINTS for b in ENDPOINTS if a < b]
    many, world = undecided(*(view(*pair) for pair in pairs)), World()
    for _ in range(2):
        world.window(many)
    assert len(world.asked) <= min(MAX_HOSTS, 2 * MAX_PAIRS)
    for _ in range(5):
        world.window(many)
    assert len(world.asked) <= 2 * MAX_PAIRS  # more pairs of one verdict show the same


def test_of_one_verdict_two_pairs_are_looked_at_whatever_hosts_are_left():
    ends = [EndpointId(f"c{n}", 0) for n in range(12)]
    world = World()
    world.endpoints = {
        each: replace(ENDPOINTS[A], id=each, host=f"h{n}") for n, each in enumerate(ends)
    }
    many = undecided(*(view(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)))
    for _ in range(6):
        world.window(many)
    assert len(world.asked) == 2 * MAX_PAIRS
    _, (given,) = world.window(many)
    assert len(given.verdict.evidence) == 2 * MAX_PAIRS


def test_an_endpoint_that_is_gone_is_not_asked_about():
    gone, world = undecided(view(A, EndpointId("z", 0))), World()
    for _ in range(3):
        assert world.window(gone) == ([], [gone])
    assert world.asked == []


said = st.one_of(
    st.just(CANNOT),
    st.just(Failed(Why.TIMEOUT, "timeout")),
    st.builds(
        lambda check, severity, at, host: reply(
            found(check, severity=severity, component=flow_table(at, "br-int", 1)), host=host
        ),
        st.sampled_from([*STATED, *SLOWS, "missing"]),
        st.sampled_from(["warning", "note"]),
        st.sampled_from(["h0", "h1", "h2", "h3", "leaf"]),
        st.sampled_from(["h0", "h1", "h2", "h3"]),
    ),
)


@given(st.fixed_dictionaries({f"h{n}": said for n in range(3)}), st.booleans())
def test_whatever_hosts_say_only_parts_of_their_own_are_named(says, slow):
    """And only for pairs that they have an end of."""
    symptom = Symptom.LATENCY if slow else Symptom.LOSS
    world = World(**says)
    both = undecided(view(A, B), view(B, C), symptom=symptom)
    for _ in range(3):
        own, _ = world.window(both)
    for each in own:
        host = each.verdict.component.name.partition("/")[0]
        pairs = {pair_of(flow.flow) for flow in each.flows}
        assert all(host in {ENDPOINTS[end].host for end in pair} for pair in pairs)
        assert not isinstance(says[host], Failed)
        (finding,) = says[host].findings
        assert finding.severity == "warning"
        assert finding.component.name.partition("/")[0] == host


# --- for a person --------------------------------------------------------------------------------


def test_a_person_gets_what_each_host_compared():
    says = {"h0": STALE, "h1": CANNOT}
    near, far = drive(comparing((A, B), ENDPOINTS, 18515), lambda ask: says[ask.host])
    assert near.accused.component == flow_table("h0", "br-int", 10)
    assert (near.why, far.said, far.why) == ("", None, "no Open vSwitch")


def test_replace_keeps_what_a_case_has_left():
    case = Case(Window(0, 5 * S), ENDPOINTS, Flows.of(LOST.flows))
    case.explain([LOST])
    better = replace(LOST, verdict=replace(LOST.verdict, confidence=0.7))
    case.amend(LOST, better)
    assert (case.explained, list(case.rest)) == ([better], [])
    case.amend(better, None)
    assert (case.explained, list(case.rest)) == ([], [])


@pytest.mark.parametrize("voted", [LOST, slow_at(rnic("h1", "rnic0"), *SLOW)])
def test_where_no_switch_carries_an_end_no_tables_are_compared(voted):
    world = World()
    world.endpoints = {**world.endpoints, B: replace(world.endpoints[B], bridge="")}
    for _ in range(3):
        world.window(voted)
    assert world.asked == []
    with pytest.raises(StopIteration) as told:
        next(comparing((A, B), world.endpoints, 18515))
    assert told.value.value == ()
