# SPDX-License-Identifier: Apache-2.0
import tracemalloc

import numpy as np
import pytest

from analyzer.detect.operators import iterations as iterations_of
from analyzer.detect.operators.iterations import iterations
from analyzer.operators.log import NEVER, UNKNOWN, Kind, log_of
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS
from tests.analyzer.detect.operators.jobs import ALL, logged


def test_steps_that_a_log_names_are_taken_as_they_are():
    log = logged(Job(steps=6), source=ALL)
    found = iterations(log)
    assert not found.inferred
    assert found.steps.tolist() == sorted(set(log.step.tolist()))
    assert np.array_equal(found.step, log.step)


@pytest.mark.parametrize(
    "job", [Job(steps=9), Job(stages=1, tensor=4, steps=9), Job(data=1, steps=9)]
)
def test_steps_are_told_by_what_is_done_once_in_each(job):
    found = iterations(logged(job, source=HOOKS))
    assert found.inferred
    # The first may lack its beginning.
    assert len(found.steps) == job.steps - 1


def test_all_ranks_have_the_same_operators_in_a_step_of_theirs():
    log = logged(Job(steps=9), source=HOOKS)
    found = iterations(log)
    for step in found.steps:
        names = {tuple(log.op[(found.step == step) & (log.rank == rank)]) for rank in range(8)}
        assert len(names) == 1


def probed(steps, ranks=2, late=(0, 0)):
    """Return what probes have of a job with three reductions a step, of which one is small.

    Ranks are watched from an operation on, and end each together.
    """
    rows = [
        (rank, size, 1000 * (3 * step + n) + rank)
        for rank in range(ranks)
        for step in range(steps)
        for n, size in enumerate((800, 800, 8))
        if 3 * step + n >= late[rank]
    ]
    names = ("rank", "bytes", "ended_ns")
    columns = {name: [row[n] for row in rows] for n, name in enumerate(names)}
    return log_of(
        columns | {"kind": [Kind.COLLECTIVE] * len(rows), "op": [0] * len(rows)},
        ops=("all_reduce",), source="uprobes",
    )  # fmt: skip


def test_where_nobody_says_what_groups_are_for_sizes_tell_what_a_step_has_once(monkeypatch):
    found = iterations(probed(9))
    assert found.steps.tolist() == list(range(1, 9))
    monkeypatch.setattr(iterations_of, "_MOST_SIZES", 1)  # of so many none tells anything
    assert len(iterations(probed(9)).steps) > 20


@pytest.mark.parametrize("late", [(0, 2), (0, 3), (3, 0), (4, 2)])
def test_steps_of_ranks_that_were_watched_later_are_numbered_as_those_of_the_others(late):
    log = probed(9, late=late)
    found = iterations(log)
    assert len(found.steps) >= 6
    for step in found.steps.tolist():
        ends = [log.ended_ns[(found.step == step) & (log.rank == rank)] for rank in range(2)]
        assert [len(each) for each in ends] == [3, 3]
        assert (ends[1] - ends[0]).tolist() == [1, 1, 1]


def test_where_nobody_knows_whose_step_is_whose_there_are_none():
    """Of two ranks of which one had ended before the other one was watched, or by their clocks."""
    log = probed(9)
    of_one = log.rank == 1
    log.started_ns[of_one] += 10**12
    log.ended_ns[of_one] += 10**12
    found = iterations(log)
    assert len(found.steps) == 0
    assert set(found.step.tolist()) == {UNKNOWN}


def test_what_has_not_ended_does_not_number_steps():
    log = probed(9)
    log.ended_ns[-1] = NEVER
    assert len(iterations(log).steps) == 8


def test_a_log_in_which_nothing_repeats_has_no_steps():
    log = log_of({"rank": [0, 1], "op": [0, 1], "kind": [Kind.COLLECTIVE] * 2}, ops=("a", "b"))
    assert len(iterations(log).steps) == 0


def test_an_empty_log_has_no_steps():
    assert len(iterations(log_of({"rank": []})).steps) == 0


def test_many_operations_of_many_ranks_make_no_table_of_all():
    """Twenty thousand ranks, each with two operations of its own: a small file."""
    count = 20_000
    ranks = [rank for rank in range(count) for _ in range(2)]
    log = log_of(
        {"rank": ranks, "op": ranks, "kind": [Kind.COMPUTE] * len(ranks)},
        ops=tuple(f"op{n}" for n in range(count)),
    )
    tracemalloc.start()
    assert len(iterations(log).steps) == 0
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()
