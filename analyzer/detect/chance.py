# SPDX-License-Identifier: Apache-2.0
"""What chance does: the distributions that thresholds come from."""

import numpy as np
from numpy.typing import NDArray

# scipy.stats has these by name, and takes longer to import than most of the analyzer.
from scipy.special import betainc, betaincinv, ndtri


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
