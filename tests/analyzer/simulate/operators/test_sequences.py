# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.sequences import packed, spread_out

JOB = Job(data=16, steps=40)


@pytest.mark.parametrize("draw", [packed, spread_out])
def test_sequences_take_as_long_as_one_on_the_average(draw):
    made = draw(JOB, 0.5, np.random.default_rng(1))
    assert made.shape == (JOB.steps, JOB.data, JOB.microbatches)
    assert abs(made.mean() - 1) < 0.05
    assert made.std() > 0.1
    assert made.min() > 0


def test_packed_ones_take_at_least_what_is_no_attention():
    made = packed(JOB, 0.6, np.random.default_rng(1))
    assert made.min() >= 0.4
    assert made.max() > 1.6


def test_nothing_of_attention_is_nothing_unequal():
    assert np.allclose(packed(JOB, 0.0, np.random.default_rng(1)), 1)
