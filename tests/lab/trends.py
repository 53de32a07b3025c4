# SPDX-License-Identifier: Apache-2.0
"""A slope that some odd readings do not bend, with its interval. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

Z = 1.96
"""Quantile of the normal distribution for an interval of 95 %."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How fast something grows, and between which bounds that is by 95 %."""

    middle: float
    least: float
    most: float


def theil_sen(points: Sequence[tuple[float, float]]) -> Slope | None:
    """Return the median slope of all pairs of points (x, y), per unit of x; None without a pair.

    The interval is Sen's: it leaves out so many of the ordered slopes at either end as Kendall's
    rank correlation has room for where nothing grows. With few points it leaves out none. It takes
    readings for independent: those that drift together have a wider one in truth.

    References
    ----------
    Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.
    """
    ordered = sorted(points)
    slopes = sorted((d - b) / (c - a) for (a, b), (c, d) in combinations(ordered, 2) if c > a)
    if not slopes:
        return None
    n = len(ordered)
    room = Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    first = max(0, round((len(slopes) - room) / 2) - 1)
    last = min(len(slopes) - 1, round((len(slopes) + room) / 2))
    return Slope(median(slopes), slopes[first], slopes[last])
