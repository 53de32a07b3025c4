# SPDX-License-Identifier: Apache-2.0
"""Positions of a job: the RNICs of one host that send the same at the same time.

Tensor parallel ranks send the same (SkeletonHunter, Figure 7), so traffic cannot distinguish them.
It need not: what they exchange stays within their host. So each position is a run of TP rails of
one host, with one series.
"""

from dataclasses import dataclass

import numpy as np

from analyzer.skeleton.cluster import divisors
from analyzer.skeleton.series import Floats, Ints, TrafficSeries
from analyzer.skeleton.spectrum import compress, features, filled

ALIKE = 0.04
"""Squared distance of two rails' features, as a share of their size, that noise alone may make.
Chosen: too low splits equal rails, too high joins stages close in time."""
HOSTS_COMPARED = 64
"""Least hosts whose mean gives the distance of rails, where a task has them. Chosen: enough to
average noise out; more take time."""
APART = 0.3
"""Squared distance of two rails' features, as a share of their size, that is never jitter. Chosen:
such rails send different things however far apart the others are."""
UNLIKE = 3.0
"""Factor by which rails of different runs are farther apart than rails of one run. Chosen: clearly
more than the RNICs' own jitter."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Runs of RNICs with one series each, ordered by host and rail."""

    rows: Ints
    """(n_positions, tp): row of each RNIC."""
    host: Ints
    """(n_positions,): number of the position's host."""
    values: Floats
    """(n_positions, ticks): compressed rate, the mean over the position's RNICs."""
    noise: Floats
    """(ticks,): variance of `values` that comes from single RNICs; NaN with one RNIC a position."""

    @property
    def tp(self) -> int:
        """Return the RNICs per position: the degree of tensor parallelism."""
        return int(self.rows.shape[1])


def positions(series: TrafficSeries, order: Ints) -> Positions:
    """Return the positions of a task whose hosts have the same number of RNICs each.

    `order` has the rows by host and rail: (n_hosts, RNICs per host).
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
    """Return the mean of the known values of (n, k, ticks) over k; NaN where none is known."""
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

    The length is chosen for which the last rail of a run is most unlike the first rail of the next
    run, compared with rails of one run. Where all rails are equally far apart, the distance is the
    RNICs' own jitter, and all rails are one run.
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
