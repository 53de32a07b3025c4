# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.tomography.landscape import Landscape
from analyzer.localize.tomography.observations import Arrived, Builder
from analyzer.localize.tomography.tables import tables
from tests.analyzer.localize.tomography.worlds import worlds
from tests.oracles.tomography_naive import log_likelihood

HAZARDS = np.array([1e-3, 0.05, 0.7, 4.0])
BACKGROUND = 0.01


def landscape(seen, background=BACKGROUND, **blamed):
    names = {name: row for row, name in enumerate(seen.components)}
    hazards = {names[name]: hazard for name, hazard in blamed.items() if name in names}
    land = Landscape(tables(seen), background)
    land.blamed.update(hazards)
    return land


def naive_gain(seen, land, component, hazard):
    with_it = {**land.blamed, component: land.blamed.get(component, 0.0) + hazard}
    before = log_likelihood(seen, land.background, land.blamed)
    return log_likelihood(seen, land.background, with_it) - before


@given(worlds(most_legs=1, free=True))
def test_the_first_fault_gains_what_summing_over_all_ways_says(seen):
    land, every = landscape(seen), np.arange(len(seen.components))
    gains = land.gains(land.state(), every, HAZARDS)
    for component in every:
        for n, hazard in enumerate(HAZARDS):
            wanted = naive_gain(seen, land, int(component), hazard)
            assert gains[component, n] == pytest.approx(wanted, abs=1e-6, rel=1e-6)


@given(worlds(most_ways=1, most_legs=3, free=True), st.floats(0.001, 3.0))
def test_where_ways_are_known_so_does_a_fault_beside_another(seen, hazard):
    land, every = landscape(seen, a=hazard), np.arange(len(seen.components))
    gains = land.gains(land.state(), every, HAZARDS)
    for component in every:
        for n, more in enumerate(HAZARDS):
            wanted = naive_gain(seen, land, int(component), more)
            assert gains[component, n] == pytest.approx(wanted, abs=1e-6, rel=1e-6)


@given(worlds(most_legs=1), st.floats(0.01, 6.0))
def test_what_nothing_explains_yet_may_explain_what_another_one_does(seen, hazard):
    """Ways that cross nothing blamed are hardly probable then, and are weighed all the same."""
    land = landscape(seen, a=hazard)
    gains = land.gains(land.state(), np.arange(len(seen.components)), HAZARDS)
    for component, name in enumerate(seen.components):
        for n, more in enumerate(HAZARDS if name != "a" else ()):
            wanted = naive_gain(seen, land, component, more)
            if wanted > -20:  # a share that is nearly one cannot be told from one
                assert gains[component, n] == pytest.approx(wanted, abs=1e-4, rel=1e-3)


def test_a_flow_that_lost_most_took_the_way_across_what_is_blamed():
    builder = Builder()
    leg = builder.leg([["a"], ["b"], ["c"]])
    builder.flow([leg], 20, 19)
    builder.flow([leg], 20, 0)
    seen = builder.build()
    land = landscape(seen, a=3.0)
    state = land.state()
    hit, spared = land.tables.group_of
    assert state.hazard[hit] == pytest.approx(3.0 + BACKGROUND, rel=0.01)
    assert state.hazard[spared] == pytest.approx(BACKGROUND, rel=0.01)


@given(worlds(), st.floats(0.01, 3.0))
def test_the_mean_hazard_lies_between_the_ways(seen, hazard):
    land = landscape(seen, a=hazard)
    hazards = land.state().hazard
    assert (hazards >= BACKGROUND * 0.99).all()
    assert (hazards <= (hazard + 4 * BACKGROUND) * 6).all()


def test_the_background_is_what_nothing_blamed_explains():
    builder = Builder()
    builder.flow([builder.leg([["a", "b"]])], 1_000_000, 200)
    builder.flow([builder.leg([["c", "d"]])], 1_000, 500)
    seen = builder.build()
    land = landscape(seen, background=0.1, c=-np.log(0.5))
    land.fit_background(1e-9)
    assert land.background == pytest.approx(1e-4, rel=0.05)


def with_arrived(seen, probes):
    """Return the same with probes that arrived: as flows of their own, and counted."""
    flows, counted = Builder(), Builder()
    for builder in (flows, counted):
        legs = [
            builder.leg(
                [[seen.components[c] for c in seen.crossed(way)] for way in seen.alternatives(leg)]
            )
            for leg in range(len(seen.first_alternative) - 1)
        ]
        for row in range(seen.flows):
            taken = [legs[leg] for leg in seen.legs[row] if leg >= 0]
            counts = int(seen.sent[row]), int(seen.lost[row])
            builder.flow(taken, *counts, free=float(seen.free[row]))
        for component in "abcdef":
            builder.component(component)
    made = Arrived.nothing(6)
    names = list(counted.components())
    for way, sent in probes:
        flows.flow([flows.leg([way])], sent, 0)
        rows = [names.index(name) for name in way]
        each = Arrived.nothing(6)
        each.probes[rows], each.crossings[rows] = sent, sent * len(way)
        made += Arrived(each.probes, each.crossings, sent, sent * len(way))
    counted.arrive(made)
    return flows.build(), counted.build()


WAYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)


@given(worlds(free=True), st.lists(st.tuples(WAYS, st.integers(0, 50)), max_size=6))
def test_what_arrived_is_counted_as_if_each_way_had_a_flow(seen, probes):
    flows, counted = with_arrived(seen, probes)
    assert flows.components == counted.components
    assert flows.sent.sum() == counted.sent.sum() + counted.arrived.sent
    one, other = landscape(flows, a=0.3), landscape(counted, a=0.3)
    every = np.arange(len(flows.components))
    assert one.likelihood() == pytest.approx(other.likelihood(), rel=1e-9, abs=1e-9)
    gains = [land.gains(land.state(), every, HAZARDS) for land in (one, other)]
    assert gains[0] == pytest.approx(gains[1], rel=1e-9, abs=1e-9)
    rates = [land.elsewhere(land.state(), every, 1e-6) for land in (one, other)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)
    for land in (one, other):
        land.fit_background(1e-6)
    assert one.background == pytest.approx(other.background, rel=1e-9)
