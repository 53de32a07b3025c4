# SPDX-License-Identifier: Apache-2.0
"""What flows that still get answers did not cross."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.voting.election import Ballot
from analyzer.localize.voting.fine import beyond
from analyzer.localize.voting.survivors import survived
from netagent.model.path import switch

SPINES = [switch(f"spine-{n}") for n in range(4)]
OPEN = tuple((frozenset({spine}), 0.25) for spine in SPINES)
FIXED = ((frozenset({SPINES[1]}), 1.0),)


def ballot(*legs, lost=1):
    maybe = {}
    for spine in SPINES:
        missed = 1.0
        for leg in legs:
            missed *= 1.0 - sum(share for parts, share in leg if spine in parts)
        if 0.0 < missed < 1.0:
            maybe[spine] = 1.0 - missed
    return Ballot(("a", "b"), 9, lost, frozenset(), "x", maybe, legs=legs)


def test_ways_across_what_is_dead_are_out_and_the_others_likelier():
    made = survived(ballot(OPEN, OPEN), {SPINES[0]})
    assert SPINES[0] not in made.maybe
    assert made.maybe[SPINES[1]] == pytest.approx(1.0 - (2 / 3) ** 2)
    assert [share for leg in made.legs for _, share in leg] == pytest.approx([1 / 3] * 6)


def test_the_only_way_that_is_left_was_taken_for_certain():
    made = survived(ballot(OPEN, OPEN), {*SPINES[:3]})
    assert (made.components, made.maybe) == (frozenset({SPINES[3]}), {})


def test_a_leg_that_nothing_is_left_of_stays_as_it_is():
    assert beyond(OPEN, {*SPINES}) is OPEN
    assert beyond(FIXED, {SPINES[1]}) is FIXED


def test_a_way_that_nobody_has_seen_stays_possible():
    leg = ((frozenset({SPINES[0]}), 0.5), (frozenset({SPINES[1]}), 0.25))
    assert beyond(leg, {SPINES[0]}) == ((frozenset({SPINES[1]}), 0.5),)


def test_who_cannot_have_crossed_it_is_left_alone():
    mine = ballot(FIXED)
    assert survived(mine, {SPINES[0]}) is mine


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6), st.sets(st.integers(0, 5), max_size=4)
)
def test_shares_stay_shares(weights, gone):
    total = sum(weights) * 1.25
    leg = tuple((frozenset({switch(f"s{n}")}), w / total) for n, w in enumerate(weights))
    made = beyond(leg, {switch(f"s{n}") for n in gone})
    assert sum(share for _, share in made) <= 1.0 + 1e-9
    before, after = dict(leg), dict(made)
    assert all(after[parts] >= before[parts] - 1e-12 for parts in after)
