# SPDX-License-Identifier: Apache-2.0
"""What a log comes down to: what each rank did itself in each step, and what transfers took.

Enough to say who is suspect, and some thousandth of the bytes, so a host can send this first and
its operators only where it is asked for them. Each number comes from one rank's own clock. Logs of
different ranks of one job are summed up apart and put `together`.

How long a transfer took is the least that anybody in it measured: whoever came last waited for
nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import Log
from analyzer.operators.rows import Floats, Ints, Rows, gaps
from analyzer.operators.units import MOST, MOST_OPS, Units, check_size, joined, units_of

REST = "all else"
"""Work that is not told apart."""
MOST_LABELS = 32
"""Kinds of work that are told apart. Chosen: a trace of kernels has thousands."""
IDLE = "idle"
"""What a rank did by itself and did not log: time between two operators that it waited in."""


@dataclass(frozen=True, slots=True)
class Aggregates:
    """All that detection needs of a log."""

    ranks: Ints
    """(ranks,) ascending."""
    steps: Ints
    """(steps,) ascending."""
    labels: tuple[str, ...]
    own_us: Floats
    """(steps, ranks, labels): what a rank did itself, by operation; the last is `IDLE`."""
    length_us: Floats
    """(steps, ranks): from the end of a rank's step before, where its gap is known, else from its
    first operator of a step, to its last; NaN where it has none."""
    units: Units
    ops: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes it takes, as single precision and narrow counters."""
        units = self.units
        return 4 * (self.own_us.size + self.length_us.size + 3 * units.sum_us.size) + (
            2 * units.count.size + 8 * units.number.size
        )


def aggregate(log: Log, step: NDArray[np.int32], steps: Ints) -> Aggregates:
    """Sum a log up, given which step each row is of; rows of other steps are left out.

    Raises `ValueError` where the log has more ranks or groups than a unit's number has room for,
    two million, or more than 32,768 operations, or more steps than can be summed up.
    """
    rows = Rows.of(log, step, steps)
    return summed(log, rows, gaps(rows))


def summed(log: Log, rows: Rows, gap: Floats) -> Aggregates:
    """Sum up a log's rows, given what was before each. Raises `ValueError` as `aggregate` does."""
    if max(log.world, len(log.groups)) > MOST or len(log.ops) > MOST_OPS:
        raise ValueError("more than two million ranks or groups, or than 32,768 operations")
    steps = rows.steps
    works = rows.works(log.ops)
    labels = _labels(rows, log, works)
    check_size(len(steps) * len(rows.ranks) * (len(labels) + 1))
    own = _own(rows, log, labels, works, gap)
    return Aggregates(
        rows.ranks, steps, (*labels, IDLE), own, rows.lengths(gap), units_of(rows, log), log.ops
    )


def _labels(rows: Rows, log: Log, works: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return what is told apart of a rank's own work: what took most, if a log names very much."""
    took = np.bincount(rows.op[works], (rows.end - rows.start)[works], len(log.ops))
    used = np.flatnonzero(np.bincount(rows.op[works], minlength=len(log.ops)))
    if len(used) <= MOST_LABELS:
        return tuple(log.ops[op] for op in used)
    most = np.sort(used[np.argsort(-took[used], kind="stable")[: MOST_LABELS - 1]])
    return (*(log.ops[op] for op in most), REST)


def _own(
    rows: Rows, log: Log, labels: Sequence[str], works: NDArray[np.bool_], gap: Floats
) -> Floats:
    cells, count = len(rows.steps) * len(rows.ranks), len(labels) + 1
    number = {name: n for n, name in enumerate(labels)}
    label = np.array([number.get(op, number.get(REST, count - 1)) for op in log.ops], np.int64)
    key = rows.at[works] * count + label[rows.op[works]]
    took = (rows.end - rows.start)[works]
    own = np.zeros(cells * count)
    own += np.bincount(key, np.maximum(took, 0), cells * count)
    if len(rows.first):
        own[rows.at[rows.first] * count + count - 1] += np.add.reduceat(gap, rows.first)
    return own.reshape(len(rows.steps), len(rows.ranks), count)


def together(parts: Sequence[Aggregates]) -> Aggregates:
    """Return one job's aggregates from those of different ranks, summed up over the same steps.

    Raises `ValueError` where parts have different steps or operations, or share a rank.
    """
    first = parts[0]
    if any(not np.array_equal(each.steps, first.steps) or each.ops != first.ops for each in parts):
        raise ValueError("parts of different jobs, or of different steps")
    ranks = np.concatenate([each.ranks for each in parts])
    order = np.argsort(ranks, kind="stable")
    if (np.diff(ranks[order]) == 0).any():
        raise ValueError("two parts have the same rank")
    labels = tuple(sorted({label for each in parts for label in each.labels} - {IDLE}))
    labels = (*labels, IDLE)
    own = np.concatenate([_relabelled(each, labels) for each in parts], axis=1)
    length = np.concatenate([each.length_us for each in parts], axis=1)
    return Aggregates(
        ranks[order], first.steps, labels, own[:, order], length[:, order],
        joined([each.units for each in parts]), first.ops,
    )  # fmt: skip


def _relabelled(part: Aggregates, labels: tuple[str, ...]) -> Floats:
    made = np.zeros((*part.own_us.shape[:2], len(labels)))
    made[:, :, [labels.index(each) for each in part.labels]] = part.own_us
    return made
