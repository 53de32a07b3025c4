# SPDX-License-Identifier: Apache-2.0
"""How much longer one microbatch takes than another, because its sequences are longer.

Lin et al. (OSDI '25) found this in every fifth job that straggled: packed to the same number of
tokens, microbatches cost as much as the squares of their sequences' lengths come to.
"""

import numpy as np

from analyzer.simulate.operators.harm import Grid
from analyzer.simulate.operators.job import Job

_MOST = 64  # documents in a context


def spread_out(job: Job, spread: float, rng: np.random.Generator) -> Grid:
    """Return (steps, data, microbatches) factors of mean 1: a lognormal distribution's."""
    shape = (job.steps, job.data, job.microbatches)
    return np.exp(rng.normal(-(spread**2) / 2, spread, shape))


def packed(job: Job, share: float, rng: np.random.Generator) -> Grid:
    """Return factors of mean about 1: of documents packed until a context is full.

    `share` of the mean time is attention, which grows with the squares of documents' lengths. Those
    have a long tail: a document may fill the context.
    """
    shape = (job.steps, job.data, job.microbatches)
    length = np.minimum(0.02 * (1 + rng.pareto(1.0, (*shape, _MOST))), 1.0)
    ends = np.minimum(np.cumsum(length, axis=-1), 1.0)
    squares = np.square(np.diff(ends, axis=-1, prepend=0)).sum(axis=-1)
    return np.asarray(1 - share + share * squares / squares.mean())
