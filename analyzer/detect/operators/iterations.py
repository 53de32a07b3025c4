# SPDX-License-Identifier: Apache-2.0
"""Which training step each operator is of.

Where a source does not say, steps are told by what a job does once in each: among the operations
that all ranks do equally often, the rarest. A step ends with it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, Kind, Log

FEWEST_ITERATIONS = 5
"""Steps below which nobody is named. Chosen: with fewer, chance alone has one rank of a few
thousand last each time."""


_MOST_KINDS = 8  # kinds of operators and of groups, with room for one that is none
Order = NDArray[np.int64] | slice


@dataclass(frozen=True, slots=True)
class Iterations:
    """The steps of a log."""

    step: NDArray[np.int32]
    """Of each row; `UNKNOWN` where it belongs to none that is whole."""
    steps: NDArray[np.int64]
    """Ascending."""
    inferred: bool = False


def iterations(log: Log) -> Iterations:
    """Return the steps that a log names, or else those that its own period tells."""
    if (log.step != UNKNOWN).any():
        steps = np.unique(log.step[log.step != UNKNOWN]).astype(np.int64)
        return Iterations(log.step, steps)
    nothing = Iterations(log.step, np.zeros(0, np.int64), inferred=True)
    if not len(log):
        return nothing
    order = np.argsort(log.rank, kind="stable") if (np.diff(log.rank) < 0).any() else slice(None)
    rank = log.rank[order]
    anchors = _anchors(log, order)
    if anchors is None:
        return nothing
    # A row is of the step whose anchor comes next on its rank; what follows the last is not whole.
    count: NDArray[np.int64] = np.cumsum(anchors) - anchors
    first = np.flatnonzero(np.diff(rank, prepend=-1))
    before: NDArray[np.int64] = np.repeat(count[first], np.diff([*first, len(rank)]))
    number = (count - before).astype(np.int32)
    whole = int(number[np.append(first[1:], len(rank)) - 1].max()) + 1
    least = int(np.add.reduceat(anchors.astype(np.int64), first).min())
    number[number >= min(whole, least)] = UNKNOWN
    step = np.empty(len(log), np.int32)
    # Nobody knows when logging began, so the first step may have lost its beginning.
    step[order] = np.where(number > 0, number, UNKNOWN)
    return Iterations(step, np.arange(1, least, dtype=np.int64), inferred=True)


def _anchors(log: Log, order: Order) -> NDArray[np.bool_] | None:
    """Return which rows, in this order, end a step; None where nothing tells."""
    rank = log.rank[order]
    kinds = list(dict.fromkeys(group.kind for group in log.groups))
    kind = np.array([*(kinds.index(group.kind) for group in log.groups), -1], np.int64)
    group = kind[np.maximum(log.group[order], -1)]
    code = (log.op[order].astype(np.int64) * _MOST_KINDS + group + 1) * _MOST_KINDS
    code += log.kind[order]
    codes, place = _dense(code)
    own = np.cumsum(np.diff(rank, prepend=rank[0]) != 0)
    ranks = int(own[-1]) + 1
    counts = np.bincount(own * len(codes) + place, minlength=ranks * len(codes))
    counts = counts.reshape(ranks, len(codes))
    least, most = counts.min(axis=0), counts.max(axis=0)
    # Buffers that wrap around hold one more of some, one less of others.
    same = (least >= 2) & (most - least <= 1) & (codes % _MOST_KINDS == Kind.COLLECTIVE)
    if not same.any():
        same = (least >= 2) & (most - least <= 1)
    if not same.any():
        return None
    rarest = np.flatnonzero(same & (least == least[same].min()))
    found: NDArray[np.bool_] = place == _last(rarest, place, own)
    return found


def _dense(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different values, and of each its place among them."""
    seen = np.zeros(int(values.max()) + 1, bool)
    seen[values] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


def _last(rarest: NDArray[np.int64], place: NDArray[np.int64], own: NDArray[np.int64]) -> int:
    """Return of the rarest operations the one that the first rank's log has first last.

    Of several that a step has once each, any would do; the one that comes last is where it ends.
    """
    rows = place[own == 0]
    firsts = {int(each): int(np.argmax(rows == each)) for each in rarest}
    return max(firsts, key=firsts.__getitem__)
