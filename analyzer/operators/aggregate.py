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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, UNKNOWN, Kind, Log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REST = "all else"
"""Work that is not told apart."""
MOST_LABELS = 32
"""Kinds of work that are told apart. Chosen: a trace of kernels has thousands."""
IDLE = "idle"
"""What a rank did by itself and did not log: time between two operators that it waited in."""
_KINDS = len(Kind)
_BITS = 21
"""Of a rank, a group or an operation in a unit's number."""
_MOST = (1 << _BITS) - 2
_SIZE_BITS = 6
_MOST_OPS = 1 << _BITS - _SIZE_BITS
"""Operations that a unit's number has room for, beside how large they are."""
_MOST_CELLS = 1 << 26
"""Most sums of a log: of each step, by rank and label, and by transfer. Chosen: half a gigabyte of
work, three times that of transfers, as 2,000 steps of 1,000 ranks have. Else 20,000 operators, each
with a step and a peer of its own, take ten."""
_MOST_STEPS = 1 << 22  # numbers of steps that are looked up in a table
_ROOM = 1 << 22  # entries of a table that is larger than its log
_TOGETHER = ("reduce", "gather", "clip", "barrier", "broadcast", "all-to-all", "sync")
"""In the name of what ranks do together, whatever a source calls it. Chosen: clipping needs the
norm of all gradients, so whoever comes early waits in it."""
_EVEN = (
    "all_reduce", "allreduce", "all-reduce", "reduce_scatter", "reduce-scatter", "broadcast",
    "all_gather", "allgather", "all-gather", "send", "recv",
)  # fmt: skip
"""In the name of what has one size for all who take part."""
_BLOCKING_SENDS = 0.001
"""A rank's sends hold it up where so few, as a share, overlap what it does next. Chosen."""


@dataclass(frozen=True, slots=True)
class Units:
    """Transfers of one kind between the same ranks: a group's reduction, or one edge's sends."""

    number: Ints
    """(units,) in ascending order, alike in all parts of a job. Transfers of a kind that are twice
    as large as others are a unit of their own: a step reduces large gradients and small ones."""
    count: Ints
    """(steps, units): rows, of all ranks in it."""
    sum_us: Floats
    """(steps, units): of these rows."""
    least_us: Floats
    """(steps, units): the shortest; infinite where there is none."""
    sent_us: Floats
    """(steps, units): likewise, of sends alone."""
    ends: Ints
    """(units,): 1 for sent, 2 for received, 3 for both; of collectives 3."""
    bytes: Ints
    """(units,): the most of one transfer; `UNKNOWN` where it is not known."""


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
    """(steps, ranks): from a rank's first operator of a step to its last; NaN where it has none."""
    units: Units
    ops: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes it takes, as single precision and narrow counters."""
        units = self.units
        return 4 * (self.own_us.size + self.length_us.size + 3 * units.sum_us.size) + (
            2 * units.count.size + 8 * units.number.size
        )


def edge_of(number: int) -> tuple[int, int] | None:
    """Return the sender and receiver of a unit; None for a group's."""
    first, second = number >> 2 * _BITS, (number >> _BITS) & ((1 << _BITS) - 1)
    return None if second == 0 else (first, second - 1)


def group_of(number: int) -> int:
    """Return the place in the log's groups of a group's unit."""
    return number >> 2 * _BITS


def op_of(number: int) -> int:
    """Return the place of a unit's operation in the log's."""
    return number & (_MOST_OPS - 1)


def aggregate(log: Log, step: NDArray[np.int32], steps: Ints) -> Aggregates:
    """Sum a log up, given which step each row is of; rows of other steps are left out.

    Raises `ValueError` where the log has more ranks or groups than a unit's number has room for,
    two million, or more than 32,768 operations, or more steps than can be summed up.
    """
    if max(log.world, len(log.groups)) > _MOST or len(log.ops) > _MOST_OPS:
        raise ValueError("more than two million ranks or groups, or than 32,768 operations")
    rows = _Rows.of(log, step, steps)
    works = rows.works(log.ops)
    labels = _labels(rows, log, works)
    _check_size(len(steps) * len(rows.ranks) * (len(labels) + 1))
    own = _own(rows, log, labels, works)
    return Aggregates(
        rows.ranks, steps, (*labels, IDLE), own, rows.lengths(), _units(rows, log), log.ops
    )


@dataclass(frozen=True, slots=True)
class _Rows:
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
    def of(log: Log, step: NDArray[np.int32], steps: Ints) -> "_Rows":
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
        return _Rows(
            ranks, steps, place * np.int64(len(ranks)) + rank, place, rank,
            log.rank[order], log.op[order], log.kind[order], log.group[order], log.peer[order],
            log.bytes[order], (start - zero) / 1e3, (log.ended_ns[order] - zero) / 1e3, first,
        )  # fmt: skip

    def works(self, ops: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows are a rank's own work."""
        waits = np.array([any(each in op.lower() for each in _TOGETHER) for op in ops], bool)
        own = np.isin(self.kind, (Kind.COMPUTE, Kind.OTHER))
        return np.asarray(own & ~waits[self.op])

    def lengths(self) -> Floats:
        made = np.full(len(self.steps) * len(self.ranks), np.nan)
        if len(self.first):
            ends = np.maximum.reduceat(self.end, self.first)
            made[self.at[self.first]] = ends - self.start[self.first]
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


def _labels(rows: _Rows, log: Log, works: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return what is told apart of a rank's own work: what took most, if a log names very much."""
    took = np.bincount(rows.op[works], (rows.end - rows.start)[works], len(log.ops))
    used = np.flatnonzero(np.bincount(rows.op[works], minlength=len(log.ops)))
    if len(used) <= MOST_LABELS:
        return tuple(log.ops[op] for op in used)
    most = np.sort(used[np.argsort(-took[used], kind="stable")[: MOST_LABELS - 1]])
    return (*(log.ops[op] for op in most), REST)


def _own(rows: _Rows, log: Log, labels: Sequence[str], works: NDArray[np.bool_]) -> Floats:
    cells, count = len(rows.steps) * len(rows.ranks), len(labels) + 1
    number = {name: n for n, name in enumerate(labels)}
    label = np.array([number.get(op, number.get(REST, count - 1)) for op in log.ops], np.int64)
    key = rows.at[works] * count + label[rows.op[works]]
    took = (rows.end - rows.start)[works]
    own = np.zeros(cells * count)
    own += np.bincount(key, np.maximum(took, 0), cells * count)
    if len(rows.first):
        own[rows.at[rows.first] * count + count - 1] += np.add.reduceat(_gaps(rows), rows.first)
    return own.reshape(len(rows.steps), len(rows.ranks), count)


def _gaps(rows: _Rows) -> Floats:
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


def _free_sends(rows: _Rows) -> bool:
    """Whether a rank goes on while what it sends is under way."""
    sends = np.flatnonzero(rows.kind[:-1] == Kind.SEND)
    if not len(sends):
        return False
    return bool((rows.start[sends + 1] < rows.end[sends]).mean() > _BLOCKING_SENDS)


def _between(rows: _Rows, latest: Floats) -> Floats:
    """Return how long each rank had been in no operator when a step began."""
    first = rows.first
    made = np.zeros(len(first))
    before = first[1:] - 1
    follows = (rows.rank[first[1:]] == rows.rank[before]) & (
        rows.step[first[1:]] == rows.step[before] + 1
    )
    gap = rows.start[first[1:]] - (latest[before])
    lengths = rows.end[before] - rows.start[first[:-1]]
    # Times that begin anew, and steps that were left out, say nothing of what was between.
    made[1:] = np.where(follows & (gap > 0) & (gap < np.maximum(lengths, 0)), gap, 0)
    return made


def _check_size(cells: int) -> None:
    if cells > _MOST_CELLS:
        raise ValueError(f"a log whose steps have {cells} sums; {_MOST_CELLS} at most")


def _units(rows: _Rows, log: Log) -> Units:
    number, place, has, of = _numbered(rows, log)
    count, cells = len(number), len(rows.steps) * len(number)
    _check_size(cells)
    key = rows.step[has] * count + place
    took = np.maximum(rows.end[has] - rows.start[has], 0)
    least, sent = np.full(cells, np.inf), np.full(cells, np.inf)
    np.minimum.at(least, key, took)
    np.minimum.at(sent, key[of == 1], took[of == 1])
    ends, most = np.zeros(count, np.int64), np.full(count, UNKNOWN, np.int64)
    np.bitwise_or.at(ends, place, of)
    np.maximum.at(most, place, rows.bytes[has])
    shape = (len(rows.steps), count)
    total = np.asarray(np.bincount(key, took, cells), np.float64)
    return Units(
        number, np.bincount(key, minlength=cells).reshape(shape), total.reshape(shape),
        least.reshape(shape), sent.reshape(shape), ends, most,
    )  # fmt: skip


def _numbered(rows: _Rows, log: Log) -> tuple[Ints, Ints, Ints, Ints]:
    """Return units' numbers; of each row of a unit which, the row, and which end of it it is."""
    # Mostly what a rank does, and how, says with whom: then few are to be told apart.
    count = len(rows.ranks) * len(log.ops) * _KINDS
    cells = (rows.place * len(log.ops) + rows.op) * _KINDS + rows.kind
    sizes = _sizes(rows, log.ops)
    group, peer, size = (
        _by_cell(cells, count, each) if count <= len(cells) + _ROOM else None
        for each in (rows.group, rows.peer, sizes)
    )
    if group is not None and peer is not None and size is not None:
        cell = np.arange(count)
        rank = rows.ranks[cell // (_KINDS * len(log.ops))] if count else cell
        op = cell // _KINDS % len(log.ops)
        few = _numbers(log.ops, rank, op, cell % _KINDS, group, peer, size)
        used = np.zeros(count, bool)
        used[cells] = True
        number = np.unique(few[0][used & (few[0] >= 0)])
        where = np.where(few[0] >= 0, np.searchsorted(number, few[0]), -1)
        place = where[cells]
        has = np.flatnonzero(place >= 0)
        return number, place[has], has, few[1][cells[has]]
    numbers, of = _numbers(
        log.ops, rows.rank, rows.op, rows.kind, rows.group, rows.peer, sizes
    )  # fmt: skip
    has = np.flatnonzero(numbers >= 0)
    number, place = np.unique(numbers[has], return_inverse=True)
    return number, place, has, of[has]


def _by_cell(cells: Ints, count: int, values: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """Return the value that each cell has in all of its rows; None where it differs."""
    made = np.full(count, UNKNOWN, np.int32)
    made[cells] = values
    return made if (made[cells] == values).all() else None


def _sizes(rows: _Rows, ops: Sequence[str]) -> NDArray[np.int32]:
    """Return of each row the number of bits of its size; 0 where sizes differ by rank."""
    even = np.array([any(each in op.lower() for each in _EVEN) for op in ops], bool)
    bits = np.frexp(np.maximum(rows.bytes, 0).astype(np.float64))[1]
    return np.where(even[rows.op], bits, 0).astype(np.int32)


def _numbers(
    ops: Sequence[str], ranks: NDArray[Any], op: NDArray[Any], kind: NDArray[Any],
    group: NDArray[Any], peer: NDArray[Any], size: NDArray[Any],
) -> tuple[Ints, Ints]:  # fmt: skip
    """Return the unit that each operator is of, -1 for none, and which end of it it is."""
    numbers = np.full(len(op), -1, np.int64)
    ends = np.full(len(op), 3, np.int64)
    both = _directions(ops)[op] | (size.astype(np.int64) << _BITS - _SIZE_BITS)
    own_op = op | (size.astype(np.int64) << _BITS - _SIZE_BITS)
    inside = (kind == Kind.COLLECTIVE) & (group >= 0)
    numbers[inside] = (group[inside].astype(np.int64) << 2 * _BITS) | own_op[inside]
    for which, end in ((Kind.SEND, 1), (Kind.RECV, 2)):
        some = (kind == which) & (peer >= 0)
        own, other = ranks[some].astype(np.int64), peer[some].astype(np.int64)
        source, target = (own, other) if which is Kind.SEND else (other, own)
        numbers[some] = (source << 2 * _BITS) | ((target + 1) << _BITS) | both[some]
        ends[some] = end
    return numbers, ends


def _directions(ops: Sequence[str]) -> Ints:
    """Return of each operation the first that is the same but for sending or receiving."""
    known: dict[str, int] = {}
    plain = [op.lower().replace("recv", "").replace("send", "") for op in ops]
    return np.array([known.setdefault(each, n) for n, each in enumerate(plain)], np.int64)


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
        _joined([each.units for each in parts]), first.ops,
    )  # fmt: skip


def _relabelled(part: Aggregates, labels: tuple[str, ...]) -> Floats:
    made = np.zeros((*part.own_us.shape[:2], len(labels)))
    made[:, :, [labels.index(each) for each in part.labels]] = part.own_us
    return made


def _joined(parts: Sequence[Units]) -> Units:
    number = np.unique(np.concatenate([each.number for each in parts]))
    steps = len(parts[0].count)
    count, total = np.zeros((steps, len(number)), np.int64), np.zeros((steps, len(number)))
    least, sent = np.full((2, steps, len(number)), np.inf)
    ends = np.zeros(len(number), np.int64)
    most = np.full(len(number), UNKNOWN, np.int64)
    for each in parts:
        at = np.searchsorted(number, each.number)
        count[:, at] += each.count
        total[:, at] += each.sum_us
        least[:, at] = np.minimum(least[:, at], each.least_us)
        sent[:, at] = np.minimum(sent[:, at], each.sent_us)
        ends[at] |= each.ends
        most[at] = np.maximum(most[at], each.bytes)
    return Units(number, count, total, least, sent, ends, most)
