# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given

from analyzer.localize.tomography.observations import Builder
from analyzer.localize.tomography.tables import tables
from tests.analyzer.localize.tomography.worlds import worlds


@given(worlds())
def test_no_probe_is_lost_by_regrouping(seen):
    made = tables(seen)
    assert (made.sent * made.times).sum() == seen.sent.sum()
    assert (made.lost * made.times).sum() == seen.lost.sum()


def test_flows_on_the_same_known_way_are_added_up():
    builder = Builder()
    leg = builder.leg([["a", "b"]])
    for lost in (1, 2, 0):
        builder.flow([leg], 10, lost)
    made = tables(builder.build())
    assert (made.sent.tolist(), made.lost.tolist(), made.times.tolist()) == ([30], [3], [1])


def test_flows_on_ways_that_are_not_known_are_alike_only_with_the_same_counts():
    builder = Builder()
    leg = builder.leg([["a"], ["b"]])
    for lost in (5, 5, 10):
        builder.flow([leg], 10, lost)
    made = tables(builder.build())
    assert sorted(zip(made.lost.tolist(), made.times.tolist(), strict=True)) == [(5, 2), (10, 1)]


def test_a_component_on_two_legs_is_crossed_twice():
    builder = Builder()
    builder.flow([builder.leg([["a", "b"]]), builder.leg([["a", "c"]])], 10, 1)
    made = tables(builder.build())
    assert made.certain.times.tolist() == [2, 1, 1]
    assert made.length.tolist() == [4]


def test_three_legs_that_are_all_open_are_refused():
    builder = Builder()
    leg = builder.leg([["a"], ["b"]])
    builder.flow([leg, leg, leg], 10, 1)
    with pytest.raises(ValueError, match="more than 2 legs"):
        tables(builder.build())


def test_a_row_that_stands_for_several_flows_is_as_so_many_rows():
    one, other = Builder(), Builder()
    for builder in (one, other):
        legs = [builder.leg([["a"], ["b"]]), builder.leg([["c"]])]
        for leg in legs:
            for times in (3,) if builder is one else (1, 1, 1):
                builder.flow([leg], 10, 4, times=times)
    mine, theirs = (tables(builder.build()) for builder in (one, other))
    for name in ("sent", "lost", "times"):
        assert getattr(mine, name).tolist() == getattr(theirs, name).tolist()
