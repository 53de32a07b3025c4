# SPDX-License-Identifier: Apache-2.0
"""What chance does: the distributions that thresholds come from."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, norm


def deviations(chance: float) -> float:
    """Return how many standard deviations a normal value exceeds with this probability."""
    return float(norm.isf(chance))


def chances(hits: NDArray[np.int64], of: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
    """Return (n,) the probability of so many hits or more, each with probability `rate`."""
    made: NDArray[np.float64] = binom.sf(hits - 1, of, rate)
    return made


def at_most(hits: int, of: int, sure: float) -> float:
    """Return the share that the true one is below with probability `sure` (Clopper and Pearson)."""
    return float(beta.ppf(sure, hits + 1, of - hits)) if of > hits else 1.0
