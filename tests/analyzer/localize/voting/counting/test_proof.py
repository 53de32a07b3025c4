# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_answer

from analyzer.localize.voting.counting import losses, proof
from analyzer.localize.voting.election import Ballot, Election
from netagent.model.path import link, rnic, switch
from netagent.model.verdict import Suspect
from tests.analyzer.localize.voting.counting.ways import (
    ANOTHER,
    BACK,
    FABRIC,
    FAR,
    FLOW,
    NEAR,
    SPINE,
    SPINES,
    TIE,
    UNTRACED,
    answered,
    way,
)


def judged(counts):
    ballots = losses.ballots(counts, FABRIC.endpoints)
    return proof.judge(counts, ballots, FABRIC.endpoints, UNTRACED)


def test_what_is_beyond_a_loss_has_shown_nothing_of_itself():
    """The near link is dead: the far one, beyond it, is not shown to lose anything."""
    counts = [way(SPINES[0], 50, 0, 0), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    judge = judged(counts)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x")
    told = [
        judge(
            replace(TIE, suspects=(Suspect(link(end, SPINES[0]), 1.0, 5, 9),), explains=(lossy,)),
            (),
        )
        for end in (NEAR, FAR)
    ]
    assert told == [True, False]


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
    ballots = losses.ballots(counts, FABRIC.endpoints)
    judge = proof.judge(counts, ballots, FABRIC.endpoints, UNTRACED)
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
    judge = judged(counts)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x", run=5 if dead else 0)
    best = replace(TIE, suspects=TIE.suspects[:1], explains=(lossy,))
    assert judge(best, {other} if other else set()) is borne_out
    assert proof.judge([], [], FABRIC.endpoints, UNTRACED) is None


def test_one_more_packet_lost_beyond_a_loss_shows_nothing_of_what_is_there():
    counts = [way(SPINES[0], 48, 44, 43), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    judge = judged(counts)
    lossy = Ballot(("a", "b"), 9, 5, frozenset(), "x")
    far = replace(TIE, suspects=(Suspect(link(FAR, SPINES[0]), 1.0, 5, 9),), explains=(lossy,))
    assert not judge(far, ())
    counts[0] = way(SPINES[0], 50, 50, 43)
    judge = judged(counts)
    assert judge(far, ())


def test_what_takes_another_way_than_traced_makes_what_is_below_its_router_doubtful():
    topology, other = FABRIC.topology(), next(spine for spine in SPINES if spine != SPINE)
    (same,) = answered(100, 100, 100)
    now = replace(same, answer=replace_answer(same.answer, hops=(NEAR, other, FAR)))
    far = replace(same, answer=replace_answer(same.answer, hops=(NEAR, SPINE, "", FAR)))
    for quiet in (same, far, replace(now, own=True)):
        assert proof.turned([quiet], topology, ()) == frozenset()
    links = {link(*ends) for ends in topology.links() if NEAR in ends}
    left = link(NEAR, SPINE)
    assert proof.turned([now], topology, ()) == {switch(NEAR), *links} - {left}
    beside = [link(NEAR, other)]
    assert proof.turned([now], topology, beside) == {switch(NEAR), *links}


@pytest.mark.parametrize(
    ("near", "known", "doubtful"),
    [
        pytest.param((100, 92, 92), (), True, id="as many on the other link of the spine"),
        pytest.param((100, 92, 92), (link(NEAR, SPINE),), False, id="which is known to lose some"),
        pytest.param((100, 92, 92), (switch(SPINE),), False, id="of the spine, which is known"),
        pytest.param((100, 99, 91), (), False, id="a stray one on the other link"),
        pytest.param((100, 1, 0), (), False, id="the spine limits its answers"),
    ],
)
def test_a_link_is_not_named_where_counts_say_that_another_one_of_its_switch_loses_as_well(
    near, known, doubtful
):
    """What a spine began to lose was laid at the door of one of two links that lost a while ago."""
    counts = [*answered(*near), *answered(100, 93, 89, flow=BACK)]
    lossy = Ballot(("a", "b"), 90, 5, frozenset({link(FAR, SPINE)}), "x")
    suspects = (Suspect(link(FAR, SPINE), 0.97, 22, 1079),)
    far = Election(suspects, (lossy,), pairs=4, evidence=50.0)
    assert far.decided
    ballots = losses.ballots(counts, FABRIC.endpoints)
    (told,) = proof.contradicted([far], counts, ballots, known)
    assert told.doubtful is doubtful


LEAF = switch("leaf-s0-r0")
LOSSY = link("leaf-s0-r0", "spine-1")
BESIDE = link("leaf-s1-r0", "spine-1")
OTHER = link("leaf-s0-r0", "spine-0")


@pytest.mark.parametrize(
    ("before", "lossy", "doubtful"),
    [
        pytest.param([LOSSY, BESIDE], {LOSSY}, True, id="its link lost packets"),
        pytest.param([LOSSY, BESIDE], {BESIDE}, True, id="no link of it did"),
        pytest.param([LOSSY, BESIDE], {LOSSY, OTHER}, False, id="two of its links did"),
        pytest.param([BESIDE], {LOSSY}, False, id="the probes left no link of it"),
        pytest.param([LOSSY, LEAF], {LOSSY}, False, id="the probes left it open"),
    ],
)
def test_counts_do_not_elect_a_switch_that_probes_ruled_out_for_its_link(before, lossy, doubtful):
    """What loses now and then is acquitted while it is well, and the leaf beside it is not."""
    ballot = Ballot(("a", "b"), 90, 9, frozenset({LEAF, LOSSY}), "x")
    tie = Election(tuple(Suspect(each, 0.5, 21, 176) for each in before), (ballot,), 4, 50.0)
    elected = replace(tie, suspects=(Suspect(LEAF, 0.99, 21, 224),))
    assert elected.decided
    (told,) = proof.links_first([elected], [tie], lossy)
    assert told.doubtful is doubtful


HOSTS_OWN = rnic("h0", "rnic1")


@pytest.mark.parametrize(
    ("before", "shown", "doubtful"),
    [
        pytest.param([LOSSY, BESIDE], {LOSSY}, True, id="the probes ruled it out"),
        pytest.param([LOSSY, HOSTS_OWN], {LOSSY}, False, id="the probes left it open"),
        pytest.param([LOSSY, BESIDE], {HOSTS_OWN}, False, id="packets were lost there"),
    ],
)
def test_counts_do_not_elect_what_probes_ruled_out_unless_they_show_it(before, shown, doubtful):
    """As a lab gave it: flows that a link spares acquit it of those that it drops."""
    ballot = Ballot(("a", "b"), 8, 8, frozenset({HOSTS_OWN, LOSSY}), "x", run=8)
    tie = Election(tuple(Suspect(each, 0.5, 20, 62) for each in before), (ballot,), 3, 19.0)
    elected = replace(tie, suspects=(Suspect(HOSTS_OWN, 0.97, 14, 40),))
    assert elected.decided
    (told,) = proof.ruled_out([elected], [tie], shown)
    assert told.doubtful is doubtful
