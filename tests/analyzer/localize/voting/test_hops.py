# SPDX-License-Identifier: Apache-2.0
"""What routers' round trips say of where a flow became slow."""

import pytest

from analyzer.localize.voting import hops
from analyzer.localize.voting.election import Ballot, elect
from analyzer.questions import Ask
from analyzer.simulate.fabric import Fabric
from netagent.model.path import link, rnic, switch
from netagent.model.verdict import Suspect
from netagent.wire.messages import PathAnswer, PathReply

US = 1_000
FABRIC = Fabric(seed=1)
FLOW = next(f for f in FABRIC.flows if len(FABRIC.routes[f, False]) == 3)
NEAR, SPINE, FAR = FABRIC.routes[FLOW, False]
HOST = FABRIC.endpoints[FLOW.source]


def ballots(rtts_us, shift_us=(300, 5300)):
    """Return (components, late) of each ballot."""
    rtts = tuple(us * US for us in rtts_us)
    answer = PathAnswer(
        source_port=FLOW.source_port, outer_port=1, sent=9, answered=(9,) * len(rtts), rtt_ns=rtts
    )
    shift = (shift_us[0] * US, shift_us[1] * US)
    made = hops.late_ballots({FLOW: answer}, FABRIC.endpoints, FABRIC.topology(), {FLOW: shift})
    return [(ballot.components, bool(ballot.lost)) for ballot in made]


START = {rnic(HOST.host, HOST.rnic), switch(NEAR)}
TO_SPINE = START | {switch(SPINE), link(NEAR, SPINE)}
ALL = TO_SPINE | {switch(FAR), link(SPINE, FAR)}


@pytest.mark.parametrize(
    ("rtts_us", "told"),
    [
        pytest.param((200, 5200, 5400), [(START, 0), (TO_SPINE, 1), (ALL, 1)], id="near link"),
        pytest.param((200, 400, 5400), [(START, 0), (TO_SPINE, 0), (ALL, 1)], id="far link"),
        pytest.param((8200, 12400, 13600), [(START, 0), (TO_SPINE, 1), (ALL, 1)], id="busy host"),
        pytest.param((200, 400, 600), [(ALL - START, 0)], id="nowhere on the way"),
        pytest.param((5200, 5400, 5600), [(ALL - START, 0)], id="before the first, or after"),
        pytest.param((200, 9000, 5400), [(START, 0), (ALL, 1)], id="a spine answers late"),
        pytest.param((9000, 400, 600), [(ALL - START, 0)], id="a leaf answers late"),
        pytest.param((200, 5200, 0), [(START, 0), (TO_SPINE, 1)], id="the last is silent"),
        pytest.param((200, 0, 5400), [(START, 0), (ALL, 1)], id="the spine is silent"),
        pytest.param((200, 400, 0), [(TO_SPINE - START, 0)], id="no step, the last is silent"),
        pytest.param((0, 5200, 5400), [], id="the first is silent"),
        pytest.param((200, 0, 0), [], id="only the first answers"),
        pytest.param((200, 30_000, 31_000), [], id="a step that is not the flow's"),
        pytest.param((), [], id="nothing was counted"),
    ],
)
def test_routers_of_one_flow_are_compared(rtts_us, told):
    assert ballots(rtts_us) == [(components, bool(late)) for components, late in told]


@pytest.mark.parametrize("shift_us", [(7000, 6900), (7000, 7000), (7000, 7300)])
def test_routers_that_differ_by_less_than_any_shift_are_not_late(shift_us):
    assert ballots((200, 400, 440), shift_us) == [(ALL - START, False)]


def answered(*reached, hops=(), flow=FLOW):
    return {flow: PathAnswer(source_port=0, outer_port=1, hops=hops, sent=100, answered=reached)}


def test_who_reached_a_router_was_not_forwarded_by_it():
    made = hops.ballots(answered(100, 100, 0), FABRIC.endpoints, FABRIC.topology())
    assert [(b.lost, switch(SPINE) in b.components, switch(SPINE) in b.maybe) for b in made] == [
        (0, False, False),
        (0, False, True),
        (1, True, False),
    ]


def test_an_answer_that_may_come_back_another_way_proves_nothing_of_where_it_was_lost():
    made = hops.ballots(answered(100, 90, 80), FABRIC.endpoints, FABRIC.topology())
    assert [b.unseen for b in made] == [0, 0, 1]


BACK = next(f for f in FABRIC.flows if FABRIC.routes[f, False] == (FAR, SPINE, NEAR) and f != FLOW)


def test_packets_that_arrived_do_not_speak_for_the_link_that_lost_the_others():
    """Counts as a lab gave them: the last link to `FAR` loses 5 % each way, and no other part."""
    ends = {switch(NEAR), switch(FAR)}
    lossy, other = ({link(NEAR, s), switch(s), link(s, FAR)} for s in (SPINE, "another-spine"))
    lossy_on_the_way = (5, 22), (2, 8), (2, 8), (2, 8), (2, 18), (0, 161)
    probes = [
        Ballot(("a", n), sent, lost, frozenset(ends | lossy), n)
        for n, (lost, sent) in enumerate(lossy_on_the_way)
    ]
    probes.append(Ballot(("a", "b"), 108, 0, frozenset(ends | other), "another spine"))
    probes.append(Ballot(("c", "d"), 300, 0, frozenset({switch("another-rail")}), "another rail"))
    again = next(
        f for f in FABRIC.flows if FABRIC.routes[f, False] == (NEAR, SPINE, FAR) and f != FLOW
    )
    answers = {
        **answered(100, 100, 97),
        **answered(100, 100, 91, flow=again),
        **answered(100, 90, 89, flow=BACK),
    }
    counted = hops.ballots(answers, FABRIC.endpoints, FABRIC.topology())
    assert {link(NEAR, SPINE), link(SPINE, FAR)} <= set(elect(probes)[0].tied)
    best = elect(probes, counted=counted)[0]
    assert best.suspects[0].component == link(SPINE, FAR)
    assert best.decided


@pytest.mark.parametrize(
    ("there", "back", "cleared"),
    [
        pytest.param((100, 100, 100), (100, 100, 100), True, id="nothing is lost either way"),
        pytest.param((100, 100, 100), None, False, id="nobody came the other way"),
        pytest.param((100, 90, 90), (100, 100, 100), False, id="the way there loses a tenth"),
        pytest.param((0, 0, 0), (0, 0, 0), False, id="nobody came so far"),
    ],
)
def test_a_link_is_cleared_by_packets_that_passed_it_both_ways(there, back, cleared):
    answers = answered(*there) | (answered(*back, flow=BACK) if back else {})
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 20, 200), Suspect(switch("elsewhere"), 0.0, 4, 9)]
    found = hops.cleared(suspects, answers, FABRIC.endpoints, FABRIC.topology())
    assert found == ({link(NEAR, SPINE)} if cleared else frozenset())


def test_a_link_is_not_cleared_by_one_host_nor_a_leaf_by_what_begins_there():
    answers = answered(100, 100, 100) | answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 20, 200), Suspect(switch(NEAR), 1.0, 20, 200)]
    topology = FABRIC.topology()
    assert hops.cleared(suspects, answers, FABRIC.endpoints, topology) == {link(NEAR, SPINE)}
    one_host = dict.fromkeys(FABRIC.endpoints, HOST)
    assert hops.cleared(suspects, answers, one_host, topology) == frozenset()


def test_a_spine_is_cleared_by_what_passed_it_and_not_by_what_died_on_its_way_in():
    suspects = [Suspect(switch(SPINE), 1.0, 20, 200)]
    for lost, cleared in ((0, {switch(SPINE)}), (10, set())):
        there, back = (100, 100 - lost, 100 - lost), (100, 100 - lost, 100 - lost)
        answers = answered(*there) | answered(*back, flow=BACK)
        found = hops.cleared(suspects, answers, FABRIC.endpoints, FABRIC.topology())
        assert found == cleared


ASKED = Ask(HOST.host, hops.question(FLOW, HOST, large=False))


@pytest.mark.parametrize(
    "lie",
    [
        {"sent": 20_000, "answered": (20_000, 20_000, 11_000)},
        {"answered": (100, 101, 100)},
        {"answered": (100, -1, 100)},
        {"answered": (100,) * 33},
        {"hops": ("a", "b", "a")},
        {"hops": tuple(map(str, range(33)))},
        {"rtt_ns": (-1,)},
        {"sent": 0, "answered": ()},
    ],
    ids=str,
)
def test_counts_that_nobody_can_have_made_are_no_answer(lie):
    honest = {"source_port": 1, "outer_port": 1, "sent": 100, "answered": (100, 90, 90)}
    for answer, taken in ((honest, 1), (honest | {"hops": ("a", "a", "b")}, 1), (honest | lie, 0)):
        asking = hops.count([FLOW], FABRIC.endpoints, large=False)
        assert next(asking) == [ASKED]
        with pytest.raises(StopIteration) as done:
            asking.send([PathReply(paths=(PathAnswer(**answer),))])
        assert len(done.value.value) == taken


def test_a_part_that_lost_too_few_probes_is_not_cleared_by_a_hundred_packets():
    answers = answered(100, 100, 100) | answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 4, 200)]
    assert hops.cleared(suspects, answers, FABRIC.endpoints, FABRIC.topology()) == frozenset()
