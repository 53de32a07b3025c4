# SPDX-License-Identifier: Apache-2.0
"""Which parts routes cross, as arrays, against sets."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize import incidence as room
from analyzer.localize.incidence import Crossed, Incidence
from netagent.model.path import Component, Kind, link, switch

ROUTES = st.lists(st.lists(st.sampled_from(["", *"abcde"]), max_size=5).map(tuple), max_size=12)
PARTS = [switch("a"), switch("e"), link("a", "b"), ("a", "b"), ("b", "a"), switch("nowhere")]


def crossed(route):
    """Return what a route crosses, part by part."""
    ends = [(a, b) for a, b in pairwise(route) if a and b]
    return frozenset({*(switch(a) for a in route if a), *(link(*each) for each in ends), *ends})


def entered(incidence, routes):
    """Enter those of `routes` that are not yet."""
    new = routes[len(incidence) :]
    names = ["", *"abcde"]
    hops = [names.index(name) for route in new for name in route]
    begins = np.cumsum([0, *map(len, new)])
    incidence.enter(names, np.array(hops, np.int64), begins)
    return incidence


def count(parts, kind):
    return sum(isinstance(each, Component) and each.kind is kind for each in parts)


@pytest.mark.parametrize("unsorted", [0, 3, 10_000])
@given(ROUTES, st.integers(0, 12))
def test_rows_hold_what_routes_cross_in_both_ways(unsorted, routes, some):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "UNSORTED", unsorted)
        patch.setattr(room, "BLOCK", max(1, unsorted))
        hold(routes, some)


def hold(routes, some):
    incidence = entered(Incidence(), routes[:some])
    incidence.count(Kind.LINK)  # what it remembers is added to
    assert [len(incidence.rows(part)) for part in PARTS] == [
        sum(part in crossed(route) for route in routes[:some]) for part in PARTS
    ]
    entered(incidence, routes)  # what is new is added, and nothing twice
    parts = [crossed(route) for route in routes]
    assert [incidence.crossed(row) for row in range(len(incidence))] == parts
    assert incidence.lengths().tolist() == [len(each) for each in parts]
    backwards = np.arange(len(parts))[::-1]
    lengths, entries = incidence.entries(backwards)
    assert lengths.tolist() == [len(each) for each in parts[::-1]]
    own = np.split(entries, np.cumsum(lengths)[:-1]) if len(lengths) else []
    named = [frozenset(incidence.parts[number] for number in each.tolist()) for each in own]
    assert named == parts[::-1]
    for kind in (Kind.SWITCH, Kind.LINK):
        assert incidence.count(kind).tolist() == [count(each, kind) for each in parts]
    weights = [np.arange(1.0, len(parts) + 1), np.arange(2.0, len(parts) + 2) ** 2]
    sums = incidence.sums(weights)
    for part, number in zip(PARTS, incidence.numbers(PARTS).tolist(), strict=True):
        mine = [part in each for each in parts]
        if number < 0:
            assert not any(mine)
            continue
        assert sums[:, number].tolist() == [weight[mine].sum() for weight in weights]
    for part in PARTS:
        assert incidence.rows(part).tolist() == [n for n, p in enumerate(parts) if part in p]


@pytest.mark.parametrize("many", [0, 64])
@given(ROUTES, ROUTES, st.lists(st.sampled_from(PARTS), unique=True), st.integers(0, 30))
def test_rows_of_another_kind_lie_behind_the_routes_however_many_come_later(
    many, routes, later, among, size
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MANY", many)
        lie_behind(routes, later, among, size)


@given(st.lists(st.integers(0, 2**18 - 1) | st.integers(0, 3)))
def test_numbers_are_put_in_order_and_equal_ones_stay_as_they_are(numbers):
    order = room._in_order(np.array(numbers, np.int32)).tolist()
    assert order == sorted(range(len(numbers)), key=numbers.__getitem__)


def lie_behind(routes, later, among, size):
    others = {len(routes): crossed(("a", "b")), len(routes) + 1: frozenset()}
    plain = {n: crossed(route) for n, route in enumerate(routes)} | others
    size += len(routes) + len(others)
    incidence = entered(Incidence(), routes)
    live = Crossed(incidence, len(routes), others, np.array(list(plain)))
    entered(incidence, [*routes, *later])
    for each in (live, Crossed.of(plain, len(routes)), live.but({}).but(others)):
        assert dict(each) == plain
        hit = [bool(plain.get(row, frozenset()).intersection(among)) for row in range(size)]
        assert each.across(among, size).tolist() == hit
        lengths = [len(plain[n]) if n < len(routes) else 0 for n in range(size)]
        assert each.lengths(size).tolist() == lengths
        for kind in (Kind.SWITCH, Kind.LINK):
            counts = [count(plain.get(row, ()), kind) for row in range(size)]
            assert each.count(kind, size).tolist() == counts
