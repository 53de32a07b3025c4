# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import GroupKind, Kind
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, TRACE, Source, log_of_run

JOB = Job(data=4, stages=2, tensor=2, experts=2, steps=5)


def _log(source, job=JOB, seed=1):
    rng = np.random.default_rng(seed)
    return log_of_run(run(job, harm(job, (), rng), rng), source, rng)


@pytest.mark.parametrize("source", [TRACE, HOOKS, Source()])
def test_rows_of_a_rank_are_in_the_order_in_which_it_issued_them(source):
    log = _log(source)
    assert (np.diff(log.rank) >= 0).all()
    for rank in range(0, JOB.world, 3):
        own = log.take(log.rank == rank)
        if source.relative:
            assert all((np.diff(own.started_ns[own.step == step]) >= 0).all() for step in own.step)
        else:
            assert (np.diff(own.started_ns) >= 0).all()


def test_each_source_tells_what_it_sees():
    trace, hooks = _log(TRACE), _log(HOOKS)
    assert set(trace.rank.tolist()) == set(range(0, 16, 2))
    assert (trace.group == -1).all()
    assert (trace.peer == -1).all()
    assert Kind.COMPUTE not in hooks.kind
    assert (hooks.step == -1).all()
    assert hooks.places[3].pp == -1
    assert hooks.places[3].host == "host-0"


def test_members_of_a_group_are_those_that_take_part_in_it():
    log = _log(Source())
    for number, group in enumerate(log.groups):
        seen = set(log.rank[log.group == number].tolist())
        assert seen == set(group.members)


def test_groups_are_those_of_their_kind():
    kinds = {group.name: group for group in _log(Source()).groups}
    assert kinds["dp1"].members == (1, 3, 5, 7)
    assert kinds["tp0"].members == (0, 1)
    assert kinds["pp0"].members == (0, 8)
    assert kinds["ep0"].members == (0, 2)
    assert kinds["world0"].kind is GroupKind.WORLD


def test_every_send_is_received():
    log = _log(Source())
    sent, got = log.take(log.kind == Kind.SEND), log.take(log.kind == Kind.RECV)
    edges = sorted(zip(sent.rank.tolist(), sent.peer.tolist(), strict=True))
    assert edges == sorted(zip(got.peer.tolist(), got.rank.tolist(), strict=True))


def test_clocks_differ_and_durations_do_not():
    one, other = _log(HOOKS), _log(HOOKS)
    assert np.array_equal(one.started_ns, other.started_ns)
    last = one.take(one.op == one.ops.index("clip-grads-all-reduce"))
    assert np.ptp(last.ended_ns[last.group >= 0].reshape(JOB.world, -1)[:, 0]) > 1_000_000
