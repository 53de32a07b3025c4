# SPDX-License-Identifier: Apache-2.0
"""Round trips of several windows as if they were one."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET, WindowRows
from netagent.wire.histogram import GAMMA

T = TypeVar("T", bound=np.generic)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUANTILES = (0.25, 0.5, 0.75)
# What stands for a bucket, in ns, by its number.
_VALUES = 2 * GAMMA ** np.arange(MAX_BUCKET + 1.0) / (GAMMA + 1)
_COUNT, _BUCKET = np.uint64(2**32 - 1), np.uint64(2**11 - 1)
_BUCKET_AT, _PLACE_AT = np.uint64(32), np.uint64(43)
"""Where in a number of 64 bits a bucket, and a flow's place, begin."""
NO_PLACE = -1
# Columns of windows that say how long round trips took.
_READ = frozenset({
    "flow", "count", "min_ns", "max_ns", "mean_ln", "var_ln", "hist_len", "hist_bucket",
    "hist_count",
})  # fmt: skip
AT_ONCE = 1 << 16
"""Flows whose numbers are judged together. Chosen: some megabytes, which are there again for the
next ones; of a million flows they would be the most that a judge ever needs."""
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
    some = [_answered(rows) for rows in windows]
    flow, places = _placed([rows.flow[its] for rows, its in zip(windows, some, strict=True)])
    n, count, mean_ln, var_ln = len(flow), *np.zeros((3, len(flow)))
    least, most = np.full(n, np.inf), np.zeros(n)
    # Window by window: all of them in a row would be hundreds of megabytes, new each time.
    for rows, its in zip(windows, some, strict=True):
        place = places[rows.flow[its]]
        each = rows.count[its].astype(float)
        count += np.bincount(place, each, n)
        mean_ln += np.bincount(place, each * rows.mean_ln[its], n)
        np.minimum.at(least, place, rows.min_ns[its].astype(float))
        np.maximum.at(most, place, rows.max_ns[its].astype(float))
    mean_ln /= np.maximum(count, 1)
    for rows, its in zip(windows, some, strict=True):
        place = places[rows.flow[its]]
        # Of deviations from the common mean: the difference of two large squares is mostly noise.
        off = rows.mean_ln[its] - mean_ln[place]
        var_ln += np.bincount(place, rows.count[its] * (rows.var_ln[its] + off**2), n)
    var_ln /= np.maximum(count, 1)
    told, seven = _seven(windows, places, n)
    seven[MIN], seven[MAX] = least, most
    return Merged(flow, count.astype(np.int64), mean_ln, var_ln, told, seven)


def needed(rows: WindowRows) -> WindowRows:
    """Return rows of which only what `merge` looks at takes memory; the rest is zero.

    Counts are as narrow as theirs are. Of a million flows that is eighty megabytes less a window,
    of which six wait for each other.
    """
    columns = {each.name: getattr(rows, each.name) for each in fields(rows)[3:]}
    kept: dict[str, Any] = {
        name: _narrow(of) if name in _READ else np.broadcast_to(of.dtype.type(0), of.shape)
        for name, of in columns.items()
    }
    return replace(rows, **kept)


def _narrow(of: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers; counts in as few bytes as hold the largest."""
    return of.astype(np.min_scalar_type(of.max(initial=0))) if of.dtype.kind in "iu" else of


def longer(columns: NDArray[T], size: int) -> NDArray[T]:
    """Return columns (…, n) with room for `size` flows, of which new ones are zero.

    An eighth more, for those that come one by one: of a million flows, as many again would take
    half a gigabyte, most of it for nothing.
    """
    have = columns.shape[-1]
    if size <= have:
        return columns
    made = np.zeros((*columns.shape[:-1], max(size, have + have // 8)), columns.dtype)
    made[..., :have] = columns
    return made


def _answered(rows: WindowRows) -> Ints | slice:
    """Return which flows answered: mostly all of them, and then nothing has to be copied."""
    return slice(None) if (rows.count > 0).all() else np.flatnonzero(rows.count > 0)


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
    entry = _joined([r for r in windows if len(r.hist_len) == len(r.flow)], places)
    # A host's flows lie beside each other already: what merges runs takes half of the time.
    entry.sort(kind="stable")
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


def _joined(windows: Sequence[WindowRows], places: Ints) -> NDArray[np.uint64]:
    """Return the entries of all windows, one window after the other."""
    entry, size = np.empty(sum(len(rows.hist_bucket) for rows in windows), np.uint64), 0
    for rows in windows:
        ends = np.cumsum(rows.hist_len, dtype=np.int64)
        for first in range(0, len(ends), AT_ONCE):
            begin = int(ends[first - 1]) if first else 0
            made = _entries(rows, slice(first, first + AT_ONCE), begin, places)
            entry[size : size + len(made)] = made
            size += len(made)
    return entry[:size]


def _entries(rows: WindowRows, some: slice, begin: int, places: Ints) -> NDArray[np.uint64]:
    """Return the entries of `some` histograms, of which the first one is at `begin`.

    They are numbers that are in the order of place, then of bucket. One number for all three is
    sorted as it is, without moving columns after it.
    """
    flow, lengths = rows.flow[some], rows.hist_len[some]
    inside = flow < len(places)
    place = places[flow] if inside.all() else _within(flow, places, inside)
    made = np.repeat(place.astype(np.uint64) << _PLACE_AT, lengths)
    its = slice(begin, begin + len(made))
    made |= rows.hist_bucket[its].astype(np.uint64) << _BUCKET_AT
    made |= rows.hist_count[its].astype(np.uint64)
    if (place != NO_PLACE).all():
        return made
    known: NDArray[np.uint64] = made[np.repeat(place != NO_PLACE, lengths)]
    return known


def _within(flow: Ints, places: Ints, inside: NDArray[np.bool_]) -> Ints:
    """Return the flows' places, of which those that are not `inside` have none."""
    place = np.full(len(flow), NO_PLACE)
    place[inside] = places[flow[inside]]
    return place
