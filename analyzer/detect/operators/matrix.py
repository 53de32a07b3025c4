# SPDX-License-Identifier: Apache-2.0
"""What a matrix of delays says: a hot row is a sender, a column a receiver, a cell an edge.

C4D reads its delay matrix so (HPCA '25). Its ratios to means are known only from open
re-implementations (DeepEP, pull request 311): 3 for rows and columns, 5 for cells. A ratio to a
mean that counts the slow one too cannot exceed how many there are, so `marks` compares with
medians, and takes rows of few ranks for what they are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.votes import spread
from analyzer.operators.rows import Floats

ROW = 2.0
"""How many times the median of rows, or of columns, a hot one is. As in algorithm A6. Chosen."""
CELL = 4.0
"""How many times the median of its row and of its column a hot cell has to be. Likewise. Chosen."""
APART = 6.0
"""Standard deviations from the median of rows, or columns. Likewise. Chosen."""
FEW = 4
"""Ranks from which a row has others enough to have a median of its own. Chosen: of three cells in
a row, one hot one and one missing leave nothing to compare with."""
MEAN_ROW = 3.0
"""Ratio of a row's or column's mean to the mean of them. DeepEP's. Chosen there."""
MEAN_CELL = 5.0
"""Ratio of a cell to the mean of all. Likewise. Chosen there."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What is hot."""

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]


def marks(delay: Floats) -> Marks:
    """Return what is hot in (senders, receivers); NaN where nothing was sent.

    Of fewer than `FEW` ranks cells alone are told: a row of two has no median.
    """
    with np.errstate(all="ignore"):
        rows, columns = _medians(delay, 1), _medians(delay, 0)
        few = len(delay) < FEW
        hot = [np.zeros(len(delay), bool) if few else _hot(each) for each in (rows, columns)]
        over = _others(delay, rows, columns, few=few)
    cells = np.nan_to_num(over) > CELL
    return _marks(hot[0], hot[1], cells)


def marks_by_means(delay: Floats) -> Marks:
    """Return what the published ratios to means find hot."""
    with np.errstate(all="ignore"):
        rows, columns = np.nanmean(delay, axis=1), np.nanmean(delay, axis=0)
        hot = [np.nan_to_num(each / np.nanmean(each)) > MEAN_ROW for each in (rows, columns)]
        cells = np.nan_to_num(delay / np.nanmean(delay)) > MEAN_CELL
    return _marks(hot[0], hot[1], cells)


def _medians(delay: Floats, axis: int) -> Floats:
    known = ~np.isnan(delay).all(axis=axis)
    made = np.full(delay.shape[1 - axis], np.nan)
    some = delay[known] if axis == 1 else delay[:, known]
    made[known] = np.nanmedian(some, axis=axis)
    return made


def _hot(values: Floats) -> NDArray[np.bool_]:
    middle = np.nanmedian(values)
    wide = float(spread(values)) + 1e-9 * middle
    return np.asarray(np.nan_to_num(values - middle) > np.maximum(APART * wide, (ROW - 1) * middle))


def _others(delay: Floats, rows: Floats, columns: Floats, *, few: bool) -> Floats:
    """Return how many times its row's and its column's median each cell is; of few, of all."""
    if few:
        return np.asarray(delay / np.nanmedian(delay))
    return np.asarray(delay / np.fmax(rows[:, None], columns[None, :]))


def _marks(rows: NDArray[np.bool_], columns: NDArray[np.bool_], cells: NDArray[np.bool_]) -> Marks:
    cells = cells & ~rows[:, None] & ~columns[None, :]
    return Marks(
        tuple(np.flatnonzero(rows).tolist()), tuple(np.flatnonzero(columns).tolist()),
        tuple((int(source), int(target)) for source, target in np.argwhere(cells)),
    )  # fmt: skip
