# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np

from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, Source
from tests.analyzer.detect.operators.jobs import case_of, logged

JOB = Job(data=4, stages=2, steps=6)


def test_passes_are_what_goes_forward_or_backward():
    case = case_of(logged(JOB))
    work = JOB.microbatches * JOB.forward_us * (1 + JOB.backward)
    assert np.allclose(case.passes_us.mean() / work, 1.035, atol=0.02)
    assert (case.own_us > case.passes_us).all()


def test_without_names_all_that_a_rank_does_is_its_passes():
    case = case_of(logged(JOB, source=HOOKS))
    assert np.array_equal(case.passes_us, case.own_us)


def test_hosts_are_told_where_known():
    case = case_of(logged(JOB))
    assert (case.host(0), case.host(999)) == ("host-0", None)
    assert case.known.all()
    assert case.step_us.shape == (JOB.steps,)


def test_what_a_rank_did_not_log_is_no_work_of_its_own_where_transfers_are_not_logged():
    case = case_of(logged(JOB, source=Source(transfers=False)))
    blind = replace(case, transfers=False)
    assert (case.is_blind, blind.is_blind) == (False, True)
    assert (blind.own_us.mean(axis=0) < case.own_us.mean(axis=0)).all()
    alone = replace(blind, stage=np.zeros_like(blind.stage))
    assert np.array_equal(alone.own_us, case.own_us)


def test_where_communication_alone_is_logged_there_is_nothing_else():
    case = replace(case_of(logged(JOB, source=HOOKS)), transfers=False)
    assert (case.is_piped, case.is_blind) == (True, False)
    assert case.own_us.any()
