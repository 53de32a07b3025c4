# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.routes import NO_ROUTE, RouteTable
from analyzer.picture import crossings as module
from analyzer.picture.crossings import Crossings
from tests.analyzer.picture.scenes import finished

_names = st.sampled_from(["", *"abcdef"])
_routes = st.lists(st.lists(_names, min_size=1, max_size=5).map(tuple), max_size=12)
_rows = st.lists(
    st.tuples(
        st.tuples(st.integers(-1, 11), st.integers(-1, 11)),
        st.integers(0, 9), st.integers(0, 9), st.floats(0, 99),
    ),
    max_size=12,
)  # fmt: skip


def covered(table, crossings):
    for _ in crossings.cover(table):
        pass
    return crossings


def sums_of(crossings, table, ways, columns):
    found = finished(crossings.sums(ways, columns))
    names = table.routers.names
    return {
        (names[a], names[b]): found[:, n].tolist()
        for n, (a, b) in enumerate(crossings.ends.T.tolist())
        if found[:, n].any()
    }


@pytest.mark.parametrize("dense", [0, module.DENSE])
@pytest.mark.parametrize("block", [1, 3, module.BLOCK])
@given(first=_routes, more=_routes, rows=_rows)
def test_links_have_what_one_counts_packet_by_packet(dense, block, first, more, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE", dense)
        patch.setattr(module, "BLOCK", block)
        table, crossings = RouteTable(), Crossings()
        for routes in (first, more):
            table.rows(routes)
            covered(table, crossings)
        ways = [[way if way < len(table) else NO_ROUTE for way in both] for both, *_ in rows]
        columns = np.array([[sent + lost, lost, sent, ln] for _, sent, lost, ln in rows]).T
        columns, expected = columns.reshape(4, -1), {}
        for both, column in zip(ways, columns.T, strict=True):
            for way in both:
                for pair in pairwise(table[way] if way != NO_ROUTE else ()):
                    if all(pair) and pair[0] != pair[1]:
                        expected[pair] = expected.get(pair, 0) + column
        found = sums_of(crossings, table, np.array(ways, np.int32).reshape(-1, 2).T, columns)
        assert found == {
            pair: pytest.approx(column.tolist())
            for pair, column in expected.items()
            if column.any()
        }


def test_routes_are_entered_once_and_those_of_another_table_anew(monkeypatch):
    entered = Counter()
    enter = Crossings._enter

    def counted(self, routes, rows):
        entered.update(rows.tolist())
        enter(self, routes, rows)

    monkeypatch.setattr(Crossings, "_enter", counted)
    table, crossings = RouteTable(), Crossings()
    table.rows([("a", "b"), ("b", "c")])
    covered(table, crossings)
    covered(table, crossings)
    table.rows([("a", "b"), ("c", "d")])
    covered(table, crossings)
    assert entered == {0: 1, 1: 1, 2: 1}
    other, _ = table.only(np.array([False, False, True]))
    covered(other, crossings)
    ways = np.array([[0], [NO_ROUTE]], np.int32)
    assert sums_of(crossings, other, ways, np.ones((4, 1))) == {("c", "d"): [1, 1, 1, 1]}
