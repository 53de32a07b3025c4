# SPDX-License-Identifier: Apache-2.0
"""Whether a rank for which all others wait may go on by itself, as one that writes a checkpoint.

Rank 0 often saves what all have, or evaluates, while the others wait in a barrier. Nothing in a log
of operators tells that from a hang while it lasts. What tells is what was before: the same ranks
alone outside, and then all went on. Whatever was, rank 0 is given time: it saves a part often, and
all seldom. Both end: longer than twice what it took before, and than torch's own ten minutes, is a
hang.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.detect.operators.wording import ranks_of
from analyzer.operators.log import NEVER, Kind, State

FIRST_NS = 300_000_000_000
"""How long rank 0 may be outside before it is named, at least. Chosen: half of the ten
minutes after which torch's watchdog ends a job, which a checkpoint has to be done by."""
MOST_NS = 600_000_000_000
"""How long anybody may be. Chosen: torch's ten minutes."""
AGAIN = 2
"""Times the longest pause that ended by itself, for which the same ranks may pause again. Chosen:
storage that others use, too, is slower at times."""
LONG = 10
"""Times its usual gap, from which a rank paused. Chosen."""
LONG_NS = 1_000_000_000
"""How long it has to be for that. Chosen: shorter ones nobody waits to be told of."""
_MOSTLY = 0.5  # of a pause, for which most others waited


@dataclass(frozen=True, slots=True)
class Pause:
    """A job stood still, and went on by itself."""

    ranks: frozenset[int]
    """For whom it waited."""
    lasted_ns: int


def suspects(verdict: Verdict) -> frozenset[int]:
    """Return the ranks of which a verdict says that all others wait for them; empty if of none."""
    if verdict.holdup is not Holdup.HANG_RANK or not all(map(_is_rank, verdict.culprits)):
        return frozenset()
    return frozenset(rank for each in verdict.culprits for rank in each.ranks)


def _is_rank(culprit: Culprit) -> bool:
    return culprit.kind is Who.RANK and not culprit.network


def patient(
    verdict: Verdict, still_ns: int, before: Iterable[Pause], gone: Collection[int] = ()
) -> Verdict:
    """Return a verdict over a job that has stood still for so long, or that it cannot tell yet.

    `before`: what it went on from by itself. `gone`: ranks whose processes have ended.
    """
    ranks = suspects(verdict)
    same = [each.lasted_ns for each in before if each.ranks == ranks]
    least_ns = FIRST_NS if 0 in ranks else 0  # what was short may have been another checkpoint
    limit_ns = min(max(AGAIN * max(same, default=0), least_ns), MOST_NS)
    if not ranks or ranks & set(gone) or still_ns >= limit_ns:
        return verdict
    who, left_s = ranks_of(sorted(ranks)), (limit_ns - still_ns) / 1e9
    said = (
        f"did so for {max(same) / 1e9:.0f} s before, and went on"
        if same
        else "may write a checkpoint, as rank 0 does"
    )
    return replace(
        verdict, holdup=Holdup.INSUFFICIENT, culprits=(),
        summary=f"all wait for {who} for {still_ns / 1e9:.0f} s, which {said}: cannot tell yet",
        missing=(*verdict.missing, f"whether {who} goes on within {left_s:.0f} s"),
    )  # fmt: skip


def earlier_ns(waits: Waits, rank: int, meeting: Meeting) -> list[int]:
    """Return for how long a rank paused before the same operation of the same group, by its clock.

    A pause is a gap before which most of the group waited in the operation for half as long.
    """
    log, row = waits.log, waits.row(waits.waiters(meeting)[0], meeting)
    if row is None or meeting.pair is not None:
        return []
    own = np.flatnonzero(log.rank == rank)
    begun = np.where(log.started_ns[own] == NEVER, log.enqueued_ns[own], log.started_ns[own])
    ended = np.maximum(log.ended_ns[own], begun)
    own, begun, ended = own[begun != NEVER], begun[begun != NEVER], ended[begun != NEVER]
    if len(own) < LONG:
        return []
    gap = np.maximum(begun[1:] - np.maximum.accumulate(ended)[:-1], 0)
    same = (log.group[own[1:]] == meeting.group) & (log.op[own[1:]] == log.op[row])
    long = same & (gap > max(LONG * float(np.median(gap[same])) if same.any() else 0, LONG_NS))
    return [
        int(gap[at]) for at in np.flatnonzero(long)
        if _waited(waits, meeting, rank, int(log.sequence[own[at + 1]]), int(gap[at]))
    ]  # fmt: skip


def _waited(waits: Waits, meeting: Meeting, rank: int, sequence: int, gap_ns: int) -> bool:
    log = waits.log
    rows = np.flatnonzero(
        (log.group == meeting.group) & (log.sequence == sequence) & (log.rank != rank)
        & (log.kind == Kind.COLLECTIVE) & (log.state == State.ENDED)
    )  # fmt: skip
    others = len(waits.members(meeting)) - 1
    return int((log.duration_ns[rows] >= _MOSTLY * gap_ns).sum()) > _MOSTLY * others
