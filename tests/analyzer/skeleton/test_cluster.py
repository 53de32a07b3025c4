# SPDX-License-Identifier: Apache-2.0
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.skeleton import cluster as c
from analyzer.skeleton.spectrum import Features


def features(points, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    early, late = (points + noise * rng.standard_normal(points.shape) for _ in range(2))
    return Features(early, late, 1.0)


def grouped(groups, size, *, apart=10.0, within=0.1, seed=0):
    """Return points of `groups` groups, mixed, and the group of each."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(groups), size))
    centres = apart * np.eye(groups)
    return centres[label] + within * rng.standard_normal((len(label), groups)), label


def same(one, two):
    return np.array_equal(one[:, None] == one[None, :], two[:, None] == two[None, :])


def brute_force(points, size):
    """Return the equal groups of least spread, by trying all."""
    groups = len(points) // size
    best, least = None, np.inf
    for label in set(permutations(np.repeat(np.arange(groups), size).tolist())):
        spread = c._spread(points, np.asarray(label))
        if spread < least:
            best, least = np.asarray(label), spread
    return best


@given(st.integers(0, 2**32 - 1), st.sampled_from([(2, 2), (3, 2), (2, 3), (2, 4)]))
def test_groups_are_those_of_brute_force(seed, shape):
    points, _ = grouped(*shape, apart=4.0, within=0.4, seed=seed)
    label, _ = c._cut(c._tree(points), points, shape[1])
    assert same(label, brute_force(points, shape[1]))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_any_points_make_groups_of_the_size_that_is_asked_for(seed, size):
    points = np.random.default_rng(seed).standard_normal((12, 3))
    label, moved = c._cut(c._tree(points), points, size)
    assert np.bincount(label).tolist() == [size] * (12 // size)
    assert 0 <= moved <= 1


@pytest.mark.parametrize(("groups", "size"), [(8, 8), (4, 16), (2, 3), (12, 5)])
def test_the_size_is_found_and_so_are_the_groups(groups, size):
    points, label = grouped(groups, size, seed=groups)
    made = features(points, noise=0.5)
    chosen = c.choose(c.candidates(made), made)
    assert chosen.size == size
    assert same(chosen.label, label)


def test_an_outlier_takes_the_seat_that_is_left():
    points, label = grouped(4, 4)
    points[0] += 15.0
    made = features(points)
    chosen = c.choose(c.candidates(made), made)
    assert chosen.size == 4
    assert same(chosen.label, label)


def test_where_nothing_differs_all_are_one_group():
    made = features(np.full((24, 8), 5.0), noise=0.3)
    assert c.choose(c.candidates(made), made).size == 24


def test_where_all_differ_each_is_a_group():
    points, _ = grouped(8, 1)
    made = features(points, noise=0.1)
    assert c.choose(c.candidates(made), made).size == 1


def test_a_single_member_is_a_group():
    made = features(np.ones((1, 2)))
    assert c.choose(c.candidates(made), made).label.tolist() == [0]


def test_separation_is_one_for_groups_far_apart_and_nothing_for_one_group():
    points, label = grouped(3, 6, within=0.0)
    distances = c._squared(points)
    assert c.separation(distances, label, floor=0.1) == pytest.approx(1.0)
    assert c.separation(distances, np.zeros_like(label), floor=0.1) == 0.0
    mixed = np.roll(label, 1)
    assert c.separation(distances, mixed, floor=0.1) < 0.5


@given(st.integers(1, 5000))
def test_divisors_divide(count):
    assert c.divisors(count) == [d for d in range(1, count + 1) if count % d == 0]
