# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Disturbance, Template, generate, truth_of
from analyzer.skeleton import recording
from analyzer.skeleton.infer import infer
from analyzer.skeleton.series import TrafficSeries, basic_edges
from netagent.model.task import Parallelism

SMALL = Parallelism(4, 4)
SERIES = generate(SMALL, seed=11).series


def pairs(edges):
    return {tuple(edge) for edge in edges.tolist()}


@pytest.mark.parametrize(
    ("job", "ordered", "degrees"),
    [(Parallelism(8, 8), 4480, {8, 9}), (Parallelism(4, 4, 8, 4), 3840, {7, 8})],
)
def test_figure_9_is_found_exactly(job, ordered, degrees):
    work = generate(job, seed=1, disturbance=Disturbance(noise=0.1, jitter_s=0.2))
    found = infer(work.series)
    assert found.confident
    assert (found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep)
    assert np.array_equal(found.edges, work.truth.edges)
    assert 2 * len(found.edges) == ordered
    assert set(np.bincount(found.edges.ravel()).tolist()) == degrees
    for kind, groups in work.truth.groups.items():
        assert sorted(found.groups[kind]) == sorted(groups)


@pytest.mark.parametrize(
    ("job", "template", "disturbance"),
    [
        (Parallelism(16, 4), Template(stage_shift_s=0.3), Disturbance(noise=0.2)),
        (Parallelism(12, 1), Template(), Disturbance()),
        (Parallelism(1, 8), Template(), Disturbance()),
        (Parallelism(2, 8), Template(), Disturbance(straggler_s=1.0)),
        (Parallelism(8, 4, 4), Template(stage_shift_s=2), Disturbance(missing=0.01)),
        (Parallelism(16, 4, 1), Template(stage_shift_s=0.5), Disturbance(clock_s=0.1)),
        (Parallelism(8, 4), Template(), Disturbance(checkpoints=(3, 7))),
        (Parallelism(8, 4), Template(period_s=30, plateau_s=15), Disturbance()),
    ],
)
def test_jobs_of_many_shapes_are_found(job, template, disturbance):
    work = generate(job, seed=2, template=template, disturbance=disturbance)
    found = infer(work.series)
    assert (found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep)
    assert pairs(found.edges) == pairs(work.truth.edges)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.integers(0, 40))
def test_neither_order_nor_unit_nor_time_change_more_than_labels(seed, factor, ticks):
    plain = infer(TrafficSeries(SERIES.rate[:, :-40], 1.0, SERIES.host, SERIES.rail))
    mixed = np.random.default_rng(seed).permutation(len(SERIES))
    until = SERIES.rate.shape[1] - 40 + ticks
    found = infer(
        TrafficSeries(
            factor * SERIES.rate[mixed, ticks:until], 1.0, SERIES.host[mixed], SERIES.rail[mixed]
        )
    )
    assert (found.dp, found.pp, found.tp, found.ep) == (plain.dp, plain.pp, plain.tp, plain.ep)
    assert pairs(np.sort(mixed[found.edges], axis=1)) == pairs(plain.edges)


def test_hosts_in_no_order_leave_the_replicas_open():
    hosts = np.random.default_rng(3).permutation(64)
    work = generate(Parallelism(8, 8), seed=3)
    found = infer(replace(work.series, host=hosts[work.series.host]))
    assert pairs(work.truth.edges) <= pairs(found.edges)
    assert found.confident
    assert found.superset
    assert (found.pp, found.dp) == (8, 8)
    assert "layout" in found.reason
    basic = basic_edges(hosts[work.series.host], work.series.rail)
    assert len(found.edges) < 0.4 * len(basic)


KINDS = [
    Scatter(missing=0.0),
    Scatter(missing=0.1),
    Scatter(missing=0.1, shared=0.4),
    Scatter(missing=0.1, paired=0.4),
]


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("job", [Parallelism(6, 8), Parallelism(4, 6, 4), Parallelism(2, 6, 8, 2)])
def test_of_unequal_hosts_in_no_order_no_pair_is_left_out(how, job):
    late = Disturbance(noise=0.1, straggler_s=1.3, missing=0.01)
    work = scatter(generate(job, seed=3, disturbance=late), how, seed=21).work
    found = infer(work.series)
    basic = pairs(basic_edges(work.series.host, work.series.rail))
    assert found.superset
    assert pairs(work.truth.edges) <= pairs(found.edges) <= basic
    assert len(found.edges) < 0.6 * len(basic)


def test_a_position_of_which_no_endpoint_is_known_leaves_the_basic_list():
    work = scatter(generate(Parallelism(8, 8, 1), seed=3), Scatter(missing=0.1), seed=1).work
    found = infer(work.series)
    assert not found.confident
    assert re.search(r"of [4-9] positions no endpoint is known", found.reason)


def test_a_superset_that_leaves_nothing_out_is_not_used():
    work = scatter(generate(Parallelism(8, 3), seed=3), Scatter(missing=0.1), seed=1).work
    found = infer(work.series)
    assert not found.confident
    assert found.reason.endswith("pairs of groups that follow each other are all that there are")


SCATTERED = scatter(
    generate(Parallelism(4, 6), seed=5, disturbance=Disturbance(straggler_s=2.0)),
    Scatter(missing=0.1, paired=0.3), seed=4,
).work.series  # fmt: skip
FOUND = pairs(infer(SCATTERED).edges)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_hosts_and_rows_in_any_order_have_the_same_pairs(seed):
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(len(SCATTERED))
    hosts, containers = (rng.permutation(100) for _ in range(2))
    found = infer(
        replace(
            SCATTERED, rate=SCATTERED.rate[mixed], rail=SCATTERED.rail[mixed], names=(),
            host=hosts[SCATTERED.host][mixed], container=containers[SCATTERED.container][mixed],
        )
    )  # fmt: skip
    assert found.superset
    assert pairs(np.sort(mixed[found.edges], axis=1)) == FOUND


@settings(max_examples=15)
@given(st.permutations(range(16)))
def test_equal_hosts_of_which_nobody_knows_the_order_have_the_same_pairs_in_any(order):
    number = np.asarray(order)
    found = infer(replace(SERIES, host=number[SERIES.host], ordered=False))
    assert found.superset
    assert pairs(found.edges) == WHOLE


WHOLE = pairs(infer(replace(SERIES, host=SERIES.host * 7 % 16, ordered=False)).edges)


def test_few_hosts_look_in_order_by_chance():
    """Two stages of two replicas: most orders look like a layout, and it joins the wrong ones."""
    work = generate(Parallelism(2, 2), seed=3)
    number = np.asarray([0, 3, 2, 1])
    series = replace(work.series, host=number[work.series.host])
    assert not pairs(work.truth.edges) <= pairs(infer(series).edges)
    assert pairs(work.truth.edges) <= pairs(infer(replace(series, ordered=False)).edges)


def test_of_hosts_in_no_known_order_nobody_knows_which_experts_are_alike():
    """Experts of a replica show by their haste, but not which one of them has which number."""
    job = Parallelism(8, 1, 8, 2)
    work = generate(job, seed=4, disturbance=Disturbance(noise=0.02))
    assert infer(work.series).ep == 2
    number = np.arange(16)
    number[[0, 1]] = number[[1, 0]]
    series = replace(work.series, host=number[work.series.host])
    assert not pairs(work.truth.edges) <= pairs(infer(series).edges)
    assert pairs(work.truth.edges) <= pairs(infer(replace(series, ordered=False)).edges)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rate": SERIES.rate[:, :100]}, "100 ticks are too few"),
        ({"rate": SERIES.rate[:, :250]}, "iterations"),
        ({"rate": np.zeros((128, 600))}, "128 of 128 endpoints send nothing"),
        ({"rate": np.random.default_rng(1).random((128, 600)) * 1e9}, "no common rhythm"),
        (
            {"host": np.zeros(128, np.int64), "rail": np.arange(128)},
            "all endpoints are on one host",
        ),
        ({"rail": np.arange(128) % 8 + 8 * (np.arange(128) > 120)}, "not every host has all"),
    ],
)
def test_what_cannot_be_told_is_the_basic_list_with_the_reason(change, reason):
    series = replace(SERIES, **change)
    found = infer(series)
    assert not found.confident
    assert reason in found.reason
    assert np.array_equal(found.edges, basic_edges(series.host, series.rail))


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(240, 400), st.data())
def test_any_traffic_has_an_answer_within_the_basic_list(hosts, rails, ticks, data):
    count = hosts * rails
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    period = data.draw(st.integers(2, 200))
    shape = data.draw(st.sampled_from(["constant", "square", "noise", "one burst", "ramp"]))
    ramp = np.arange(ticks) + rng.integers(0, period, (count, 1))
    made = {
        "constant": np.ones((count, ticks)),
        "square": (ramp % period < period / 2).astype(float),
        "noise": rng.random((count, ticks)),
        "one burst": (ramp == ticks // 2).astype(float),
        "ramp": ramp.astype(float),
    }[shape]
    rate = made * data.draw(st.sampled_from([1.0, 1e-9, 1e12]))
    rate[rng.random(rate.shape) < data.draw(st.sampled_from([0.0, 0.2]))] = np.nan
    rows = np.arange(count)
    series = TrafficSeries(rate, 1.0, rows // rails, rows % rails)
    found = infer(series)
    basic = pairs(basic_edges(series.host, series.rail))
    assert pairs(found.edges) <= basic
    assert found.confident or (pairs(found.edges) == basic and found.reason)


def test_an_endpoint_whose_series_is_missing_is_never_left_out():
    rate = SERIES.rate.copy()
    rate[3, :600] = np.nan
    found = infer(replace(SERIES, rate=rate))
    assert not found.confident
    assert "1 endpoints are missing" in found.reason


RECORDED = Path(__file__).parent / "data"
"""Of `tests/lab/train.py` on the lab's overlay: 8 ranks on 4 hosts, over gloo."""


def test_a_real_job_is_inferred_from_whatever_minute_of_it():
    series = recording.load(str(RECORDED / "gloo_dp2_pp2_tp2.npz"))
    truth = truth_of(Parallelism(2, 2, 2), rnics_per_host=2)
    for start in range(0, 281, 40):
        found = infer(replace(series, rate=series.rate[:, start : start + 400]))
        assert found.confident
        assert (found.dp, found.pp, found.tp, found.ep) == (2, 2, 2, 1)
        assert found.groups["dp"] == truth.groups["dp"]
        assert np.array_equal(found.edges, truth.edges)


@pytest.mark.parametrize(
    ("name", "job"),
    [("gloo_dp4_tp2", Parallelism(4, 1, 2)), ("gloo_pp4_tp2", Parallelism(1, 4, 2))],
)
def test_of_a_real_job_no_pair_is_left_out(name, job):
    series = recording.load(str(RECORDED / f"{name}.npz"))
    truth = pairs(truth_of(job, rnics_per_host=2).edges)
    for start in range(0, 281, 40):
        found = infer(replace(series, rate=series.rate[:, start : start + 400]))
        assert truth <= pairs(found.edges)


@pytest.mark.parametrize("job", [Parallelism(4, 2), Parallelism(2, 4), Parallelism(8, 4)])
def test_two_hosts_out_of_place_are_not_overruled_by_the_layout_of_the_rest(job):
    work = generate(job, seed=3, disturbance=Disturbance(noise=0.1))
    number = np.arange(job.ranks // 8)
    number[[0, job.pp + 1]] = number[[job.pp + 1, 0]]
    found = infer(replace(work.series, host=number[work.series.host]))
    assert found.superset or not found.confident
    assert pairs(work.truth.edges) <= pairs(found.edges)
    assert "no regular layout" in found.reason


def test_stages_of_one_replica_must_lie_in_order():
    work = generate(Parallelism(1, 8), seed=3)
    assert infer(work.series).confident
    number = np.arange(8)
    number[[2, 5]] = number[[5, 2]]
    assert not infer(replace(work.series, host=number[work.series.host])).confident
