# SPDX-License-Identifier: Apache-2.0
import numpy as np

from analyzer.detect.operators.votes import elected, going_with, spread

RANKS, STEPS = 500, 20


def _flags(rate, seed=0):
    return np.random.default_rng(seed).random((STEPS, RANKS)) < rate


def test_chance_elects_nobody():
    for seed in range(40):
        assert not elected(_flags(0.05, seed), np.ones((STEPS, RANKS), bool)).any()


def test_who_stands_out_more_often_than_chance_is_elected_alone():
    flags = _flags(0.02)
    flags[: STEPS // 2, 7] = True
    assert np.flatnonzero(elected(flags, np.ones_like(flags))).tolist() == [7]


def test_two_of_few_are_elected_both():
    flags = np.zeros((STEPS, 8), bool)
    flags[:, [1, 2]] = True
    assert np.flatnonzero(elected(flags, np.ones_like(flags))).tolist() == [1, 2]


def test_one_iteration_elects_nobody():
    flags = np.zeros((1, 4), bool)
    flags[0, 0] = True
    assert not elected(flags, np.ones_like(flags)).any()


def test_the_spread_of_a_normal_distribution_is_its_standard_deviation():
    drawn = np.random.default_rng(1).normal(0, 3, 100_000)
    assert abs(float(spread(drawn)) - 3) < 0.05


def test_what_goes_against_an_iterations_time_counts_as_nothing():
    time = np.array([1.0, 2.0, 3.0])
    values = np.stack([time, -time, np.ones(3)], axis=1)
    assert going_with(values, time).round(6).tolist() == [1.0, 0.0, 0.0]
