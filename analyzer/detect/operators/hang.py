# SPDX-License-Identifier: Apache-2.0
"""Who holds up a job that stands still.

Each rank waits where it has begun something that is not over; that needs ranks which have not come
to it, or, where all have come, is held up by those that have something before it. The ends of these
chains hold the job up: a rank that waits for nobody, a meeting to which all came and that does not
end, or a circle. So whoever is late because it waits itself is not named.

After Aegis (NSDI '25, section 4.2: who has begun fewer collectives than its group) and C4D (HPCA
'25: communication and non-communication hangs); what ranks do differently is told from that first,
as PyTorch's `torchfrtrace` does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.operators.mismatch import Done, Mismatch, mismatches
from analyzer.detect.operators.sinks import sinks
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.detect.operators.waits import Meeting, Node, Waits
from analyzer.detect.operators.wording import doing, ranks_of, them, where
from analyzer.operators.log import NEVER, UNKNOWN, Log, State

STALE_NS = 10_000_000_000
"""How long after the begin of what is not over its rank must have begun something else, for a job
in which nobody lags to stand still. Chosen: ten times what a collective of a large job takes."""
LATE_CONFIDENCE = 0.95
"""Of a rank that never came to where others wait, and that waits for nobody. Chosen."""
SILENT_CONFIDENCE = 0.85
"""Of such a rank whose log is empty: it may not have been recorded. Chosen."""
UNSEEN_CONFIDENCE = 0.4
"""Of a rank without a log that alone is missing where all others wait. Chosen: its log may only
have been lost."""
ODD_CONFIDENCE = 0.9
"""Of ranks that do other than most of their group. Chosen."""
STUCK_CONFIDENCE = 0.6
"""Of a group or a pair whose ranks all came to what does not end. Chosen: why, a log cannot say."""
MANY = 0.5
"""Share of a meeting's ranks that may be late before it is as likely that the others are early.
Chosen."""
DOUBTED = 0.5
"""By which confidence is multiplied beyond `MANY`, where no half agrees, and of transfers that are
not counted. Chosen."""
MOST_LOOKED = 1 << 24
"""Most members of all operations that are not over, summed up. Chosen: some ten seconds; a job of
10,000 ranks that stands still has some hundred such operations of all of them."""
SHOWN = 8
"""Most meetings that are evidence. Chosen: a screenful."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the chains of waiting end."""

    late: tuple[int, ...]
    """Ranks with a log that wait for nobody, and for which somebody waits."""
    unseen: tuple[int, ...]
    stuck: tuple[Meeting, ...]
    circles: tuple[tuple[Node, ...], ...]


def judge(log: Log) -> Verdict | None:
    """Return who holds up a job that stands still; None where none does, and others may judge."""
    if len(log) == 0:
        return _nothing_logged(log)
    waits = Waits(log)
    if not waits.waiting:
        return None
    if sum(len(waits.members(each)) for each in waits.meetings) > MOST_LOOKED:
        return _too_many(waits)
    found = list(mismatches(waits))
    return _mismatched(waits, found) if found else _ended(waits)


def _too_many(waits: Waits) -> Verdict:
    return Verdict(
        Holdup.INSUFFICIENT,
        f"{len(list(waits.meetings))} operations are not over, too many to tell who waits for whom",
        missing=("a log of fewer operations",),
    )


def _ended(waits: Waits) -> Verdict | None:
    ends = _ends(waits, first=True)
    if not ends.late and not ends.stuck:
        wider = _ends(waits, first=False)
        ends = wider if wider.late else ends
    if ends.late:
        return _late(waits, ends)
    if ends.circles:
        return _circle(waits, ends)
    if ends.unseen:
        return _unseen(waits, ends)
    return _stuck(waits, ends)


def _ends(waits: Waits, *, first: bool) -> _Ends:
    late: list[int] = []
    unseen: list[int] = []
    stuck: list[Meeting] = []
    circles: list[tuple[Node, ...]] = []
    starts: Sequence[Node] = waits.waiting
    for end in sinks(starts, lambda node: waits.onwards(node, first=first)):
        match end:
            case (int() as rank,):
                own = waits.first(rank)
                if own is not None and not waits.awaited(rank):
                    stuck += [own] if own not in stuck else []
                else:
                    (late if rank in waits.seen else unseen).append(rank)
            case (Meeting() as meeting,):
                stuck.append(meeting)
            case _:
                circles.append(end)
    return _Ends(tuple(sorted(late)), tuple(sorted(unseen)), tuple(stuck), tuple(circles))


def _nothing_logged(log: Log) -> Verdict | None:
    if not log.silent and not log.unseen:
        return None
    return Verdict(
        Holdup.INSUFFICIENT,
        f"none of {len(log.silent)} logs has an operator in it",
        missing=("a log with operators: was the recorder on?",),
    )


def _late(waits: Waits, ends: _Ends) -> Verdict:
    """Name the ranks that others wait for, and that wait for nobody."""
    known = tuple(rank for rank in ends.late if not waits.is_outdated(rank))
    if not known:
        return _outdated(waits, ends)
    ends = replace(ends, late=known)
    culprits = [_late_rank(waits, rank) for rank in ends.late]
    culprits.sort(key=lambda each: (-each.confidence, each.ranks))
    others = [f"{where(waits, each)} does not end either" for each in ends.stuck]
    return Verdict(
        Holdup.HANG_RANK,
        f"{ranks_of(ends.late)} never came to what {len(waits.waiting)} ranks wait in",
        tuple(culprits),
        evidence=(*_waiting(waits), *others),
        missing=_missing(waits),
    )


def _outdated(waits: Waits, ends: _Ends) -> Verdict:
    return Verdict(
        Holdup.INSUFFICIENT,
        f"the logs of {ranks_of(ends.late)} were taken before those of others",
        evidence=_waiting(waits),
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
    return _culprit(waits, (rank,), confidence, why)


def _apart(waits: Waits, rank: int, own: Meeting, awaited: Sequence[Meeting]) -> Culprit:
    """Name a rank for which does not end what ended at others, who wait for it since."""
    meeting = waits.plainest(awaited)
    why = (
        f"rank {rank} is in {where(waits, own)}, which ended at others;"
        f" {ranks_of(waits.waiters(meeting))} in {where(waits, meeting)}"
    )
    return _culprit(waits, (rank,), STUCK_CONFIDENCE, why)


def _last(waits: Waits, rank: int, meeting: Meeting) -> str:
    """Return what a rank last did where it is awaited."""
    if meeting.pair is not None:
        return "has not posted its send" if rank == meeting.pair[0] else "has not posted its recv"
    reached = waits.reached(meeting.group, rank)
    name = waits.log.groups[meeting.group].name
    if reached == UNKNOWN:
        return f"has begun nothing in {name}"
    return f"has ended {reached} of {name} and begun no other"


def _unseen(waits: Waits, ends: _Ends) -> Verdict:
    """Name ranks without a log only where nobody else is missing where they are waited for."""
    blocked = [each for each in waits.meetings if set(waits.late(each)) & set(ends.unseen)]
    alone = all(len(waits.late(each)) == 1 for each in blocked) and not ends.stuck
    waiters = sorted({rank for each in blocked for rank in waits.waiters(each)})
    gone = f"{ranks_of(ends.unseen)}: no log, and {ranks_of(waiters)} wait for {them(ends.unseen)}"
    if not alone:
        return Verdict(
            Holdup.INSUFFICIENT,
            f"whom others wait for left no log: {ranks_of(ends.unseen)}",
            evidence=_waiting(waits),
            missing=(gone,),
        )
    culprits = [
        _culprit(
            waits, (rank,), UNSEEN_CONFIDENCE,
            f"rank {rank} left no log, and is all that is missing where others wait",
        )
        for rank in ends.unseen
    ]  # fmt: skip
    return Verdict(
        Holdup.HANG_RANK,
        f"{ranks_of(ends.unseen)} left no log, and {len(waiters)} others wait",
        tuple(culprits),
        evidence=_waiting(waits),
        missing=(gone,),
    )


def _stuck(waits: Waits, ends: _Ends) -> Verdict | None:
    """Name meetings to which all came and that do not end, if they are known to stand still."""
    idle = [culprit for each in ends.stuck for culprit in _not_started(waits, each)]
    if idle:
        return Verdict(
            Holdup.HANG_RANK,
            f"{ranks_of([each.ranks[0] for each in idle])} did not start what others run",
            tuple(idle),
            evidence=_waiting(waits),
            missing=_missing(waits),
        )
    if not _is_stale(waits, ends.stuck):
        return _in_flight(waits)
    return Verdict(
        Holdup.HANG_COMMUNICATION,
        f"all came to {where(waits, ends.stuck[0])}, and it does not end",
        tuple(_stuck_at(waits, each) for each in ends.stuck),
        innocent=False,
        evidence=_waiting(waits),
        missing=(*_missing(waits), "what the network did then: netagent-analyzer innocent TASK"),
    )


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
            yield _culprit(waits, (rank,), STUCK_CONFIDENCE, why)


def _stuck_at(waits: Waits, meeting: Meeting) -> Culprit:
    members = waits.members(meeting)
    why = f"all {len(members)} came to {where(waits, meeting)}"
    if meeting.pair is not None:
        return Culprit(Who.EDGE, meeting.pair, STUCK_CONFIDENCE, why, network=True)
    ended = len(members) - len(waits.waiters(meeting))
    if ended > 0:
        why += f", which ended at {ended} of them"
    return Culprit(Who.GROUP, tuple(members), STUCK_CONFIDENCE, why, network=True)


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
        evidence=_waiting(waits),
        missing=("another log some seconds later: does it go on?",),
    )


def _mismatched(waits: Waits, found: Sequence[Mismatch]) -> Verdict:
    culprits: dict[tuple[int, ...], Culprit] = {}
    for each in found:
        for culprit in _odd(waits, each):
            culprits.setdefault(culprit.ranks, culprit)
    first = found[0]
    name = waits.log.groups[first.group].name
    return Verdict(
        Holdup.MISMATCH,
        f"ranks of {name} do not do the same at {first.sequence}",
        tuple(sorted(culprits.values(), key=lambda each: each.ranks)),
        evidence=(*(line for each in found for line in _differences(waits, each)),),
        missing=_missing(waits),
    )


def _odd(waits: Waits, found: Mismatch) -> Iterator[Culprit]:
    name = waits.log.groups[found.group].name
    if not found.odd:
        why = f"they do different things at {found.sequence} of {name}, and no half of them agrees"
        yield Culprit(Who.GROUP, tuple(sorted(found.done)), ODD_CONFIDENCE * DOUBTED, why)
        return
    others = len(found.done) - len(found.odd)
    for rank in found.odd:
        why = (
            f"rank {rank} does {doing(found.done[rank])} at {found.sequence} of {name},"
            f" {others} others {doing(found.most)}"
        )
        yield _culprit(waits, (rank,), ODD_CONFIDENCE, why)


def _differences(waits: Waits, found: Mismatch) -> Iterator[str]:
    by_done: dict[Done, list[int]] = {}
    for rank, done in sorted(found.done.items()):
        by_done.setdefault(done, []).append(rank)
    name = waits.log.groups[found.group].name
    for done, ranks in by_done.items():
        yield f"{found.sequence} of {name}: {doing(done)} at {ranks_of(ranks)}"


def _circle(waits: Waits, ends: _Ends) -> Verdict:
    """Name who stands elsewhere than most, of ranks that wait for each other in a circle."""
    culprits = [culprit for circle in ends.circles for culprit in _in_circle(waits, circle)]
    ranks = {node for circle in ends.circles for node in circle if isinstance(node, int)}
    return Verdict(
        Holdup.MISMATCH,
        f"{ranks_of(sorted(ranks))} wait for each other in a circle",
        tuple(culprits),
        evidence=_waiting(waits),
        missing=_missing(waits),
    )


def _in_circle(waits: Waits, circle: Iterable[Node]) -> Iterator[Culprit]:
    nodes = list(circle)
    ranks = sorted(each for each in nodes if isinstance(each, int))
    meetings = [each for each in nodes if isinstance(each, Meeting)]
    odd = _fewest_late(waits, meetings) or _other_order(waits, ranks, meetings)
    if not odd:
        places = ", ".join(where(waits, each) for each in meetings[:2])
        why = f"each waits for another where that one is not: {places}"
        yield Culprit(Who.GROUP, tuple(ranks), ODD_CONFIDENCE * DOUBTED, why)
    for rank in odd:
        meeting = waits.first(rank)
        there = f"waits in {where(waits, meeting)}" if meeting else "waits nowhere"
        others = [each for each in ranks if each not in odd]
        elsewhere = {waits.first(each) for each in others} - {meeting, None}
        places = ", ".join(where(waits, each) for each in list(elsewhere)[:2] if each)
        yield _culprit(waits, (rank,), ODD_CONFIDENCE, f"rank {rank} {there}, others in {places}")


def _fewest_late(waits: Waits, meetings: Sequence[Meeting]) -> list[int]:
    """Return the ranks that are late where fewest are, and of such places where most wait.

    Whoever left one operation out is late to that one alone; else all others were odd together.
    """
    counts = {
        each: (len(late), -len(waits.first_here(each)))
        for each in meetings
        if (late := waits.late(each))
    }
    least = min(counts, key=lambda each: counts[each], default=None)
    if least is None or list(counts.values()).count(counts[least]) > 1:
        return []
    return waits.late(least)


def _other_order(waits: Waits, ranks: Sequence[int], meetings: Sequence[Meeting]) -> list[int]:
    """Return the ranks that are not where most are first, where all came to all places."""
    if any(waits.late(each) for each in meetings):
        return []
    counts = {each: len(waits.first_here(each)) for each in meetings}
    most = max(counts, key=lambda each: counts[each])
    if 2 * counts[most] <= sum(counts.values()):
        return []
    return [rank for rank in ranks if waits.first(rank) != most]


def _waiting(waits: Waits) -> tuple[str, ...]:
    """Return where most ranks wait, the largest first."""
    meetings = sorted(waits.meetings, key=lambda each: -len(waits.waiters(each)))
    return tuple(
        f"{ranks_of(waits.waiters(each))} in {where(waits, each)}"
        + (f", without {ranks_of(late)}" if (late := waits.late(each)) else "")
        for each in meetings[:SHOWN]
    )


def _missing(waits: Waits) -> tuple[str, ...]:
    unseen = waits.log.unseen
    return (f"the logs of {ranks_of(unseen)}",) if unseen else ()


def _culprit(waits: Waits, ranks: tuple[int, ...], confidence: float, why: str) -> Culprit:
    place = waits.log.places.get(ranks[0])
    return Culprit(Who.RANK, ranks, confidence, why, place.host if place else None)
