# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks of a group do the same: operations that differ at one place of its order."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analyzer.detect.operators.waits import Waits
from analyzer.operators.log import UNKNOWN, Kind, Log, State

_EVEN = ("all_reduce", "allreduce", "broadcast", "reduce")
"""Beginnings of operations that have as many bytes on all ranks. Chosen: as NCCL defines them."""

Done = tuple[tuple[str, int], ...]
"""What a rank does at one place of a group's order: operations and bytes."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first place at which ranks of a group do not do the same."""

    group: int
    sequence: int
    done: Mapping[int, Done]
    """By rank."""
    odd: tuple[int, ...]
    """Ranks that do other than most, in ascending order; empty where no half agrees."""
    most: Done
    """What most do, or some where none does most."""


def mismatches(waits: Waits) -> Iterator[Mismatch]:
    """Yield the first place of each group in which ranks wait, and where they do not agree.

    What ended everywhere counts only where the operations differ: sizes of what works may.
    """
    for group in waits.stuck_groups:
        found = _first(waits, group)
        if found is not None:
            yield found


def _first(waits: Waits, group: int) -> Mismatch | None:
    log = waits.log
    inside = (log.group == group) & (log.kind == Kind.COLLECTIVE) & (log.sequence != UNKNOWN)
    rows = np.flatnonzero(inside)
    rows = rows[np.lexsort((rows, log.rank[rows], log.sequence[rows]))]
    sequences = log.sequence[rows]
    for part in np.split(rows, np.flatnonzero(np.diff(sequences)) + 1):
        if _may_differ(log, part):
            found = _compared(log, part)
            if found is not None:
                return found
    return None


def _may_differ(log: Log, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> bool:
    """Return whether it is worth looking: nearly all that a log holds is alike."""
    return len(np.unique(log.op[rows])) > 1 or len(np.unique(log.bytes[rows])) > 1


def _compared(log: Log, rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Mismatch | None:
    over = bool((log.state[rows] == State.ENDED).all())
    done: dict[int, list[tuple[str, int]]] = {}
    for row in rows.tolist():
        name = log.ops[log.op[row]]
        sized = not over and name.lower().lstrip("_").startswith(_EVEN)
        done.setdefault(int(log.rank[row]), []).append((name, int(log.bytes[row]) if sized else 0))
    alike = {rank: tuple(each) for rank, each in done.items()}
    if over:  # what is one type on all ranks is told from another by its name
        alike = {rank: tuple((_bare(op), 0) for op, _ in each) for rank, each in alike.items()}
    counts = Counter(alike.values())
    if len(counts) < 2:
        return None
    most, many = counts.most_common(1)[0]
    agreed = 2 * many > len(alike)
    odd = tuple(sorted(rank for rank, each in alike.items() if each != most)) if agreed else ()
    return Mismatch(int(log.group[rows[0]]), int(log.sequence[rows[0]]), alike, odd, most)


def _bare(op: str) -> str:
    return op.partition(" of ")[0]
