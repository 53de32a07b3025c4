# SPDX-License-Identifier: Apache-2.0
"""Positions of a job: the RNICs of one host that send the same at the same time.

Tensor parallel ranks cannot be told apart by what they send (Figure 7), and need not be: what they
exchange stays within their host. So each position is a run of TP rails of a host, and one series.
"""

from dataclasses import dataclass

import numpy as np

from analyzer.skeleton.cluster import divisors
from analyzer.skeleton.series import Floats, Ints, TrafficSeries
from analyzer.skeleton.spectrum import compress, features, filled

ALIKE = 0.04
"""Rails of a host whose features differ by less than this share of their size send the same."""
HOSTS_COMPARED = 64
"""At least, where a task has so many: their mean tells how much rails differ."""
APART = 0.3
"""No two rails send the same that differ by this share at least: it is no jitter."""
UNLIKE = 3.0
"""So many times as far from each other as rails that send the same are those that do not."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Runs of RNICs with one series each, ordered by host and rail."""

    rows: Ints
    """(n_positions, tp): row of each RNIC."""
    host: Ints
    """(n_positions,)"""
    values: Floats
    """(n_positions, ticks): compressed rates, the mean of their RNICs'."""
    noise: Floats
    """(ticks,): variance of `values` that is its RNICs' own; NaN where that cannot be told."""

    @property
    def tp(self) -> int:
        """RNICs of a position."""
        return int(self.rows.shape[1])


def positions(series: TrafficSeries, order: Ints) -> Positions:
    """Return the positions of a task whose hosts have the same number of RNICs each.

    `order` are the rows by host and rail, (n_hosts, rnics per host).
    """
    compressed = compress(series.rate)
    some = order[:: max(1, len(order) // HOSTS_COMPARED)]
    tp = _run_length(filled(compressed[some.ravel()]), *some.shape)
    rows = order.reshape(-1, tp)
    mine = compressed[rows]
    mean = mean_known(mine)
    with np.errstate(invalid="ignore"):
        known = np.sum(~np.isnan(mine), axis=1)
        square = np.nansum((mine - mean[:, None]) ** 2, axis=1)
        noise = np.nansum(square, axis=0) / np.maximum(np.sum(known - 1, axis=0), 1) / tp
    if tp == 1:
        noise = np.full(mine.shape[2], np.nan)
    return Positions(rows, series.host[rows[:, 0]], filled(mean), noise)


def mean_known(values: Floats) -> Floats:
    """Return the mean of (n, k, ticks) over k, of what is known; NaN where nothing is."""
    known = np.sum(~np.isnan(values), axis=1)
    mean: Floats = np.nansum(values, axis=1) / np.where(known, known, np.nan)
    return mean


def _run_length(values: Floats, hosts: int, rails: int) -> int:
    made = features(values)
    early = made.early.reshape(hosts, rails, -1)
    late = made.late.reshape(hosts, rails, -1)
    inner = np.einsum("hid,hjd->ij", early, late) / hosts
    own = np.diag(inner)
    apart = (own[:, None] + own[None, :] - inner - inner.T) / max(float(own.mean()), 1e-12)
    return run_length(apart)


def run_length(apart: Floats) -> int:
    """Return how many rails in a row send the same, by their (rails, rails) mean distances.

    As many as make the last rail of each run most unlike the first of the next, compared with the
    rails of one run. Where all rails are as far from each other, that is the RNICs' own jitter.
    """
    rails = len(apart)
    one, two = np.triu_indices(rails, 1)
    pairs = apart[one, two]
    if not len(pairs) or pairs.max() < min(APART, ALIKE + UNLIKE * max(float(pairs.min()), 0)):
        return rails
    best, contrast = 1, UNLIKE
    for run in divisors(rails)[1:-1]:
        within = float(pairs[one // run == two // run].mean())
        ends = np.arange(run, rails, run)
        found = float(apart[ends - 1, ends].min()) / max(within, ALIKE / UNLIKE)
        if found > contrast:
            best, contrast = run, found
    return best
