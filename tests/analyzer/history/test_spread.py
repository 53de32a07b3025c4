# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history import spread as room
from analyzer.history.spread import (
    LAST,
    NOTHING,
    RATIO,
    SHARES,
    STEP,
    Spread,
    buckets_of,
    merged,
    values_ns,
)
from netagent.wire.histogram import bucket_of

TRIPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2**32 - 1)), max_size=60)
"""Places, and round trips in ns."""


def entries(trips):
    place, ns = (np.array(each, np.int64) for each in zip(*trips, strict=True)) if trips else (
        np.zeros(0, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    fine = np.array([bucket_of(each) for each in ns.tolist()], np.uint16)
    return place, buckets_of(fine), np.ones(len(place), np.int64)


def plain(found):
    assert (found.count > 0).all()
    keys = list(zip(found.place.tolist(), found.bucket.tolist(), strict=True))
    assert keys == sorted(set(keys))
    return dict(zip(keys, found.count.tolist(), strict=True))


def of(found):
    return found.place, found.bucket, found.count


@given(st.integers(1, 2**32 - 1))
def test_a_bucket_holds_whole_buckets_of_a_summary_and_stands_for_each_value_within_4_per_cent(ns):
    fine = bucket_of(ns)
    [bucket] = buckets_of(np.array([fine], np.uint16)).tolist()
    assert bucket == math.ceil(fine / STEP)
    assert 0 <= bucket <= LAST
    [value] = values_ns(np.array([bucket])).tolist()
    assert value == pytest.approx(ns, rel=0.041, abs=1)


@given(TRIPS, TRIPS, TRIPS)
def test_adding_up_is_associative_and_in_any_order(a, b, c):
    x, y, z = (merged([entries(each)]) for each in (a, b, c))
    left = merged([of(merged([of(x), of(y)])), of(z)])
    right = merged([of(x), of(merged([of(z), of(y)]))])
    assert plain(left) == plain(right) == plain(merged([entries(a + b + c)]))
    assert left.count.sum() == len(a + b + c)


@given(TRIPS)
def test_a_table_and_an_order_find_the_same(trips):
    by_table = merged([entries(trips)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "DENSE", 0)
        patch.setattr(room, "LEAST", 0)
        by_order = merged([entries(trips)])
    assert plain(by_table) == plain(by_order)


@given(TRIPS.filter(bool))
def test_quantiles_are_within_a_bucket_s_width_of_the_exact_ones(trips):
    found = merged([entries(trips)])
    count = np.bincount([place for place, _ in trips], minlength=7)
    told = found.quantiles(count)
    for place in range(7):
        mine = sorted(ns for at, ns in trips if at == place)
        for name, share in SHARES.items():
            if not mine:
                assert told[name][place] == 0
                continue
            exact = mine[math.ceil(share * len(mine)) - 1]
            assert exact / RATIO - 1 <= told[name][place] <= exact * RATIO + 1


def test_where_not_all_round_trips_are_known_no_quantile_is():
    found = merged([entries([(0, 1_000), (1, 2_000), (1, 3_000)])])
    told = found.quantiles(np.array([1, 3, 0, 5]))
    for values in told.values():
        assert (values > 0).tolist() == [True, False, False, False]
    assert not any(each.any() for each in NOTHING.quantiles(np.array([0, 4])).values())


def test_places_that_move_to_one_are_added_up():
    found = merged([entries([(0, 1_000), (1, 1_000), (2, 9)])]).at(np.array([1, 1, 0]))
    assert sorted(plain(found).values()) == [1, 2]
    assert found.place.tolist() == [0, 1]
    assert isinstance(found, Spread)
