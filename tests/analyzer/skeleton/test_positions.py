# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import GroupKind
from analyzer.simulate.scattered import Scatter, scatter
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


def as_sets(rows):
    return {frozenset(each[each != p.ABSENT].tolist()) for each in rows}


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_of_machines_with_all_rails_positions_are_the_same_however_they_are_looked_for(tp):
    work = generate(Parallelism(8, 2, tp), seed=tp, template=Template(stage_shift_s=0.5))
    plain = p.positions(work.series, np.arange(len(work.series)).reshape(-1, 8))
    made, absent = p.scattered(work.series)
    assert absent == 0
    assert np.array_equal(np.sort(made.rows, axis=1), plain.rows)
    assert made.values == pytest.approx(plain.values)
    assert np.array_equal(made.host, plain.host)


@pytest.mark.parametrize("how", [{}, {"shared": 0.5}, {"paired": 0.5}])
@pytest.mark.parametrize("tp", [4, 8])
def test_positions_of_unequal_machines_are_their_tensor_ranks(tp, how):
    job = Parallelism(8, 4, tp)
    made = scatter(generate(job, seed=2), Scatter(missing=0.1, **how), seed=tp)
    found, absent = p.scattered(made.work.series)
    row = {name: at for at, name in enumerate(made.work.series.names)}
    at = {rank: [row[e] for e in place.endpoints] for rank, place in made.log.places.items()}
    groups = [group.members for group in made.log.groups if group.kind is GroupKind.TENSOR]
    expected = [frozenset(each for rank in members for each in at[rank]) for members in groups]
    assert as_sets(found.rows) == set(expected) - {frozenset()}
    assert absent == expected.count(frozenset())
    assert not np.isnan(found.values).any()
    assert (found.rows[:, 0] != p.ABSENT).all()


def test_a_position_without_any_rnic_is_counted():
    work = generate(Parallelism(8, 2, 4), seed=1)
    kept = np.flatnonzero(~((work.series.host == 3) & (work.series.rail < 4)))
    series = work.series
    part = TrafficSeries(series.rate[kept], 1.0, series.host[kept], series.rail[kept])
    found, absent = p.scattered(part)
    assert (len(found.rows), absent) == (15, 1)


def test_rails_that_no_machine_has_both_of_are_positions_of_their_own():
    work = generate(Parallelism(4, 4), seed=1)
    kept = np.flatnonzero((work.series.rail < 4) == (work.series.host % 2 == 0))
    kept = kept[work.series.host[kept] % 2 == 1]  # rails 4 to 7, and one more host has 0
    extra = np.asarray([0])
    rows = np.concatenate([kept, extra])
    series = work.series
    part = TrafficSeries(series.rate[rows], 1.0, series.host[rows], series.rail[rows])
    found, _ = p.scattered(part)
    assert found.tp in (1, 4)
    assert sum(len(each) for each in as_sets(found.rows)) == len(rows)


def test_absent_rows_are_unknown():
    values = p.with_absent(np.ones((2, 3)))
    assert np.isnan(values[p.ABSENT]).all()
    assert values[:2].tolist() == [[1.0] * 3] * 2
