# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import numpy as np
import pytest

from analyzer.operators.log import GroupKind, Kind
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm, step_us
from analyzer.simulate.operators.job import Job

JOBS = [
    Job(steps=4), Job(data=4, stages=4, chunks=2, steps=4),
    Job(data=4, tensor=2, experts=2, steps=4),
    Job(data=1, stages=1, steps=4),
]  # fmt: skip


def _run(job, *faults):
    rng = np.random.default_rng(1)
    return run(job, harm(job, faults, rng), rng)


@pytest.mark.parametrize("job", JOBS)
def test_a_rank_does_one_thing_after_the_other_but_for_sends(job):
    for rows in _run(job).rows:
        own = [row for row in rows if row.kind != Kind.SEND]
        for row, after in pairwise(own):
            assert np.allclose(after.start, row.end)
        assert all((row.end >= row.start).all() for row in rows)


@pytest.mark.parametrize("job", JOBS)
def test_all_of_a_group_leave_together_and_after_the_last_has_come(job):
    axes = {GroupKind.TENSOR: 2, GroupKind.DATA: 1}
    for rows in _run(job).rows:
        for row in rows:
            if row.group in axes:
                axis = axes[row.group]
                assert np.ptp(row.end, axis=axis).max() == 0
                assert (row.end.min(axis=axis) > row.start.max(axis=axis)).all()


def test_a_receive_ends_when_its_send_does():
    rows = _run(Job(data=2, stages=2, steps=3)).rows
    sends = [row for row in rows[0] if row.op == "forward-send"]
    receives = [row for row in rows[1] if row.op == "forward-recv"]
    for sent, received in zip(sends, receives, strict=True):
        assert np.array_equal(sent.end, received.end)
        assert (received.end > np.maximum(sent.start, received.start)).all()


def test_a_healthy_step_takes_what_its_pipeline_says():
    for job in JOBS:
        length = _run(job).length_us
        assert np.allclose(length, step_us(job), rtol=0.2)


@pytest.mark.parametrize(
    "fault", [Fault.SLOW_RANK, Fault.LOADER, Fault.NIC, Fault.LINK, Fault.RING]
)
def test_a_fault_of_one_holds_up_all(fault):
    job = Job(data=4, steps=6)
    strength = {Fault.LOADER: 0.4, Fault.SLOW_RANK: 1.5}.get(fault, 40.0)
    assert (_run(job, Injected(fault, 1, strength)).length_us > 1.1 * _run(job).length_us).all()


def test_experts_of_unequal_load_wait_for_each_other():
    job = Job(data=8, stages=2, experts=8, steps=6)
    assert _run(job, Injected(Fault.EXPERTS, 0, 0.5)).length_us.mean() > 1.1 * step_us(job)


def test_who_stops_at_random_is_late_there():
    job = Job(data=8, stages=2, steps=6)
    assert _run(job, Injected(Fault.GC_RANDOM, 0, 0.5)).length_us.max() > 1.2 * step_us(job)
