# SPDX-License-Identifier: Apache-2.0
import sys
from dataclasses import replace

import numpy as np
import pytest

from analyzer.detect.operators.forest import FEATURES, features, learned, outstanding, shifted
from analyzer.detect.operators.lateness import slow
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job
from netagent.model.errors import CapabilityMissing
from tests.analyzer.detect.operators.jobs import case_of, logged

JOB = Job(data=16, stages=2, steps=20)


def _case(rank, seed=1):
    return case_of(logged(JOB, Injected(Fault.OFTEN_SLOW, rank, 1.6, share=0.5), seed=seed))


def _labels(case, rank):
    late = features(case)[:, :, 0]
    made = np.zeros(late.shape, bool)
    made[:, rank] = late[:, rank] > 0.1
    return made


@pytest.fixture
def forest():
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'netagent[forest]'")
    case = _case(3)
    return learned(case, _labels(case, 3))


def test_every_iteration_of_every_rank_has_its_features():
    case = _case(3)
    values = features(case)
    assert values.shape == (JOB.steps, JOB.world, len(FEATURES))
    assert np.isfinite(values).all()


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    case = _case(3)
    with pytest.raises(CapabilityMissing, match="scikit-learn"):
        learned(case, _labels(case, 3))


def test_a_forest_says_of_another_log_who_stood_out(forest):
    case = _case(20, seed=5)
    said = outstanding(forest, case)
    assert np.array_equal(said, _labels(case, 20))
    assert case.sums.ranks[slow(case, said).places].tolist() == [20]


def test_where_a_job_drifts_thresholds_are_shifted(forest):
    case = _case(20, seed=5)
    own = case.sums.own_us + 0.3 * np.median(case.step_us) / len(case.sums.labels)
    drifted = replace(case, sums=replace(case.sums, own_us=own))
    mended = shifted(forest, drifted)
    assert mended.usual[3] > forest.usual[3] + 0.2
    assert np.array_equal(outstanding(mended, drifted), _labels(drifted, 20))
