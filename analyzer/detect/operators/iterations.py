# SPDX-License-Identifier: Apache-2.0
"""Which training step each operator is of.

Where a source does not say, steps are told by what a job does once in each: among the operations
that all ranks do equally often, the rarest. A step ends with it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.joined import shift
from analyzer.operators.keeper import PROBES
from analyzer.operators.log import NEVER, UNKNOWN, Kind, Log

FEWEST_ITERATIONS = 5
"""Steps below which nobody is named. Chosen: with fewer, chance alone has one rank of a few
thousand last each time."""


_MOST_SIZES = 4096  # of operations that are told apart by how large they are
_MOST_CELLS = 1 << 24  # of a table by rank and kind of operation: as a log of some million has
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
    counts = np.add.reduceat(anchors.astype(np.int64), first)
    by = _shifts(log, order, anchors, first) if log.source == PROBES else np.zeros_like(counts)
    if by is None:  # whose step is whose nobody knows
        return Iterations(
            np.full(len(log), UNKNOWN, np.int32), np.zeros(0, np.int64), inferred=True
        )
    number += np.repeat(by, np.diff([*first, len(rank)])).astype(np.int32)
    # Nobody knows when logging began, so the first step may have lost its beginning.
    low, high = int(by.max()) + 1, int((counts + by).min())
    number[(number < low) | (number >= min(whole + int(by.max()), high))] = UNKNOWN
    step = np.empty(len(log), np.int32)
    step[order] = number
    return Iterations(step, np.arange(low, high, dtype=np.int64), inferred=True)


def _shifts(
    log: Log, order: Order, anchors: NDArray[np.bool_], first: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return by rank what to add to its steps' numbers, each of which begins with its own log.

    None where that is not known of one, as of one that ended before others were watched.
    """
    ends = [
        each[over & (each != NEVER)]
        for each, over in zip(
            np.split(log.ended_ns[order], first[1:]), np.split(anchors, first[1:]), strict=True
        )
    ]
    numbers = [np.arange(len(each)) for each in ends]
    found = [shift(mine, end, numbers[0], ends[0]) for mine, end in zip(numbers, ends, strict=True)]
    known = [each for each in found if each is not None]
    return np.array(known, np.int64) if len(known) == len(found) else None


def _anchors(log: Log, order: Order) -> NDArray[np.bool_] | None:
    """Return which rows, in this order, end a step; None where nothing tells."""
    rank = log.rank[order]
    kinds = list(dict.fromkeys(group.kind for group in log.groups))
    kind = np.array([*(kinds.index(group.kind) for group in log.groups), -1], np.int64)
    group = kind[np.maximum(log.group[order], -1)]
    op = log.op[order].astype(np.int64)
    if log.source == PROBES:  # nobody says what a group is for
        op += len(log.ops) * _dense_bytes(log.bytes[order])
    code = (op * _MOST_KINDS + group + 1) * _MOST_KINDS
    code += log.kind[order]
    codes, place = _dense(code)
    own = np.cumsum(np.diff(rank, prepend=rank[0]) != 0)
    ranks = int(own[-1]) + 1
    if ranks * len(codes) > _MOST_CELLS:
        return None
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
    if int(values.max()) > _MOST_CELLS:
        different, place = np.unique(values, return_inverse=True)
        return different, place.astype(np.int64)
    seen = np.zeros(int(values.max()) + 1, bool)
    seen[values] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


def _dense_bytes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of each size its place among all, as operations of one kind differ by it.

    Of very many sizes, as where each step has its own, none tells anything.
    """
    seen, place = np.unique(sizes, return_inverse=True)
    return place.astype(np.int64) if len(seen) <= _MOST_SIZES else np.zeros(len(sizes), np.int64)


def _last(rarest: NDArray[np.int64], place: NDArray[np.int64], own: NDArray[np.int64]) -> int:
    """Return of the rarest operations the one that the first rank's log has first last.

    Of several that a step has once each, any would do; the one that comes last is where it ends.
    """
    rows = place[own == 0]
    firsts = {int(each): int(np.argmax(rows == each)) for each in rarest}
    return max(firsts, key=firsts.__getitem__)
