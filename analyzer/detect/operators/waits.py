# SPDX-License-Identifier: Apache-2.0
"""Who waits where, and for whom, when a log ends."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, UNKNOWN, Kind, Log, State

Ints = NDArray[np.int64]
ONE_SIDED = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Operations that may end at one rank before another has come to them. Chosen: as NCCL has them."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """An operation in which ranks wait for each other."""

    group: int
    """Place in the log's groups; of a pair `UNKNOWN`."""
    sequence: int
    """Of a pair `UNKNOWN`."""
    pair: tuple[int, int] | None = None
    """Sender and receiver."""


Node = int | Meeting
"""A rank, or where ranks meet."""


class Waits:
    """What is not over when a log ends, and what its ranks came to before."""

    def __init__(self, log: Log) -> None:
        """Look at what is not over, and at all of the groups that it is in."""
        self.log = log
        self.seen = frozenset(np.unique(log.rank).tolist()) | frozenset(log.silent)
        """Ranks of which there is a log."""
        pending = np.flatnonzero(_is_pending(log))
        self._meetings: dict[int, dict[Meeting, int]] = {}
        for row in pending.tolist():
            meeting = self._meeting(row)
            self._meetings.setdefault(int(log.rank[row]), {}).setdefault(meeting, row)
        groups = np.unique(log.group[pending]).tolist()
        self.stuck_groups: tuple[int, ...] = tuple(each for each in groups if each >= 0)
        self._reached, self._ended = self._progress()
        self._over: dict[Meeting, bool] = {}

    def _meeting(self, row: int) -> Meeting:
        log = self.log
        group, rank, peer = int(log.group[row]), int(log.rank[row]), int(log.peer[row])
        match log.kind[row]:
            case Kind.SEND:
                return Meeting(UNKNOWN, UNKNOWN, (rank, peer))
            case Kind.RECV:
                return Meeting(UNKNOWN, UNKNOWN, (peer, rank))
        return Meeting(group, int(log.sequence[row]))

    def _progress(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Return the largest sequence by group and rank: of those begun, and of those ended."""
        log = self.log
        inside = np.isin(log.group, self.stuck_groups) & (log.kind == Kind.COLLECTIVE)
        rows = np.flatnonzero(inside & (log.sequence != UNKNOWN))
        return _largest(log, rows), _largest(log, rows[log.state[rows] == State.ENDED])

    @property
    def waiting(self) -> tuple[int, ...]:
        """Return ranks that wait for something, in ascending order."""
        return tuple(sorted(self._meetings))

    def first(self, rank: int) -> Meeting | None:
        """Return where a rank waits: the first that it began of what is not over."""
        return next(iter(self._meetings.get(rank, ())), None)

    def all_of(self, rank: int) -> Iterable[Meeting]:
        """Return all that a rank began and that is not over, in order."""
        return self._meetings.get(rank, {}).keys()

    def row(self, rank: int, meeting: Meeting) -> int | None:
        """Return the row in which a rank waits in a meeting."""
        return self._meetings.get(rank, {}).get(meeting)

    def waiters(self, meeting: Meeting) -> list[int]:
        """Return the ranks that have begun a meeting and wait in it."""
        return self._by_meeting.get(meeting, [])

    def first_here(self, meeting: Meeting) -> list[int]:
        """Return the ranks that have nothing before a meeting which is not over."""
        return [each for each in self.waiters(meeting) if self.first(each) == meeting]

    def is_outdated(self, rank: int) -> bool:
        """Return whether others ended what needs a rank and that its log has not come to yet.

        Then its log was taken before theirs, and does not say where it was when theirs ended.
        """
        log = self.log
        own = np.flatnonzero((log.rank == rank) & (log.kind == Kind.COLLECTIVE) & (log.group >= 0))
        reached = np.full(len(log.groups), UNKNOWN, np.int64)
        np.maximum.at(reached, log.group[own], log.sequence[own])
        if bool((self._over_in[reached != UNKNOWN] > reached[reached != UNKNOWN]).any()):
            return True
        got = (log.kind == Kind.RECV) & (log.peer == rank) & (log.state == State.ENDED)
        return any(
            number > self._posts.get((rank, Kind.SEND, at), UNKNOWN) > UNKNOWN
            for at, number in zip(log.rank[got].tolist(), log.sequence[got].tolist(), strict=True)
        )

    @cached_property
    def _over_in(self) -> Ints:
        """Return by group the largest sequence that ended anywhere, of what needs all ranks."""
        log = self.log
        sided = np.array([op.lower() in ONE_SIDED for op in log.ops], bool)
        rows = np.flatnonzero(
            (log.state == State.ENDED) & (log.kind == Kind.COLLECTIVE) & (log.group >= 0)
            & ~sided[log.op]
        )  # fmt: skip
        over = np.full(len(log.groups), UNKNOWN, np.int64)
        np.maximum.at(over, log.group[rows], log.sequence[rows])
        return over

    def is_alone(self, meeting: Meeting) -> bool:
        """Return whether a meeting is of one rank as far as is known: nobody says who else is."""
        return meeting.pair is None and len(self.members(meeting)) < 2

    def is_timed(self, rank: int) -> bool:
        """Return whether the log says of a rank when, or that, something started."""
        return rank in self._timed

    @cached_property
    def _timed(self) -> frozenset[int]:
        log = self.log
        began = (log.started_ns != NEVER) | (log.state == State.STARTED)
        return frozenset(np.unique(log.rank[began]).tolist())

    @property
    def meetings(self) -> Iterable[Meeting]:
        """Return all meetings in which somebody waits."""
        return self._by_meeting.keys()

    def age_ns(self, rank: int, meeting: Meeting) -> int:
        """Return for how long a rank has gone on since it began what is not over; 0 if unknown."""
        row = self.row(rank, meeting)
        if row is None or self._begun_ns[row] == NEVER:
            return 0
        return int(self._last_ns[rank]) - int(self._begun_ns[row])

    @cached_property
    def _last_ns(self) -> Ints:
        """Return when each rank last began something."""
        last = np.full(int(self.log.rank.max(initial=0)) + 1, NEVER)
        np.maximum.at(last, self.log.rank, self._begun_ns)
        return last

    @cached_property
    def _begun_ns(self) -> Ints:
        return np.where(self.log.enqueued_ns == NEVER, self.log.started_ns, self.log.enqueued_ns)

    @cached_property
    def _by_meeting(self) -> Mapping[Meeting, list[int]]:
        found: dict[Meeting, list[int]] = {}
        for rank in self.waiting:
            for meeting in self._meetings[rank]:
                found.setdefault(meeting, []).append(rank)
        return found

    def reached(self, group: int, rank: int) -> int:
        """Return the largest sequence that a rank began in a group; `UNKNOWN` for none."""
        return self._reached.get((group, rank), UNKNOWN)

    def ended(self, group: int, rank: int) -> int:
        """Return the largest sequence that ended at a rank in a group; `UNKNOWN` for none."""
        return self._ended.get((group, rank), UNKNOWN)

    def members(self, meeting: Meeting) -> tuple[int, ...]:
        """Return whom a meeting needs; of a group whose ranks nobody states, those seen in it."""
        if meeting.pair is not None:
            return tuple(each for each in meeting.pair if each >= 0)
        if meeting.group < 0 or meeting.sequence == UNKNOWN:
            return tuple(self.waiters(meeting))
        return self._members[meeting.group]

    @cached_property
    def _members(self) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for group, rank in self._reached:
            found.setdefault(group, []).append(rank)
        return {
            group: self.log.groups[group].members or tuple(sorted(found.get(group, ())))
            for group in self.stuck_groups
        }

    def plainest(self, meetings: Iterable[Meeting]) -> Meeting:
        """Return the meeting to which the fewest have not come, and of such the largest."""
        return max(meetings, key=lambda each: (-len(self.late(each)), len(self.waiters(each))))

    def is_counted(self, meeting: Meeting) -> bool:
        """Return whether it is known which of several alike a meeting is.

        Of transfers that are not, one may have been sent before the log begins, or long ago.
        """
        row = self.row(self.waiters(meeting)[0], meeting)
        return row is not None and self.log.sequence[row] != UNKNOWN

    def awaited(self, rank: int) -> list[Meeting]:
        """Return the meetings to which a rank has not come."""
        return self._awaited.get(rank, [])

    @cached_property
    def _awaited(self) -> Mapping[int, list[Meeting]]:
        found: dict[int, list[Meeting]] = {}
        for meeting in self.meetings:
            for rank in self.late(meeting):
                found.setdefault(rank, []).append(meeting)
        return found

    def late(self, meeting: Meeting) -> list[int]:
        """Return the ranks that a meeting needs and that have not come to it."""
        return [each for each in self.members(meeting) if not self._came(each, meeting)]

    def _came(self, rank: int, meeting: Meeting) -> bool:
        if self.row(rank, meeting) is not None:
            return True
        if meeting.pair is not None:
            return self._posted(rank, meeting.pair)
        return self.reached(meeting.group, rank) >= meeting.sequence

    def _posted(self, rank: int, pair: tuple[int, int]) -> bool:
        """Return whether a rank has posted what its peer waits for, and has it behind it.

        Only where both are counted from their first on: a ring that lost its oldest tells nothing.
        """
        peer = pair[0] if rank == pair[1] else pair[1]
        row = self.row(peer, Meeting(UNKNOWN, UNKNOWN, pair))
        wanted = UNKNOWN if row is None else int(self.log.sequence[row])
        kind = Kind.SEND if rank == pair[0] else Kind.RECV
        return wanted != UNKNOWN and self._posts.get((rank, kind, peer), UNKNOWN) >= wanted

    @cached_property
    def _posts(self) -> Mapping[tuple[int, int, int], int]:
        """Return the last number of what a rank posted: by rank, kind and peer."""
        log = self.log
        rows = np.flatnonzero(np.isin(log.kind, (Kind.SEND, Kind.RECV)))
        columns = (log.rank[rows], log.kind[rows], log.peer[rows], log.sequence[rows])
        found: dict[tuple[int, int, int], int] = {}
        for rank, kind, peer, number in zip(*(each.tolist() for each in columns), strict=True):
            key = (rank, kind, peer)
            found[key] = max(number, found.get(key, UNKNOWN))
        return found

    def is_over_elsewhere(self, meeting: Meeting) -> bool:
        """Return whether a meeting ended at half of its ranks, as it does once all have come.

        What one rank sends to others, or they to it, may end at some before others have come.
        """
        if meeting not in self._over:
            self._over[meeting] = self._is_over(meeting)
        return self._over[meeting]

    def _is_over(self, meeting: Meeting) -> bool:
        if meeting.pair is not None or meeting.sequence == UNKNOWN:
            return False
        row = self.row(self.waiters(meeting)[0], meeting)
        if row is None or self.log.ops[self.log.op[row]].lower() in ONE_SIDED:
            return False
        members = self.members(meeting)
        ends = sum(self.ended(meeting.group, each) >= meeting.sequence for each in members)
        return 2 * ends >= len(members)

    def onwards(self, node: Node, *, first: bool = True) -> Iterator[Node]:
        """Yield what a node waits for: a rank for where it is, a meeting for whom it needs.

        Where all came to a meeting it waits for those who have something before it that is not
        over. A rank waits for nobody in what is over elsewhere. `first`: only where a rank waits
        first counts, not what it has begun since.
        """
        if isinstance(node, int):
            meeting = self.first(node)
            if meeting is not None and not self.is_over_elsewhere(meeting):
                yield from [meeting] if first else self.all_of(node)
            return
        if late := self.late(node):
            known = [each for each in late if each in self.seen]
            yield from known or late
            return
        for rank in self.waiters(node):
            if self.first(rank) != node:
                yield rank


def _is_pending(log: Log) -> NDArray[np.bool_]:
    meets = np.isin(log.kind, (Kind.COLLECTIVE, Kind.SEND, Kind.RECV))
    begun = (log.state == State.ENQUEUED) | (log.state == State.STARTED)
    return np.asarray(meets & begun)


def _largest(log: Log, rows: Ints) -> dict[tuple[int, int], int]:
    """Return the largest sequence by group and rank."""
    order = rows[np.lexsort((log.sequence[rows], log.rank[rows], log.group[rows]))]
    group, rank, sequence = log.group[order], log.rank[order], log.sequence[order]
    last = np.ones(len(order), bool)
    last[:-1] = (np.diff(group) != 0) | (np.diff(rank) != 0)
    keys = zip(group[last].tolist(), rank[last].tolist(), strict=True)
    return dict(zip(keys, sequence[last].tolist(), strict=True))
