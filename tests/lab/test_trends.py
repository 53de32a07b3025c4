# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from scipy.stats import theilslopes

from tests.lab.trends import Slope, theil_sen


def test_a_line_has_its_slope_and_no_interval() -> None:
    assert theil_sen([(float(x), 3.0 * x + 1) for x in range(20)]) == Slope(3.0, 3.0, 3.0)


@pytest.mark.parametrize("seed", range(5))
def test_slope_and_interval_are_those_of_scipy(seed: int) -> None:
    chance = random.Random(seed)
    points = [(float(x), 0.1 * x + chance.gauss(0, 1)) for x in range(16)]
    found, known = theil_sen(points), theilslopes([y for _, y in points], [x for x, _ in points])
    assert found is not None
    assert found.middle == pytest.approx(known.slope)
    assert (found.least, found.most) == pytest.approx((known.low_slope, known.high_slope))


def test_some_odd_readings_do_not_bend_it() -> None:
    points = [(float(x), 50.0 + (30.0 if x in {3, 9} else 0.0)) for x in range(16)]
    assert theil_sen(points) == Slope(0.0, 0.0, 0.0)


def test_few_points_leave_out_nothing_and_one_has_no_slope() -> None:
    assert theil_sen([(0.0, 1.0), (1.0, 2.0), (2.0, 5.0)]) == Slope(2.0, 1.0, 3.0)
    assert theil_sen([(0.0, 1.0)]) is None
    assert theil_sen([(0.0, 1.0), (0.0, 2.0)]) is None
