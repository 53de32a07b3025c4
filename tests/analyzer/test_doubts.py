# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest

from analyzer.detect.loss import FlowView
from analyzer.doubts import HOLD_NS, Doubts, Walked
from analyzer.localize.evidence import Evidence
from analyzer.localize.facts import Explained
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import Pair, Suspect, Symptom, Verdict
from netagent.model.window import Window
from ovs_checks.reach import Reach
from ovs_checks.walk import End, LocalWalk
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
    return Walked(reaches={pair: Reach(outcome, "", "") for pair in pairs}, egress=pairs)


def evidence(flows=LOST):
    return Evidence(Window(0, 5 * S), ENDPOINTS, flows, (), {})


def voted(component):
    verdict = Verdict(
        component, None, Symptom.UNCONNECTIVITY, 0.5, "", failing=(Pair(A, B, 20, 20),)
    )
    return Explained(verdict, LOST)


class Agents:
    """Both hosts see packets of the pair; those of `a` end before the uplink of h0."""

    def __init__(self):
        self.asked = []
        self.go = asyncio.Event()
        self.now_ns = 0

    def clock(self):
        return self.now_ns

    async def trace(self, host, request, *, deadline_s=0):
        self.asked.append((host, request.flow))
        await self.go.wait()
        stages = {
            "h0": {"port_receive": 20, "encapsulate": 20, "uplink_transmit": 0},
            "h1": {"uplink_receive": 0, "decapsulate": 0},
        }
        return reply_of(request, stages[host])


async def turn():
    for _ in range(20):
        await asyncio.sleep(0)


def doubts(agents):
    made = Doubts(18515)
    made.ask(agents, agents.clock)
    return made


def test_a_doubt_of_two_windows_is_traced_and_settled_with_the_tenant_named():
    async def play():
        agents = Agents()
        made = doubts(agents)
        assert made.settle(evidence(), walked(), LOST, mute=set(), now_ns=5 * S) == []
        await turn()
        assert agents.asked == []
        made.settle(evidence(), walked(), LOST, mute=set(), now_ns=10 * S)
        await turn()
        assert {host for host, _ in agents.asked} == {"h0", "h1"}
        assert "tun_id=1001" in agents.asked[0][1]
        assert made.walkable(evidence(), LOST, now_ns=11 * S) == ()  # the hosts have enough to do
        assert made.leave(evidence(), LOST, now_ns=11 * S) == ()  # no vote on what is being traced,
        assert made.leave(evidence(), LOST, now_ns=5 * S + HOLD_NS) == LOST  # but not for ever
        agents.go.set()
        await turn()
        (found,) = made.settle(evidence(), walked(), LOST, mute=set(), now_ns=15 * S)
        assert found.verdict.component == rnic("h0", "rnic0")
        assert found.flows == LOST
        assert made.leave(evidence(), LOST, now_ns=15 * S) == LOST
        # Another pair of that uplink is explained by it.
        read = walked(far=(B, C))
        (found,) = made.settle(evidence(), read, BOTH, mute=set(), now_ns=20 * S)
        assert sorted(found.flows, key=str) == sorted(BOTH, key=str)
        # Answered again, a pair that still loses a probe is no doubt.
        stray = (replace(LOST[0], lost=1, run=0),)
        assert made.settle(evidence(), Walked(), stray, mute=set(), now_ns=25 * S) == []

    asyncio.run(play())


@pytest.mark.parametrize(("healthy_s", "believed"), [(5, True), (10, False)])
def test_what_a_trace_saw_is_over_when_its_pair_loses_nothing_for_two_windows(healthy_s, believed):
    async def play():
        agents = Agents()
        agents.go.set()
        made = doubts(agents)
        for at_s in (5, 10):
            made.settle(evidence(), walked(), LOST, mute=set(), now_ns=at_s * S)
            await turn()
        well = (replace(LOST[0], lost=0, run=0),)
        made.settle(evidence(well), Walked(), (), mute=set(), now_ns=(10 + healthy_s) * S)
        again = made.settle(evidence(), walked(), LOST, mute=set(), now_ns=(11 + healthy_s) * S)
        assert bool(again) == believed

    asyncio.run(play())


@pytest.mark.parametrize("mute", [{"h0"}, {"h1"}])
def test_a_host_too_busy_to_answer_probes_is_not_traced(mute):
    async def play():
        agents = Agents()
        made = doubts(agents)
        for window in range(4):
            at_ns = window * 5 * S
            made.settle(evidence(), walked(), LOST, mute=mute, now_ns=at_ns)
            made.tell(evidence(), [voted(rnic("h0", "rnic0"))])
            await turn()
        assert agents.asked == []

    asyncio.run(play())


def test_what_the_tables_stop_is_no_doubt():
    async def play():
        agents = Agents()
        made = doubts(agents)
        for window in range(4):
            made.settle(evidence(), walked("dropped"), LOST, mute=set(), now_ns=window * 5 * S)
            await turn()
        assert agents.asked == []

    asyncio.run(play())


def test_a_vote_on_a_part_of_a_host_that_lasts_gets_the_stage_as_evidence():
    async def play():
        agents = Agents()
        agents.go.set()
        made = doubts(agents)
        ballot = voted(rnic("h0", "rnic0"))
        for _window in range(2):
            told = made.tell(evidence(), [ballot])
            assert told == [ballot]
            await turn()
        (told,) = made.tell(evidence(), [ballot])
        assert told.verdict.component == ballot.verdict.component
        assert "uplink transmit" in told.verdict.evidence[0]
        assert "encapsulate 20" in "\n".join(told.verdict.evidence)

    asyncio.run(play())


def test_a_trace_settles_what_a_vote_left_open_between_parts_of_a_host():
    async def play():
        agents = Agents()
        agents.go.set()
        made = doubts(agents)
        suspects = (Suspect(rnic("h0", "rnic0"), 0.5, 20, 20),)
        ballot = voted(None)
        ballot = replace(ballot, verdict=replace(ballot.verdict, alternatives=suspects))
        for _window in range(2):
            assert made.tell(evidence(), [ballot]) == [ballot]
            await turn()
        (told,) = made.tell(evidence(), [ballot])
        assert told.verdict.component == rnic("h0", "rnic0")
        assert "uplink transmit" in told.verdict.summary

    asyncio.run(play())


def test_what_flow_tables_may_still_explain_is_not_traced():
    async def play():
        agents = Agents()
        made = doubts(agents)
        ballot = voted(rnic("h0", "rnic0"))
        for _window in range(3):
            assert made.tell(evidence(), [ballot], unread=True) == [ballot]
            await turn()
        assert agents.asked == []

    asyncio.run(play())


@pytest.mark.parametrize("component", [None, Component(Kind.LINK, "spine0-leaf0")])
def test_a_vote_on_the_underlay_is_not_traced(component):
    async def play():
        agents = Agents()
        made = doubts(agents)
        for _window in range(3):
            assert made.tell(evidence(), [voted(component)])
            await turn()
        assert agents.asked == []

    asyncio.run(play())
