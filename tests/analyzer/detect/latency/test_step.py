# SPDX-License-Identifier: Apache-2.0
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.latency.floors import FACTOR, SHIFT_NS
from analyzer.detect.latency.step import (
    BASELINE_WINDOWS,
    DEVIATIONS,
    PRIOR_VAR,
    Baseline,
    LatencyBaselines,
)
from analyzer.intake.flows import FlowNumbers
from tests.analyzer.detect.latency import trips

NUMBERS = FlowNumbers()


def window(*rtts_ns):
    return trips.window(NUMBERS, {trips.flow(): rtts_ns})


def judge(baselines, rows):
    return baselines.judge(rows, np.full(len(rows.flow), FACTOR), np.full(len(rows.flow), SHIFT_NS))


def learned(*rtts_ns, windows=BASELINE_WINDOWS):
    baselines = LatencyBaselines()
    for _ in range(windows):
        slow, _ = judge(baselines, window(*rtts_ns))
        assert not len(slow)
    return baselines


def slow_in(baselines, *rtts_ns):
    slow, _ = judge(baselines, window(*rtts_ns))
    return slow.tolist()


@given(
    st.lists(
        st.tuples(
            st.floats(5, 20), st.floats(0, 0.1), st.integers(0, 2 * BASELINE_WINDOWS),
            st.floats(5, 20), st.floats(1.01, 3), st.floats(0, 1e6),
        ),
        max_size=20,
    )
)  # fmt: skip
def test_flows_left_their_baseline_that_leave_it_one_by_one(flows):
    columns = np.array(flows, np.float64).reshape(-1, 6).T
    mean, var, windows, now, factor, shift_ns = columns
    baseline = Baseline(mean, var, windows.astype(np.int64))
    found = baseline.shifted(np.arange(len(flows)), now, factor, shift_ns)
    with np.errstate(over="ignore"):
        deviation = np.sqrt((PRIOR_VAR + windows * var) / (1 + windows))
        naive = now - mean > np.maximum(np.log(factor), DEVIATIONS * deviation)
        naive &= np.exp(now) - np.exp(mean) > shift_ns
    assert found.tolist() == (naive & (windows >= BASELINE_WINDOWS)).tolist()


def test_a_shift_is_slow_and_never_becomes_the_norm():
    baselines = learned(200_000, 210_000, windows=12)
    for _ in range(50):
        assert slow_in(baselines, 5_000_000, 5_100_000) == [0]
    shift = baselines.shift_ns(0, math.log(5_050_000), 5_000_000)
    assert shift == pytest.approx((205_000, 5_050_000), rel=0.01)


def test_a_flow_is_told_only_when_it_is_slow_again():
    baselines = learned(15_000, 15_500, windows=60)
    spike = window(400_000, 410_000)
    assert [each.tolist() for each in judge(baselines, spike)] == [[0], []]
    assert [each.tolist() for each in judge(baselines, window(15_000, 15_000))] == [[], []]
    assert [each.tolist() for each in judge(baselines, spike)] == [[0], []]
    assert [each.tolist() for each in judge(baselines, spike)] == [[0], [0]]


def test_ten_microseconds_more_than_fifteen_are_seen_where_stamps_are_the_rnics():
    rng = Random(1)
    baselines = LatencyBaselines()
    for _ in range(60):
        assert (
            slow_in(baselines, *(rng.lognormvariate(math.log(15_000), 0.05) for _ in "123")) == []
        )
    assert slow_in(baselines, *(rng.lognormvariate(math.log(25_000), 0.05) for _ in "123")) == [0]


def test_the_same_ten_microseconds_are_noise_where_windows_differ_by_more():
    rng = Random(1)
    baselines = LatencyBaselines()
    for _ in range(60):
        assert (
            slow_in(baselines, *(rng.lognormvariate(math.log(150_000), 0.4) for _ in "123")) == []
        )
    assert slow_in(baselines, 160_000, 165_000, 170_000) == []


def test_the_published_case_of_13_to_82_microseconds_is_seen_at_once():
    """SkeletonHunter, Figure 18: from second 86 on the median is 82 us instead of 13."""
    baselines = learned(12_500, 13_000, 13_600, windows=17)
    assert slow_in(baselines, 78_000, 82_000, 90_000) == [0]


def test_a_large_factor_of_little_time_is_no_shift():
    baselines = learned(2_000, 2_000, windows=200)
    assert slow_in(baselines, 5_000, 5_000) == []


def test_a_long_time_of_small_factor_is_no_shift():
    baselines = learned(5_000_000, 5_000_000, windows=200)
    assert slow_in(baselines, 6_000_000, 6_000_000) == []


def test_a_way_that_got_longer_is_seen_in_the_least_round_trip_whatever_the_noise():
    rng, baselines = Random(2), LatencyBaselines()

    def noisy(count):
        others = (900_000 + rng.lognormvariate(math.log(5_000_000), 2) for _ in range(count - 1))
        return [900_000, *others]

    for _ in range(100):
        judge(baselines, window(*noisy(6)))
    longer = [rtt_ns + 600_000 for rtt_ns in noisy(6)]
    assert slow_in(baselines, *longer[:4]) == []  # of too few, luck
    assert slow_in(baselines, *longer) == [0]


def test_one_sample_says_nothing():
    baselines = learned(200_000, 200_000)
    assert slow_in(baselines, 50_000_000) == []


def test_nothing_is_slow_before_there_is_a_baseline():
    assert slow_in(LatencyBaselines(), 9_000_000, 9_000_000) == []


def test_a_number_that_is_another_flow_now_begins_anew():
    baselines = learned(15_000, 15_000, windows=30)
    baselines.forget(np.array([0]))
    assert slow_in(baselines, 500_000, 500_000) == []


@given(st.lists(st.integers(150_000, 400_000), min_size=2, max_size=20))
def test_ordinary_jitter_is_never_slow(rtts_ns):
    baselines = learned(200_000, 260_000)
    for _ in range(5):
        assert slow_in(baselines, *rtts_ns) == []
