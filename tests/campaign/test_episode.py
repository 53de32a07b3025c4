# SPDX-License-Identifier: Apache-2.0
"""One failure of each type in a small fabric: named, alone, and health says nothing."""

import copy

import pytest

from analyzer.simulate.clos import Shape
from analyzer.simulate.failures import TYPES
from tests.campaign.episode import Cluster, episode, types_of
from tests.campaign.score import score


@pytest.fixture(scope="module")
def warmed():
    made = Cluster(Shape(hosts=32, hosts_per_segment=8, spines=4), seed=5)
    made.warm(30)
    return made


@pytest.mark.parametrize("number", TYPES)
def test_a_failure_of_each_type_is_named_alone(warmed, number):
    outcome = episode(copy.deepcopy(warmed), 900 + number, (number,), windows=5)
    made = score([outcome])
    assert not outcome.broken
    assert (made.total.first, dict(made.wrong)) == (1, {})


def test_health_goes_on_without_a_word(warmed):
    outcome = episode(copy.deepcopy(warmed), 1, (), windows=8)
    assert outcome.said == ()


def test_how_many_fail_at_once_goes_round():
    assert [len(types_of(seed, most=3, among=(1, 2))) for seed in range(6)] == [1, 2, 3] * 2
