# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.case import Case, Explained
from analyzer.localize.sentences import sentences
from analyzer.localize.tracing.doubts import HOLD_NS, Doubts, Walked
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import Pair, Suspect, Symptom, Verdict
from netagent.model.window import Window
from ovs_checks.translate.ends import End
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import LocalWalk
from tests.analyzer.cluster import reply_of

A, B, C = (EndpointId(name, 0) for name in "abc")
ENDPOINTS = {
    A: Endpoint(A, "t", "h0", "10.0.0.10", "", "172.30.0.1", "rnic0", "br-int", "p"),
    B: Endpoint(B, "t", "h1", "10.0.0.11", "", "172.30.1.1", "rnic0", "br-int", "q"),
    C: Endpoint(C, "t", "h2", "10.0.0.12", "", "172.30.2.1", "rnic0", "br-int", "r"),
}
LOST = (FlowView(FlowId(A, B, 1), 20, 20, 0, 0, 0, 20, 4000),)
BOTH = (FlowView(FlowId(A, C, 1), 20, 20, 0, 0, 0, 20, 4000), *LOST)
S = 1_000_000_000


def walk(host):
    end = End("tunnelled", "br-int", 0, "", port="vxlan0", tun_id=1001)
    return LocalWalk(host, "br-int", "p", (end,), ())


def walked(outcome="delivered", far=(B,)):
    pairs = {(A, each): walk("h0") for each in far}
    pairs |= {(each, A): walk(ENDPOINTS[each].host) for each in far}
    return Walked(reaches={pair: Reach(outcome, None, "") for pair in pairs}, egress=pairs)


def case(at_s, flows=LOST, **changes):
    return Case(Window(0, 5 * S), ENDPOINTS, Flows.of(flows), now_ns=at_s * S, **changes)


def voted(component):
    verdict = Verdict(
        component, None, Symptom.UNCONNECTIVITY, 0.5, "", failing=(Pair(A, B, 20, 20),)
    )
    return Explained(verdict, LOST)


class World:
    """Both hosts see packets of the pair; those of `a` end before the uplink of h0."""

    def __init__(self):
        self.doubts, self.asked, self.due = Doubts(18515), [], []

    def settle(self, at_s, read=None, flows=LOST, **changes):
        self.doubts.walked = walked() if read is None else read
        found = self.doubts.settle(case(at_s, flows, **changes))
        self.look()
        return found

    def better(self, at_s, ballot, **changes):
        found = self.doubts.better(case(at_s, **changes), [ballot])
        self.look()
        return found

    def look(self):
        self.due += self.doubts.wants.due()
        self.asked = [(ask.host, ask.request.flow) for _, ask in self.due]

    def answer(self, at_s):
        stages = {
            "h0": {"port_receive": 20, "encapsulate": 20, "uplink_transmit": 0},
            "h1": {"uplink_receive": 0, "decapsulate": 0},
        }
        due, self.due = self.due, []
        for token, ask in due:
            reply = reply_of(ask.request, stages[ask.host])
            self.doubts.wants.answer(token, reply, now_ns=at_s * S)


def test_a_doubt_of_two_windows_is_traced_and_settled_with_the_tenant_named():
    world = World()
    assert world.settle(5) == []
    assert world.asked == []
    world.settle(10)
    assert {host for host, _ in world.asked} == {"h0", "h1"}
    assert "tun_id=1001" in world.asked[0][1]
    doubts = world.doubts
    every = Flows.of(LOST)
    assert list(doubts.walkable(case(11), every)) == []  # the hosts have enough to do
    assert list(doubts.leave(case(11), every)) == []  # no vote on what is being traced,
    assert doubts.leave(case(5 + HOLD_NS // S), every) is every  # but not for ever
    world.answer(12)
    (found,) = world.settle(15)
    assert found.verdict.component == rnic("h0", "rnic0")
    assert found.flows == LOST
    assert doubts.leave(case(15), every) is every
    # Another pair of that uplink is explained by it.
    (found,) = world.settle(20, walked(far=(B, C)), BOTH)
    assert sorted(found.flows, key=str) == sorted(BOTH, key=str)
    # Answered again, a pair that still loses a probe is no doubt.
    stray = (replace(LOST[0], lost=1, run=0),)
    assert world.settle(25, Walked(), stray) == []


@pytest.mark.parametrize(("healthy_s", "trusted"), [(5, True), (10, False)])
def test_what_a_trace_saw_is_over_when_its_pair_loses_nothing_for_two_windows(healthy_s, trusted):
    world = World()
    for at_s in (5, 10):
        world.settle(at_s)
        world.answer(at_s)
    well = (replace(LOST[0], lost=0, run=0),)
    world.settle(10 + healthy_s, Walked(), well)
    assert bool(world.settle(11 + healthy_s)) == trusted


@pytest.mark.parametrize("tired", [{"h0"}, {"h1"}])
def test_a_host_too_busy_to_answer_probes_is_not_traced(tired):
    world = World()
    for at_s in (0, 5, 10, 15):
        world.settle(at_s, tired=tired)
        world.better(at_s, voted(rnic("h0", "rnic0")), tired=tired)
    assert world.asked == []


def test_what_the_tables_stop_is_no_doubt():
    world = World()
    for at_s in (0, 5, 10, 15):
        world.settle(at_s, walked("dropped"))
    assert world.asked == []


def test_a_vote_on_a_part_of_a_host_that_lasts_gets_the_stage_as_evidence():
    world, ballot = World(), voted(rnic("h0", "rnic0"))
    for at_s in (0, 5):
        assert world.better(at_s, ballot) == [ballot]
        world.answer(at_s)
    (found,) = world.better(10, ballot)
    assert found.verdict.component == ballot.verdict.component
    lines = sentences(found.verdict.evidence)
    assert "uplink transmit" in lines[0]
    assert "encapsulate 20" in "\n".join(lines)


def test_a_trace_settles_what_a_vote_left_open_between_parts_of_a_host():
    world, ballot = World(), voted(None)
    suspects = (Suspect(rnic("h0", "rnic0"), 0.5, 20, 20),)
    ballot = replace(ballot, verdict=replace(ballot.verdict, alternatives=suspects))
    for at_s in (0, 5):
        assert world.better(at_s, ballot) == [ballot]
        world.answer(at_s)
    (found,) = world.better(10, ballot)
    assert found.verdict.component == rnic("h0", "rnic0")
    assert "uplink transmit" in found.verdict.summary


def test_what_flow_tables_may_still_explain_is_not_traced():
    world, ballot = World(), voted(rnic("h0", "rnic0"))
    for at_s in (0, 5, 10):
        assert world.better(at_s, ballot, missing=["flow tables of h0: timeout"]) == [ballot]
    assert world.asked == []


@pytest.mark.parametrize("component", [None, Component(Kind.LINK, "spine0-leaf0")])
def test_a_vote_on_the_underlay_is_not_traced(component):
    world = World()
    for at_s in (0, 5, 10):
        assert world.better(at_s, voted(component))
    assert world.asked == []


def test_a_pair_that_no_switch_carries_is_not_traced():
    world, ballot = World(), voted(rnic("h0", "rnic0"))
    bare = {**ENDPOINTS, A: replace(ENDPOINTS[A], bridge="")}
    for at_s in (0, 5, 10):
        judged = Case(Window(0, 5 * S), bare, Flows.of(LOST), now_ns=at_s * S)
        assert world.doubts.better(judged, [ballot]) == [ballot]
    world.look()
    assert world.asked == []
