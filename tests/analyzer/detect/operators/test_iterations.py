# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.detect.operators.iterations import iterations
from analyzer.operators.log import Kind, log_of
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


def test_a_log_in_which_nothing_repeats_has_no_steps():
    log = log_of({"rank": [0, 1], "op": [0, 1], "kind": [Kind.COLLECTIVE] * 2}, ops=("a", "b"))
    assert len(iterations(log).steps) == 0


def test_an_empty_log_has_no_steps():
    assert len(iterations(log_of({"rank": []})).steps) == 0
