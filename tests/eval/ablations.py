# SPDX-License-Identifier: Apache-2.0
"""What inference would be without what we added to the paper's description."""

from itertools import pairwise

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from analyzer.skeleton import parallelism
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.series import Floats, TrafficSeries, carried, cliques, unique_edges
from analyzer.skeleton.spectrum import Features, compress, filled, stft

LITERAL_CUT = 0.5
"""Decades of RMS distance that separate the examples of the paper's Figure 13."""


def magnitude_only(values: Floats) -> Features:
    """Describe by |STFT|, as section 5.1 reads."""
    return _halves(np.abs(stft(values)))


def plain(values: Floats) -> Features:
    """Describe by the series themselves: distances are those of correlation."""
    return _halves(values[:, :, None] - values.mean(axis=1)[:, None, None])


def _halves(spectra: Floats) -> Features:
    # Both halves are the whole: noise stays in the distances, as it does in the paper's.
    flat = spectra.reshape(len(spectra), -1).astype(np.float64)
    unit = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    return Features(unit, unit, 1.0)


def literal(series: TrafficSeries) -> Skeleton:
    """Infer by the paper's recipe and nothing else.

    RNICs are clustered by log10 |STFT|, cut where Figure 13's examples come apart; DP is the mean
    size of a group; neighbouring stages are joined in order of their lag, member by member.
    """
    spectra = np.abs(stft(filled(series.rate)))
    flat = np.log10(np.maximum(spectra.reshape(len(spectra), -1), 1.0))
    tree = linkage(pdist(flat) / np.sqrt(flat.shape[1]), "average")
    label = np.unique(fcluster(tree, LITERAL_CUT, "distance"), return_inverse=True)[1]
    groups = [np.flatnonzero(label == number) for number in range(int(label.max()) + 1)]
    dp = max(1, round(len(label) / len(groups)))
    lag_s, period_s = parallelism.lags(filled(compress(series.rate)), label, series.tick_s)
    in_order = parallelism.in_order(lag_s, period_s)
    host, rail = series.host, series.rail
    edges = [cliques(rows[None], host, rail) for rows in groups]
    for one, two in pairwise(in_order.tolist()):
        size = min(len(groups[one]), len(groups[two]))
        pairs = np.stack([groups[one][:size], groups[two][:size]], axis=1)
        edges.append(carried(pairs, host, rail))
    tp = len(np.unique(rail))
    pp = max(1, len(groups) // tp)
    named = {"dp": [rows.tolist() for rows in groups], "pp": [], "ep": []}
    return Skeleton(1.0, "", dp, pp, tp, 1, named, unique_edges(edges))
