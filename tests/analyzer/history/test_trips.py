# SPDX-License-Identifier: Apache-2.0

from collections import Counter
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history.spread import STEP
from analyzer.history.trips import BELOW, MANY, WIDE, Trips, none_of

WINDOWS = st.lists(
    st.dictionaries(
        st.integers(0, 6),
        st.dictionaries(st.integers(0, 1_109), st.integers(1, 3 * MANY), max_size=5),
        max_size=5,
    ),
    max_size=6,
)
"""Of each window, by flow, a bucket of a summary -> round trips."""


def rows_of(window):
    every = [entry for buckets in window.values() for entry in sorted(buckets.items())]
    bucket, count = zip(*every, strict=True) if every else ((), ())
    return SimpleNamespace(
        flow=np.array(list(window), np.int64),
        hist_len=np.array([len(each) for each in window.values()], np.uint16),
        hist_bucket=np.array(bucket, np.uint16),
        hist_count=np.array(count, np.uint32),
    )


def plain(gathered):
    found = Counter()
    for place, bucket, count in zip(*gathered.entries(), strict=True):
        found[int(place), int(bucket)] += int(count)
    return found


def expected(windows, flows):
    found = Counter()
    for window in windows:
        for flow, buckets in window.items():
            for fine, count in buckets.items():
                if flow in flows:
                    found[flows.index(flow), -(-fine // STEP)] += count
    return found


@given(WINDOWS, st.sets(st.integers(0, 6)), st.integers(0, 6))
def test_each_round_trip_is_in_one_part_whatever_its_bucket_and_wherever_flows_are_cut(
    windows, cut, at
):
    trips, some = Trips(), sorted(cut)
    for window in windows[:at]:
        trips.add(rows_of(window))
    if some:
        assert plain(trips.cut(np.array(some))) == expected(windows[:at], some)
    for window in windows[at:]:
        trips.add(rows_of(window))
    rest = Counter(expected(windows, list(range(7))))
    for (place, bucket), count in expected(windows[:at], some).items():
        rest[some[place], bucket] -= count
    assert plain(trips.cut(np.arange(7))) == +rest
    assert not plain(trips.cut(np.arange(9)))


def test_a_flow_s_usual_round_trips_take_one_row_and_the_odd_ones_lie_aside():
    trips = Trips()
    first, far = 480, 480 + STEP * (WIDE - BELOW)
    trips.add(rows_of({0: {first: 3, far - STEP: 1, far: 2}, 1: {first: MANY + 1}}))
    found = trips.cut(np.array([0, 1]))
    assert found.low.tolist() == [first // STEP - BELOW] * 2
    assert found.counts.sum(axis=1).tolist() == [4, 0]
    place, bucket, count = (each.tolist() for each in found.aside)
    assert (place, bucket, count) == ([0, 1], [far // STEP, first // STEP], [2, MANY + 1])


def test_flows_of_which_nothing_came_back_have_no_entries():
    assert [len(each) for each in none_of(3).entries()] == [0, 0, 0]
    assert not plain(Trips().cut(np.array([4])))
