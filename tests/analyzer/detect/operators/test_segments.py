# SPDX-License-Identifier: Apache-2.0
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.positions import stages
from analyzer.detect.operators.segments import segments
from analyzer.detect.operators.whatif import replay, shares
from analyzer.operators.log import Kind
from analyzer.operators.rows import Rows, gaps
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, log_of_run
from tests.analyzer.detect.operators.jobs import logged


def told(log):
    found = iterations(log)
    rows = Rows.of(log, found.step, found.steps)
    return segments(log, rows, gaps(rows), stages(log, rows.ranks, found.step))


@pytest.mark.parametrize("chunks", [1, 2])
def test_running_segments_again_takes_as_long_as_it_took(chunks):
    job = Job(chunks=chunks, steps=8, transfer_us=1.0, gradients_us=1.0, optimizer_us=1.0)
    rng = np.random.default_rng(1)
    made = run(job, harm(job, (), rng), rng)
    found = told(log_of_run(made, HOOKS, rng))
    # The first step is left out, as its beginning may be missing.
    length = replay(found, found.took_us)
    assert np.allclose(length, made.length_us[1 : 1 + len(length)], rtol=0.02)


def test_a_long_last_stage_is_no_chance_and_unequal_sequences_are():
    stage = shares(told(logged(Job(data=4, steps=8, last_stage=1.4), source=HOOKS)), [])
    assert stage.partition > 4 * stage.chance
    job = Job(data=16, steps=12, last_stage=1.2)
    found = shares(told(logged(job, Injected(Fault.SEQUENCES, 0, 0.45), source=HOOKS)), [])
    assert found.chance > 2 * found.partition


def test_a_slow_rank_explains_all_that_is_lost():
    log = logged(Job(data=4, steps=10), Injected(Fault.SLOW_RANK, 0, 2.1), source=HOOKS)
    found = shares(told(log), [0])
    assert 0.85 < found.ranks < 1.1
    assert found.partition < 0.04


def test_without_peers_or_where_replicas_differ_nothing_is_told():
    log = logged(Job(data=2, steps=6), source=HOOKS)
    assert told(replace(log, peer=np.full(len(log), -1, np.int32))) is None
    lacks = (log.rank == 0) & (log.kind == Kind.SEND) & (log.microbatch == 1)
    kind = np.where(lacks, np.uint8(Kind.OTHER), log.kind)
    assert told(replace(log, kind=kind)) is None


def test_a_log_without_transfers_has_none():
    assert told(logged(Job(data=4, stages=1, steps=6), source=HOOKS)) is None


def test_a_peer_that_is_no_rank_makes_no_table_of_its_size():
    log = logged(Job(data=2, steps=6), source=HOOKS)
    peer = np.where(log.kind == Kind.SEND, np.int32(2**31 - 2), log.peer)
    tracemalloc.start()
    assert told(replace(log, peer=peer)) is None
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
