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
ABSENT = -1
"""In place of a row: there is no such RNIC."""
UNLIKE = 3.0
"""Factor by which rails of different runs are farther apart than rails of one run. Chosen: clearly
more than the RNICs' own jitter."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Runs of RNICs with one series each, ordered by host and rail."""

    rows: Ints
    """(n_positions, tp): row of each RNIC, ABSENT where there is none; those come last."""
    host: Ints
    """(n_positions,): number of the position's host."""
    machine: Ints
    """(n_positions,): number of what ranks fill one after the other, as a container."""
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
    first = rows[:, 0]
    return Positions(rows, series.host[first], series.machine[first], filled(mean), noise)


def scattered(series: TrafficSeries) -> tuple[Positions, int]:
    """Return the positions of a task whose machines may lack rails, or have fewer than others.

    Also return how many positions there should be of which no RNIC is there: they are left out.
    Machines of as many rails have runs of one length; rails that lack say nothing of it.
    """
    compressed = compress(series.rate)
    parts = [_rows_of(compressed, grid) for grid in _grids(series)]
    width = max(rows.shape[1] for rows in parts)
    rows = np.concatenate(
        [
            np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=ABSENT)
            for each in parts
        ]
    )
    there = (rows != ABSENT).any(axis=1)
    # Those that lack come last, so that the first one stands for its position.
    rows = np.sort(rows[there], axis=1)[:, ::-1].copy()
    values = filled(mean_known(with_absent(compressed)[rows]))
    noise = np.full(values.shape[1], np.nan)
    first = rows[:, 0]
    mine = Positions(rows, series.host[first], series.machine[first], values, noise)
    return mine, int(np.sum(~there))


def with_absent(values: Floats) -> Floats:
    """Return (n, ticks) `values` with a last row of NaN, which ABSENT reads."""
    return np.concatenate([values, np.full((1, values.shape[1]), np.nan)])


def _grids(series: TrafficSeries) -> list[Ints]:
    """Return the rows of machines with as many rails: (n_machines, rails) each, or ABSENT."""
    machine = np.unique(series.machine, return_inverse=True)[1].ravel()
    names, rail = np.unique(series.rail, return_inverse=True)
    rail = rail.ravel()
    last = np.zeros(int(machine.max()) + 1, np.int64)
    np.maximum.at(last, machine, rail)
    sizes = np.asarray(divisors(len(names)))
    size = sizes[np.searchsorted(sizes, last + 1)]
    grid = np.full((len(last), len(names)), ABSENT)
    grid[machine, rail] = np.arange(len(series))
    return [grid[size == each, :each] for each in np.unique(size)]


def _rows_of(compressed: Floats, grid: Ints) -> Ints:
    """Return (n_positions, run) rows of machines with as many rails."""
    some = grid[:: max(1, len(grid) // HOSTS_COMPARED)]
    there = some != ABSENT
    made = features(filled(compressed[some[there]]))
    early, late = (np.zeros((*some.shape, half.shape[1])) for half in (made.early, made.late))
    early[there], late[there] = made.early, made.late
    inner = np.einsum("hid,hjd->hij", early, late)
    own = np.einsum("hii->hi", inner)
    apart = own[:, :, None] + own[:, None, :] - inner - inner.transpose(0, 2, 1)
    both = there[:, :, None] & there[:, None, :]
    if not both.any(axis=0).all():
        return grid.reshape(-1, 1)
    size = max(float(own[there].mean()), 1e-12)
    mean = np.sum(apart * both, axis=0) / np.sum(both, axis=0) / size
    return grid.reshape(-1, run_length(mean))


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
