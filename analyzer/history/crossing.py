# SPDX-License-Identifier: Apache-2.0
"""How the round trips are spread that crossed each component, there or back. Pure."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from analyzer.history.spread import NOTHING, Entries, Spread

Rows = NDArray[np.int32]

AT_ONCE = 1 << 16
"""Flows that are compared with their ways together. Chosen: some megabytes."""
MANY = 1 << 20
"""Entries that are added together. Likewise."""


def crossing(entries: Iterable[Entries], there: Rows, back: Rows, size: int) -> Spread:
    """Return the round trips by component; who is crossed both ways counts them once.

    `entries` have places among flows, `there` and `back` (n_flows, n) the components that their
    ways cross, of `size` ones; `size` itself is none, and what a row of either has is there once.
    """
    ways = np.concatenate([there, _other(there, back, size)], axis=1)
    parts = [each for each in entries if len(each[0])]
    if not parts:
        return NOTHING
    low = min(int(bucket.min()) for _, bucket, _ in parts)
    width = max(int(bucket.max()) for _, bucket, _ in parts) - low + 1
    table = np.zeros((size + 1) * width, np.int64)
    for part in parts:
        for first in range(0, len(part[0]), MANY):
            place, bucket, count = (column[first : first + MANY] for column in part)
            bucket, count = bucket.astype(np.int64) - low, count.astype(np.int64)
            for column in ways.T:
                np.add.at(table, column[place] * np.int64(width) + bucket, count)
    at = np.flatnonzero(table[: size * width] != 0)
    return Spread(at // width, (at % width + low).astype(np.int16), table[at])


def _other(there: Rows, back: Rows, size: int) -> Rows:
    """Return `back` without what is crossed on the way there as well."""
    found = back.copy()
    for first in range(0, len(back), AT_ONCE):
        mine = slice(first, first + AT_ONCE)
        for n, column in enumerate(back[mine].T):
            met = (there[mine] == column[:, None]).any(axis=1)
            found[mine, n][met] = size
    return found
