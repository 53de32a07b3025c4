# SPDX-License-Identifier: Apache-2.0
"""What ranks did between what they sent and received, as passes whose schedule can be run again.

Where a log names no passes, they are what lies between two transfers: what follows a receive
could not begin before the stage that sent it had come so far. The first and the last stage turn
round between two transfers, so theirs hold a forward and a backward pass, and no segment of one
stage is compared with one of another: of stages, only all that they did is.
"""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.positions import way
from analyzer.detect.operators.whatif import Pass, Passes, runs
from analyzer.operators.log import Kind, Log
from analyzer.operators.rows import Floats, Ints, Rows

_FEWEST_STEPS = 2
_MOST_CELLS = 1 << 26  # half a gigabyte
_MOSTLY = 0.5  # steps in which a rank has all segments, so that they are compared


def segments(log: Log, rows: Rows, gap: Floats, stage: Ints) -> Passes | None:
    """Return what ranks did between transfers; None where replicas differ, or peers are not known.

    `stage` is (ranks,) of the ranks of `rows`, `gap` what was before each row (`rows.gaps`).
    """
    moves = (rows.kind == Kind.SEND) | (rows.kind == Kind.RECV)
    if not moves.any() or (rows.peer[moves] < 0).any() or not len(rows.first):
        return None
    table = _Table.of(log, rows, gap, stage, moves)
    if table is None:
        return None
    order = _needs(table)
    if order is None:
        return None
    took = tuple(table.took[:, np.flatnonzero(stage == n)] for n in range(len(order)))
    cut = tuple(each[:, :, : len(own)] for each, own in zip(took, order, strict=True))
    ranks = tuple(rows.ranks[stage == n] for n in range(len(order)))
    made = Passes(order, cut, ranks, alike=False)
    return made if runs(made) else None


class _Table:
    """Segments of all ranks, and of each stage the transfers that end them."""

    def __init__(self, took: Floats, moves: list[list[tuple[bool, int, int]]]) -> None:
        self.took = took
        """(steps, ranks, segments) in microseconds."""
        self.moves = moves
        """By stage: whether sent, the other stage, and the direction."""

    @staticmethod
    def of(
        log: Log, rows: Rows, gap: Floats, stage: Ints, moves: NDArray[np.bool_]
    ) -> "_Table | None":
        cells = len(rows.steps) * len(rows.ranks)
        count = np.bincount(rows.at[moves], minlength=cells).reshape(-1, len(rows.ranks))
        usual = np.median(count, axis=0).astype(np.int64)
        whole = (count == usual).all(axis=1)
        if whole.sum() < max(_FEWEST_STEPS, _MOSTLY * len(whole)):
            return None
        before: Ints = np.cumsum(moves) - moves
        nth: Ints = before - np.repeat(before[rows.first], np.diff([*rows.first, len(before)]))
        most = int(usual.max()) + 1
        if cells * most > _MOST_CELLS:
            return None
        kept = whole[rows.step]
        own = gap + np.where(rows.works(log.ops), np.maximum(rows.end - rows.start, 0), 0)
        key = rows.at[kept] * most + nth[kept]
        took = np.bincount(key, own[kept], cells * most).reshape(-1, len(rows.ranks), most)
        told = _moves(log, rows, stage, usual, kept & moves)
        return None if told is None else _Table(took[whole], told)


def _moves(
    log: Log, rows: Rows, stage: Ints, usual: Ints, kept: NDArray[np.bool_]
) -> list[list[tuple[bool, int, int]]] | None:
    """Return each stage's transfers in order; None where its ranks, or its steps, differ."""
    if not kept.any():
        return None
    at = np.minimum(np.searchsorted(rows.ranks, rows.peer[kept]), len(rows.ranks) - 1)
    peer, own = np.where(rows.ranks[at] == rows.peer[kept], at, -1), rows.place[kept]
    ways = np.array([way(op) for op in log.ops], np.int64)[rows.op[kept]]
    beside = np.empty(len(stage), np.int64)
    for n in range(int(stage.max()) + 1):
        beside[stage == n] = np.arange((stage == n).sum())
    if (peer < 0).any() or (beside[peer] != beside[own]).any():
        return None
    sent = rows.kind[kept] == Kind.SEND
    code = (stage[peer] * 3 + ways + 1) * 2 + sent
    made = []
    for n in range(int(stage.max()) + 1):
        counts = np.unique(usual[stage == n])
        mine = code[stage[own] == n]
        if len(counts) != 1 or len(mine) % max(int(counts[0]), 1) or not counts[0]:
            return None
        each = mine.reshape(-1, int(counts[0]))
        if (each != each[:1]).any():
            return None
        made.append([(bool(c % 2), int(c // 6), int(c // 2 % 3) - 1) for c in each[0]])
    return made


def _needs(table: _Table) -> tuple[tuple[Pass, ...], ...] | None:
    """Return each stage's segments, with those whose result they need; None where none sent it."""
    sends: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for stage, own in enumerate(table.moves):
        for number, (sent, other, direction) in enumerate(own):
            if sent:
                sends[stage, other, direction].append(number)
    made = []
    for stage, own in enumerate(table.moves):
        seen: dict[tuple[int, int, int], int] = defaultdict(int)
        kinds: dict[object, int] = {}
        segments_, needs, last = [], None, None
        for number, move in enumerate([*own, None]):
            kind = kinds.setdefault((last, move), len(kinds))
            segments_.append(Pass(number, forward=True, needs=needs, chunk=kind))
            needs, last = None, move
            if move is not None and not move[0]:
                key = (move[1], stage, move[2])
                from_ = sends[key]
                if seen[key] >= len(from_):
                    return None
                needs = (move[1], from_[seen[key]])
                seen[key] += 1
        made.append(tuple(segments_))
    return tuple(made)
