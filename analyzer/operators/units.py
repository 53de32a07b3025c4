# SPDX-License-Identifier: Apache-2.0
"""What transfers of one kind between the same ranks took, by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, Kind, Log
from analyzer.operators.rows import Floats, Ints, Rows

_KINDS = len(Kind)
_BITS = 21
"""Of a rank, a group or an operation in a unit's number."""
MOST = (1 << _BITS) - 2
"""Ranks, or groups, that a unit's number has room for."""
_SIZE_BITS = 6
MOST_OPS = 1 << _BITS - _SIZE_BITS
"""Operations that a unit's number has room for, beside how large they are."""
_MOST_CELLS = 1 << 26
"""Most sums of a log: of each step, by rank and label, and by transfer. Chosen: half a gigabyte of
work, three times that of transfers, as 2,000 steps of 1,000 ranks have. Else 20,000 operators, each
with a step and a peer of its own, take ten."""
_ROOM = 1 << 22  # entries of a table that is larger than its log
_EVEN = (
    "all_reduce", "allreduce", "all-reduce", "reduce_scatter", "reduce-scatter", "broadcast",
    "all_gather", "allgather", "all-gather", "send", "recv",
)  # fmt: skip
"""In the name of what has one size for all who take part."""


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


def edge_of(number: int) -> tuple[int, int] | None:
    """Return the sender and receiver of a unit; None for a group's."""
    first, second = number >> 2 * _BITS, (number >> _BITS) & ((1 << _BITS) - 1)
    return None if second == 0 else (first, second - 1)


def group_of(number: int) -> int:
    """Return the place in the log's groups of a group's unit."""
    return number >> 2 * _BITS


def op_of(number: int) -> int:
    """Return the place of a unit's operation in the log's."""
    return number & (MOST_OPS - 1)


def check_size(cells: int) -> None:
    """Raise `ValueError` where a log's steps have too many sums."""
    if cells > _MOST_CELLS:
        raise ValueError(f"a log whose steps have {cells} sums; {_MOST_CELLS} at most")


def units_of(rows: Rows, log: Log) -> Units:
    """Return a log's transfers summed up. Raises `ValueError` where they are too many."""
    number, place, has, of = _numbered(rows, log)
    count, cells = len(number), len(rows.steps) * len(number)
    check_size(cells)
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


def _numbered(rows: Rows, log: Log) -> tuple[Ints, Ints, Ints, Ints]:
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


def _sizes(rows: Rows, ops: Sequence[str]) -> NDArray[np.int32]:
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
        some = (kind == which) & (peer >= 0) & (peer <= MOST)
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


def joined(parts: Sequence[Units]) -> Units:
    """Return the transfers of different ranks of one job as one."""
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
