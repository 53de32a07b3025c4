# SPDX-License-Identifier: Apache-2.0
"""What routers' round trips say of where a flow became slow."""

from dataclasses import replace
from itertools import pairwise

import pytest

from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting import hops
from analyzer.localize.voting.election import Ballot, Election, elect
from analyzer.questions import Ask
from analyzer.simulate.fabric import Fabric
from netagent.model.path import link, rnic, switch
from netagent.model.topology import DeclaredTopology, Uplink
from netagent.model.verdict import Suspect
from netagent.wire.messages import PathAnswer, PathReply

US = 1_000
FABRIC = Fabric(seed=1)
FLOW = next(f for f in FABRIC.flows if len(FABRIC.routes[f, False]) == 3)
NEAR, SPINE, FAR = FABRIC.routes[FLOW, False]
HOST = FABRIC.endpoints[FLOW.source]
ANOTHER = next(
    f for f in FABRIC.flows
    if FABRIC.leaf(f.source) == NEAR and FABRIC.leaf(f.target) == FAR
    and FABRIC.endpoints[f.source].host != HOST.host
)  # fmt: skip


def ballots(rtts_us, shift_us=(300, 5300)):
    """Return (components, late) of each ballot."""
    rtts = tuple(us * US for us in rtts_us)
    answer = PathAnswer(
        source_port=FLOW.source_port, outer_port=1, sent=9, answered=(9,) * len(rtts), rtt_ns=rtts
    )
    shift = (shift_us[0] * US, shift_us[1] * US)
    counts = [hops.counted_on(hops.Wanted(FLOW), answer, FABRIC.topology())]
    made = hops.late_ballots(counts, FABRIC.endpoints, {FLOW: shift})
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
        pytest.param((200, 2400, 2500), [], id="late by less than the flow was"),
        pytest.param((200, 400, 2500), [(TO_SPINE - START, 0)], id="the far link by less"),
    ],
)
def test_routers_of_one_flow_are_compared(rtts_us, told):
    assert ballots(rtts_us) == [(components, bool(late)) for components, late in told]


@pytest.mark.parametrize("shift_us", [(7000, 6900), (7000, 7000), (7000, 7300)])
def test_routers_that_differ_by_less_than_any_shift_are_not_late(shift_us):
    assert ballots((200, 400, 440), shift_us) == [(ALL - START, False)]


def answered(*reached, flow=FLOW):
    answer = PathAnswer(source_port=0, outer_port=1, sent=100, answered=reached)
    return [hops.counted_on(hops.Wanted(flow), answer, FABRIC.topology())]


def test_who_reached_a_router_was_not_forwarded_by_it():
    made = hops.ballots(answered(100, 100, 0), FABRIC.endpoints)
    assert [(b.lost, switch(SPINE) in b.components, switch(SPINE) in b.maybe) for b in made] == [
        (0, False, False),
        (0, False, True),
        (1, True, False),
    ]


def test_an_answer_that_may_come_back_another_way_proves_nothing_of_where_it_was_lost():
    made = hops.ballots(answered(100, 90, 80), FABRIC.endpoints)
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
    counts = [
        *answered(100, 100, 97),
        *answered(100, 100, 91, flow=again),
        *answered(100, 90, 89, flow=BACK),
    ]
    counted = hops.ballots(counts, FABRIC.endpoints)
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
    answers = answered(*there) + (answered(*back, flow=BACK) if back else [])
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 20, 200), Suspect(switch("elsewhere"), 0.0, 4, 9)]
    found = hops.cleared(suspects, answers, FABRIC.endpoints)
    assert found == ({link(NEAR, SPINE)} if cleared else frozenset())


def test_a_link_is_not_cleared_by_one_host_nor_a_leaf_by_what_begins_there():
    answers = answered(100, 100, 100) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 20, 200), Suspect(switch(NEAR), 1.0, 20, 200)]
    assert hops.cleared(suspects, answers, FABRIC.endpoints) == {link(NEAR, SPINE)}
    one_host = dict.fromkeys(FABRIC.endpoints, HOST)
    assert hops.cleared(suspects, answers, one_host) == frozenset()


def test_a_spine_is_cleared_by_what_passed_it_and_not_by_what_died_on_its_way_in():
    suspects = [Suspect(switch(SPINE), 1.0, 20, 200)]
    for lost, cleared in ((0, {switch(SPINE)}), (10, set())):
        there, back = (100, 100 - lost, 100 - lost), (100, 100 - lost, 100 - lost)
        answers = answered(*there) + answered(*back, flow=BACK)
        found = hops.cleared(suspects, answers, FABRIC.endpoints)
        assert found == cleared


ASKED = Ask(HOST.host, hops.question(hops.Wanted(FLOW), HOST, large=False))


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
        asking = hops.count([hops.Wanted(FLOW)], FABRIC.endpoints, FABRIC.topology(), large=False)
        assert next(asking) == [ASKED]
        with pytest.raises(StopIteration) as done:
            asking.send([PathReply(paths=(PathAnswer(**answer),))])
        assert len(done.value.value) == taken


def test_a_part_that_lost_too_few_probes_is_not_cleared_by_a_hundred_packets():
    answers = answered(100, 100, 100) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 4, 200)]
    assert hops.cleared(suspects, answers, FABRIC.endpoints) == frozenset()


@pytest.mark.parametrize(("lost", "cleared"), [(0, True), (2, True), (3, False), (10, False)])
def test_what_lost_some_packets_is_not_cleared_for_having_lost_few(lost, cleared):
    """A port that flaps was up for most of the packets."""
    answers = answered(100, 100 - lost, 100 - lost) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 100, 200)]
    assert bool(hops.cleared(suspects, answers, FABRIC.endpoints)) is cleared


# --- where nobody sees the ways of flows ----------------------------------------------------------

UNTRACED = LearnedTopology(
    DeclaredTopology(
        links=frozenset(
            (min(a, b), max(a, b)) for route in FABRIC.routes.values() for a, b in pairwise(route)
        ),
        uplinks=tuple(
            Uplink(end.host, end.rnic, FABRIC.leaf(end.id)) for end in FABRIC.endpoints.values()
        ),
    )
)
SPINES = sorted({route[1] for route in FABRIC.routes.values() if len(route) > 1})
TIE = Election(
    tuple(Suspect(link(NEAR, spine), 0.5, 9, 90) for spine in SPINES), (), pairs=4, evidence=50.0
)


def way(spine, *reached, flow=FLOW, rtt_us=()):
    answer = PathAnswer(
        source_port=0, outer_port=int(spine.rpartition("-")[2]), hops=(NEAR, spine, FAR), sent=50,
        answered=reached, rtt_ns=tuple(us * US for us in rtt_us),
    )  # fmt: skip
    return hops.counted_on(hops.Wanted(flow, len(SPINES)), answer, UNTRACED)


def losing():
    views = (FABRIC.view(f) for f in FABRIC.flows if len(FABRIC.routes[f, False]) == 3)
    return [replace(view, lost=3) for view in views]


def leaves(flow):
    return {FABRIC.leaf(flow.source), FABRIC.leaf(flow.target)}


def test_two_hosts_of_the_suspects_leaf_are_asked_for_every_way():
    near = [view for view in losing() if NEAR in leaves(view.flow)]
    chosen = hops.choose([TIE], near, FABRIC.endpoints, UNTRACED)
    assert [each.ways for each in chosen] == [len(SPINES)] * 2
    assert {FABRIC.leaf(each.flow.source) for each in chosen} == {NEAR}
    assert len({FABRIC.endpoints[each.flow.source].host for each in chosen}) == 2
    request = hops.question(chosen[0], HOST, large=False)
    assert (request.ways, request.source_port, request.count) == (len(SPINES), 0, hops.WAY_PACKETS)


def test_where_others_lose_as_well_some_are_asked_whether_the_links_switches_are_alive():
    chosen = hops.choose([TIE], losing(), FABRIC.endpoints, UNTRACED)
    assert [NEAR in leaves(each.flow) for each in chosen].count(True) == 2
    assert [NEAR in leaves(each.flow) for each in chosen].count(False) == 2


def test_where_all_that_lose_cross_the_suspects_one_that_does_not_shows_whether_switches_live():
    mine = [view for view in losing() if NEAR in leaves(view.flow)]
    others = [replace(view, lost=0) for view in losing() if NEAR not in leaves(view.flow)]
    chosen = hops.choose([TIE], [*others, *mine], FABRIC.endpoints, UNTRACED)
    assert [NEAR in leaves(each.flow) for each in chosen] == [True, True, False]
    assert hops.choose([TIE], mine, FABRIC.endpoints, UNTRACED) == chosen[:2]


def test_what_is_beyond_a_loss_has_shown_nothing_of_itself():
    """The near link is dead: the far one, beyond it, is not shown to lose anything."""
    counts = [way(SPINES[0], 50, 0, 0), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    judge = hops.judge(counts, hops.ballots(counts, FABRIC.endpoints), FABRIC.endpoints, UNTRACED)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x")
    told = [
        judge(
            replace(TIE, suspects=(Suspect(link(end, SPINES[0]), 1.0, 5, 9),), explains=(lossy,)),
            (),
        )
        for end in (NEAR, FAR)
    ]
    assert told == [True, False]


def test_links_of_a_switch_that_is_gone_are_cleared_where_hosts_looked_for_ways():
    suspects = [Suspect(link(NEAR, spine), 0.5, 9, 90) for spine in SPINES]
    gone = {switch(SPINES[0])}
    counts = [way(spine, 50, 50, 50) for spine in SPINES[1:]]
    assert hops.beyond(suspects, counts, gone) == {link(NEAR, SPINES[0])}
    assert hops.beyond(suspects, answered(100, 100, 100), gone) == frozenset()
    assert hops.switches(counts) == {switch(hop) for hop in (NEAR, FAR, *SPINES[1:])}


def one(component, lost=9):
    suspect = Suspect(component, 1.0, lost, 10 * lost)
    return Election(
        (suspect,),
        (Ballot((component, "x"), 9, 9, frozenset({component, switch("spine-7")})),),
        4,
        50.0,
    )


@pytest.mark.parametrize(("links", "seen", "named"), [
    (3, False, ["switch spine-7"]), (3, True, None), (2, False, None),
])  # fmt: skip
def test_links_of_one_switch_that_no_way_crosses_are_that_switch(links, seen, named):
    parts = [one(link(f"leaf-{n}", "spine-7")) for n in range(links)]
    other = one(link("leaf-8", "spine-1"))
    counts = [
        replace(way(spine, 50, 50, 50), routers=(f"leaf-{n}", spine, FAR))
        for spine in (*SPINES, *(["spine-7"] if seen else []))
        for n in range(9)
    ]
    found = hops.whole([*parts, other], counts)
    if named is None:
        # Fewer links of a switch that nobody reached may be the switch.
        assert [each.decided for each in found] == [*[seen] * links, True]
        assert [each.suspects for each in found] == [each.suspects for each in (*parts, other)]
        return
    assert [str(each.suspects[0].component) for each in found] == [
        str(other.suspects[0].component), *named
    ]  # fmt: skip
    assert (found[1].suspects[0].lost, found[1].decided) == (9 * links, True)
    assert len(found[1].explains) == links


@pytest.mark.parametrize(("lost", "counted"), [(2, (50, 2)), (3, (1, 1)), (50, (1, 1))])
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_what_the_probes_lost_much_of_need_not_lose_as_much_when_it_is_counted(rate, lost, counted):
    counts = [way(SPINES[0], 50, 50 - lost, 50 - lost)]
    tie = replace(TIE, suspects=(Suspect(link(NEAR, SPINES[0]), 0.5, round(100 * rate), 100),))
    made = hops.ballots(counts, FABRIC.endpoints, ties=[tie])
    (mine,) = ((b.sent, b.lost) for b in made if b.key[2] == 2)
    assert (mine == counted) is (rate == 0.5 or lost in {2, 50})


@pytest.mark.parametrize(("run", "over_ms"), [(0, hops.OVER_MS), (3, 0)])
def test_packets_are_spread_where_flows_lost_a_part_and_not_where_they_are_dead(run, over_ms):
    lossy = tuple(Ballot(("a", str(n)), 9, 5, frozenset(), n, run=run) for n in range(3))
    tie = replace(TIE, explains=lossy)
    chosen = hops.choose([tie], losing(), FABRIC.endpoints, UNTRACED, over_ms=hops.OVER_MS)
    assert {each.over_ms for each in chosen} == {over_ms}
    assert hops.question(chosen[0], HOST, large=False).over_ms == over_ms


def test_packets_on_ways_that_a_host_found_tell_parallel_links_apart():
    counts = [way(SPINES[0], 50, 41, 41), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    made = hops.ballots(counts, FABRIC.endpoints)
    lost = {(b.components & {link(NEAR, s) for s in SPINES}): b.lost for b in made if b.key[2] == 2}
    assert lost == {frozenset({link(NEAR, spine)}): 8 * (spine == SPINES[0]) for spine in SPINES}


@pytest.mark.parametrize(
    ("seen", "dead", "borne_out"),
    [
        pytest.param({SPINES[0]: 41}, False, True, id="its packets were lost"),
        pytest.param({SPINES[0]: 50}, False, False, id="nothing was lost any more"),
        pytest.param({SPINES[1]: 41}, False, True, id="no way crosses it any more"),
        pytest.param({SPINES[0]: 50}, True, False, id="dead until the end, and well by then"),
    ],
)
def test_who_is_left_when_others_are_acquitted_is_named_only_with_evidence(seen, dead, borne_out):
    counts = [
        way(spine, 50, reached, reached, flow=flow)
        for flow in (FLOW, ANOTHER)
        for spine, reached in seen.items()
    ]
    ballots = hops.ballots(counts, FABRIC.endpoints)
    judge = hops.judge(counts, ballots, FABRIC.endpoints, UNTRACED)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x", run=5 if dead else 0)
    best = replace(TIE, suspects=TIE.suspects[:1], explains=(lossy,))
    assert judge(best, set()) is borne_out
    assert judge(replace(best, suspects=(Suspect(rnic("h", "r"), 1.0, 5, 9),)), set())


@pytest.mark.parametrize(("dead", "hosts", "other", "borne_out"), [
    (True, 1, None, True), (False, 1, None, False), (False, 2, None, True),
    (False, 2, link(FAR, SPINES[0]), False), (True, 2, link(FAR, SPINES[0]), False),
])  # fmt: skip
def test_a_way_that_is_missing_shows_nothing_of_one_part_where_another_one_of_it_is_at_fault(
    dead, hosts, other, borne_out
):
    flows = [FLOW, ANOTHER][:hosts]
    counts = [way(spine, 50, 50, 50, flow=flow) for flow in flows for spine in SPINES[1:]]
    judge = hops.judge(counts, hops.ballots(counts, FABRIC.endpoints), FABRIC.endpoints, UNTRACED)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x", run=5 if dead else 0)
    best = replace(TIE, suspects=TIE.suspects[:1], explains=(lossy,))
    assert judge(best, {other} if other else set()) is borne_out
    assert hops.judge([], [], FABRIC.endpoints, UNTRACED) is None


@pytest.mark.parametrize(
    ("rtts_us", "late"),
    [
        ((20, 20, 80), {2}),
        ((20, 20, 20), set()),
        ((20, 60, 100), set()),  # they differ too much to say
    ],
)
def test_a_way_that_is_late_is_late_beside_the_others(rtts_us, late):
    spines = [*SPINES, "spine-8", "spine-9"][:3]
    counts = [
        way(spine, 50, 50, 50, rtt_us=(9, rtt, rtt))
        for spine, rtt in zip(spines, rtts_us, strict=True)
    ]
    made = hops.late_ballots(counts, FABRIC.endpoints, {FLOW: (14 * US, 74 * US)})
    found = {
        n for n, s in enumerate(spines) for b in made if b.lost and link(NEAR, s) in b.components
    }
    assert found == late
    assert bool(made) is bool(late)  # what passed by before they counted acquits nobody


@pytest.mark.parametrize(("rtts_us", "late"), [
    ((20, 22, 80), {2}), ((20, 22, 24), set()), ((20, 22, 30), set()),
])  # fmt: skip
def test_a_way_that_is_late_by_far_acquits_no_other_where_noise_hides_the_shift(rtts_us, late):
    spines = [*SPINES, "spine-8", "spine-9"][:3]
    counts = [
        way(spine, 50, 50, 50, rtt_us=(9, rtt, rtt))
        for spine, rtt in zip(spines, rtts_us, strict=True)
    ]
    made = hops.late_ballots(counts, FABRIC.endpoints, {FLOW: (14 * US, 20 * US)})
    assert all(b.lost for b in made)
    assert {n for n, s in enumerate(spines) for b in made if link(NEAR, s) in b.components} == late


def test_a_way_that_is_not_between_the_leaves_is_no_answer():
    """A host counts where its own packets go, and nowhere else."""
    wanted = hops.Wanted(FLOW, 4)
    elsewhere = next(leaf for leaf in {r[0] for r in FABRIC.routes.values()} if leaf != NEAR)
    for first, taken in ((NEAR, 1), (elsewhere, 0)):
        asking = hops.count([wanted], FABRIC.endpoints, UNTRACED, large=False)
        assert len(next(asking)) == 1
        answer = PathAnswer(
            source_port=0, outer_port=1, hops=(first, SPINES[0], FAR), sent=50, answered=(50, 9, 9)
        )
        with pytest.raises(StopIteration) as done:
            asking.send([PathReply(paths=(answer,))])
        assert len(done.value.value) == taken


# --- a switch that loses a part -------------------------------------------------------------------

SIDE = [
    f
    for f in FABRIC.flows
    if FABRIC.routes[f, False] == (NEAR, SPINE, FAR) and f.source.rail == FLOW.source.rail
]


@pytest.mark.parametrize(
    ("hosts", "at_spine", "spared"),
    [(2, 100, True), (2, 99, True), (2, 90, False), (1, 100, False)],
)
def test_a_leaf_that_forwards_what_two_hosts_count_is_not_named_for_a_fifth(
    hosts, at_spine, spared
):
    """Two of its ports broke at once, and it looked like what they have in common."""
    by_host = {FABRIC.endpoints[f.source].host: f for f in SIDE}
    flows = list(by_host.values())[:hosts]
    assert len(flows) == hosts
    counts = [one for f in flows for one in answered(100, at_spine, 0, flow=f)]
    suspect = Suspect(switch(NEAR), 1.0, 108, 514)
    assert hops.forwards(suspect, counts, FABRIC.endpoints) is spared


def test_one_more_packet_lost_beyond_a_loss_shows_nothing_of_what_is_there():
    counts = [way(SPINES[0], 48, 44, 43), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    judge = hops.judge(counts, hops.ballots(counts, FABRIC.endpoints), FABRIC.endpoints, UNTRACED)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x")
    far = replace(TIE, suspects=(Suspect(link(FAR, SPINES[0]), 1.0, 5, 9),), explains=(lossy,))
    assert not judge(far, ())
    counts[0] = way(SPINES[0], 50, 50, 43)
    judge = hops.judge(counts, hops.ballots(counts, FABRIC.endpoints), FABRIC.endpoints, UNTRACED)
    assert judge(far, ())
