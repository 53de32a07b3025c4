# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.voting.counting import acquittal
from analyzer.localize.voting.election import Ballot, Election
from netagent.model.path import link, switch
from netagent.model.verdict import Suspect
from tests.analyzer.localize.voting.counting.ways import (
    BACK,
    FABRIC,
    FAR,
    FLOW,
    HOST,
    NEAR,
    SPINE,
    SPINES,
    answered,
    way,
)


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
    found = acquittal.cleared(suspects, answers, FABRIC.endpoints)
    assert found == ({link(NEAR, SPINE)} if cleared else frozenset())


def test_a_link_is_not_cleared_by_one_host_nor_a_leaf_by_what_begins_there():
    answers = answered(100, 100, 100) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 20, 200), Suspect(switch(NEAR), 1.0, 20, 200)]
    assert acquittal.cleared(suspects, answers, FABRIC.endpoints) == {link(NEAR, SPINE)}
    one_host = dict.fromkeys(FABRIC.endpoints, HOST)
    assert acquittal.cleared(suspects, answers, one_host) == frozenset()


def test_a_spine_is_cleared_by_what_passed_it_and_not_by_what_died_on_its_way_in():
    suspects = [Suspect(switch(SPINE), 1.0, 20, 200)]
    for lost, cleared in ((0, {switch(SPINE)}), (10, set())):
        there, back = (100, 100 - lost, 100 - lost), (100, 100 - lost, 100 - lost)
        answers = answered(*there) + answered(*back, flow=BACK)
        found = acquittal.cleared(suspects, answers, FABRIC.endpoints)
        assert found == cleared


def test_a_part_that_lost_too_few_probes_is_not_cleared_by_a_hundred_packets():
    answers = answered(100, 100, 100) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 4, 200)]
    assert acquittal.cleared(suspects, answers, FABRIC.endpoints) == frozenset()


@pytest.mark.parametrize(("lost", "cleared"), [(0, True), (2, True), (3, False), (10, False)])
def test_what_lost_some_packets_is_not_cleared_for_having_lost_few(lost, cleared):
    """A port that flaps was up for most of the packets."""
    answers = answered(100, 100 - lost, 100 - lost) + answered(100, 100, 100, flow=BACK)
    suspects = [Suspect(link(NEAR, SPINE), 1.0, 100, 200)]
    assert bool(acquittal.cleared(suspects, answers, FABRIC.endpoints)) is cleared


def test_links_of_a_switch_that_is_gone_are_cleared_where_hosts_looked_for_ways():
    suspects = [Suspect(link(NEAR, spine), 0.5, 9, 90) for spine in SPINES]
    gone = {switch(SPINES[0])}
    counts = [way(spine, 50, 50, 50) for spine in SPINES[1:]]
    assert acquittal.beyond(suspects, counts, gone) == {link(NEAR, SPINES[0])}
    assert acquittal.beyond(suspects, answered(100, 100, 100), gone) == frozenset()
    assert acquittal.switches(counts) == {switch(hop) for hop in (NEAR, FAR, *SPINES[1:])}


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
    found = acquittal.whole([*parts, other], counts)
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
    assert acquittal.forwards(suspect, counts, FABRIC.endpoints) is spared
