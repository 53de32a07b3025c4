# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.operators import hang
from analyzer.detect.operators.pauses import (
    AGAIN,
    FIRST_NS,
    MOST_NS,
    Pause,
    patient,
    suspects,
)
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.operators.log import NEVER, Group, Kind, State, log_of

S = 10**9


def waits_for(*ranks, kind=Who.RANK, holdup=Holdup.HANG_RANK):
    return Verdict(holdup, "all wait", (Culprit(kind, ranks, 0.9, "late"),))


def test_rank_0_is_named_once_it_took_longer_than_a_checkpoint():
    verdict = waits_for(0)
    early = patient(verdict, FIRST_NS - 1, ())
    assert (early.holdup, early.culprits) == (Holdup.INSUFFICIENT, ())
    assert patient(verdict, FIRST_NS, ()) is verdict
    assert patient(waits_for(3), 0, ()) == waits_for(3)


def test_whoever_went_on_before_has_twice_as_long_and_ten_minutes_at_most():
    before = (Pause(frozenset({3}), 60 * S), Pause(frozenset({4}), 500 * S))
    assert patient(waits_for(3), AGAIN * 60 * S - 1, before).culprits == ()
    assert patient(waits_for(3), AGAIN * 60 * S, before).culprits
    assert patient(waits_for(4), MOST_NS - 1, before).culprits == ()
    assert patient(waits_for(4), MOST_NS, before).culprits
    assert patient(waits_for(3, 4), 0, before).culprits


def test_a_short_pause_before_leaves_rank_0_no_less_time():
    """It saves a part every few minutes, and seldom all of it, or evaluates."""
    before = (Pause(frozenset({0}), 50 * S),)
    assert patient(waits_for(0), FIRST_NS - 1, before).culprits == ()
    assert patient(waits_for(0), FIRST_NS, before).culprits
    longer = (Pause(frozenset({0}), 200 * S),)
    assert patient(waits_for(0), 2 * 200 * S - 1, longer).culprits == ()


def test_a_process_that_ended_goes_on_no_more():
    assert patient(waits_for(0), 0, (), gone={0}).culprits


@pytest.mark.parametrize("verdict", [
    waits_for(0, 1, kind=Who.GROUP), waits_for(0, holdup=Holdup.MISMATCH),
    Verdict(Holdup.NOTHING, "well"),
])  # fmt: skip
def test_of_what_is_no_rank_for_which_all_wait_nothing_is_changed(verdict):
    assert suspects(verdict) == frozenset()
    assert patient(verdict, 0, ()) is verdict


def saves(*, every=5, steps=18, pause_s=30, ranks=4, late=0, **rest):
    """Return the log of a job whose ranks wait for one every few steps, and at the end, too."""
    columns = {name: [] for name in ("rank", "sequence", "started_ns", "ended_ns", "state")}
    for rank in range(ranks):
        now = 0
        for step in range(steps):
            last = step == steps - 1
            long = pause_s * S if step % every == every - 1 else 0
            own = S // 10 + (long if rank == late else 0)
            wait = S // 100 + (0 if rank == late else long)
            if last and rank == late:
                break
            row = (rank, step, now + own, NEVER if last else now + own + wait,
                   State.STARTED if last else State.ENDED)  # fmt: skip
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
            now += own + wait
    count = len(columns["rank"])
    return log_of(
        columns | {"kind": [Kind.COLLECTIVE] * count, "group": [0] * count, "op": [0] * count},
        ops=("barrier",), groups=(Group("world", members=tuple(range(ranks))),), **rest,
    )  # fmt: skip


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_paused_so_before_is_not_named_yet(late):
    verdict = hang.judge(saves(late=late))
    assert (verdict.holdup, verdict.culprits) == (Holdup.INSUFFICIENT, ())
    assert f"rank {late}, as they did 3 times before, for up to 30.1 s" in verdict.summary
    assert "60 s later" in verdict.missing[0]


def test_a_rank_that_never_paused_is_named_and_one_for_which_the_source_gave_up():
    assert [each.ranks for each in hang.judge(saves(pause_s=0)).culprits] == [(0,)]
    assert [each.ranks for each in hang.judge(saves(overdue=1)).culprits] == [(0,)]
    assert [each.ranks for each in hang.judge(saves(at_rest=True)).culprits] == [(0,)]


def test_a_gap_in_which_others_did_not_wait_is_no_pause():
    log = saves()
    ended = log.ended_ns.copy()
    others = (log.rank != 0) & (ended != NEVER)
    ended[others] = log.started_ns[others] + 1
    columns = {name: getattr(log, name) for name in
               ("rank", "sequence", "started_ns", "state", "kind", "group", "op")}  # fmt: skip
    log = log_of(columns | {"ended_ns": ended}, ops=log.ops, groups=log.groups)
    assert [each.ranks for each in hang.judge(log).culprits] == [(0,)]
