# SPDX-License-Identifier: Apache-2.0
"""What a host's jobs communicated, decoded: the sums of a window, and records that were asked for.

A host's word, which it has from jobs, who may say anything: all of it is bounded here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.intake.columns import column, columns
from analyzer.operators.joined import UNSEEN, Stated, resolved
from analyzer.operators.keeper import PROBES, Reported, Row, Told
from analyzer.operators.log import NEVER, UNKNOWN, Group, GroupKind, Kind, Log, Place, State, log_of
from analyzer.operators.plausible import are_plausible, of_members
from netagent.model.errors import RemoteProtocolError
from netagent.wire.operators import (
    MOST_ENDS,
    MOST_GROUPS,
    MOST_MEMBERS,
    MOST_NAMED,
    MOST_OPS,
    MOST_PROCESSES,
    MOST_RANKS,
    MOST_RECORDS,
    MOST_ROWS,
    MOST_TEXT,
    NO_GROUP,
    NONE,
    OperatorColumns,
    OperatorGroup,
    OperatorProcess,
    OperatorsReply,
)

_ROW = (
    "group", "op", "kind", "count", "bytes", "sum_us", "max_us", "median_us", "begun", "ended",
    "open_ms",
)  # fmt: skip
_DETAIL = (
    "group", "op", "kind", "step", "peer", "tag", "bytes", "sequence", "begun_ns", "ended_ns",
)  # fmt: skip


_GroupKey = tuple[str, str, str]
"""Host, where it is one host's alone; job and name."""
Apart = tuple[str, int, int]
"""Container, pid, and since when it is recorded (ns)."""


def told_apart(of: OperatorProcess) -> Apart:
    """Return what tells a process of a host and rank from others that are, were, or claim to be."""
    return of.container, of.pid, of.since_ns


def reported(said: OperatorColumns) -> tuple[Reported, ...]:
    """Return what a host says of each of its processes.

    Raises RemoteProtocolError where any of it makes no sense.
    """
    _check(said)
    place = _within(column(said, "process"), len(said.processes), "process")
    if len(place) > MOST_ROWS:
        raise RemoteProtocolError(f"{len(place)} rows of operators; {MOST_ROWS} at most")
    found = columns(said, _ROW, len(place))
    _check_rows(found, said)
    groups = tuple(map(_group, said.groups))
    rows: list[list[Row]] = [[] for _ in said.processes]
    for number, values in zip(place.tolist(), zip(*(found[n].tolist() for n in _ROW), strict=True),
                              strict=True):  # fmt: skip
        group, op, kind, *rest = values
        told = Told(*rest)
        named = groups[group] if group != NO_GROUP else None
        rows[number].append(Row(named, said.ops[op], Kind(kind), told))
    return tuple(
        Reported(each, tuple(mine)) for each, mine in zip(said.processes, rows, strict=True)
    )


def log_of_replies(
    replies: Sequence[tuple[str, OperatorsReply]],
    asked: Mapping[tuple[str, int], Apart] | None = None,
) -> Log:
    """Return the log that hosts' replies make; each comes with the name of its host.

    `asked`: by host and rank who was asked about (`told_apart`); other processes are left out. A
    reply that makes no sense is left out, as is, of two processes that claim one rank, the second;
    notes say so.
    """
    owners: dict[int, tuple[str, Apart]] = {}
    places: dict[int, Place] = {}
    notes: list[str] = []
    source, world = _source(replies, asked), 0
    gathered = _Gathered(probed=source == PROBES)
    for host, reply in replies:
        try:
            read = _read(reply)
        except RemoteProtocolError as error:
            notes.append(f"{host} is left out: {error}")
            continue
        ranks = np.full(len(reply.processes) + 1, UNKNOWN, np.int64)
        for number, each in enumerate(reply.processes):
            mine = told_apart(each)
            if asked is not None and asked.get((host, each.rank)) != mine:
                notes.append(f"a process of {host} that was not asked about is left out")
                continue
            owner = owners.setdefault(each.rank, (host, mine))
            if each.rank < 0 or owner != (host, mine):
                notes.append(f"a process of {host} that is or claims rank {each.rank} is left out")
                continue
            if (each.source == PROBES) != (source == PROBES):
                by = "probes alone see" if each.source == PROBES else "hooks see, unlike most,"
                notes.append(f"rank {each.rank}, which {by} is left out")
                continue
            ranks[number], places[each.rank] = each.rank, Place(host)
            gathered.whole &= each.whole or source != PROBES
            world = max(world, each.world, each.rank + 1)
        gathered.add(host, reply, read, ranks)
        if reply.omitted:
            notes.append(f"{host} left {reply.omitted} older records out")
    columns_, groups = gathered.joined(world)
    log = log_of(
        columns_, ops=tuple(gathered.ops) or ("",), groups=groups, places=places, world=world,
        unseen=tuple(rank for rank in range(min(world, 1 << 17)) if rank not in places),
        source=source, is_whole=gathered.whole, notes=tuple(notes),
    )  # fmt: skip
    return of_members(log)


def _source(
    replies: Sequence[tuple[str, OperatorsReply]], asked: Mapping[tuple[str, int], Apart] | None
) -> str:
    """Return who saw the ranks: hooks, unless they saw fewer than half. No host hides others."""
    by: dict[bool, set[int]] = {True: set(), False: set()}
    for host, reply in replies:
        for each in reply.processes:
            if each.rank >= 0 and (
                asked is None or asked.get((host, each.rank)) == told_apart(each)
            ):
                by[each.source == PROBES].add(each.rank)
    return PROBES if 2 * len(by[False]) < len(by[False] | by[True]) else "hooks"


_COLUMNS = (
    "step", "kind", "op", "group", "peer", "microbatch", "bytes", "sequence", "enqueued_ns",
    "started_ns", "ended_ns", "state",
)  # fmt: skip


class _Read(NamedTuple):
    """One host's reply."""

    place: NDArray[np.int64]
    """Of each record's process in the reply."""
    found: dict[str, NDArray[np.generic]]
    groups: tuple[Group, ...]
    stated: tuple[Stated | None, ...]
    """Of each group, where probes know by what it is that of others."""


def _read(reply: OperatorsReply) -> _Read:
    """Return what a host replied. Raises RemoteProtocolError."""
    _check(reply)
    place = _within(column(reply, "process"), len(reply.processes), "process")
    if len(place) > MOST_RECORDS:
        raise RemoteProtocolError(f"{len(place)} records; {MOST_RECORDS} at most")
    found = columns(reply, _DETAIL, len(place))
    _check_rows(found, reply)
    groups = reply.groups
    return _Read(place, found, tuple(map(_group, groups)), tuple(map(_stated, groups)))


@dataclass(slots=True)
class _Gathered:
    """The records of several hosts, with one table of groups and of operations."""

    probed: bool
    whole: bool = True
    ops: dict[str, int] = field(default_factory=dict)
    _groups: dict[_GroupKey, Group] = field(default_factory=dict)
    _stated: dict[int, Stated] = field(default_factory=dict)
    _parts: list[dict[str, NDArray[np.int64]]] = field(default_factory=list)

    def add(self, host: str, reply: OperatorsReply, read: _Read, ranks: NDArray[np.int64]) -> None:
        """Take a host's records, given the ranks of its processes."""
        numbers = count(len(self._groups))
        table = np.full(NO_GROUP + 1, UNKNOWN, np.int64)
        places = {key: number for number, key in enumerate(self._groups)}
        mine = set(ranks[ranks >= 0].tolist())
        # Of a process that does not count, nor does what it says of groups.
        used = np.unique(read.found["group"][ranks[read.place] >= 0]).tolist()
        for number in used:
            if number == NO_GROUP:
                continue
            each = reply.groups[number]
            # An address that probes see is of one process, of which no other host says anything.
            key = host if self.probed else "", each.job, each.name
            stated = read.groups[number].members
            # Of a group in which it has no rank, a host says nothing.
            if key not in self._groups and stated and mine.isdisjoint(stated):
                continue
            if key not in self._groups:
                self._groups[key], places[key] = read.groups[number], next(numbers)
            table[number] = places[key]
            said = read.stated[number]
            if self.probed and said is not None:
                self._stated[places[key]] = said
        self._parts.append(_rows(read, ranks[read.place], reply, table, self.ops))

    def joined(self, world: int) -> tuple[dict[str, NDArray[np.int64]], tuple[Group, ...]]:
        """Return all records, by column, and groups, of a job of so many ranks."""
        made = {
            name: np.concatenate([part[name] for part in self._parts])
            if self._parts
            else np.empty(0, int)
            for name in (*_COLUMNS, "rank")
        }
        kept = made["rank"] >= 0
        made, groups = {name: each[kept] for name, each in made.items()}, (*self._groups.values(),)
        if self.probed:
            made, groups, known = resolved(made, groups, self._stated, world)
            self.whole &= known and not bool((made["op"] == self.ops.get(UNSEEN, UNKNOWN)).any())
        return made, groups


def _rows(
    read: _Read, ranks: NDArray[np.int64], reply: OperatorsReply, table: NDArray[np.int64],
    ops: dict[str, int],
) -> dict[str, NDArray[np.int64]]:  # fmt: skip
    named = np.array([ops.setdefault(name, len(ops)) for name in reply.ops] or [0], np.int64)
    wide = {name: read.found[name].astype(np.int64) for name in _DETAIL}
    ended = wide["ended_ns"] > 0
    meant = are_plausible(wide["begun_ns"], wide["ended_ns"], ended)
    return {
        "rank": np.where(meant, ranks, UNKNOWN),
        "step": np.where(wide["step"] == NONE, UNKNOWN, wide["step"]).clip(UNKNOWN, 2**31 - 1),
        "kind": wide["kind"], "op": named[wide["op"]], "group": table[wide["group"]],
        "peer": np.where(wide["peer"] == NONE, UNKNOWN, wide["peer"]).clip(UNKNOWN, MOST_RANKS),
        "microbatch": wide["tag"], "bytes": wide["bytes"].clip(0),
        "sequence": np.where(wide["sequence"] == 0, UNKNOWN, wide["sequence"]),
        "enqueued_ns": wide["begun_ns"], "started_ns": wide["begun_ns"],
        "ended_ns": np.where(ended, wide["ended_ns"], NEVER),
        "state": np.where(ended, int(State.ENDED), int(State.STARTED)),
    }  # fmt: skip


def _group(said: OperatorGroup) -> Group:
    members = column(said, "members")
    if len(members) > MOST_MEMBERS or (len(members) and int(members.max()) >= MOST_RANKS):
        raise RemoteProtocolError(f"a group of operators with {len(members)} members")
    kind = said.kind if said.kind in set(GroupKind) else GroupKind.UNKNOWN
    return Group(said.name, GroupKind(kind), tuple(sorted(set(members.tolist()))))


def _stated(said: OperatorGroup) -> Stated | None:
    """Return by what a group that probes saw is known to be that of others."""
    columns_ = [column(said, name).tolist() for name in ("end_places", "own_ends", "their_ends")]
    if len(set(map(len, columns_))) > 1 or len(columns_[0]) > MOST_ENDS:
        raise RemoteProtocolError(f"a group of operators with {len(columns_[0])} connections")
    ends = {at: (mine, its) for at, mine, its in zip(*columns_, strict=True) if at < said.size}
    fits = 0 <= said.place < said.size <= MOST_RANKS and ends
    return Stated(said.place, said.size, ends) if fits else None


def _within(values: NDArray[np.generic], below: int, what: str) -> NDArray[np.int64]:
    wide: NDArray[np.int64] = values.astype(np.int64)
    if len(wide) and int(wide.max()) >= below:
        raise RemoteProtocolError(f"operators of a {what} that is not in the table")
    return wide


def _check_rows(
    found: dict[str, NDArray[np.generic]], said: OperatorColumns | OperatorsReply
) -> None:
    groups = found["group"].astype(np.int64)
    _within(np.where(groups == NO_GROUP, 0, groups), max(1, len(said.groups)), "group")
    if not said.groups and bool((groups != NO_GROUP).any()):
        raise RemoteProtocolError("operators of a group that is not in the table")
    _within(found["op"], len(said.ops), "operation")
    _within(found["kind"], len(Kind), "kind")


def _check(said: OperatorColumns | OperatorsReply) -> None:
    sizes = (
        (said.processes, MOST_PROCESSES), (said.groups, MOST_GROUPS), (said.ops, MOST_OPS),
    )  # fmt: skip
    for table, most in sizes:
        if len(table) > most:
            raise RemoteProtocolError(f"a table of {len(table)} operators' names; {most} at most")
    named = sum(len(each.members) for each in said.groups) // 4
    if named > MOST_NAMED:
        raise RemoteProtocolError(f"groups of {named} members; {MOST_NAMED} at most")
    for text in said.ops:
        _check_text(text)
    for each in (*said.processes, *said.groups):
        _check_named(each)


def _check_named(each: Struct) -> None:
    match each:
        case OperatorProcess():
            for text in (each.job, each.source):
                _check_text(text)
            if not (-1 <= each.rank < MOST_RANKS and 0 <= each.world <= MOST_RANKS):
                raise RemoteProtocolError(f"rank {each.rank} of {each.world}")
        case OperatorGroup():
            for text in (each.job, each.name, each.kind):
                _check_text(text)


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT or not text.isprintable():
        raise RemoteProtocolError(f"operators with the text {text[:MOST_TEXT]!r}")
