# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton import positions as p
from analyzer.skeleton.series import TrafficSeries
from netagent.model.task import Parallelism


def apart(stages, jitter=0.0):
    """Return the mean distances of rails that show `stages`, with the RNICs' own jitter."""
    stages = np.asarray(stages)
    distances = 0.15 * np.minimum(np.abs(stages[:, None] - stages[None, :]), 6) + jitter
    np.fill_diagonal(distances, 0)
    return distances


@pytest.mark.parametrize("jitter", [0.0, 0.02])
@pytest.mark.parametrize(
    ("stages", "run"),
    [
        ([0] * 8, 8),
        ([0] * 4 + [1] * 4, 4),
        ([0, 0, 1, 1, 2, 2, 3, 3], 2),
        ([0, 1, 2, 3, 4, 5, 6, 7], 1),
        ([0, 1, 0, 1, 0, 1, 0, 1], 1),
        ([0, 0, 1, 1, 0, 0, 1, 1], 2),
        ([0], 1),
        ([0, 0, 9], 1),
    ],
)
def test_rails_that_send_the_same_are_one_position(stages, run, jitter):
    assert p.run_length(apart(stages, jitter)) == run


def test_stages_far_from_each_other_are_no_jitter():
    assert p.run_length(apart([0, 10, 20, 30], 0.5)) == 1


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_positions_are_runs_of_a_host_in_order(tp):
    work = generate(
        Parallelism(8, 2, tp), seed=tp, template=Template(stage_shift_s=0.5),
        disturbance=Disturbance(noise=0.2, missing=0.01),
    )  # fmt: skip
    rows = np.arange(len(work.series))
    made = p.positions(work.series, rows.reshape(-1, 8))
    assert made.tp == tp
    assert np.array_equal(made.rows, rows.reshape(-1, tp))
    assert np.array_equal(made.host, made.rows[:, 0] // 8)
    assert not np.isnan(made.values).any()
    assert np.isnan(made.noise).all() == (tp == 1)


def test_the_noise_of_a_position_is_that_of_its_mean():
    rng = np.random.default_rng(1)
    rate = 1e9 * (1 + 0.2 * rng.standard_normal((32, 2000)).clip(-3, 3))
    rate *= np.where(np.arange(2000) % 40 < 25, 1.0, 0.1)
    rows = np.arange(32)
    made = p.positions(TrafficSeries(rate, 1.0, rows // 8, rows % 8), rows.reshape(4, 8))
    assert made.tp == 8
    assert np.mean(made.noise) == pytest.approx(np.mean(made.values.var(axis=0, ddof=1)), rel=0.05)
