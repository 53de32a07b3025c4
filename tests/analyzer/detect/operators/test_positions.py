# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.positions import stages, way
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
