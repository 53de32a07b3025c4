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
    bucket = np.ceil(np.stack([least, most], axis=1) / LN_GAMMA)
    is_there = np.stack([np.ones(len(bucket), np.bool_), bucket[:, 0] != bucket[:, 1]], axis=1)
    both = is_there[:, 1]
    many = np.stack([np.where(both, 1, rows.count[few]), both], axis=1)
    length = rows.hist_len.copy()
    length[few] = is_there.sum(axis=1)
    of_few = np.repeat(few, length)
    made: dict[str, Any] = {}
    for name, new in (("hist_bucket", bucket), ("hist_count", many)):
        before = getattr(rows, name)
        made[name] = np.empty(len(of_few), widest(FlowColumns, name))
        made[name][~of_few], made[name][of_few] = before, new[is_there]
    return replace(rows, mean_ln=mean, var_ln=var, hist_len=length, **made)
