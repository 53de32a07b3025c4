# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton import parallelism as p
from analyzer.skeleton.spectrum import compress
from netagent.model.task import Parallelism


def means(job, shift_s, **disturbance):
    """Return the compressed mean of each host, and the workload."""
    work = generate(
        job, seed=4, template=Template(stage_shift_s=shift_s),
        disturbance=Disturbance(**disturbance),
    )  # fmt: skip
    rate = work.series.rate.reshape(-1, 8, work.series.rate.shape[1])
    return compress(rate.mean(axis=1)), work


@pytest.mark.parametrize("shift_s", [0.3, 1.0, 2.7])
def test_lags_are_found_to_a_fraction_of_a_tick(shift_s):
    values, work = means(Parallelism(16, 6), shift_s)
    lag_s, period_s = p.lags(values, work.stage[::8], 1.0)
    assert np.diff(lag_s) == pytest.approx(np.full(5, shift_s), abs=0.15)
    assert period_s == pytest.approx(80, abs=1.5)


@given(
    st.integers(2, 16).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))),
    st.floats(0, 80),
)
def test_the_longest_pause_is_before_the_first_stage(stages, offset_s):
    count, order = stages
    lag_s = np.asarray([4.0 * stage + offset_s for stage in order])
    wrapped = (lag_s + 40) % 80 - 40
    assert [order[group] for group in p.in_order(wrapped, 80.0)] == list(range(count))


@pytest.mark.parametrize("run", [1, 2, 4])
@pytest.mark.parametrize("turned", [0, 1, 3])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_layout_is_found_wherever_it_begins(run, turned, backwards):
    layout = np.arange(64) // run % 4
    seen = (layout + turned) % 4
    seen = 3 - seen if backwards else seen
    seen[5] = (seen[5] + 1) % 4  # a straggler
    found = p.regular(seen, 4)
    assert found.stage.tolist() == layout.tolist()
    assert found.agreement == 63 / 64


def test_what_follows_no_layout_agrees_with_none():
    stage = np.random.default_rng(1).permutation(np.repeat(np.arange(4), 16))
    assert p.regular(stage, 4).agreement < 0.6


@pytest.mark.parametrize(
    ("job", "ep"),
    [
        (Parallelism(4, 4, 8, 4), 4),
        (Parallelism(2, 4, 8, 8), 8),
        (Parallelism(8, 2, 8, 2), 2),
        (Parallelism(16, 4), 1),
    ],
)
def test_experts_are_told_by_the_haste_that_they_share(job, ep):
    values, work = means(job, 1.0)
    noise = np.full(values.shape[1], 1e-3)
    stage = work.stage[::8]
    found = p.experts(p.own_haste(values, stage, noise), stage)
    assert found.ep == ep
    ranks = np.arange(len(stage))
    assert np.array_equal(found.expert, ranks % ep)
    assert np.array_equal(found.replica, ranks // (job.pp * ep))


def test_without_haste_nobody_can_tell():
    values, work = means(Parallelism(4, 4, 8, 4), 1.0, jitter_s=0.0, noise=0.1)
    values = np.stack([values[work.stage[::8] == stage].mean(axis=0) for stage in range(4)])
    stage = np.repeat(np.arange(4), 16)
    noisy = values[stage] + 0.03 * np.random.default_rng(1).standard_normal((64, values.shape[1]))
    haste = p.own_haste(noisy, stage, np.full(values.shape[1], 0.0009))
    assert p.experts(haste, stage).ep == 1
    assert haste.share < 0.05
