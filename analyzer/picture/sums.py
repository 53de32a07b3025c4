# SPDX-License-Identifier: Apache-2.0
"""Sums of rows by place, and what they say of round trips."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.picture.scene import Floats, Ints, Mask, Scene
from netagent.wire.histogram import GAMMA

SENT, LOST, COUNT, LN = range(4)
"""Rows of `Scene.columns`, and of sums of them."""


def summed(place: NDArray[Any], columns: Floats, size: int) -> Floats:
    """Return (n_columns, size) the sums of columns (n_columns, n) by place (n,)."""
    return np.stack([np.bincount(place, each, size) for each in columns])


def mean_ns(count: float, ln: float) -> int | None:
    """Return the geometric mean of round trips; None where there was none."""
    return round(float(np.exp(ln / count))) if count else None


def quantiles(
    scene: Scene, mask: Mask, place: Ints, size: int, shares: tuple[float, ...]
) -> list[list[int | None]]:
    """Return, for each of `shares`, the quantile of round trips in ns by place, within 1 %.

    `mask` (n_rows,) are the rows that count, `place` the places (n_masked,) of these. None where
    a place has no round trip, or rows of an agent that says nothing of how they are spread.
    """
    rows = scene.table.rows
    if len(rows.hist_len) != len(mask):
        return [[None] * size for _ in shares]
    lengths, bucket, many = rows.hist_len, rows.hist_bucket, rows.hist_count
    if not mask.all():
        entries = np.repeat(mask, lengths)
        lengths, bucket, many = lengths[mask], bucket[entries], many[entries]
    if not len(bucket):
        return [[None] * size for _ in shares]
    low = int(bucket.min())
    width = int(bucket.max()) - low + 1
    key = np.repeat(place * width - low, lengths)
    key += bucket
    until = np.cumsum(np.bincount(key, many, size * width).reshape(size, width), axis=1)
    total = until[:, -1]
    whole = (total > 0) & (total == np.bincount(place, scene.columns[COUNT][mask], size))
    made: list[list[int | None]] = []
    for share in shares:
        at = (until < np.ceil(share * total)[:, None]).sum(axis=1)
        value = 2 * GAMMA ** (low + np.minimum(at, width - 1)) / (GAMMA + 1)
        pairs = zip(whole.tolist(), np.rint(value).astype(np.int64).tolist(), strict=True)
        made.append([ns if is_whole else None for is_whole, ns in pairs])
    return made
