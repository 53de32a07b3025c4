# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.simulate.workload import Disturbance, generate
from analyzer.skeleton import hint
from analyzer.skeleton.hint import Hint, infer_with
from analyzer.skeleton.infer import infer
from netagent.model.task import Parallelism

JOB = Parallelism(4, 4)
WORK = generate(JOB, seed=5, disturbance=Disturbance(noise=0.1))
RANKS = np.arange(JOB.ranks)


def scattered(seed=1):
    """Return the job's series on hosts in no order, and each row's rank."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(16)
    series = replace(WORK.series, host=number[WORK.series.host])
    return series, Hint(JOB, RANKS)


def test_hosts_in_no_order_need_to_be_told_of():
    series, told = scattered()
    assert infer(series).superset
    found = infer_with(series, told)
    assert not found.superset
    assert found.confident
    assert (found.dp, found.pp, found.tp, found.ep) == (4, 4, 8, 1)
    assert np.array_equal(found.edges, WORK.truth.edges)
    assert found.reason.startswith("as declared; from the traffic alone, all pairs between stages")


def test_megatron_s_order_with_stages_slowest_is_known_too():
    series, _ = scattered()
    replica, stage, tensor = np.unravel_index(RANKS, (4, 4, 8))
    found = infer_with(series, Hint(JOB, np.ravel_multi_index((stage, replica, tensor), (4, 4, 8))))
    assert np.array_equal(found.edges, WORK.truth.edges)


@pytest.mark.parametrize("job", [Parallelism(16), Parallelism(8, 2), Parallelism(2, 8)])
def test_a_lie_is_not_believed(job):
    series, _ = scattered()
    found = infer_with(series, Hint(job, RANKS))
    assert np.array_equal(found.edges, infer(series).edges)
    assert found.reason.endswith(f"the declared {job} does not fit")


def test_what_the_traffic_says_by_itself_counts_and_a_contradiction_is_told():
    right = infer_with(WORK.series, Hint(JOB, RANKS))
    assert right.reason == infer(WORK.series).reason
    wrong = infer_with(WORK.series, Hint(Parallelism(2, 8), RANKS))
    assert np.array_equal(wrong.edges, WORK.truth.edges)
    assert wrong.reason == "declared is DP2 PP8 TP8, which does not fit"


def test_a_job_without_stages_fits_only_where_nothing_is_separated():
    flat = generate(Parallelism(16), seed=2)
    rng = np.random.default_rng(3)
    series = replace(flat.series, host=rng.permutation(16)[flat.series.host])
    flat_job = Hint(Parallelism(16), RANKS)
    assert infer_with(series, flat_job).confident
    assert infer_with(scattered()[0], flat_job).superset


def test_without_rhythm_nothing_declared_is_believed():
    rng = np.random.default_rng(1)
    noise = replace(WORK.series, rate=rng.random(WORK.series.rate.shape))
    assert not infer_with(noise, Hint(JOB, RANKS)).confident
    short = replace(WORK.series, rate=WORK.series.rate[:, :250])
    assert not infer_with(short, Hint(JOB, RANKS)).confident


def test_a_hint_for_another_number_of_ranks_is_not_used():
    series, _ = scattered()
    assert infer_with(series, Hint(Parallelism(2, 2), RANKS)).superset


def test_without_an_order_of_hosts_nobody_knows_whose_ranks_are_declared():
    series, told = scattered()
    unknown = replace(series, ordered=False)
    assert infer_with(series, told).dp == 4
    assert infer_with(unknown, told).reason == infer(unknown).reason


def test_two_containers_on_a_rail_leave_a_declaration_aside():
    series, told = scattered()
    paired = replace(series, host=series.host // 2, container=series.host)
    found = infer_with(paired, told)
    assert found.superset
    assert found.reason.endswith(f"the declared {JOB} does not fit")


def test_experts_that_do_not_show_are_not_believed_and_nothing_is_left_out():
    series, _ = scattered()
    replica, stage, tensor = np.unravel_index(RANKS, (4, 4, 8))
    rank = np.ravel_multi_index((stage, replica, tensor), (4, 4, 8))
    found = infer_with(series, Hint(Parallelism(2, 4, 8, 2), rank))
    truth = {tuple(edge) for edge in WORK.truth.edges.tolist()}
    dp = {tuple(sorted((a, b))) for group in WORK.truth.groups["dp"] for a in group for b in group}
    assert truth & dp <= {tuple(edge) for edge in found.edges.tolist()}
    assert (found.dp, found.ep, found.confidence) == (4, 1, 0.85)


def test_experts_that_show_are_believed():
    job = Parallelism(4, 2, 8, 4)
    work = generate(job, seed=4, disturbance=Disturbance(noise=0.05, jitter_s=0.4))
    number = np.random.default_rng(1).permutation(32)
    series = replace(work.series, host=number[work.series.host])
    found = infer_with(series, Hint(job, np.arange(job.ranks)))
    assert (found.dp, found.ep) == (4, 4)
    assert np.array_equal(found.edges, work.truth.edges)


def test_more_tensor_ranks_than_send_alike_are_not_believed():
    work = generate(Parallelism(4, 4, 4), seed=2)
    number = np.random.default_rng(1).permutation(8)
    series = replace(work.series, host=number[work.series.host])
    assert hint._declared(series, Hint(Parallelism(8, 1, 8), np.arange(64))) is None
    assert hint._declared(series, Hint(Parallelism(4, 4, 4), np.arange(64))) is not None
