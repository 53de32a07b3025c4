# SPDX-License-Identifier: Apache-2.0
"""Local outlier factor in its novelty form, for many small sets of points at once.

Breunig, Kriegel, Ng & Sander, "LOF: Identifying Density-Based Local Outliers", SIGMOD 2000. The
libraries that have it fit one set at a time, and here each flow is a set of its own.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

AT_ONCE = 4096
"""Sets looked at together: bounds the memory for distances. Chosen: some tens of megabytes."""


def factors(past: Floats, new: Floats, *, neighbours: int, reach: float) -> Floats:
    """Return (n_sets,): how much thinner it is around `new` than around its nearest points.

    `past` is (n_sets, n_points, n_dimensions), `new` (n_sets, n_dimensions) and in no set. 1 is
    as dense as among its neighbours. No distance counts as less than `reach`: in a set whose
    points coincide, all else would be infinitely far away. Raises ValueError unless there are
    more points than `neighbours`.
    """
    if past.shape[1] <= neighbours:
        raise ValueError(f"{past.shape[1]} points have no {neighbours} neighbours each")
    parts = [
        _factors(past[n : n + AT_ONCE], new[n : n + AT_ONCE], neighbours, reach)
        for n in range(0, len(new), AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _factors(past: Floats, new: Floats, neighbours: int, reach: float) -> Floats:
    between = np.linalg.norm(past[:, :, None] - past[:, None], axis=3)
    own = np.arange(past.shape[1])
    between[:, own, own] = np.inf  # no point is its own neighbour
    near = np.argsort(between, axis=2, kind="stable")[:, :, :neighbours]
    away = np.maximum(np.take_along_axis(between, near, axis=2), reach)
    kth = away[:, :, -1]
    density = 1.0 / _reached(away, np.take_along_axis(kth[:, None], near, axis=2))
    to_new = np.linalg.norm(past - new[:, None], axis=2)
    nearest = np.argsort(to_new, axis=1, kind="stable")[:, :neighbours]
    off = np.maximum(np.take_along_axis(to_new, nearest, axis=1), reach)
    here = 1.0 / _reached(off, np.take_along_axis(kth, nearest, axis=1))
    made: Floats = np.take_along_axis(density, nearest, axis=1).mean(axis=1) / here
    return made


def _reached(distance: Floats, kth: Floats) -> Floats:
    """Return the mean reachability distance: no neighbour is nearer than its own k-th one."""
    made: Floats = np.maximum(distance, kth).mean(axis=-1)
    return made
