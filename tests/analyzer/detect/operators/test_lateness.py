# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.lateness import excess_us, slow
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job
from tests.analyzer.detect.operators.jobs import SOURCES, case_of, logged

JOB = Job(data=8, stages=4, steps=12)


def _named(case):
    return case.sums.ranks[slow(case).places].tolist()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rank", [0, 13, 31])
def test_a_slow_rank_is_named_alone_wherever_it_is(source, rank):
    log = logged(JOB, Injected(Fault.SLOW_RANK, rank, 1.4), source=SOURCES[source])
    assert _named(case_of(log)) == [rank]


def test_who_waits_for_a_slow_rank_is_late_by_nothing():
    log = logged(JOB, Injected(Fault.SLOW_RANK, 5, 2.0), source=SOURCES["hooks"])
    late = excess_us(case_of(log)).mean(axis=0)
    assert late[5] > 80_000
    assert np.abs(np.delete(late, 5)).max() < 5_000


def test_a_rank_that_is_slow_at_times_shows_how_it_goes_with_the_iterations_time():
    log = logged(JOB, Injected(Fault.OFTEN_SLOW, 5, 2.0, share=0.5))
    found = slow(case_of(log))
    assert found.places.tolist() == [5]
    assert 0.2 < found.share[0] < 0.9
    assert found.with_time[0] > 0.9


def test_a_rank_that_is_slow_where_its_stage_has_time_to_spare_holds_nobody_up():
    heavy = replace(JOB, last_stage=1.6)
    log = logged(heavy, Injected(Fault.SLOW_RANK, 3, 1.3))
    assert _named(case_of(log)) == []


def test_a_constantly_slow_rank_is_found_among_uneven_work():
    wide = Job(data=32, stages=1, steps=40, microbatches=16)
    log = logged(wide, Injected(Fault.SEQUENCES, strength=0.3), Injected(Fault.SLOW_RANK, 9, 1.6))
    assert _named(case_of(log)) == [9]


def test_of_two_replicas_the_quicker_one_shows_what_the_work_takes():
    log = logged(Job(data=2, stages=4, steps=12), Injected(Fault.SLOW_RANK, 2, 1.5))
    assert _named(case_of(log)) == [2]


def test_a_rank_that_waited_in_what_was_not_logged_is_no_suspect_beside_a_slow_one():
    case = case_of(logged(JOB, Injected(Fault.SLOW_RANK, 5, 1.5)))
    own = case.sums.own_us.copy()
    own[:, 13, -1] += 0.9 * excess_us(case)[:, 5]
    echoed = replace(case, sums=replace(case.sums, own_us=own))
    assert _named(echoed) == [5]
    quiet = case_of(logged(JOB))
    own = quiet.sums.own_us.copy()
    own[:, 13, -1] += 50_000
    assert _named(replace(quiet, sums=replace(quiet.sums, own_us=own))) == [13]


def _with_own(case, own):
    return replace(case, sums=replace(case.sums, own_us=own))


def test_garbage_that_is_collected_in_three_of_five_steps_is_chance():
    case = case_of(logged(Job(data=64, stages=4, steps=5)))
    rng = np.random.default_rng(1)
    own = case.sums.own_us.copy()
    some = rng.random(own.shape[:2]) < 0.08
    some[:, 9] = [True, True, True, False, False]
    own[:, :, 0] += some * 0.08 * case.step_us[:, None]
    own[3:, 9, 0] += 100  # never quicker than its peers
    assert _named(_with_own(case, own)) == []
    own[:, 9, 0] = case.sums.own_us[:, 9, 0] + 0.2 * case.step_us
    assert _named(_with_own(case, own)) == [int(case.sums.ranks[9])]


def test_one_step_in_which_all_are_apart_does_not_hide_a_slow_rank():
    case = case_of(logged(replace(JOB, steps=5), Injected(Fault.SLOW_RANK, 13, 1.4)))
    own, length = case.sums.own_us.copy(), case.sums.length_us.copy()
    own[0] *= np.random.default_rng(2).uniform(15, 40, (own.shape[1], 1))
    length[0] *= 40
    case = replace(case, sums=replace(case.sums, own_us=own, length_us=length))
    assert _named(case) == [13]


@pytest.mark.parametrize(("deviations", "named"), [(5.5, False), (9.0, True)])
def test_of_very_many_ranks_the_last_has_to_be_further_off(deviations, named):
    case = case_of(logged(Job(data=512, stages=1, steps=8, microbatches=2)))
    own = case.sums.own_us.copy()
    rng = np.random.default_rng(1)
    far = np.clip(rng.normal(size=512), -3, 3)
    far[77] = deviations
    own *= (1 + 0.006 * far)[None, :, None] / own.sum(axis=2).mean(axis=0)[None, :, None]
    length = np.full(case.sums.length_us.shape, 1.0)
    case = replace(case, sums=replace(case.sums, own_us=own, length_us=length))
    assert slow(case).places.tolist() == ([77] if named else [])


def test_ranks_that_may_be_of_another_stage_have_to_be_far_off():
    case = case_of(logged(Job(data=16, stages=2, steps=10), Injected(Fault.SLOW_RANK, 3, 1.08)))
    assert slow(case).places.tolist() == [3]
    mixed = np.ones(len(case.stage), bool)
    assert slow(replace(case, mixed=mixed)).places.tolist() == []
    far = case_of(logged(Job(data=16, stages=2, steps=10), Injected(Fault.SLOW_RANK, 3, 1.3)))
    assert slow(replace(far, mixed=mixed)).places.tolist() == [3]
