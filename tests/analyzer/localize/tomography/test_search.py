# SPDX-License-Identifier: Apache-2.0
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.localize.tomography.observations import Builder
from analyzer.localize.tomography.search import Settings, search

LEAVES, SPINES = 4, 4


def crossed(*nodes):
    return [*nodes, *(f"{a}->{b}" for a, b in pairwise(nodes))]


def fabric(loss, *, seed=1, sent=200, ports=4, open_share=0.0, background=0.0):
    """Return flows between all leaves; `loss` is component -> loss rate."""
    rng, builder = random.Random(seed), Builder()
    for a in range(LEAVES):
        for b in range(LEAVES):
            for _ in range(ports * (a != b)):
                ways = [crossed(f"l{a}", f"s{n}", f"l{b}") for n in range(SPINES)]
                way = rng.choice(ways)
                survives = 1.0 - background
                for component in way:
                    survives *= 1.0 - loss.get(component, 0.0)
                lost = sum(rng.random() > survives for _ in range(sent))
                known = rng.random() >= open_share
                builder.flow([builder.leg([way] if known else ways)], sent, lost)
    return builder.build()


def names(found):
    return {each.component for each in found.blamed}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "loss",
    [
        {"l0->s1": 0.1},
        {"s2": 0.2},
        {"l0->s1": 0.3, "l0->s2": 0.1},
        {"s3->l1": 0.2, "l2->s3": 0.2, "l0->s0": 0.05},
        {"s0": 0.3, "l1->s1": 0.1},
        {"l0->s0": 1.0},
    ],
    ids=" ".join,
)
def test_all_that_is_at_fault_is_blamed_and_nothing_else(loss, seed):
    found = search(fabric(loss, seed=seed, ports=12))
    assert names(found) == set(loss)
    for each in found.blamed:
        assert each.rate == pytest.approx(loss[each.component], rel=0.5)
        assert each.confidence > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_some_flows_whose_path_is_known_tell_those_apart_whose_path_is_not(seed):
    found = search(fabric({"l0->s1": 0.1}, seed=seed, ports=12, open_share=0.7))
    assert names(found) == {"l0->s1"}


@pytest.mark.parametrize("seed", range(5))
def test_ways_that_nothing_tells_apart_leave_the_blame_open(seed):
    found = search(fabric({"l0->s1": 0.2}, seed=seed, ports=12, open_share=1.0))
    (blamed,) = found.blamed
    assert blamed.confidence < 0.5
    alike = {blamed.component, *(name for name, p in blamed.rivals if p > 0.1)}
    assert {f"l0->s{n}" for n in range(SPINES)} <= alike


@pytest.mark.parametrize("rate", [0.0005, 0.003, 0.05])
def test_loss_that_is_the_same_everywhere_blames_nothing(rate):
    assert search(fabric({}, background=rate, ports=12, sent=400)).blamed == ()


def test_nothing_lost_and_nothing_seen_blame_nothing():
    assert search(fabric({})).blamed == ()
    assert search(Builder().build()).blamed == ()


def test_two_components_that_the_same_flows_cross_are_told_apart_by_the_prior_only():
    builder = Builder()
    for n in range(10):
        builder.flow([builder.leg([["a", "b"] if n < 3 else ["c"]])], 100, 40 if n < 3 else 0)
    seen = builder.build()
    found = search(seen, prior=[0.0, -0.7, 0.0])
    (blamed,) = found.blamed
    assert blamed.component == "a"
    assert blamed.confidence == pytest.approx(2 / 3, abs=0.02)
    assert dict(blamed.rivals)["b"] == pytest.approx(1 / 3, abs=0.02)


def test_what_a_fault_explains_is_what_it_lost():
    found = search(fabric({"l0->s1": 0.5}, ports=12))
    (blamed,) = found.blamed
    lossy = fabric({"l0->s1": 0.5}, ports=12).lost.sum()
    assert blamed.explains == pytest.approx(float(lossy), rel=0.02)


def test_no_more_are_blamed_than_allowed():
    loss = {f"l0->s{n}": 0.3 for n in range(SPINES)}
    assert len(search(fabric(loss, ports=12), Settings(most=2)).blamed) == 2


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_order_of_flows_changes_nothing(seed, rng):
    rows = [
        (["a", "b"], 50, 20), (["a", "c"], 50, 0), (["b", "d"], 50, seed % 30), (["c"], 50, 1),
    ]  # fmt: skip
    shuffled = rng.sample(rows, len(rows))

    def found(rows):
        builder = Builder()
        for way, sent, lost in rows:
            builder.flow([builder.leg([way])], sent, lost)
        return {each.component: round(each.gain, 6) for each in search(builder.build()).blamed}

    assert found(rows) == found(shuffled)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6))
def test_more_healthy_evidence_never_raises_a_suspect(times):
    def confidence(healthy):
        builder = Builder()
        builder.flow([builder.leg([["a", "b"]])], 20, 6)
        for _ in range(healthy):
            builder.flow([builder.leg([["a", "c"]])], 20, 0)
        for _ in range(5):
            builder.flow([builder.leg([["d"]])], 20, 0)
        found = search(builder.build())
        ranked = {each.component: each.confidence for each in found.blamed}
        return ranked.get("a", 0.0)

    assert confidence(2 * times) <= confidence(times) + 1e-9


def test_a_component_that_loses_three_times_what_others_do_is_healthy_however_many_probes_show_it():
    builder = Builder()
    for n in range(20):
        builder.flow([builder.leg([[f"c{n}"]])], 1_000_000, 300 if n == 0 else 100)
    seen = builder.build()
    assert search(seen).blamed == ()
    assert names(search(seen, Settings(spread=0.5))) == {"c0"}


def rows(seen, *components):
    return frozenset(map(seen.components.index, components))


def test_of_some_sets_the_best_is_chosen_and_no_other_component():
    seen = fabric({"l0->s1": 0.1, "s2": 0.2}, ports=12)
    among = [rows(seen, "s2", "l0"), rows(seen, "s2", "l0->s1"), rows(seen, "s2", "s1")]
    found = search(seen, among=among)
    assert names(found) == {"s2", "l0->s1"}
    assert all(each.confidence > 0.9 for each in found.blamed)
    found = search(seen, among=[rows(seen, "s2", "l0"), rows(seen, "s2")])
    assert names(found) == {"s2", "l0"}  # not what it would find by itself


def test_sets_that_explain_alike_share_the_confidence():
    builder = Builder()
    for _ in range(10):
        builder.flow([builder.leg([["a", "b"]])], 100, 10)
    for n in range(30):
        builder.flow([builder.leg([[f"c{n}", f"d{n}"]])], 100, 0)
    seen = builder.build()
    found = search(seen, among=[rows(seen, "a"), rows(seen, "b")])
    (blamed,) = found.blamed
    assert blamed.confidence == pytest.approx(0.5, abs=0.05)
    assert set(found.sets) == {frozenset({"a"}), frozenset({"b"})}


def uneven(*rates):
    """Return flows over the links of one switch, which lose differently much."""
    builder, rng = Builder(), random.Random(1)
    for link, rate in enumerate(rates):
        for _ in range(10):
            lost = sum(rng.random() < rate for _ in range(10))
            builder.flow([builder.leg([["switch", f"link {link}"]])], 10, lost)
    for n in range(60):
        builder.flow([builder.leg([[f"other {n}", f"away {n}"]])], 20, 0)
    return builder.build()


@pytest.mark.parametrize(
    ("siblings", "expected"), [(0.0, {"link 0", "link 1"}), (12.0, {"switch"})]
)
def test_a_whole_is_preferred_to_parts_that_explain_little_more(siblings, expected):
    seen = uneven(0.3, 0.5)
    wholes = [[seen.components.index("switch")] * c.startswith("link") for c in seen.components]
    among = [rows(seen, "switch"), rows(seen, "link 0", "link 1")]
    limits = Settings(cost=2.0, siblings=siblings)
    assert names(search(seen, limits, wholes=wholes, among=among)) == expected


def test_a_whole_is_not_likelier_than_another_because_its_parts_were_looked_at():
    """Two wholes explain alike; parts of one explain far less."""
    builder = Builder()
    for n in range(12):
        leg = builder.leg([["x", f"x{n}"], ["y", f"y{n}"]])
        for _ in range(4):
            builder.flow([leg], 10, 10)
            builder.flow([leg], 10, 0)
    seen = builder.build()
    row = {name: n for n, name in enumerate(seen.components)}
    wholes = [[row[name[0]]] if len(name) > 1 else [] for name in seen.components]
    found = search(seen, Settings(siblings=6.0), wholes=wholes)
    (best,) = found.blamed
    assert {best.component, *(c for c, _ in best.rivals[:1])} == {"x", "y"}
    assert best.confidence == pytest.approx(0.5, abs=0.02)
