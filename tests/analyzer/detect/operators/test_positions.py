# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.positions import mixed, stages, way
from analyzer.operators.log import Group, GroupKind
from analyzer.simulate.operators.job import Job
from tests.analyzer.detect.operators.jobs import SOURCES, logged

JOBS = [
    Job(data=4, stages=4, steps=6), Job(data=2, stages=8, steps=6, tensor=2, microbatches=12),
    Job(data=2, stages=4, chunks=2, steps=6), Job(data=8, stages=1, steps=6),
]  # fmt: skip


def _stages(log):
    found = iterations(log)
    ranks = np.unique(log.rank).astype(np.int64)
    return ranks, stages(log, ranks, found.step)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("job", JOBS)
def test_stages_are_found_whatever_a_source_says(job, source):
    ranks, told = _stages(logged(job, source=SOURCES[source]))
    assert told.tolist() == [job.where(rank)[0] for rank in ranks.tolist()]


def test_where_operations_have_no_direction_who_sends_first_tells():
    job = Job(data=2, stages=4, steps=6)
    log = logged(job, source=SOURCES["hooks"])
    plain = tuple(op.replace("forward-", "").replace("backward-", "") for op in log.ops)
    ranks, told = _stages(replace(log, ops=plain))
    assert told.tolist() == [job.where(rank)[0] for rank in ranks.tolist()]


def test_operators_that_a_log_lacks_move_nobody():
    job = Job(data=8, stages=4, steps=20)
    log = logged(job, source=SOURCES["nameless"])
    ranks, told = _stages(log.take(np.random.default_rng(1).random(len(log)) > 0.01))
    assert told.tolist() == [job.where(rank)[0] for rank in ranks.tolist()]


def test_without_sends_all_ranks_are_of_one_stage():
    log = logged(Job(data=4, stages=1, steps=6), source=SOURCES["hooks"])
    assert set(_stages(log)[1].tolist()) == {0}


def test_the_way_of_an_operation_is_in_its_name():
    assert (way("forward-compute"), way("Bwd"), way("all_reduce")) == (1, -1, 0)


FEW = Job(data=3, stages=8, microbatches=4, steps=6)
"""With fewer microbatches than stages, all of the first stages are ahead by all there is."""


def test_stages_that_the_schedule_does_not_tell_apart_are_told_by_their_groups():
    log = logged(FEW, source=replace(SOURCES["hooks"], transfers=True))
    ranks, told = _stages(log)
    assert told.tolist() == [FEW.where(rank)[0] for rank in ranks.tolist()]
    assert not mixed(log, ranks, told).any()


def test_where_no_group_tells_they_are_mixed():
    log = logged(FEW, source=SOURCES["nameless"])
    ranks, told = _stages(log)
    assert mixed(log, ranks, told).tolist() == [FEW.where(rank)[0] < 5 for rank in ranks.tolist()]
    named = logged(FEW, source=SOURCES["trace"])
    assert not mixed(named, *_stages(named)).any()


def test_groups_alone_tell_stages_where_no_transfer_is_logged():
    log = logged(FEW, source=replace(SOURCES["hooks"], transfers=False))
    ranks, told = _stages(log)
    assert told.tolist() == [FEW.where(rank)[0] for rank in ranks.tolist()]


def test_groups_of_several_stages_do_not_count():
    log = logged(JOBS[0], source=SOURCES["hooks"])
    whole = Group("dp", GroupKind.DATA, tuple(range(JOBS[0].world)))
    ranks, told = _stages(replace(log, groups=(*log.groups, whole)))
    assert told.tolist() == [JOBS[0].where(rank)[0] for rank in ranks.tolist()]
