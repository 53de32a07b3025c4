# SPDX-License-Identifier: Apache-2.0
from itertools import combinations

import numpy as np
import pytest

from analyzer.simulate.clos import Clos, Shape
from tests.campaign.apart import NoRoomError, beside

CLOS = Clos(Shape(hosts=32, hosts_per_segment=8, spines=4), seed=1)


def drawn(numbers, seed=1):
    rng, made = np.random.default_rng(seed), []
    for number in numbers:
        made.append(beside(made, number, CLOS, rng))
    return made


def ends(failure):
    return set(failure.truth.name.split(" -- "))


def parts(failure):
    names = {failure.truth.name, failure.truth.name.partition("/")[0], *ends(failure)}
    return {each for each in names if "leaf" not in each or "--" in each}


def test_as_many_links_as_spines_share_no_spine():
    for seed in range(20):
        spines = [end for f in drawn([1] * 4, seed) for end in ends(f) if "spine" in end]
        assert len(set(spines)) == 4


def test_more_links_than_spines_share_no_leaf():
    for one, other in combinations(drawn([1] * 8), 2):
        assert one.truth != other.truth
        assert not any("leaf" in end for end in ends(one) & ends(other))


@pytest.mark.parametrize("numbers", [(4, 1), (1, 4), (4, 2, 3), (12, 5), (5, 17)])
def test_a_part_and_what_it_is_part_of_do_not_fail_together(numbers):
    for seed in range(30):
        for one, other in combinations(drawn(numbers, seed), 2):
            assert not parts(one) & parts(other)


def test_what_does_not_fit_is_refused():
    with pytest.raises(NoRoomError, match="switch offline beside 4 others"):
        drawn([4] * 5)


@pytest.mark.parametrize("number", [5, 12, 17, 21])
def test_nothing_fails_where_nobody_would_see_it(number):
    rng, idle = np.random.default_rng(1), {f"h{n}" for n in range(31)}
    truth = beside([], number, CLOS, rng, idle).truth
    assert truth.name.partition("/")[0].rpartition("-c")[2] in ("h31", "31")
