# SPDX-License-Identifier: Apache-2.0
"""The rows of a log in order of rank, step and start, and what lies between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, Kind, Log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_STEPS = 1 << 22  # numbers of steps that are looked up in a table
_TOGETHER = ("reduce", "gather", "clip", "barrier", "broadcast", "all-to-all", "sync")
"""In the name of what ranks do together, whatever a source calls it. Chosen: clipping needs the
norm of all gradients, so whoever comes early waits in it."""
_BLOCKING_SENDS = 0.001
"""A rank's sends hold it up where so few, as a share, overlap what it does next. Chosen."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in order of rank, step and start."""

    ranks: Ints
    steps: Ints
    at: Ints
    """(rows,) place of (step, rank) in a flat (steps, ranks)."""
    step: Ints
    place: Ints
    """(rows,) of the rank among `ranks`."""
    rank: NDArray[np.int32]
    op: NDArray[np.int32]
    kind: NDArray[np.uint8]
    group: NDArray[np.int32]
    peer: NDArray[np.int32]
    bytes: Ints
    start: Floats
    """Microseconds since the first of the log's."""
    end: Floats
    first: Ints
    """Rows with which a step of a rank begins."""

    @staticmethod
    def of(log: Log, step: NDArray[np.int32], steps: Ints) -> "Rows":
        """Return the rows of these steps that ended, given which step each is of."""
        place = _places(step, steps)
        inside = (place >= 0) & (log.started_ns != NEVER) & (log.ended_ns != NEVER)
        ranks, rank = _dense(log.rank)
        order: Ints | slice = slice(None) if inside.all() else np.flatnonzero(inside)
        place, rank, start = place[order], rank[order], log.started_ns[order]
        key = rank * np.int64(len(steps)) + place
        # Most logs are in order already, and sorting is most of what this takes.
        if _behind(key, start):
            sorted_ = np.lexsort((start, key))
            order = sorted_ if isinstance(order, slice) else order[sorted_]
            key, start, place, rank = (each[sorted_] for each in (key, start, place, rank))
        zero = int(start.min(initial=0)) if len(start) else 0
        first = np.flatnonzero(np.diff(key, prepend=-1))
        return Rows(
            ranks, steps, place * np.int64(len(ranks)) + rank, place, rank,
            log.rank[order], log.op[order], log.kind[order], log.group[order], log.peer[order],
            log.bytes[order], (start - zero) / 1e3, (log.ended_ns[order] - zero) / 1e3, first,
        )  # fmt: skip

    def works(self, ops: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows are a rank's own work."""
        waits = np.array([any(each in op.lower() for each in _TOGETHER) for op in ops], bool)
        own = np.isin(self.kind, (Kind.COMPUTE, Kind.OTHER))
        return np.asarray(own & ~waits[self.op])

    def lengths(self, gap: Floats) -> Floats:
        """Return (steps, ranks) how long steps took, with the gaps before their first rows."""
        made = np.full(len(self.steps) * len(self.ranks), np.nan)
        if len(self.first):
            ends = np.maximum.reduceat(self.end, self.first)
            made[self.at[self.first]] = ends - self.start[self.first] + gap[self.first]
        return made.reshape(len(self.steps), len(self.ranks))


def _behind(key: Ints, start: Ints) -> bool:
    """Return whether rows are out of order."""
    over = np.diff(key)
    return bool(((over < 0) | ((over == 0) & (np.diff(start) < 0))).any())


def _places(step: NDArray[np.int32], steps: Ints) -> Ints:
    """Return the place of each row's step among those given; -1 where it is none of them."""
    if not len(steps) or not len(step):
        return np.full(len(step), -1, np.int64)
    low, high = int(steps[0]), int(steps[-1])
    if high - low > _MOST_STEPS:
        at = np.minimum(np.searchsorted(steps, step), len(steps) - 1)
        return np.where(steps[at] == step, at, -1)
    table = np.full(high - low + 2, -1, np.int64)
    table[steps - low] = np.arange(len(steps))
    at = np.where((step < low) | (step > high), high - low + 1, step.astype(np.int64) - low)
    return np.asarray(table[at], np.int64)


def _dense(values: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return the different values, and of each its place among them."""
    seen = np.zeros(int(values.max(initial=-1)) + 1, bool)
    seen[values] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


def gaps(rows: Rows) -> Floats:
    """Return before each row for how long its rank had been in no operator.

    The first of a step counts from the end of the step before it, where that one is in the log.
    """
    if not len(rows.start):
        return np.zeros(0)
    end = np.where(rows.kind == Kind.SEND, rows.start, rows.end) if _free_sends(rows) else rows.end
    # One running maximum over all: each step of a rank lies above all before it.
    low, rows_of = rows.start[rows.first], np.diff(np.append(rows.first, len(end)))
    reach = float((end - np.repeat(low, rows_of)).max()) + 1.0
    lift = np.repeat(np.arange(len(low)) * reach - low, rows_of)
    latest = np.maximum.accumulate(end + lift)
    latest -= lift
    gaps = np.zeros(len(end))
    gaps[1:] = rows.start[1:] - latest[:-1]
    gaps[rows.first] = _between(rows, latest)
    return np.maximum(gaps, 0)


def _free_sends(rows: Rows) -> bool:
    """Whether a rank goes on while what it sends is under way."""
    sends = np.flatnonzero(rows.kind[:-1] == Kind.SEND)
    if not len(sends):
        return False
    return bool((rows.start[sends + 1] < rows.end[sends]).mean() > _BLOCKING_SENDS)


def _between(rows: Rows, latest: Floats) -> Floats:
    """Return how long each rank had been in no operator when a step began.

    However long that is, where steps follow each other by number: where communication alone is
    logged, it is all that a rank computes. Else no longer than the step before it, since what was
    left out may lie between.
    """
    first = rows.first
    made = np.zeros(len(first))
    before = first[1:] - 1
    same = rows.rank[first[1:]] == rows.rank[before]
    follows = same & (rows.step[first[1:]] == rows.step[before] + 1)
    next_ = rows.steps[rows.step[first[1:]]] == rows.steps[rows.step[before]] + 1
    gap = rows.start[first[1:]] - latest[before]
    lengths = rows.end[before] - rows.start[first[:-1]]
    # Times that begin anew say nothing of what was between: by those a step begins too early.
    made[1:] = np.where(follows & (gap > 0) & (next_ | (gap < np.maximum(lengths, 0))), gap, 0)
    return made
