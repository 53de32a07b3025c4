# SPDX-License-Identifier: Apache-2.0
"""Routes by row, and who takes them, by the number of a flow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize import routes as routes_module
from analyzer.localize.routes import NEVER_NS, NO_ROUTE, Directions, Routers, RouteTable
from netagent.model.topology import DeclaredTopology

NAMES = DeclaredTopology({"a": "A", "b": "A", "c": "C"})
ROUTES = st.lists(st.lists(st.sampled_from(["", *"abcde"]), max_size=4).map(tuple), max_size=8)


def table_of(*names):
    table = RouteTable(Routers(NAMES))
    table.rows([(name, "x") for name in names])
    return table


def test_a_route_has_one_row_and_a_name():
    table = table_of(*map(str, range(2000)), "c")
    assert table.rows([("1999", "x"), (), ("c", "x")])[0].tolist() == [1999, NO_ROUTE, 2000]
    assert len(table) == 2001
    assert (table[2000], table.shown(2000)) == (("C", "x"), ("c", "x"))
    assert table[1999:] == [("1999", "x"), ("C", "x")]
    assert table.crossed().tolist() == []
    table.crossed_ns[1999] = -5
    assert table.crossed().tolist() == [1999]
    names = table.routers.names
    assert {(names[a], names[b]) for a, b in table.links()} == {("x", "1999")}
    begin, end = table.ends(np.array([2000]))
    assert (names[begin[0]], names[end[0]]) == ("C", "x")
    assert names[table.last(np.array([2000]))[0]] == "x"


def test_who_speaks_for_the_router_behind_it_counts_once():
    table = RouteTable(Routers(NAMES))
    shown = [("a", "b", "c"), ("c", "a", "b"), ("c", "", "", "a"), ("e", "c")]
    rows, stood_in = table.rows(shown)
    assert [table.shown(row) for row in rows] == [("a", "", "c"), ("c", "a"), *shown[2:]]
    assert stood_in.tolist() == [True, False, False, False]


@given(st.lists(ROUTES, max_size=5), st.data())
def test_rows_are_told_apart_by_who_answered_and_keep_their_routes_when_others_go(batches, data):
    table, seen = RouteTable(Routers()), {}
    for routes in batches:
        rows, stood_in = table.rows(routes)
        for route, row, is_other in zip(routes, rows.tolist(), stood_in.tolist(), strict=True):
            if not route:
                assert row == NO_ROUTE
            elif not is_other and table.shown(row) == route:
                assert seen.setdefault(route, row) == row
        if data.draw(st.booleans()):
            kept = np.array([data.draw(st.booleans()) for _ in range(len(table))], np.bool_)
            before, table_before = [*table], table
            table, now = table.only(kept)
            assert [*table] == [each for each, is_in in zip(before, kept, strict=True) if is_in]
            assert [*table_before] == before
            seen = {route: int(now[row]) for route, row in seen.items() if now[row] != NO_ROUTE}


def test_rows_that_are_gone_are_no_rows_and_whoever_holds_the_old_table_holds_its_routes():
    table = table_of("p", "q", "c")
    table.crossed_ns[:3] = [1, 2, 3]
    table.cover()
    now, rows = table.only(np.array([True, False, True]))
    assert rows.tolist() == [0, NO_ROUTE, 1]
    assert ([*table], len(table.incidence)) == ([("p", "x"), ("q", "x"), ("C", "x")], 3)
    assert ([*now], len(now.incidence)) == ([("p", "x"), ("C", "x")], 0)
    assert now.crossed_ns[:3].tolist() == [1, 3]
    assert now.rows([("c", "x"), ("q", "x")])[0].tolist() == [1, 2]
    assert now.crossed_ns[2] == NEVER_NS


def test_directions_grow_with_the_flows_expire_and_follow_the_rows():
    taken = Directions()
    taken.cover(np.array([5000]))
    assert len(taken) > 5000
    assert (taken.newest[:, [3, 5000]] == NO_ROUTE).all()
    taken.newest[0, 5000], taken.latest[0, 5000], taken.seen_ns[0, 5000] = 2, 1, 10
    taken.latest[1, 3], taken.seen_ns[1, 3] = 0, 20
    taken.renumber(np.array([7, 8, 9], np.int32))
    assert (taken.newest[0, 5000], taken.latest[0, 5000], taken.latest[1, 3]) == (9, 8, 7)
    assert np.argwhere(taken.expire(before_ns=20)).tolist() == [[0, 5000]]
    assert (taken.newest[0, 5000], taken.latest[0, 5000], taken.latest[1, 3]) == (-1, -1, 7)


@given(st.lists(ROUTES, max_size=6), st.sampled_from([1, 2**61]))
def test_routes_of_one_hash_are_told_apart_and_many_are_found_as_few_are(batches, golden):
    """With a multiplier of 2**61 nearly all hashes are alike; the oracle never gathers."""
    found = []
    for most, odd in ((1, golden), (1, routes_module.GOLDEN), (1 << 17, golden)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routes_module, "BLOCK", most)
            patch.setattr(routes_module, "GOLDEN", np.uint64(odd))
            table = RouteTable(Routers(NAMES))
            said = [table.rows(routes)[0].tolist() for routes in batches]
            found.append((said, [*table], [table.shown(row) for row in range(len(table))]))
    assert found[0] == found[1] == found[2]
