# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.positions import stages
from analyzer.detect.operators.whatif import Pass, Passes, alike, passes, replay, shares
from analyzer.operators.log import Kind
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, log_of_run
from tests.analyzer.detect.operators.jobs import NAMELESS, SOURCES, logged


def _passes(log):
    found = iterations(log)
    ranks = np.unique(log.rank).astype(np.int64)
    return passes(log, stages(log, ranks, found.step), ranks, found.step)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("source", ["trace", "nameless", "all"])
def test_running_the_schedule_again_takes_as_long_as_it_took(chunks, source):
    job = Job(chunks=chunks, steps=6, transfer_us=1.0, gradients_us=1.0, optimizer_us=1.0)
    rng = np.random.default_rng(1)
    made = run(job, harm(job, (), rng), rng)
    told = _passes(log_of_run(made, SOURCES[source], rng))
    assert told is not None
    # Loaders and reductions come to about half a millisecond.
    assert np.allclose(replay(told, told.took_us), made.length_us, rtol=0.01)


def test_a_slow_rank_explains_all_that_is_lost():
    told = _passes(logged(Job(data=4, steps=10), Injected(Fault.SLOW_RANK, 0, 2.1)))
    found = shares(told, [0])
    assert found.slowdown > 1.45
    assert 0.9 < found.ranks < 1.1
    assert abs(found.last_stage) < 0.05
    assert found.partition < 0.04 > found.chance


def test_a_long_last_stage_explains_more_than_is_lost():
    # As in the trace ST of Lin et al., whose M_S is above 1: the others are below the mean.
    found = shares(_passes(logged(Job(data=2, steps=10, last_stage=1.35))), [])
    assert 1.0 < found.last_stage < 1.3
    assert found.partition > 4 * found.chance


def test_sequences_of_unequal_length_look_like_a_long_last_stage_and_are_not():
    # As in the trace SE of Lin et al.: slowdown 1.54, M_S 0.68.
    job = Job(data=32, stages=2, steps=40, last_stage=1.28)
    told = _passes(logged(job, Injected(Fault.SEQUENCES, 0, 0.36)))
    found = shares(told, [])
    assert 1.4 < found.slowdown < 1.7
    assert 0.55 < found.last_stage < 0.8
    assert found.chance > 3 * found.partition
    assert alike(told) > 0.9


def test_passes_of_a_slow_rank_go_together_too_but_jitter_does_not():
    assert abs(alike(_passes(logged(Job(steps=6))))) < 0.3


def test_attention_and_experts_of_a_microbatch_are_one_pass():
    job = Job(data=4, stages=2, experts=2, steps=6)
    told = _passes(logged(job))
    assert {len(own) for own in told.order} == {2 * job.microbatches}


def test_a_log_without_passes_tells_none():
    assert _passes(logged(Job(steps=6), source=HOOKS)) is None


def test_passes_that_a_log_lacks_are_as_usual():
    job = Job(steps=20)
    whole = _passes(logged(job, source=NAMELESS))
    log = logged(job, source=NAMELESS)
    told = _passes(log.take(np.random.default_rng(1).random(len(log)) > 0.005))
    assert [each.shape for each in told.took_us] == [each.shape for each in whole.took_us]
    assert np.allclose(replay(told, told.took_us), replay(whole, whole.took_us), rtol=0.03)


def test_steps_of_which_most_is_missing_are_left_out():
    log = logged(Job(steps=6), source=NAMELESS)
    gone = (log.step == log.step.min()) & (log.op == log.ops.index("forward-compute"))
    assert {len(each) for each in _passes(log.take(~gone)).took_us} == {5}


def test_replicas_that_differ_tell_nothing():
    log = logged(Job(data=2, stages=1, steps=6))
    first = np.flatnonzero((log.rank == 0) & (log.op == log.ops.index("forward-compute")))
    op = log.op.copy()
    op[first[0]] = log.ops.index("backward-compute")
    assert _passes(replace(log, op=op)) is None


def test_a_schedule_that_waits_for_itself_is_refused():
    stuck = Passes(((Pass(0, forward=True, needs=(0, 0)),),), (np.ones((1, 1, 1)),), (np.zeros(1),))
    with pytest.raises(ValueError, match="waits for itself"):
        replay(stuck, stuck.took_us)


def test_a_first_step_in_which_ranks_warm_up_is_no_chance():
    told = _passes(logged(Job(data=4, steps=5, last_stage=1.35)))
    took = [each.copy() for each in told.took_us]
    rng = np.random.default_rng(1)
    for each in took:
        each[0] *= rng.uniform(15, 40, (each.shape[1], 1))
    found = shares(replace(told, took_us=tuple(took)), [])
    assert found.partition > 4 * found.chance


def test_a_last_chunk_that_is_long_is_no_chance():
    told = _passes(logged(Job(data=4, steps=5, chunks=2)))
    last = told.took_us[-1].copy()
    last[:, :, [each.number for each in told.order[-1] if each.chunk == 1]] *= 2
    found = shares(replace(told, took_us=(*told.took_us[:-1], last)), [])
    assert found.partition > 0.1
    assert found.partition > 4 * found.chance


def test_a_rank_whose_log_has_only_a_long_step_whole_is_not_slow_in_the_others():
    log = logged(Job(data=4, steps=6))
    steps = np.unique(log.step)
    long = np.where(log.step == steps[0], 10, 1)
    log = replace(log, ended_ns=log.started_ns + long * log.duration_ns)
    lacks = np.zeros(len(log), bool)
    for step in steps[1:]:
        computed = (log.rank == 0) & (log.step == step) & (log.kind == Kind.COMPUTE)
        lacks[np.flatnonzero(computed)[3]] = True
    took = _passes(log.take(~lacks)).took_us[0]
    assert np.allclose(took[1:, 0], np.median(took[1:, 1:], axis=1), rtol=0.1)
