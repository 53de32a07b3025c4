# SPDX-License-Identifier: Apache-2.0
"""Ranks that never came to where others wait, with a log and without one."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from analyzer.detect.operators.chains import Ends
from analyzer.detect.operators.pauses import AGAIN, earlier_ns
from analyzer.detect.operators.stuck import GOES_ON, STUCK_CONFIDENCE
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict
from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.detect.operators.wording import (
    DOUBTED,
    missing_of,
    rank_of,
    ranks_of,
    them,
    waiting_of,
    where,
)
from analyzer.operators.log import UNKNOWN

LATE_CONFIDENCE = 0.95
"""Of a rank that never came to where others wait, and that waits for nobody. Chosen."""
SILENT_CONFIDENCE = 0.85
"""Of such a rank whose log is empty: it may not have been recorded. Chosen."""
UNSEEN_CONFIDENCE = 0.4
"""Of a rank without a log that alone is missing where all others wait. Chosen: its log may only
have been lost."""
MANY = 0.5
"""Share of a meeting's ranks that may be late before it is as likely that the others are early.
Chosen."""


def late(waits: Waits, ends: Ends) -> Verdict:
    """Name the ranks that others wait for, and that wait for nobody."""
    known = tuple(rank for rank in ends.late if not waits.is_outdated(rank))
    if not known:
        return _outdated(waits, ends)
    # An end of a send that nobody waited for is not known, so both must be in what is under way.
    under_way = [
        each for each in ends.stuck if len(waits.waiters(each)) == len(waits.members(each))
    ]
    if under_way and not waits.log.overdue:
        return _at_work(waits, ends, under_way[0])
    # Who waits in what ended at others may have been logged before: where somebody who waits for
    # nobody explains all, that one is no suspect.
    free = tuple(rank for rank in known if waits.first(rank) is None)
    ends = replace(ends, late=free or known)
    if (paused := _paused(waits, ends.late)) is not None:
        return paused
    culprits = [_late_rank(waits, rank) for rank in ends.late]
    culprits.sort(key=lambda each: (-each.confidence, each.ranks))
    others = [f"{where(waits, each)} does not end either" for each in ends.stuck]
    return Verdict(
        Holdup.HANG_RANK,
        f"{ranks_of(ends.late)} never came to what {len(waits.waiting)} ranks wait in",
        tuple(culprits),
        evidence=(*waiting_of(waits), *others),
        missing=missing_of(waits),
    )


def _paused(waits: Waits, ranks: Sequence[int]) -> Verdict | None:
    """Say that ranks may go on by themselves, where all did so before; None where one did not.

    Nor where the source gave up: it did not while they did that before.
    """
    if waits.log.overdue or waits.log.at_rest:
        return None
    before = [earlier_ns(waits, rank, waits.plainest(waits.awaited(rank))) for rank in ranks]
    if not all(before):
        return None
    longest_s = max(max(each) for each in before) / 1e9
    count, who = min(len(each) for each in before), ranks_of(ranks)
    return Verdict(
        Holdup.INSUFFICIENT,
        f"all wait for {who}, as they did {count} times before, for up to {longest_s:.1f} s, and "
        "went on: cannot tell yet",
        evidence=waiting_of(waits),
        missing=(f"a log more than {AGAIN * longest_s:.0f} s later: does {who} go on?",),
    )


def _at_work(waits: Waits, ends: Ends, meeting: Meeting) -> Verdict:
    """Say that a job may be at work: what all came to would be over, if only a rank were late."""
    return Verdict(
        Holdup.INSUFFICIENT,
        f"all came to {where(waits, meeting)}, and {ranks_of(ends.late)} not to what others "
        "wait in: the job may just be at work",
        evidence=waiting_of(waits),
        missing=(GOES_ON, *missing_of(waits)),
    )


def _outdated(waits: Waits, ends: Ends) -> Verdict:
    return Verdict(
        Holdup.INSUFFICIENT,
        f"the logs of {ranks_of(ends.late)} were taken before those of others",
        evidence=waiting_of(waits),
        missing=("logs of all ranks from the same time",),
    )


def _late_rank(waits: Waits, rank: int) -> Culprit:
    awaited = waits.awaited(rank)
    own = waits.first(rank)
    if own is not None:
        return _apart(waits, rank, own, awaited)
    meeting = waits.plainest(awaited)
    late, waiters = waits.late(meeting), waits.waiters(meeting)
    silent = rank in waits.log.silent
    confidence = SILENT_CONFIDENCE if silent else LATE_CONFIDENCE
    doubted = len(late) > MANY * len(waits.members(meeting)) or not waits.is_counted(meeting)
    if doubted:
        confidence *= DOUBTED
    did = "its log is empty" if silent else _last(waits, rank, meeting)
    verb = "waits" if len(waiters) == 1 else "wait"
    why = f"rank {rank}: {did}; {ranks_of(waiters)} {verb} in {where(waits, meeting)}"
    return rank_of(waits, (rank,), confidence, why)


def _apart(waits: Waits, rank: int, own: Meeting, awaited: Sequence[Meeting]) -> Culprit:
    """Name a rank for which does not end what ended at others, who wait for it since."""
    meeting = waits.plainest(awaited)
    why = (
        f"rank {rank} is in {where(waits, own)}, which ended at others;"
        f" {ranks_of(waits.waiters(meeting))} in {where(waits, meeting)}"
    )
    return rank_of(waits, (rank,), STUCK_CONFIDENCE, why)


def _last(waits: Waits, rank: int, meeting: Meeting) -> str:
    """Return what a rank last did where it is awaited."""
    if meeting.pair is not None:
        return "has not posted its send" if rank == meeting.pair[0] else "has not posted its recv"
    reached = waits.reached(meeting.group, rank)
    name = waits.log.groups[meeting.group].name
    if reached == UNKNOWN:
        return f"has begun nothing in {name}"
    return f"has ended {reached} of {name} and begun no other"


def unseen(waits: Waits, ends: Ends) -> Verdict:
    """Name ranks without a log only where nobody else is missing where they are waited for.

    Nobody but those who wait elsewhere themselves, which is for the same rank in the end.
    """
    without = set(ends.unseen)
    blocked = [each for each in waits.meetings if set(waits.late(each)) & without]
    alone = all(_misses_one(waits, each, without) for each in blocked) and not ends.stuck
    waiters = sorted({rank for each in blocked for rank in waits.waiters(each)})
    gone = f"{ranks_of(ends.unseen)}: no log, and {ranks_of(waiters)} wait for {them(ends.unseen)}"
    if not alone:
        return Verdict(
            Holdup.INSUFFICIENT,
            f"whom others wait for left no log: {ranks_of(ends.unseen)}",
            evidence=waiting_of(waits),
            missing=(gone,),
        )
    culprits = [
        rank_of(
            waits, (rank,), UNSEEN_CONFIDENCE,
            f"rank {rank} left no log, and is all that is missing where others wait",
        )
        for rank in ends.unseen
    ]  # fmt: skip
    return Verdict(
        Holdup.HANG_RANK,
        f"{ranks_of(ends.unseen)} left no log, and {len(waiters)} others wait",
        tuple(culprits),
        evidence=waiting_of(waits),
        missing=(gone,),
    )


def _misses_one(waits: Waits, meeting: Meeting, without: Collection[int]) -> bool:
    """Return whether of all that a meeting lacks one has no log, and the others wait."""
    late = waits.late(meeting)
    away = [rank for rank in late if rank in without]
    return len(away) == 1 and all(rank in away or waits.first(rank) is not None for rank in late)
