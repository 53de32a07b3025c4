# SPDX-License-Identifier: Apache-2.0
"""How round trips are spread: sparse histograms of many places, as columns. Pure.

Bucket b holds (RATIO**(b-1), RATIO**b] ns, and so exactly STEP buckets of a summary
(`netagent.wire.histogram`): a sum of histograms is the histogram of all. Its representative
2*RATIO**b/(RATIO+1) is within 4 % of every value in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import MAX_BUCKET
from netagent.wire.histogram import GAMMA

Ints = NDArray[np.int64]

STEP = 4
"""Buckets of a summary that are one here. Chosen: of a pair and minute at 2,048 RNICs a histogram
took as many bytes as all else, with one to one more than twice as many."""
RATIO = GAMMA**STEP
LAST = -(-MAX_BUCKET // STEP)
"""Last bucket."""
SHARES = {"rtt_p50_ns": 0.5, "rtt_p90_ns": 0.9, "rtt_p99_ns": 0.99}
"""Quantiles that are kept, by their columns' names."""
DENSE = 8
"""Places of a table for each entry up to which these are added in it, and not put in order.
Measured on a minute of 2,048 RNICs: a third of the time."""
LEAST = 1 << 16
"""Size of a table that is small anyway."""
_MOST_NS = np.iinfo(np.uint32).max


def buckets_of(fine: NDArray[Any]) -> NDArray[np.int16]:
    """Return the buckets that those of summaries are in; the shape stays."""
    return ((fine + np.uint16(STEP - 1)) // np.uint16(STEP)).astype(np.int16)


def values_ns(bucket: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the representatives of buckets, in ns; the shape stays."""
    value = np.rint(2 * RATIO ** bucket.astype(np.float64) / (RATIO + 1))
    return np.minimum(value, _MOST_NS).astype(np.uint32)


@dataclass(frozen=True, slots=True)
class Spread:
    """Round trips in buckets of places: by place and bucket, each of both once; arrays are (n,)."""

    place: Ints
    bucket: NDArray[np.int16]
    count: Ints
    """Greater than 0."""

    def __len__(self) -> int:
        return len(self.place)

    def at(self, places: NDArray[Any]) -> "Spread":
        """Return it with each place p moved to places[p], where several add up."""
        return merged([(places[self.place], self.bucket, self.count)])

    def quantiles(self, count: NDArray[Any]) -> dict[str, NDArray[np.uint32]]:
        """Return the quantiles of SHARES by place, in ns: arrays (n_places,).

        `count` (n_places,) is how many round trips there were. 0 where that is 0, or is not how
        many are known here: agents of before told nothing of how they are spread.
        """
        size = len(count)
        total = np.bincount(self.place, self.count, size).astype(np.int64)
        known = (total == count) & (total > 0)
        until = np.cumsum(self.count)
        first = np.searchsorted(self.place, np.flatnonzero(known))
        before = until[first] - self.count[first]
        found = {}
        for name, share in SHARES.items():
            rank = np.ceil(share * total[known]).astype(np.int64)
            found[name] = np.zeros(size, np.uint32)
            found[name][known] = values_ns(self.bucket[np.searchsorted(until, before + rank)])
        return found


Entries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Places, buckets and counts; in any order, and the same several times."""


def joined(entries: Iterable[Entries]) -> Entries:
    """Return all of them, one behind the other."""
    parts = [each for each in entries if len(each[0])]
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64)
    place, bucket, count = (np.concatenate(each) for each in zip(*parts, strict=True))
    return place, bucket, count


def merged(entries: Iterable[Entries]) -> Spread:
    """Return all of them, added up."""
    place, bucket, count = joined(entries)
    if not len(place):
        return NOTHING
    low, width = int(bucket.min()), int(bucket.max()) - int(bucket.min()) + 1
    size = (int(place.max()) + 1) * width
    key = place.astype(np.int64) * width + (bucket - low)
    if size <= max(DENSE * len(key), LEAST):
        at, summed = _by_table(key, count, size)
    else:
        at, summed = _by_order(key, count)
    return Spread(at // width, (at % width + low).astype(np.int16), summed)


def _by_table(key: Ints, count: NDArray[Any], size: int) -> tuple[Ints, Ints]:
    table = np.zeros(size, np.int64)
    np.add.at(table, key, count.astype(np.int64))
    at = np.flatnonzero(table != 0)  # of truths they are found in a tenth of the time
    return at, table[at]


def _by_order(key: Ints, count: NDArray[Any]) -> tuple[Ints, Ints]:
    order = np.argsort(key)
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return key[first], np.add.reduceat(count[order], first, dtype=np.int64)


NOTHING = Spread(np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64))
