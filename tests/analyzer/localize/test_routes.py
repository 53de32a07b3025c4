# SPDX-License-Identifier: Apache-2.0
"""Routes by row, and who takes them, by the number of a flow."""

import numpy as np

from analyzer.localize.routes import NEVER_NS, NO_ROUTE, Directions, RouteTable


def upper(route):
    return tuple(map(str.upper, route))


def table_of(*names):
    table = RouteTable()
    for name in names:
        table.row((name, "x"), upper)
    return table


def test_a_route_has_one_row_and_a_name():
    table = table_of(*map(str, range(2000)))
    assert table.row(("1999", "x"), upper) == 1999
    assert len(table) == 2000
    assert table.named[7] == ("7", "X")
    assert ("7", "x") in table
    assert ("7", "X") not in table
    assert list(table.crossed()) == []
    table.crossed_ns[1999] = -5
    assert list(table.crossed()) == [1999]


def test_rows_that_are_gone_are_no_rows_and_whoever_holds_the_old_ones_holds_their_routes():
    table = table_of("a", "b", "c")
    table.crossed_ns[:3] = [1, 2, 3]
    before, incidence = table.named, table.incidence
    incidence.cover(before)
    now = table.only(np.array([True, False, True]))
    assert now.tolist() == [0, NO_ROUTE, 1]
    assert (before, len(incidence)) == ([("A", "X"), ("B", "X"), ("C", "X")], 3)
    assert (table.shown, table.named) == ([("a", "x"), ("c", "x")], [("A", "X"), ("C", "X")])
    assert table.crossed_ns[:3].tolist() == [1, 3, NEVER_NS]
    assert table.row(("c", "x"), upper) == 1
    assert table.row(("b", "x"), upper) == 2


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
