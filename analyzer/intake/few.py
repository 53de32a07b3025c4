# SPDX-License-Identifier: Apache-2.0
"""What rows leave to their extremes: moments and histogram of one or two round trips."""

from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.intake.columns import widest
from analyzer.intake.flows import WindowRows
from netagent.wire.histogram import LN_GAMMA
from netagent.wire.messages import FlowColumns
from netagent.wire.rounding import FEW


def filled(rows: WindowRows) -> WindowRows:
    """Return rows in which every flow that answered has moments and a histogram.

    What an earlier version sent has them, or no histograms at all, and stays as it is.
    """
    if len(rows.hist_len) != len(rows.flow):
        return rows
    few = (rows.count > 0) & (rows.count <= FEW) & (rows.mean_ln == 0) & (rows.hist_len == 0)
    if not few.any():
        return rows
    least, most = np.log(np.maximum([rows.min_ns[few], rows.max_ns[few]], 1.0))
    mean, var = rows.mean_ln.copy(), rows.var_ln.copy()
    mean[few], var[few] = (least + most) / 2, ((most - least) / 2) ** 2
    first, second = np.ceil(least / LN_GAMMA), np.ceil(most / LN_GAMMA)
    both = first != second
    length = rows.hist_len.copy()
    length[few] = 1 + both
    ends = np.cumsum(length, dtype=np.int64)
    at = (ends - length)[few]
    after = at[both] + 1
    is_rest = np.ones(int(ends[-1]), np.bool_)
    is_rest[at] = is_rest[after] = False
    rest = np.flatnonzero(is_rest)
    made: dict[str, Any] = {}
    for name, one, other in (
        ("hist_bucket", first, second[both]),
        ("hist_count", np.where(both, 1, rows.count[few]), 1),
    ):
        made[name] = column = np.empty(int(ends[-1]), widest(FlowColumns, name))
        column[rest], column[at], column[after] = getattr(rows, name), one, other
    return replace(rows, mean_ln=mean, var_ln=var, hist_len=length, **made)
