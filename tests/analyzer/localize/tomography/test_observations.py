# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.tomography.observations import NO_LEG, Builder, offsets, spread, sums


def test_legs_with_the_same_ways_are_kept_once():
    builder = Builder()
    one = builder.leg([["a", "b"], ["a", "c"]])
    assert builder.leg([["a", "b"], ["a", "c"]], [2.0, 2.0]) == one
    assert builder.leg([["a", "b"], ["a", "c"]], [3.0, 1.0]) != one


def test_a_set_is_one_way_in_whatever_order_it_stands():
    builder = Builder()
    one = builder.leg([frozenset("abcdef"), frozenset("gh")])
    again = [frozenset(reversed("abcdef")), frozenset("hg")]
    assert builder.leg(again) == one
    assert builder.leg(again[::-1]) != one


def test_flows_keep_their_legs_and_counts():
    builder = Builder()
    there, back = builder.leg([["a", "b"], ["a", "c"]]), builder.leg([["d"]])
    builder.flow([there, back], 10, 3)
    builder.flow([back], 5, 0)
    seen = builder.build()
    assert seen.components == ("a", "b", "c", "d")
    assert seen.legs.tolist() == [[there, back], [back, NO_LEG]]
    assert (seen.sent.tolist(), seen.lost.tolist()) == ([10, 5], [3, 0])
    ways = [seen.crossed(way).tolist() for way in seen.alternatives(there)]
    assert ways == [[0, 1], [0, 2]]
    assert seen.weight[list(seen.alternatives(there))].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, -1.0], [0.0, 0.0]])
def test_weights_are_one_for_each_way_and_add_up_to_something(weights):
    with pytest.raises(ValueError, match="2 ways"):
        Builder().leg([["a"], ["b"]], weights)


def test_a_leg_needs_a_way_and_no_flow_loses_more_than_it_sent():
    with pytest.raises(ValueError, match="0 ways"):
        Builder().leg([])
    with pytest.raises(ValueError, match="4 lost of 3"):
        Builder().flow([0], 3, 4)


def test_nothing_seen_is_empty():
    seen = Builder().build()
    assert (seen.flows, seen.components, len(seen.members)) == (0, (), 0)


@given(st.lists(st.integers(0, 5)))
def test_runs_are_spread_one_after_the_other(lengths):
    starts = np.arange(len(lengths)) * 10
    wanted = [10 * n + i for n, length in enumerate(lengths) for i in range(length)]
    assert spread(starts, np.array(lengths, np.int64)).tolist() == wanted
    assert offsets(lengths).tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]


def test_values_are_summed_by_row():
    assert sums(np.array([0, 2, 0]), np.array([1.0, 2.0, 4.0]), 4).tolist() == [5, 0, 2, 0]
    nothing = sums(np.zeros(0, np.int64), np.zeros(0), 2)
    assert nothing.tolist() == [0, 0]
    assert nothing.dtype == np.float64
