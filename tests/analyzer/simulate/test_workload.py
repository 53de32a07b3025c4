# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.shapes import SIZES, draw_job
from analyzer.simulate.workload import Disturbance, Reduction, Template, generate, truth_of
from netagent.model.errors import LocalProtocolError
from netagent.model.task import Parallelism

QUIET = Disturbance(noise=0, jitter_s=0)
DENSE, MOE = Parallelism(8, 8, 8), Parallelism(4, 4, 8, 4)


def degrees(truth):
    return set(np.bincount(truth.edges.ravel(), minlength=truth.parallelism.ranks).tolist())


@pytest.mark.parametrize(("job", "ordered", "degree"), [(DENSE, 4480, {8, 9}), (MOE, 3840, {7, 8})])
def test_the_truth_is_that_of_figure_9(job, ordered, degree):
    truth = truth_of(job)
    assert 2 * len(truth.edges) == ordered
    assert degrees(truth) == degree
    assert np.all(truth.edges[:, 0] % 8 == truth.edges[:, 1] % 8)  # of one rail
    assert np.all(truth.edges[:, 0] < truth.edges[:, 1])


def test_groups_are_read_off_the_ranks():
    truth = truth_of(Parallelism(2, 3, 8, 2))
    assert truth.groups["dp"][0] == [0, 48]
    assert truth.groups["pp"][0] == [0, 16, 32]
    assert truth.groups["ep"][0] == [0, 8]
    assert [len(groups) for groups in truth.groups.values()] == [48, 32, 48]
    assert truth_of(Parallelism(4)).groups["pp"] == []


def test_an_interleaved_schedule_joins_the_last_stage_to_the_first():
    chain, ring = truth_of(Parallelism(2, 4)), truth_of(Parallelism(2, 4), wrap=True)
    more = {tuple(edge) for edge in ring.edges.tolist()} - {
        tuple(edge) for edge in chain.edges.tolist()
    }
    assert more == {(first, first + 24) for first in (*range(8), *range(32, 40))}


def test_within_a_host_and_across_rails_there_is_no_network_edge():
    truth = truth_of(Parallelism(4, 2, 4))  # both stages of a replica on one host
    assert truth.groups["pp"][0] == [0, 4]
    assert {tuple(edge) for edge in truth.edges.tolist() if edge[0] == 0} == {
        (0, 8), (0, 16), (0, 24)
    }  # fmt: skip


def test_the_same_seed_makes_the_same_and_another_does_not():
    made = [generate(Parallelism(2, 2), seed=seed, ticks=100).series.rate for seed in (1, 1, 2)]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


@pytest.mark.parametrize("reduction", Reduction)
def test_an_iteration_sends_what_the_template_says(reduction):
    template = Template(reduction=reduction)
    work = generate(Parallelism(2, 4), seed=3, ticks=1600, template=template, disturbance=QUIET)
    plateau = template.plateau_s * template.plateau_bps / 8
    burst = template.burst_s * template.burst_bps / 8
    middle = work.series.rate[work.stage == 1].mean(axis=0)
    assert middle.sum() == pytest.approx(20 * (plateau + burst), rel=0.1)
    assert middle.max() == pytest.approx(template.burst_bps / 8, rel=0.01)
    assert np.mean(middle == 0) > 0.25  # the pause


def test_later_stages_show_the_same_later():
    template = Template(stage_shift_s=3.0)
    work = generate(Parallelism(2, 3), seed=3, template=template, disturbance=QUIET)
    early, late = (work.series.rate[work.stage == stage][0] for stage in (1, 2))
    assert np.corrcoef(early[:-3], late[3:])[0, 1] > 0.95 > np.corrcoef(early, late)[0, 1]


def test_disturbances_do_what_they_say():
    missing = generate(
        Parallelism(2, 2), seed=1, disturbance=Disturbance(missing=0.05), ticks=500
    ).series.rate
    assert 0.03 < np.isnan(missing).mean() < 0.07
    paused = generate(
        Parallelism(2, 2), seed=1, disturbance=Disturbance(checkpoints=(4, 8))
    ).series.rate
    plain = generate(Parallelism(2, 2), seed=1).series.rate
    assert paused.sum() < 0.96 * plain.sum()
    late = generate(Parallelism(4, 1), seed=1, disturbance=Disturbance(0, 0, straggler_s=5.0))
    by_host = late.series.rate.reshape(4, 8, -1)[:, 0]
    alike = np.corrcoef(by_host)
    assert np.sort((alike > 0.9).sum(axis=1)).tolist() == [1, 3, 3, 3]


def test_a_job_that_fills_no_hosts_is_refused():
    with pytest.raises(LocalProtocolError, match="12 ranks do not fill hosts of 8"):
        generate(Parallelism(3, 2, 2), seed=1)


def test_drawn_jobs_have_the_sizes_of_figure_12():
    rng = np.random.default_rng(1)
    jobs = [draw_job(rng) for _ in range(300)]
    assert {job.ranks for job in jobs} <= SIZES.keys()
    assert {job.tp for job in jobs} == {1, 2, 4, 8}
    assert any(job.ep > 1 for job in jobs)
    assert all(job.dp >= 2 for job in jobs)
