# SPDX-License-Identifier: Apache-2.0
"""Ranks, meetings and sizes in words."""

from collections.abc import Sequence

from analyzer.detect.operators.mismatch import Done
from analyzer.detect.operators.verdict import Culprit, Who
from analyzer.detect.operators.waits import Meeting, Waits

NAMED = 8
"""Most ranks that a sentence lists. Chosen: a host's worth."""
SHOWN = 8
"""Most meetings that are evidence. Chosen: a screenful."""
DOUBTED = 0.5
"""By which confidence is multiplied beyond `MANY`, where no half agrees, and of transfers that are
not counted. Chosen."""


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


def waiting_of(waits: Waits) -> tuple[str, ...]:
    """Return where most ranks wait, the largest first."""
    meetings = sorted(waits.meetings, key=lambda each: -len(waits.waiters(each)))
    return tuple(
        f"{ranks_of(waits.waiters(each))} in {where(waits, each)}"
        + (f", without {ranks_of(late)}" if (late := waits.late(each)) else "")
        for each in meetings[:SHOWN]
    )


def missing_of(waits: Waits) -> tuple[str, ...]:
    """Return what is missing to say more: the logs of ranks without one."""
    unseen = waits.log.unseen
    return (f"the logs of {ranks_of(unseen)}",) if unseen else ()


def rank_of(waits: Waits, ranks: tuple[int, ...], confidence: float, why: str) -> Culprit:
    """Return a rank as a culprit, with its host where it is known."""
    place = waits.log.places.get(ranks[0])
    return Culprit(Who.RANK, ranks, confidence, why, place.host if place else None)
