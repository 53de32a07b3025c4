# SPDX-License-Identifier: Apache-2.0
"""What chance does: the distributions that thresholds come from."""

import numpy as np
from numpy.typing import NDArray

# scipy.stats has these by name, and takes longer to import than most of the analyzer.
from scipy.special import betainc, betaincinv, gammaln, ndtri


def deviations(chance: float) -> float:
    """Return how many standard deviations a normal value exceeds with this probability."""
    return float(-ndtri(chance))


def chances(hits: NDArray[np.int64], of: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
    """Return (n,) the probability of so many hits or more, each with probability `rate`."""
    some: NDArray[np.float64] = betainc(np.maximum(hits, 1), of - hits + 1, rate)
    return np.where(hits > 0, some, 1.0)


def at_most(hits: int, of: int, sure: float) -> float:
    """Return the share that the true one is below with probability `sure` (Clopper and Pearson)."""
    return float(betaincinv(hits + 1, of - hits, sure)) if of > hits else 1.0


def gathered(hits: int, of: int, others: int, others_of: int) -> float:
    """Return how likely so many of all hits, or more, are among `of` where they lie at random.

    One-sided (Fisher's exact test); `others` of `others_of` are hits beside.
    """
    every, all_hits = of + others_of, hits + others
    found = np.arange(hits, min(of, all_hits) + 1)
    ways = _choices(of, found) + _choices(others_of, all_hits - found)
    return float(np.exp(ways - _choices(every, np.array(all_hits))).sum())


def _choices(of: int, taken: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of how many ways there are to take some; -inf where there are none."""
    known = (taken >= 0) & (taken <= of)
    some = np.where(known, taken, 0)
    ways = gammaln(of + 1) - gammaln(some + 1) - gammaln(of - some + 1)
    return np.where(known, ways, -np.inf)
