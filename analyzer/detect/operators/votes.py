# SPDX-License-Identifier: Apache-2.0
"""Who stands out in more iterations than chance would have it.

Each iteration votes for who stood out in it; one iteration alone never decides. What chance does
is how often anybody else stands out. Holmes weighs votes by how an operator's time goes with the
iteration's; where somebody is slow in all iterations alike there is nothing to go with, so that
decides only the order of those who are slow at times.
"""

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.chance import chances

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BY_CHANCE = 1e-4
"""How likely chance may name anybody of a log, all together. Chosen: half a percent of false blame
is what an operator may see, and a log is judged by several rules."""
FEWEST_VOTES = 3
"""Iterations in which somebody has to stand out at the least. Chosen."""
_ROUNDS = 4  # who was named is not counted as chance; it is settled after two mostly


def elected(outstanding: Flags, known: Flags) -> Flags:
    """Return (subjects,) who stood out too often, given (iterations, subjects).

    `known` says where there is a value at all.
    """
    votes, of = outstanding.sum(axis=0), known.sum(axis=0)
    named = np.zeros(len(votes), bool)
    for _ in range(_ROUNDS):
        rest = ~named & (of > 0)
        total = int(of[rest].sum())
        rate = (votes[rest].sum() + 0.5) / (total + 1.0)
        likely = chances(votes, np.maximum(of, votes), min(rate, 0.999)) * max(
            int((of > 0).sum()), 1
        )
        now = (likely < BY_CHANCE) & (votes >= FEWEST_VOTES)
        if np.array_equal(now, named):
            break
        named = now
    return named


def spread(values: Floats, axis: int | None = None) -> Floats:
    """Return the standard deviation that the median of absolute deviations stands for."""
    middle = np.nanmedian(values, axis=axis, keepdims=True)
    return np.asarray(1.4826 * np.nanmedian(np.abs(values - middle), axis=axis))


def going_with(values: Floats, iteration_us: Floats) -> Floats:
    """Return (subjects,) how (iterations, subjects) go with the iterations' time, 0 to 1.

    Pearson's correlation, of which Holmes counts only what is positive.
    """
    centred = values - values.mean(axis=0)
    time = iteration_us - iteration_us.mean()
    scale = np.sqrt((centred**2).sum(axis=0) * (time**2).sum())
    made = np.divide((centred * time[:, None]).sum(axis=0), scale, where=scale > 0,
                     out=np.zeros(values.shape[1]))  # fmt: skip
    return np.asarray(np.maximum(made, 0.0))
