# SPDX-License-Identifier: Apache-2.0
"""Meetings to which all came and that do not end."""

from collections.abc import Iterable, Iterator

import numpy as np

from analyzer.detect.operators.chains import Ends
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.detect.operators.wording import missing_of, rank_of, ranks_of, waiting_of, where
from analyzer.operators.log import NEVER, State

STALE_NS = 10_000_000_000
"""How long after the begin of what is not over its rank must have begun something else, for a job
in which nobody lags to stand still. Chosen: ten times what a collective of a large job takes."""
STUCK_CONFIDENCE = 0.6
"""Of a group or a pair whose ranks all came to what does not end. Chosen: why, a log cannot say."""
AT_REST_CONFIDENCE = 0.4
"""Likewise, where that nothing ends follows from there being a dump at all. Chosen: somebody may
have asked a job at work for it."""
GOES_ON = "another log some seconds later: does it go on?"


def stuck(waits: Waits, ends: Ends) -> Verdict | None:
    """Name meetings to which all came and that do not end, if they are known to stand still."""
    idle = [culprit for each in ends.stuck for culprit in _not_started(waits, each)]
    if idle:
        return Verdict(
            Holdup.HANG_RANK,
            f"{ranks_of([each.ranks[0] for each in idle])} did not start what others run",
            tuple(idle),
            evidence=waiting_of(waits),
            missing=missing_of(waits),
        )
    stale = _is_stale(waits, ends.stuck)
    if not ends.stuck or not (stale or _rests(waits, ends.stuck)):
        return _in_flight(waits)
    sure = STUCK_CONFIDENCE if stale else AT_REST_CONFIDENCE
    doubt = () if stale else (GOES_ON,)
    asked = "what the network did then: netagent-analyzer innocent TASK"
    return Verdict(
        Holdup.HANG_COMMUNICATION,
        f"all came to {where(waits, ends.stuck[0])}, and it does not end",
        tuple(_stuck_at(waits, each, sure) for each in ends.stuck),
        innocent=False,
        evidence=waiting_of(waits),
        missing=(*missing_of(waits), *doubt, asked),
    )


def _rests(waits: Waits, stuck: Iterable[Meeting]) -> bool:
    """Return whether a job stands still as far as dumps show that are written where one does.

    All ranks have one, all wait, and what none has left none has left anywhere. Where several
    things do not end at once, it is rather that they are under way.
    """
    log, stuck = waits.log, list(stuck)
    everybody = len(waits.waiting) == log.world and not log.unseen and not log.silent
    left = any(
        waits.ended(each.group, rank) >= each.sequence
        for each in stuck
        if each.pair is None
        for rank in waits.members(each)
    )
    return log.at_rest and everybody and not left and len(stuck) == 1


def _not_started(waits: Waits, meeting: Meeting) -> Iterator[Culprit]:
    """Yield the few that have issued what others, not fewer, have started."""
    waiters = waits.waiters(meeting)
    rows = [waits.row(rank, meeting) for rank in waiters]
    started = [row is not None and waits.log.state[row] == State.STARTED for row in rows]
    count = sum(started)
    if count == len(waiters) or 2 * count < len(waiters) or count == 0:
        return
    for rank, has in zip(waiters, started, strict=True):
        if not has and waits.is_timed(rank):
            why = f"rank {rank} has issued {where(waits, meeting)}, and {count} others started it"
            yield rank_of(waits, (rank,), STUCK_CONFIDENCE, why)


def _stuck_at(waits: Waits, meeting: Meeting, sure: float) -> Culprit:
    members = waits.members(meeting)
    why = f"all {len(members)} came to {where(waits, meeting)}"
    if meeting.pair is not None:
        return Culprit(Who.EDGE, meeting.pair, sure, why, network=True)
    ended = len(members) - len(waits.waiters(meeting))
    if ended > 0:
        why += f", which ended at {ended} of them"
    return Culprit(Who.GROUP, tuple(members), sure, why, network=True)


def _is_stale(waits: Waits, stuck: Iterable[Meeting]) -> bool:
    """Return whether a rank went on for long after it came to what is not over."""
    if waits.log.overdue:
        return True
    return any(
        waits.age_ns(rank, meeting) >= STALE_NS
        for meeting in stuck
        for rank in waits.waiters(meeting)
    )


def _in_flight(waits: Waits) -> Verdict | None:
    """Return what is to be said of a job that may just be at work."""
    log = waits.log
    if bool(np.any((log.started_ns != NEVER) & (log.ended_ns != NEVER))):
        return None  # others see from durations whether it is slow
    return Verdict(
        Holdup.NOTHING,
        "all ranks came to what is not over; nobody lags",
        evidence=waiting_of(waits),
        missing=(GOES_ON,),
    )
