# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.voting.counting import asking, choosing
from analyzer.localize.voting.election import Ballot
from netagent.model.path import link, switch
from netagent.model.verdict import Suspect
from tests.analyzer.localize.voting.counting.ways import FABRIC, HOST, NEAR, SPINES, TIE, UNTRACED


def losing():
    views = (FABRIC.view(f) for f in FABRIC.flows if len(FABRIC.routes[f, False]) == 3)
    return [replace(view, lost=3) for view in views]


def leaves(flow):
    return {FABRIC.leaf(flow.source), FABRIC.leaf(flow.target)}


def test_two_hosts_of_the_suspects_leaf_are_asked_for_every_way():
    near = [view for view in losing() if NEAR in leaves(view.flow)]
    chosen = choosing.choose([TIE], near, FABRIC.endpoints, UNTRACED)
    assert [each.ways for each in chosen] == [len(SPINES)] * 2
    assert {FABRIC.leaf(each.flow.source) for each in chosen} == {NEAR}
    assert len({FABRIC.endpoints[each.flow.source].host for each in chosen}) == 2
    request = asking.question(chosen[0], HOST, large=False)
    assert (request.ways, request.source_port, request.count) == (
        len(SPINES),
        0,
        asking.WAY_PACKETS,
    )


def test_where_others_lose_as_well_some_are_asked_whether_the_links_switches_are_alive():
    chosen = choosing.choose([TIE], losing(), FABRIC.endpoints, UNTRACED)
    assert [NEAR in leaves(each.flow) for each in chosen].count(True) == 2
    assert [NEAR in leaves(each.flow) for each in chosen].count(False) == 2


def test_where_all_that_lose_cross_the_suspects_one_that_does_not_shows_whether_switches_live():
    mine = [view for view in losing() if NEAR in leaves(view.flow)]
    others = [replace(view, lost=0) for view in losing() if NEAR not in leaves(view.flow)]
    chosen = choosing.choose([TIE], [*others, *mine], FABRIC.endpoints, UNTRACED)
    assert [NEAR in leaves(each.flow) for each in chosen] == [True, True, False]
    assert choosing.choose([TIE], mine, FABRIC.endpoints, UNTRACED) == chosen[:2]


def test_where_ways_are_known_two_hosts_of_a_leaf_count_what_it_forwards():
    """One host's endpoints lose most, and flows that stay below the leaf lose more than others."""

    def lost(flow):
        is_most = FABRIC.endpoints[flow.source].host == HOST.host
        return 2 + 8 * is_most + 4 * (FABRIC.routes[flow, False] == (NEAR,))

    leaf = replace(TIE, suspects=(Suspect(switch(NEAR), 0.5, 9, 90), *TIE.suspects))
    near = [replace(FABRIC.view(f), lost=lost(f)) for f in FABRIC.flows if NEAR in leaves(f)]
    chosen = choosing.choose([leaf], near, FABRIC.endpoints, FABRIC.topology())
    up = [each.flow for each in chosen if FABRIC.leaf(each.flow.source) == NEAR]
    assert [len(FABRIC.routes[flow, False]) for flow in up] == [3, 3]
    assert len({FABRIC.endpoints[flow.source].host for flow in up}) == 2


@pytest.mark.parametrize(("run", "over_ms"), [(0, choosing.OVER_MS), (3, 0)])
def test_packets_are_spread_where_flows_lost_a_part_and_not_where_they_are_dead(run, over_ms):
    lossy = tuple(Ballot(("a", str(n)), 9, 5, frozenset(), n, run=run) for n in range(3))
    tie = replace(TIE, explains=lossy)
    chosen = choosing.choose([tie], losing(), FABRIC.endpoints, UNTRACED, over_ms=choosing.OVER_MS)
    assert {each.over_ms for each in chosen} == {over_ms}
    assert asking.question(chosen[0], HOST, large=False).over_ms == over_ms


@pytest.mark.parametrize(
    ("standing", "worth"),
    [
        ((), False),
        ((link(NEAR, SPINES[1]),), True),
        ((link("leaf-9", SPINES[1]), switch(NEAR)), False),
        ((link(NEAR, SPINES[0]),), False),
    ],
    ids=str,
)
def test_a_dead_link_needs_no_counts_but_beside_one_that_is_known(standing, worth):
    suspect = Suspect(link(NEAR, SPINES[0]), 1.0, 300, 300)
    dead = replace(TIE, suspects=(suspect,), pairs=9)
    assert dead.decided
    assert choosing.worth_counting(dead, frozenset(standing)) is worth


def test_no_ways_are_looked_for_where_no_tunnel_leaves():
    ends = FABRIC.endpoints
    assert choosing.choose([TIE], losing(), ends, UNTRACED)
    bare = {key: replace(end, bridge="") for key, end in ends.items()}
    assert choosing.choose([TIE], losing(), bare, UNTRACED) == []
    mixed = {key: bare[key] if FABRIC.leaf(key) == NEAR else end for key, end in ends.items()}
    asked = choosing.choose([TIE], losing(), mixed, UNTRACED)
    assert not any(NEAR in leaves(each.flow) for each in asked)
