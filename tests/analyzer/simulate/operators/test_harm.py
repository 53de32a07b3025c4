# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm, step_us
from analyzer.simulate.operators.job import Job

JOB = Job(data=4, stages=2, tensor=2, steps=40)


def _harm(fault, **rest):
    return harm(JOB, [Injected(fault, **rest)], np.random.default_rng(1))


@pytest.mark.parametrize("fault", [Fault.SLOW_RANK, Fault.SLOW_BACKWARD])
def test_a_slow_rank_is_slow_alone(fault):
    made = _harm(fault, rank=5, strength=2.0)
    assert {tuple(at[1:]) for at in np.argwhere(made.backward[0] != 1)} == {(2, 1)}
    assert (made.forward[0] == 1).all() == (fault is Fault.SLOW_BACKWARD)
    assert (made.forward[1] == 1).all()


def test_a_rank_that_is_slow_at_times_is_so_in_a_share_of_the_steps():
    made = _harm(Fault.OFTEN_SLOW, rank=0, strength=2.0, share=0.5)
    assert 10 < (made.forward[0][:, 0, 0] == 2).sum() < 30


def test_all_of_a_host_are_slow():
    assert (_harm(Fault.HOST, rank=3, strength=2.0).forward[0] == 2).all()


def test_a_slow_uplink_is_on_all_that_leaves_its_rank():
    made = _harm(Fault.NIC, rank=13, strength=5.0)
    assert made.edges[0][0, 2, 1] == made.gradients[1][0, 0, 1] == made.shared[1][0, 2, 1] == 5
    assert _harm(Fault.LINK, rank=5, strength=5.0).gradients[0].max() == 1
    assert _harm(Fault.RING, rank=5, strength=5.0).edges[0].max() == 1


def test_sequences_are_as_long_as_usual_on_average():
    made = _harm(Fault.SEQUENCES, strength=0.5)
    assert abs(made.sequences.mean() - 1) < 0.1
    assert made.sequences.std() > 0.3


def test_garbage_is_collected_by_all_at_once_or_by_few():
    everybody = _harm(Fault.GC_ALL, strength=0.2)
    assert 3 < (everybody.stop_us[1].min(axis=(1, 2)) > 0.1 * step_us(JOB)).sum() < 25
    rarely = _harm(Fault.GC_RANDOM, strength=0.2)
    assert 0 < (rarely.stall_us[0] > 0).mean() < 0.1
    assert rarely.stalled == {0, 1}


def test_checkpoints_come_regularly():
    made = _harm(Fault.CHECKPOINT, strength=1.0)
    assert np.flatnonzero(made.stop_us[0].min(axis=(1, 2)) > 0).tolist() == list(range(4, 40, 5))


def test_the_last_stage_a_loader_and_experts_have_their_own():
    assert (_harm(Fault.LAST_STAGE, strength=1.5).forward[1] == 1.5).all()
    assert _harm(Fault.LOADER, rank=1, strength=0.5).loader_us[0][0, 0, 1] > 0.4 * step_us(JOB)
    assert _harm(Fault.EXPERTS, strength=0.5).experts == 0.5
