# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.voting import election as voting
from analyzer.localize.voting.election import MIN_LOST, Ballot, Election, elect
from netagent.model.path import Component, link, rnic, switch
from netagent.model.verdict import Suspect

NEAR, FAR = link("leaf-0", "spine-0"), link("leaf-1", "spine-0")
SPINE, LEAF = switch("spine-0"), switch("leaf-0")
RNIC = rnic("h0", "rnic0")


def ballot(n, *components, sent=10, lost=0):
    return Ballot((f"a{n}", f"b{n}"), sent, lost, frozenset(components), n)


def test_no_loss_is_no_election():
    assert elect([ballot(1, NEAR)]) == []


def test_losses_that_cross_nothing_known_elect_nobody():
    assert elect([ballot(1, lost=10)]) == []


def test_what_alone_all_losses_cross_is_named():
    lossy = [ballot(n, NEAR, SPINE, LEAF, lost=8) for n in range(3)]
    fine = [ballot(n, SPINE) for n in range(3, 9)] + [ballot(n, LEAF) for n in range(9, 15)]
    (election,) = elect(lossy + fine)
    assert election.decided
    assert election.suspects[0].component == NEAR
    assert (election.suspects[0].lost, election.suspects[0].crossed) == (24, 30)
    assert set(election.explains) == set(lossy)


def test_the_same_crossings_tie_and_packets_part_of_the_way_break_the_tie():
    lossy = [ballot(n, NEAR, FAR, lost=9) for n in range(3)]
    fine = [ballot(n, LEAF) for n in range(3, 9)]
    (tie,) = elect(lossy + fine)
    assert not tie.decided
    assert set(tie.tied) == {NEAR, FAR}
    counted = [ballot(20, NEAR, sent=100)]
    (told,) = elect(lossy + fine, counted=counted)
    assert told.decided
    assert told.suspects[0].component == FAR
    assert told.suspects[0].crossed == 30  # tallies stay those of the probes


def test_one_pair_is_never_enough():
    lossy = [Ballot(("a", "b"), 10, 10, frozenset({NEAR}), n) for n in range(3)]
    fine = [ballot(n, LEAF) for n in range(3, 20)]
    (election,) = elect(lossy + fine)
    assert election.suspects[0].component == NEAR
    assert not election.decided


def test_two_faults_are_named_one_after_the_other():
    one = [ballot(n, NEAR, lost=10) for n in range(4)]
    two = [ballot(n, RNIC, lost=9) for n in range(4, 7)]
    fine = [ballot(n, LEAF) for n in range(10, 40)]
    assert named(one + two + fine) == {NEAR, RNIC}


def test_a_component_with_an_open_incident_is_preferred_where_it_hardly_matters():
    lossy = [ballot(n, NEAR, FAR, lost=9) for n in range(3)]
    fine = [ballot(n, LEAF) for n in range(3, 9)]
    (election,) = elect(lossy + fine, standing=[FAR])
    assert election.decided
    assert election.suspects[0].component == FAR


def test_a_stray_loss_elsewhere_does_not_acquit():
    lossy = [ballot(n, NEAR, SPINE, sent=40, lost=12) for n in range(4)]
    fine = [ballot(n, SPINE, sent=40) for n in range(4, 12)]
    stray = [ballot(12, SPINE, sent=40, lost=1)]
    assert elect(lossy + fine + stray)[0].suspects[0].component == NEAR


OTHER = switch("spine-1")


def test_losses_that_something_unseen_may_have_caused_accuse_nobody_and_health_still_acquits():
    unseen = [Ballot((f"a{n}", "b"), 10, 6, frozenset({OTHER}), n, unseen=0.5) for n in range(6)]
    fine = [ballot(n, OTHER) for n in range(10, 16)]
    assert not any(election.decided for election in elect(unseen + fine))


EITHER = ((frozenset({SPINE}), 0.5), (frozenset({OTHER}), 0.5))


def either(n, lost, *certain):
    """Return a ballot whose probes crossed one of two spines."""
    maybe = {SPINE: 0.5, OTHER: 0.5}
    return Ballot((f"a{n}", "b"), 10, lost, frozenset(certain), n, maybe, legs=(EITHER,))


def test_of_two_ways_the_one_is_named_that_is_not_known_to_be_fine():
    lossy = [either(n, 10, LEAF) for n in range(6)]
    fine = [ballot(n, LEAF, OTHER) for n in range(10, 20)]
    election = elect(lossy + fine)[0]
    assert election.decided
    assert election.suspects[0].component == SPINE
    assert set(election.explains) == set(lossy)
    assert (election.suspects[0].lost, election.suspects[0].crossed) == (60, 60)


def test_of_two_ways_of_which_nothing_else_is_known_none_is_named():
    lossy = [either(n, 5) for n in range(6)]
    fine = [ballot(n, LEAF) for n in range(10, 20)]
    (election,) = elect(lossy + fine)
    assert not election.decided
    assert {SPINE, OTHER} <= set(election.tied)


def named(*args, **kwargs):
    return {e.suspects[0].component for e in elect(*args, **kwargs) if e.decided}


def test_what_loses_as_much_as_others_of_its_kind_is_not_named():
    everywhere = [ballot(n, (SPINE, OTHER)[n % 2], sent=400, lost=1 + n % 2) for n in range(40)]
    assert not named(everywhere, standing=[SPINE])


def test_two_links_explain_more_than_the_switch_between_them():
    """Each loses by itself; a switch that all of it crosses is nothing but where they meet."""
    more = [link("leaf-0", f"spine-{n}") for n in range(4)]
    lossy = [ballot(n, more[n % 2], LEAF, sent=100, lost=6) for n in range(6)]
    fine = [ballot(n, more[2 + n % 2], LEAF, sent=100) for n in range(6, 18)]
    assert named(lossy + fine) == {more[0], more[1]}
    whole = [ballot(n, more[n % 4], LEAF, sent=100, lost=6) for n in range(16)]
    beside = [ballot(n, switch("leaf-1"), sent=100) for n in range(16, 32)]
    assert named(whole + beside) == {LEAF}


def test_a_switch_that_loses_on_every_link_is_named_whatever_two_of_them_lose_most():
    losses = {link("leaf-0", "spine-0"): 25, link("leaf-1", "spine-0"): 5, link("l2", "spine-0"): 8}
    lossy = [
        ballot((of, n), of, SPINE, sent=100, lost=lost)
        for of, lost in losses.items()
        for n in range(4)
    ]
    fine = [ballot(n, switch("spine-1"), sent=400) for n in range(10)]
    assert SPINE in named(lossy + fine)


def test_few_losses_that_by_chance_cross_one_spine_accuse_it_not():
    mine = [ballot(n, LEAF, SPINE, sent=100, lost=int(n < 9)) for n in range(9)]
    others = [ballot(n, LEAF, switch("spine-1"), sent=100, lost=int(n == 9)) for n in range(9, 18)]
    local = [ballot(n, LEAF, sent=400) for n in range(18, 30)]
    assert not named(mine + others + local)


def test_where_few_are_lost_others_that_lost_none_may_have_been_lucky():
    others = [ballot(n, LEAF, switch("spine-1"), sent=100) for n in range(8, 10)]
    local = [ballot(n, LEAF, sent=400) for n in range(10, 20)]
    for each, found in ((1, set()), (4, {SPINE})):  # 1 % and 4 %
        mine = [ballot(n, LEAF, SPINE, sent=100, lost=each) for n in range(8)]
        assert named(mine + others + local) == found


def test_packets_lost_in_what_is_named_already_accuse_nothing_else():
    lossy = [ballot(n, NEAR, SPINE, lost=8) for n in range(3)]
    second = [ballot(n, LEAF, FAR, lost=2) for n in range(3, 6)]
    fine = [ballot(n, SPINE) for n in range(6, 12)]
    counted = [Ballot(("x", "y"), 100, 80, frozenset({NEAR, LEAF}), 100)]
    assert LEAF not in named(lossy + second + fine, counted=counted)


def test_what_was_cleared_is_no_suspect():
    lossy = [ballot(n, NEAR, FAR, lost=9) for n in range(3)]
    fine = [ballot(n, LEAF) for n in range(3, 9)]
    (election,) = elect(lossy + fine, cleared={NEAR})
    assert election.decided
    assert election.suspects[0].component == FAR


COMPONENTS = [NEAR, FAR, SPINE, LEAF, RNIC, Component.parse("container c")]
BALLOTS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 30), st.sets(st.sampled_from(COMPONENTS))),
    max_size=25,
).map(
    lambda rows: [
        ballot(n, *parts, sent=sent, lost=min(lost, sent))
        for n, (sent, lost, parts) in enumerate(rows)
    ]
)


def test_what_the_same_probes_cross_is_named_together_and_two_of_a_kind_are_not():
    endpoint, other = Component.parse("endpoint c/rail0"), Component.parse("rnic h2/rnic0")
    far = [ballot(n, SPINE, lost=0) for n in range(20, 60)]
    alike = [ballot(n, RNIC, endpoint, lost=9) for n in range(4)]
    (election,) = elect([*alike, *far])
    assert {s.component for s in election.alike} == {RNIC, endpoint}
    assert election.decided
    assert election.confidence == pytest.approx(sum(s.score for s in election.alike), abs=1e-9)
    both = [ballot(n, RNIC, other, lost=9) for n in range(4)]
    (election,) = elect([*both, *far])
    assert len(election.alike) == 1
    assert not election.decided


def test_visits_lost_together_at_the_end_of_a_window_make_nobody_stand_out():
    """As simulated: a spine died 50 ms before a window ended, and one link had its turn then."""

    def of(lost, sent):
        return Election((Suspect(NEAR, 1.0, lost, sent),), (), 7, 15.3, (68, 17_174))

    assert not of(17, 484).stands_out
    assert of(60, 484).stands_out


def uneven():
    """Return ballots of a switch that loses differently much on each of three links."""
    lossy = [
        ballot(10 * n + m, switch("s"), link("s", leaf), sent=20, lost=(5, 9, 13)[n])
        for n, leaf in enumerate("abc")
        for m in range(4)
    ]
    return lossy, [ballot(n, link("x", f"y{n}"), lost=0) for n in range(50, 90)]


def score(ballots):
    every = [s for e in elect(ballots) for s in e.suspects if s.component == switch("s")]
    return max((s.score for s in every), default=0.0)


def test_a_switch_is_preferred_to_links_of_it_that_explain_little_more(monkeypatch):
    lossy, far = uneven()
    preferred = score([*lossy, *far])
    limits = replace(voting.SETTINGS, siblings=0.0)
    monkeypatch.setattr(voting, "SETTINGS", limits)
    assert preferred > score([*lossy, *far]) + 0.1


def test_what_a_flow_loses_in_a_row_when_it_dies_is_one_event(monkeypatch):
    monkeypatch.setattr(voting, "SETTINGS", replace(voting.SETTINGS, siblings=0.0))
    lossy, far = uneven()
    died = [replace(each, run=each.lost) for each in lossy]
    assert score([*died, *far]) > score([*lossy, *far]) + 0.1


@given(BALLOTS, BALLOTS)
def test_whoever_is_named_lost_enough_and_its_tallies_are_those_of_the_ballots(ballots, counted):
    for election in elect(ballots, counted=counted):
        if not election.suspects:
            continue
        best = election.suspects[0]
        mine = [b for b in ballots if best.component in b.components]
        assert best.crossed <= sum(b.sent for b in mine)
        assert all(0.0 <= s.score <= 1.0 for s in election.suspects)
        if election.decided:
            assert best.lost >= MIN_LOST
            assert all(best.component in b.components and b.lost for b in election.explains)


@given(BALLOTS)
def test_the_order_of_ballots_does_not_matter(ballots):
    assert named(ballots) == named(ballots[::-1])
