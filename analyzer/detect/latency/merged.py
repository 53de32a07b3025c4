# SPDX-License-Identifier: Apache-2.0
"""Round trips of several windows as if they were one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET, WindowRows
from netagent.wire.histogram import GAMMA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUANTILES = (0.25, 0.5, 0.75)
# What stands for a bucket, in ns, by its number.
_VALUES = 2 * GAMMA ** np.arange(MAX_BUCKET + 1.0) / (GAMMA + 1)
_COUNT, _BUCKET = np.uint64(2**32 - 1), np.uint64(2**11 - 1)
_BUCKET_AT, _PLACE_AT = np.uint64(32), np.uint64(43)
"""Where in a number of 64 bits a bucket, and a flow's place, begin."""
NO_PLACE = -1
FLOWS_AT_ONCE = 4096
"""Flows whose histograms are looked at together. Chosen: their columns stay in the cache; of a
million flows each would be new memory, which took longer than all that is counted in it."""
P25, P50, P75, MIN, MEAN, STD, MAX = range(7)
"""Rows of `Merged.seven` (SkeletonHunter, section 5.2)."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Flows that answered in these windows; arrays are (n_flows,) if nothing else is said."""

    flow: Ints
    """Numbers, ascending."""
    count: Ints
    """Round trips, of which the moments are."""
    mean_ln: Floats
    var_ln: Floats
    told: Ints
    """Round trips in the histograms, of which the seven numbers are; 0 where no agent sent one."""
    seven: Floats
    """(7, n_flows) in ns. Quartiles, mean and standard deviation are within 1 % of the values."""


def merge(windows: Sequence[WindowRows]) -> Merged:
    """Return the windows of any hosts, in any order, as one."""
    answered = [rows.count > 0 for rows in windows]
    flow, places = _placed([rows.flow[some] for rows, some in zip(windows, answered, strict=True)])
    n = len(flow)

    def joined(name: str) -> Floats:
        parts = [getattr(rows, name)[some] for rows, some in zip(windows, answered, strict=True)]
        return np.concatenate(parts or [np.zeros(0)]).astype(float)

    def total(values: Floats) -> Floats:
        made: Floats = np.bincount(place, values, n).astype(float)
        return made

    place = places[joined("flow").astype(np.int64)]
    each, mean, var = (joined(name) for name in ("count", "mean_ln", "var_ln"))
    count = total(each)
    mean_ln = total(each * mean) / np.maximum(count, 1)
    # Of the deviations from the common mean: the difference of two large squares is mostly noise.
    var_ln = total(each * (var + (mean - mean_ln[place]) ** 2)) / np.maximum(count, 1)
    least, most = np.full(n, np.inf), np.zeros(n)
    np.minimum.at(least, place, joined("min_ns"))
    np.maximum.at(most, place, joined("max_ns"))
    told, seven = _seven(windows, places, n)
    seven[MIN], seven[MAX] = least, most
    return Merged(flow, count.astype(np.int64), mean_ln, var_ln, told, seven)


def _placed(flows: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the numbers that are in any of these, ascending, and of each number its place there.

    NO_PLACE for those that are not; the numbers of flows are small, so that nothing is sorted.
    """
    size = max((int(each.max()) + 1 for each in flows if len(each)), default=0)
    is_in = np.zeros(size, np.bool_)
    for each in flows:
        is_in[each] = True
    flow = np.flatnonzero(is_in)
    places = np.full(size, NO_PLACE)
    places[flow] = np.arange(len(flow))
    return flow, places


def _seven(windows: Sequence[WindowRows], places: Ints, n: int) -> tuple[Ints, Floats]:
    """Return how many round trips histograms tell of each of `n` flows, and what they tell."""
    entries = [_entries(r, places) for r in windows if len(r.hist_len) == len(r.flow)]
    entry = np.sort(np.concatenate(entries or [np.zeros(0, np.uint64)]))
    told, seven = np.zeros(n, np.int64), np.zeros((7, n))
    begins = np.arange(0, n, FLOWS_AT_ONCE)
    ends = np.searchsorted(entry, (begins + FLOWS_AT_ONCE).astype(np.uint64) << _PLACE_AT)
    for first, begin, end in zip(begins.tolist(), [0, *ends.tolist()], ends.tolist(), strict=False):
        some = slice(first, min(first + FLOWS_AT_ONCE, n))
        told[some], seven[:, some] = _told(entry[begin:end], first, some.stop - first)
    return told, seven


def _told(entry: NDArray[np.uint64], first: int, n: int) -> tuple[Ints, Floats]:
    """Return the same of `n` flows from place `first` on, of which these are the entries."""
    many = (entry & _COUNT).view(np.int64)
    value = _VALUES[(entry >> _BUCKET_AT & _BUCKET).view(np.int64)]
    place = (entry >> _PLACE_AT).view(np.int64) - first
    told = np.bincount(place, many, n).astype(np.int64)
    some = np.maximum(told, 1)
    seven = np.zeros((7, n))
    mean = np.bincount(place, many * value, n) / some
    squares = np.bincount(place, many * (value - mean[place]) ** 2, n) / some
    seven[MEAN], seven[STD] = mean, np.sqrt(squares)
    if len(many):
        below = np.cumsum(many)
        before = np.cumsum(told) - told
        for row, share in zip((P25, P50, P75), QUANTILES, strict=True):
            # The first bucket with more values up to it than the rank; ranks grow flow by flow.
            at = np.searchsorted(below, before + share * (some - 1), side="right")
            seven[row] = np.where(told > 0, value[np.minimum(at, len(value) - 1)], 0.0)
    return told, seven


def _entries(rows: WindowRows, places: Ints) -> NDArray[np.uint64]:
    """Return the entries of histograms as numbers that are in the order of place, then of bucket.

    One number for all three is sorted as it is, without moving columns after it.
    """
    place = np.full(len(rows.flow), NO_PLACE)
    inside = rows.flow < len(places)
    place[inside] = places[rows.flow[inside]]
    of_entry = np.repeat(place, rows.hist_len)
    made = of_entry.astype(np.uint64) << _PLACE_AT
    made |= rows.hist_bucket.astype(np.uint64) << _BUCKET_AT
    made |= rows.hist_count.astype(np.uint64)
    known: NDArray[np.uint64] = made[of_entry != NO_PLACE]
    return known
