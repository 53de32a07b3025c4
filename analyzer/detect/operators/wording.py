# SPDX-License-Identifier: Apache-2.0
"""Ranks, meetings and sizes in words."""

from collections.abc import Sequence

from analyzer.detect.operators.mismatch import Done
from analyzer.detect.operators.waits import Meeting, Waits

NAMED = 8
"""Most ranks that a sentence lists. Chosen: a host's worth."""


def where(waits: Waits, meeting: Meeting) -> str:
    """Return a meeting in words: its number, group, operation and bytes."""
    log = waits.log
    row = next((waits.row(rank, meeting) for rank in waits.waiters(meeting)), None)
    size = "" if row is None or log.bytes[row] < 0 else f" of {size_of(int(log.bytes[row]))}"
    if meeting.pair is not None:
        return f"a transfer from {meeting.pair[0]} to {meeting.pair[1]}{size}"
    op = "" if row is None else f" ({log.ops[log.op[row]]}{size})"
    name = log.groups[meeting.group].name if meeting.group >= 0 else "a group"
    return f"{meeting.sequence} of {name}{op}"


def doing(done: Done) -> str:
    """Return what a rank does, in words."""
    return " and ".join(f"{op} of {size_of(size)}" if size > 0 else op for op, size in done[:NAMED])


def size_of(size: int) -> str:
    """Return bytes in words."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size} bytes"


def ranks_of(ranks: Sequence[int]) -> str:
    """Return ranks in words, the first of many."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:NAMED]))
    return f"ranks {shown}" + (f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else "")


def them(ranks: Sequence[int]) -> str:
    """Return what stands for ranks."""
    return "it" if len(ranks) == 1 else "them"
