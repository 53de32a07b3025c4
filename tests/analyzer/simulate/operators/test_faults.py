# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.detect.operators.verdict import Who
from analyzer.simulate.operators.faults import NOBODY, Fault, Injected, blame, draw
from analyzer.simulate.operators.job import Job

JOB = Job(data=4, stages=2, tensor=2)
TRUTHS = {
    Fault.SLOW_RANK: (Who.RANK, {5}), Fault.NIC: (Who.RANK, {5}), Fault.LINK: (Who.EDGE, {5, 13}),
    Fault.RING: (Who.GROUP, {1, 3, 5, 7}), Fault.HOST: (Who.HOST, set(range(8))),
    Fault.LAST_STAGE: (Who.GROUP, set(range(8, 16))),
}  # fmt: skip


@pytest.mark.parametrize("fault", TRUTHS)
def test_the_truth_names_who_is_at_fault(fault):
    found = blame(JOB, Injected(fault, 5))
    assert (found.kind, set(found.ranks)) == TRUTHS[fault]


@pytest.mark.parametrize("fault", sorted(NOBODY))
def test_of_some_nobody_is(fault):
    assert blame(JOB, Injected(fault)) is None


@pytest.mark.parametrize("fault", sorted(Fault))
def test_faults_are_drawn_where_they_can_be(fault):
    for seed in range(20):
        (each,) = draw(JOB, [fault], np.random.default_rng(seed))
        truth = blame(JOB, each)
        assert each.strength > 0
        assert 0 < each.share <= 1
        assert truth is None or max(truth.ranks) < JOB.world
        if fault is Fault.LOADER:
            assert JOB.where(each.rank)[0] == 0
