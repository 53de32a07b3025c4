# SPDX-License-Identifier: Apache-2.0
"""Which of a table's places occur in a column."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SPARSE = 4
"""Places for each item from which items are sorted instead. Chosen: a table of so many is walked in
less time than its items are put in order."""


def met(places: NDArray[Any], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which places below `size` occur, in order, and (n,) which of these each item is.

    It is what `np.unique` returns, which sorts as if nothing were in order.
    """
    if size > SPARSE * len(places):
        return _in_order(places)
    is_met = np.zeros(size, np.bool_)
    is_met[places] = True
    found = np.flatnonzero(is_met)
    number = np.empty(size, np.int64)
    number[found] = np.arange(len(found))
    return found, number[places]


def _in_order(places: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = places.argsort(kind="stable")  # hosts' items are beside each other
    ordered = places[order]
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(is_first) - 1
    return ordered[is_first].astype(np.int64), at
