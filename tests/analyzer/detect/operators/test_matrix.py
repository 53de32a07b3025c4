# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.detect.operators.matrix import Marks, marks, marks_by_means

NOBODY = Marks((), (), ())


def _delays(ranks=8, seed=1):
    made = np.random.default_rng(seed).normal(100, 5, (ranks, ranks))
    np.fill_diagonal(made, np.nan)
    return made


@pytest.mark.parametrize("rule", [marks, marks_by_means])
def test_a_healthy_matrix_has_nothing_hot(rule):
    for seed in range(20):
        assert rule(_delays(seed=seed)) == NOBODY


@pytest.mark.parametrize("rule", [marks, marks_by_means])
def test_rows_are_senders_columns_receivers_and_cells_edges(rule):
    slow_sender, slow_receiver, slow_edge = _delays(), _delays(), _delays()
    slow_sender[2] *= 5
    slow_receiver[:, 4] *= 5
    slow_edge[1, 3] *= 8
    assert rule(slow_sender) == Marks((2,), (), ())
    assert rule(slow_receiver) == Marks((), (4,), ())
    assert rule(slow_edge) == Marks((), (), ((1, 3),))


def test_of_few_ranks_a_ratio_to_the_mean_finds_nothing_and_medians_do():
    delay = _delays(4)
    delay[2] *= 50
    assert marks_by_means(delay).senders == (2,)
    delay = np.array([[np.nan, 100.0], [5000.0, np.nan]])
    assert marks_by_means(delay) == NOBODY
    three = _delays(3)
    three[0, 1] *= 20
    assert marks(three) == Marks((), (), ((0, 1),))
    assert marks_by_means(three).edges == ()


def test_what_was_never_sent_is_not_hot():
    delay = _delays()
    delay[5] = np.nan
    assert marks(delay) == NOBODY
