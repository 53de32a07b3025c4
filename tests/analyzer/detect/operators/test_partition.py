# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.partition import parts
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, TRACE
from tests.analyzer.detect.operators.jobs import case_of, logged

NOBODY = np.zeros(0, np.int64)


@pytest.mark.parametrize("source", [TRACE, HOOKS])
def test_a_long_last_stage_is_uneven(source):
    found = parts(case_of(logged(Job(steps=12, last_stage=1.4), source=source)), NOBODY)
    assert found.uneven
    assert (found.stages, found.steady) == ((3,), 1.0)
    assert 1.3 < found.times < 1.45


def test_what_the_loss_alone_takes_is_not():
    found = parts(case_of(logged(Job(steps=12, last_stage=1.08))), NOBODY)
    assert not found.uneven
    assert not found.uneven_by_chance


def test_chance_outweighs_a_stage_that_is_a_little_long():
    job = Job(data=32, stages=2, steps=30, last_stage=1.2)
    found = parts(case_of(logged(job, Injected(Fault.SEQUENCES, 0, 0.45))), NOBODY)
    assert found.uneven_by_chance
    assert not found.uneven
    assert found.partition < found.chance / 2


def test_a_rank_at_fault_makes_no_stage_uneven():
    log = logged(Job(data=2, steps=12), Injected(Fault.SLOW_RANK, 0, 2.0))
    assert parts(case_of(log), NOBODY).partition > 0.1
    assert not parts(case_of(log), np.array([0])).uneven


def test_without_anybody_left_nothing_is_lost():
    case = case_of(logged(Job(data=1, stages=1, steps=6)))
    assert parts(case, np.array([0])).partition == 0.0


def test_one_step_that_is_uneven_by_chance_and_long_does_not_hide_a_stage():
    case = case_of(logged(Job(steps=6, last_stage=1.4)))
    own = case.sums.own_us.copy()
    own[0] *= np.random.default_rng(1).uniform(15, 40, (own.shape[1], 1))
    assert parts(replace(case, sums=replace(case.sums, own_us=own)), NOBODY).uneven


def _long(*stages, of=4):
    """Return a case in which these stages have half as much again to do."""
    case = case_of(logged(Job(stages=of, steps=12, first_stage=1.0, last_stage=1.0)))
    own = case.sums.own_us * np.where(np.isin(case.stage, stages), 1.5, 1.0)[None, :, None]
    return replace(case, sums=replace(case.sums, own_us=own))


def test_stages_that_are_equally_long_are_named_all():
    found = parts(_long(1, 3), NOBODY)
    assert found.uneven
    assert (found.stages, found.steady) == ((1, 3), 1.0)
    assert parts(_long(0), NOBODY).stages == (0,)


def test_of_more_long_stages_than_short_ones_none_is_uneven():
    assert not parts(_long(0, 1, 2), NOBODY).uneven
