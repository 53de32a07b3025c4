# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.latency.outlier import factors

REACH = 0.1


def naive(past, new, k):
    """Return the factor as Breunig et al. define it, point by point."""

    def near(point, others):
        return sorted(range(len(others)), key=lambda n: math.dist(point, others[n]))[:k]

    def neighbours(n):
        rest = [m for m in range(len(past)) if m != n]
        return [rest[m] for m in near(past[n], [past[m] for m in rest])]

    def away(a, b):
        return max(REACH, math.dist(a, b))

    kth = [away(past[n], past[neighbours(n)[-1]]) for n in range(len(past))]

    def density(point, indices):
        return k / sum(max(kth[m], away(point, past[m])) for m in indices)

    mine = near(new, past)
    around = [density(past[n], neighbours(n)) for n in mine]
    return sum(around) / k / density(new, mine)


@st.composite
def sets(draw):
    points = draw(st.integers(4, 9))
    count, dimensions = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return (
        rng.normal(size=(count, points, dimensions)), 3 * rng.normal(size=(count, dimensions)),
        draw(st.integers(1, points - 1)),
    )  # fmt: skip


@given(sets())
def test_it_is_the_published_factor_of_every_set(made):
    past, new, k = made
    found = factors(past, new, neighbours=k, reach=REACH)
    expected = [naive(p.tolist(), n.tolist(), k) for p, n in zip(past, new, strict=True)]
    assert found == pytest.approx(expected)


def test_a_point_among_others_is_none_and_a_far_one_is():
    rng = np.random.default_rng(1)
    past = rng.normal(size=(1, 10, 7))
    among = factors(past, np.zeros((1, 7)), neighbours=3, reach=REACH)
    far = factors(past, np.full((1, 7), 9.0), neighbours=3, reach=REACH)
    assert among[0] < 1.2
    assert far[0] > 4


def test_where_all_coincide_nearly_the_same_is_no_outlier():
    past = np.zeros((1, 5, 7))
    assert factors(past, np.full((1, 7), 0.01), neighbours=3, reach=REACH)[0] == pytest.approx(1)


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="3 points have no 3 neighbours"):
        factors(np.zeros((1, 3, 2)), np.zeros((1, 2)), neighbours=3, reach=REACH)
