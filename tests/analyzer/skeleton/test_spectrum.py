# SPDX-License-Identifier: Apache-2.0
import cmath
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton import spectrum as s
from netagent.model.task import Parallelism

RATES = st.lists(st.floats(0, 1e10), min_size=256, max_size=256)


def naive_dft(values, frequency):
    count = len(values)
    return sum(
        value * cmath.exp(-2j * math.pi * frequency * n / count) for n, value in enumerate(values)
    )


@given(st.integers(0, 2**32 - 1))
def test_the_fast_transform_is_the_naive_one(seed):
    values = np.random.default_rng(seed).random((2, 64))
    made = s.stft(values, window_ticks=16)
    assert made.shape == (2, 7, 8)
    for row, window in np.ndindex(2, 7):
        part = values[row, 8 * window : 8 * window + 16]
        hann = [0.5 - 0.5 * math.cos(2 * math.pi * n / 16) for n in range(16)]
        weighted = [(v - part.mean()) * w for v, w in zip(part, hann, strict=True)]
        expected = [naive_dft(weighted, frequency) for frequency in range(1, 9)]
        assert np.allclose(made[row, window], expected, atol=1e-5)


@given(RATES, st.floats(1e-3, 1e3))
def test_compressed_rates_do_not_depend_on_the_unit(rates, factor):
    one = np.asarray([rates])
    assert np.allclose(s.compress(one), s.compress(one * factor), rtol=1e-6)


def test_gaps_are_drawn_straight_and_nothing_stays_unknown():
    gaps = np.asarray([[np.nan, 1, np.nan, 3, np.nan], [np.nan] * 5])
    assert s.filled(gaps).tolist() == [[1, 1, 2, 3, 3], [0] * 5]
    whole = np.ones((1, 3))
    assert s.filled(whole) is whole


def described(shift_s, noise, seed=5):
    work = generate(
        Parallelism(8, 2),
        seed=seed,
        template=Template(stage_shift_s=shift_s),
        disturbance=Disturbance(noise=noise, jitter_s=0.2),
    )
    return work, s.features(s.filled(s.compress(work.series.rate[::8])))


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_distances_have_no_bias_from_noise_and_show_a_third_of_a_second(noise):
    work, made = described(0.3, noise)
    stage = work.stage[::8]
    same = stage[:, None] == stage[None, :]
    distances = made.squared_distances()
    off = ~np.eye(len(stage), dtype=bool)
    size = np.mean(np.sum(made.pooled**2, axis=1))
    assert abs(distances[same & off].mean()) < 0.01 * size
    assert distances[~same].min() > 0.05 * size


def test_noise_has_no_rhythm_and_a_job_has():
    noise = np.random.default_rng(1).random((32, 1200))
    assert s.features(noise).rhythm < 0.05
    assert described(1.0, 0.1)[1].rhythm > 0.3


def test_landmarks_are_unlike_each_other():
    ticks = np.arange(512)
    values = np.stack([np.sin(2 * np.pi * ticks / period) for period in (8, 8, 8, 16, 32)])
    chosen = s.landmarks(s.stft(values), 3)
    assert len(set(chosen.tolist()) & {0, 1, 2}) == 1
    assert {3, 4} <= set(chosen.tolist())
