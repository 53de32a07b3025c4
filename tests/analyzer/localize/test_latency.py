# SPDX-License-Identifier: Apache-2.0
"""Slowness that has passed when routers are timed, or is still there."""

import random
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_answer

from analyzer.localize import latency
from analyzer.localize.contract import Context
from analyzer.localize.latency import Latency
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.voting.ballots import poll_latency
from analyzer.questions import Ask
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import FlowId
from netagent.model.path import Component, Kind, link, rnic, switch
from netagent.model.verdict import Suspect
from netagent.wire.messages import PathReply, PathRequest

SLOW = link("leaf-s1-r0", "spine-0")
SHIFT = (200_000.0, 5_000_000.0)


def judged(fabric, answer=None, **case_of):
    """Return the verdicts on flows that crossed the slow link, as routers answer now."""
    topology = fabric.topology()
    slow = {f: SHIFT for f in fabric.flows if SLOW in topology.crossed(f)}
    case = replace(fabric.case(slow=slow), **case_of)
    context = Context(Registry(), topology, Doubts(1), 1)
    asking, answer = Latency(context).explain(case), answer or answered
    replies = None
    try:
        while True:
            asks = asking.send(replies) if replies else next(asking)
            replies = [answer(fabric, ask) for ask in asks]
    except StopIteration as done:
        return [each.verdict for each in done.value]


def answered(fabric: Fabric, ask: Ask) -> PathReply:
    return PathReply(paths=(fabric.count(asked(fabric, ask)),))


def asked(fabric: Fabric, ask: Ask) -> FlowId:
    assert isinstance(ask.request, PathRequest)
    wanted = (ask.request.source, ask.request.target, ask.request.source_port)
    return next(f for f in fabric.flows if (f.source, f.target, f.source_port) == wanted)


@pytest.mark.parametrize("mute", [set(), {"h3"}])
def test_routers_that_answer_late_decide_who_is_slow(mute):
    (verdict,) = judged(Fabric(seed=1, slow_ns={SLOW: 4_800_000}), mute=mute)
    assert verdict.component == SLOW


@pytest.mark.parametrize("mute", [set(), {"h3"}])
def test_routers_that_answer_as_ever_acquit_nobody_of_what_has_passed(mute):
    """Where a host is mute, its neighbour's RNIC is crossed by all that cross the link."""
    (verdict,) = judged(Fabric(seed=1), mute=mute)
    assert verdict.component is None
    assert SLOW in [each.component for each in verdict.alternatives]


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        pytest.param(link("leaf-s0-r0", "spine-0"), None, id="a link as likely as half"),
        pytest.param(rnic("h2", "rnic0"), SLOW, id="of a host, routers tell nothing"),
    ],
)
def test_one_of_two_links_is_not_named_where_no_router_is_late(beside, named, monkeypatch):
    """It had been slow, and the probes told it from another one by a hair."""

    def by_a_hair(*args):
        polled = poll_latency(*args)
        election = polled.elections[0]
        lost = election.suspects[0].lost
        crossed = 2 * lost  # where all flows are slow, nothing is timed
        suspects = (Suspect(SLOW, 0.8, lost, crossed), Suspect(beside, 0.5, lost, crossed))
        return replace(polled, elections=(replace(election, suspects=suspects),))

    monkeypatch.setattr(latency, "poll_latency", by_a_hair)
    (verdict,) = judged(Fabric(seed=1))
    assert verdict.component == named


def test_a_queue_that_comes_and_goes_is_not_laid_at_the_door_of_the_leaf():
    """It stood when packets came down its link, and not when others went up, which acquits it."""

    def answer(fabric, ask):
        flow = asked(fabric, ask)
        counted = fabric.count(flow)
        late_ns = SHIFT[1] if fabric.routes[flow, False][-1] == "leaf-s1-r0" else 0
        times = (450_000, 450_000, 450_000 + round(late_ns))[: len(counted.answered)]
        return PathReply(paths=(replace_answer(counted, rtt_ns=times),))

    (verdict,) = judged(Fabric(seed=1), answer)
    assert verdict.component is None
    assert switch("leaf-s1-r0") in [each.component for each in verdict.alternatives]


@pytest.mark.parametrize(("count", "named"), [(4, []), (32, [Component(Kind.CONTAINER, "t0-c1")])])
def test_few_slow_flows_of_few_containers_may_share_one_by_chance(count, named):
    """Two of three flows cross it, so four of four do in one case of five."""
    fabric, trio = Fabric(seed=1), {"t0-c0", "t0-c1", "t0-c2"}
    inside = [f for f in fabric.flows if {f.source.container, f.target.container} <= trio]
    across = [f for f in inside if "t0-c1" in {f.source.container, f.target.container}]
    assert (len(inside), len(across)) == (48, 32)
    slow = random.Random(1).sample(across, count)
    case = fabric.case(slow=dict.fromkeys(slow, SHIFT))
    flows = case.votable()
    polled = poll_latency(case, flows.only(flows.among(inside)), fabric.topology())
    assert [each.suspects[0].component for each in polled.elections] == named
