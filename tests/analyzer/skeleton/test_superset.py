# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton import cluster, spectrum
from analyzer.skeleton.positions import scattered
from analyzer.skeleton.series import basic_edges
from analyzer.skeleton.superset import ANY, superset
from netagent.model.task import Parallelism
from tests.length import some

JOB = Parallelism(4, 8)
HOW = Scatter(missing=0.1, paired=0.3)


def found_of(work):
    mine, absent = scattered(work.series)
    assert absent == 0
    made = spectrum.features(mine.values)
    return superset(mine, made, cluster.candidates(made), work.series.tick_s), mine


def made_of(job=JOB, template=None, how=HOW, ticks=1200, seed=3, **disturbed):
    work = generate(
        job, seed=seed, ticks=ticks, template=template, disturbance=Disturbance(**disturbed)
    )
    return scatter(work, how, seed=seed).work


def stages(work, mine):
    return work.stage[mine.rows[:, 0]]


def safe(work, found, mine):
    kept = {
        tuple(e)
        for e in found.edges(mine, basic_edges(work.series.host, work.series.rail)).tolist()
    }
    return {tuple(e) for e in work.truth.edges.tolist()} <= kept


def test_groups_are_stages_in_order_each_near_the_two_beside_it():
    work = made_of()
    found, mine = found_of(work)
    ring = np.abs(np.arange(8)[:, None] - np.arange(8)[None, :])
    assert np.array_equal(found.near, np.minimum(ring, 8 - ring) <= 1)
    first = stages(work, mine) - found.label
    assert len(np.unique(first % 8)) == 1  # in order, wherever they begin
    assert found.size == 4
    assert found.period_s == pytest.approx(80, abs=2)
    assert found.confidence == 1
    assert found.lack == ""
    assert np.array_equal(found.stage(mine)[mine.rows[:, 0]], found.label)


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_way_from_the_last_stage_back_to_the_first_is_in(chunks):
    work = made_of(template=Template(chunks=chunks))
    assert work.truth.wrap == (chunks == 2)
    assert safe(work, *found_of(work))


def test_stages_too_close_in_time_are_one_block():
    work = made_of(template=Template(stage_shift_s=0.05), jitter_s=0.0, noise=0.02)
    found, mine = found_of(work)
    assert found.near.all()
    assert safe(work, found, mine)


LATE = some([s / 2 for s in range(1, 9)], 4)


@pytest.mark.parametrize("late_s", LATE)
@pytest.mark.parametrize("shift_s", [0.5, 1.0])
@pytest.mark.parametrize("job", [JOB, Parallelism(6, 8, 4), Parallelism(8, 8, 2)])
def test_a_late_host_that_looks_like_another_stage_leaves_nothing_out(late_s, shift_s, job):
    how = HOW if job == JOB else Scatter(missing=0.0)
    work = made_of(job, Template(stage_shift_s=shift_s), how, straggler_s=late_s)
    found, mine = found_of(work)
    assert safe(work, found, mine)
    assert found.confidence > (0.8 if job == JOB and shift_s == 1 else -1)


def test_who_looks_like_another_stage_gives_all_of_it_both_stages_pairs():
    plain, late = (made_of(straggler_s=late_s, noise=0.02) for late_s in (0.0, 3.0))
    (found, _), (wider, _) = found_of(plain), found_of(late)
    ring = int(found.near.sum())
    assert ring < int(wider.near.sum()) <= ring + 2 * 3
    assert np.array_equal(wider.near, wider.near.T)


def test_one_that_sends_like_nobody_belongs_where_a_place_is_left():
    work = made_of(template=Template(stage_shift_s=2.0), straggler_s=3.0, noise=0.02)
    found, mine = found_of(work)
    assert (found.label != ANY).all()
    shifted = (stages(work, mine) - found.label) % 8
    assert len(np.unique(shifted)) == 1


def test_several_that_send_like_nobody_keep_all_of_their_pairs():
    work = made_of(
        Parallelism(8, 8, 4), Template(stage_shift_s=1.0), Scatter(missing=0.05), straggler_s=1.5,
        noise=0.02,
    )  # fmt: skip
    found, mine = found_of(work)
    assert (found.label == ANY).sum() == 2  # both positions of the late host
    assert safe(work, found, mine)
    assert (found.stage(mine) == ANY).sum() > 2


@pytest.mark.parametrize(
    ("work", "lack"),
    [
        ({"ticks": 300}, "iterations were seen"),
        ({"job": Parallelism(2, 8)}, "groups have 2 members only"),
        ({"clock_s": 2.0}, ""),
    ],
)
def test_what_is_not_certain_says_why(work, lack):
    found, _ = found_of(made_of(**work))
    assert found.confidence < 0.8
    assert lack in found.lack
    assert found.lack
