# SPDX-License-Identifier: Apache-2.0
"""Round trips of several windows as if they were one."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET, WindowRows
from netagent.wire.histogram import GAMMA

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOGETHER = 1 << 16
"""Flows that are merged at once. Chosen: some ten megabytes; those of a million flows are fresh
memory each time, which took half of it."""
QUANTILES = (0.25, 0.5, 0.75)
# What stands for a bucket, in ns, by its number.
_VALUES = 2 * GAMMA ** np.arange(MAX_BUCKET + 1.0) / (GAMMA + 1)
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
    every = [_Part(rows, _offsets(rows.hist_len)[:-1]) for rows in windows]
    most = max((int(rows.flow.max(initial=-1)) for rows in windows), default=-1)
    made = [
        _merged([each.between(first, first + TOGETHER) for each in every])
        for first in range(0, most + 1, TOGETHER)
    ]
    columns = (
        [getattr(each, column.name) for each in made or [_merged([])]] for column in fields(Merged)
    )
    return Merged(*(np.concatenate(each, axis=-1) for each in columns))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The columns of `WindowRows` that are merged, of some of its flows."""

    flow: Ints
    count: NDArray[np.uint32]
    mean_ln: NDArray[np.float32]
    var_ln: NDArray[np.float32]
    min_ns: NDArray[np.uint32]
    max_ns: NDArray[np.uint32]
    hist_len: NDArray[np.uint16]
    hist_bucket: NDArray[np.uint16]
    hist_count: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Part:
    rows: WindowRows
    begins: Ints
    """(n_flows,): where each flow's entries begin; empty in what an earlier version recorded."""

    def between(self, first: int, last: int) -> _Rows:
        """Return the flows with numbers from `first` on, and below `last`."""
        rows = self.rows
        mine = np.flatnonzero((rows.flow >= first) & (rows.flow < last))
        kept: dict[str, Any] = {
            each.name: getattr(rows, each.name)[mine] for each in fields(_Rows)[:-3]
        }
        lengths, entries = rows.hist_len, np.zeros(0, np.int64)
        if len(lengths) == len(rows.flow):
            lengths = lengths[mine]
            offsets = _offsets(lengths)
            entries = np.arange(offsets[-1]) + np.repeat(self.begins[mine] - offsets[:-1], lengths)
        of_entries = rows.hist_bucket[entries], rows.hist_count[entries]
        return _Rows(**kept, hist_len=lengths, hist_bucket=of_entries[0], hist_count=of_entries[1])


def _offsets(lengths: NDArray[np.uint16]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _merged(windows: Sequence[_Rows]) -> Merged:
    numbers, rows = _joined(windows)
    answered = rows["count"] > 0
    flow, place = np.unique(numbers[answered], return_inverse=True)
    n = len(flow)

    def total(values: Floats) -> Floats:
        made: Floats = np.bincount(place, values, n).astype(float)
        return made

    each, mean, var = (rows[name][answered] for name in ("count", "mean_ln", "var_ln"))
    count = total(each)
    mean_ln = total(each * mean) / np.maximum(count, 1)
    # Of the deviations from the common mean: the difference of two large squares is mostly noise.
    var_ln = total(each * (var + (mean - mean_ln[place]) ** 2)) / np.maximum(count, 1)
    least, most = np.full(n, np.inf), np.zeros(n)
    np.minimum.at(least, place, rows["min_ns"][answered])
    np.maximum.at(most, place, rows["max_ns"][answered])
    told, seven = _seven(windows, flow)
    seven[MIN], seven[MAX] = least, most
    return Merged(flow, count.astype(np.int64), mean_ln, var_ln, told, seven)


def _joined(windows: Sequence[_Rows]) -> tuple[Ints, dict[str, Floats]]:
    names = ("count", "mean_ln", "var_ln", "min_ns", "max_ns")
    nothing = [np.zeros(0)]
    made: dict[str, Floats] = {
        name: np.concatenate([getattr(rows, name) for rows in windows] or nothing).astype(float)
        for name in names
    }
    flow = np.concatenate([rows.flow for rows in windows] or nothing).astype(np.int64)
    return flow, made


def _seven(windows: Sequence[_Rows], flow: Ints) -> tuple[Ints, Floats]:
    """Return how many round trips histograms tell of each flow, and what they tell."""
    nothing = [np.zeros(0, np.int64)]
    windows = [rows for rows in windows if len(rows.hist_len) == len(rows.flow)]
    owner = np.concatenate([np.repeat(r.flow, r.hist_len) for r in windows] or nothing)
    bucket = np.concatenate([r.hist_bucket for r in windows] or nothing).astype(np.int64)
    many = np.concatenate([r.hist_count for r in windows] or nothing).astype(np.int64)
    known = np.isin(owner, flow)
    place, bucket, many = np.searchsorted(flow, owner[known]), bucket[known], many[known]
    # Hosts send theirs in order, so that little is left to sort.
    order = np.argsort((place << 16) + bucket, kind="stable")
    place, bucket, many = place[order], bucket[order], many[order]
    value = _VALUES[bucket]
    n = len(flow)
    told = np.bincount(place, many, n).astype(np.int64)
    some = np.maximum(told, 1)
    seven = np.zeros((7, n))
    mean = np.bincount(place, many * value, n) / some
    squares = np.bincount(place, many * (value - mean[place]) ** 2, n) / some
    seven[MEAN], seven[STD] = mean, np.sqrt(squares)
    if len(many):
        below = np.cumsum(many)
        first = np.cumsum(told) - told
        for row, share in zip((P25, P50, P75), QUANTILES, strict=True):
            # The first bucket with more values up to it than the rank; ranks grow flow by flow.
            at = np.searchsorted(below, first + share * (some - 1), side="right")
            seven[row] = np.where(told > 0, value[np.minimum(at, len(value) - 1)], 0.0)
    return told, seven
