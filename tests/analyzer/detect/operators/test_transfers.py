# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.transfers import HELD_UP, HELD_UP_GUESSED, hot
from analyzer.detect.operators.verdict import Who
from analyzer.operators.log import GroupKind, Kind, log_of
from analyzer.operators.units import edge_of, group_of, op_of
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS
from tests.analyzer.detect.operators.jobs import case_of, logged

JOB = Job(data=4, stages=4, tensor=2, steps=10)


def _hot(*faults, job=JOB, source=HOOKS):
    return hot(case_of(logged(job, *faults, source=source)))


@pytest.mark.parametrize("rank", [0, 9, 31])
def test_a_slow_uplink_is_the_ranks_whose_transfers_are_slow_all_round(rank):
    found = _hot(Injected(Fault.NIC, rank, 12.0))
    assert [(each.kind, each.ranks) for each in found] == [(Who.RANK, (rank,))]
    assert found[0].times > 5


def test_a_slow_link_between_stages_is_an_edge():
    found = _hot(Injected(Fault.LINK, 9, 40.0))
    assert [(each.kind, frozenset(each.ranks)) for each in found] == [(Who.EDGE, {9, 17})]


def test_of_a_slow_ring_nothing_tells_which_link_it_is():
    found = _hot(Injected(Fault.RING, 9, 8.0))
    assert [(each.kind, each.ranks) for each in found] == [(Who.GROUP, (9, 11, 13, 15))]


@pytest.mark.parametrize(
    "faults", [(), (Injected(Fault.SLOW_RANK, 9, 2.0),), (Injected(Fault.SEQUENCES, 0, 0.5),),
               (Injected(Fault.GC_RANDOM, 0, 0.4),), (Injected(Fault.CHECKPOINT, 0, 1.0),)]
)  # fmt: skip
def test_whoever_waits_for_a_rank_does_not_accuse_the_network(faults):
    assert _hot(*faults) == []


@pytest.mark.parametrize("ranks", [(1,), (17,), (16, 17), (30, 31)])
def test_of_steps_in_which_a_rank_was_not_logged_nothing_is_known_of_whom_others_waited_for(ranks):
    """As where a host's clock is behind, or its rings hold less than those of others."""
    log = logged(replace(JOB, steps=20, microbatches=2))
    later = np.isin(log.rank, ranks) & (log.step < np.unique(log.step)[10])
    assert hot(case_of(log.take(~later))) == []


def test_a_slow_uplink_is_told_from_the_steps_in_which_all_were_logged():
    log = logged(replace(JOB, steps=20), Injected(Fault.NIC, 9, 12.0))
    found = hot(case_of(log.take((log.rank != 17) | (log.step >= np.unique(log.step)[10]))))
    assert [(each.kind, each.ranks) for each in found] == [(Who.RANK, (9,))]


def test_of_fewer_than_three_alike_none_is_unlike_the_others():
    job = Job(data=4, stages=2, tensor=1, steps=10)
    assert _hot(Injected(Fault.RING, 0, 10.0), job=job) == []


def test_a_transfer_that_was_slow_once_is_not_told():
    case = case_of(logged(JOB, source=HOOKS))
    units = case.sums.units
    least = units.least_us.copy()
    least[3] = np.where(np.arange(least.shape[1]) == 0, 100 * least[3], least[3])
    once = replace(case, sums=replace(case.sums, units=replace(units, least_us=least)))
    assert hot(once) == []


def test_where_peers_are_guessed_an_edge_has_to_cost_more():
    case = case_of(logged(JOB, Injected(Fault.LINK, 9, 3.0), source=HOOKS))
    (found,) = hot(case)
    assert HELD_UP < found.effect < HELD_UP_GUESSED
    assert hot(replace(case, guessed=True)) == []


def test_of_a_group_that_is_not_logged_whole_nothing_is_told():
    log = logged(JOB, Injected(Fault.RING, 9, 8.0), source=HOOKS)
    (found,) = hot(case_of(log))
    assert found.ranks == (9, 11, 13, 15)
    assert hot(case_of(log.take(log.rank != 15))) == []


def _dense(slow, ranks=6, steps=8):
    """Return a log in which all send to each other, and edges that `slow` picks take ten times."""
    rows = []
    noise = np.random.default_rng(1)
    for rank in range(ranks):
        for step in range(steps):
            now = 0
            for peer in range(ranks):
                if peer == rank:
                    continue
                for kind in (Kind.SEND, Kind.RECV):
                    edge = (rank, peer) if kind is Kind.SEND else (peer, rank)
                    took = (1000 if slow(*edge) else 100) + int(noise.integers(10))
                    rows.append((rank, step, kind, peer, 1000 * now, 1000 * (now + took)))
                    now += took
    names = ("rank", "step", "kind", "peer", "started_ns", "ended_ns")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    columns["op"] = [int(kind == Kind.RECV) for kind in columns["kind"]]
    return log_of(columns, ops=("send", "recv"))


@pytest.mark.parametrize(
    ("slow", "kind", "ranks", "what"),
    [
        (lambda source, _: source == 2, Who.RANK, (2,), "sending"),
        (lambda _, target: target == 4, Who.RANK, (4,), "receiving"),
        (lambda source, target: (source, target) == (1, 3), Who.EDGE, (1, 3), "send"),
    ],
)
def test_where_all_send_to_each_other_their_matrix_tells_which_side_it_is(slow, kind, ranks, what):
    (found,) = hot(case_of(_dense(slow)))
    assert (found.kind, found.ranks) == (kind, ranks)
    assert found.what.startswith(what)
    assert hot(case_of(_dense(lambda *_: False))) == []


def _halved(slow, steps=8, times=8.0, size=4096):
    """Return a case of four rings of two stages, of which those at `slow` take so many times."""
    job = Job(data=2, stages=2, tensor=2, steps=steps)
    case = case_of(logged(job, source=HOOKS))
    units = case.sums.units
    rings = [
        n for n, number in enumerate(units.number.tolist())
        if edge_of(number) is None and case.groups[group_of(number)].kind is GroupKind.DATA
    ]  # fmt: skip
    first = op_of(int(units.number[rings[0]]))
    rings = [n for n in rings if op_of(int(units.number[n])) == first]
    assert len(rings) == 4
    least, sizes = units.least_us.copy(), units.bytes.copy()
    sizes[rings] = size
    least[:, [rings[n] for n in slow]] *= times
    units = replace(units, least_us=least, bytes=sizes)
    members = [case.groups[group_of(int(units.number[n]))].members for n in rings]
    return replace(case, sums=replace(case.sums, units=units)), members


def test_of_four_rings_the_two_that_are_slow_in_all_iterations_are_named():
    case, members = _halved((0, 2))
    named = {(each.kind, each.ranks) for each in hot(case)}
    assert named == {(Who.GROUP, members[0]), (Who.GROUP, members[2])}
    # Of four there are six pairs: in five iterations chance may pick one throughout.
    assert hot(_halved((0, 2), steps=5)[0]) == []
    assert hot(_halved((0, 2), times=2.5)[0]) == []
    assert hot(_halved((0, 2), size=-1)[0]) == []


def test_a_stage_whose_rings_are_all_slow_may_be_made_so():
    _, members = _halved(())
    assert set(members[0]) | set(members[1]) == {0, 1, 2, 3}
    assert hot(_halved((0, 1))[0]) == []


def test_a_receiver_that_comes_after_all_has_arrived_does_not_accuse_the_others():
    case = case_of(logged(JOB, source=HOOKS))
    units = case.sums.units
    edges = [n for n, number in enumerate(units.number.tolist()) if edge_of(number) is not None]
    least = units.least_us.copy()
    least[:, edges[3:]] = 1.0
    least[:, edges[:3]] = 0.02 * case.step_us[:, None]
    late = replace(units, least_us=least)
    assert hot(replace(case, sums=replace(case.sums, units=late))) == []
    sent = units.sent_us.copy()
    sent[:, edges[:3]] = least[:, edges[:3]]
    slow = replace(late, sent_us=sent)
    assert len(hot(replace(case, sums=replace(case.sums, units=slow)))) > 0
