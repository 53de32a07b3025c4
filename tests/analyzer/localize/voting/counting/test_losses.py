# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.voting.counting import losses
from analyzer.localize.voting.election import Ballot, elect
from netagent.model.path import link, switch
from netagent.model.verdict import Suspect
from tests.analyzer.localize.voting.counting.ways import (
    BACK,
    FABRIC,
    FAR,
    FLOW,
    NEAR,
    SPINE,
    SPINES,
    TIE,
    answered,
    way,
)


def test_who_reached_a_router_was_not_forwarded_by_it():
    made = losses.ballots(answered(100, 100, 0), FABRIC.endpoints)
    assert [(b.lost, switch(SPINE) in b.components, switch(SPINE) in b.maybe) for b in made] == [
        (0, False, False),
        (0, False, True),
        (1, True, False),
    ]


def test_an_answer_that_may_come_back_another_way_proves_nothing_of_where_it_was_lost():
    made = losses.ballots(answered(100, 90, 80), FABRIC.endpoints)
    assert [b.unseen for b in made] == [0, 0, 1]


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
    counted = losses.ballots(counts, FABRIC.endpoints)
    assert {link(NEAR, SPINE), link(SPINE, FAR)} <= set(elect(probes)[0].tied)
    best = elect(probes, counted=counted)[0]
    assert best.suspects[0].component == link(SPINE, FAR)
    assert best.decided


@pytest.mark.parametrize(("lost", "counted"), [(2, (50, 2)), (3, (1, 1)), (50, (1, 1))])
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_what_the_probes_lost_much_of_need_not_lose_as_much_when_it_is_counted(rate, lost, counted):
    counts = [way(SPINES[0], 50, 50 - lost, 50 - lost)]
    tie = replace(TIE, suspects=(Suspect(link(NEAR, SPINES[0]), 0.5, round(100 * rate), 100),))
    made = losses.ballots(counts, FABRIC.endpoints, ties=[tie])
    (mine,) = ((b.sent, b.lost) for b in made if b.key[2] == 2)
    assert (mine == counted) is (rate == 0.5 or lost in {2, 50})


def test_packets_on_ways_that_a_host_found_tell_parallel_links_apart():
    counts = [way(SPINES[0], 50, 41, 41), *(way(spine, 50, 50, 50) for spine in SPINES[1:])]
    made = losses.ballots(counts, FABRIC.endpoints)
    lost = {(b.components & {link(NEAR, s) for s in SPINES}): b.lost for b in made if b.key[2] == 2}
    assert lost == {frozenset({link(NEAR, spine)}): 8 * (spine == SPINES[0]) for spine in SPINES}
