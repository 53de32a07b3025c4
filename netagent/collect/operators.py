# SPDX-License-Identifier: Apache-2.0
"""From records in rings to rows of a window, and to the answer to a question.

Rings are written by jobs, which may write anything: whatever makes no sense is bounded here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from msgspec.structs import replace

from netagent.wire import operators as wire
from netagent.wire.columns import pack
from netagent.wire.operators import (
    NO_GROUP,
    NONE,
    OperatorColumns,
    OperatorGroup,
    OperatorProcess,
    OperatorsReply,
    OperatorsRequest,
)
from netagent_torch import form
from netagent_torch.form import Head, Record

AWAITED_NS = 100_000
"""Nanoseconds from which on a wait says when an operation ended: of a shorter one, what was waited
for had ended before. Chosen: far more than a call takes."""
MOST_OPEN = 512
"""Most operations of a process that are looked at again until they end. Chosen: a pipeline has some
dozens of them."""
MOST_TIMES = 512
"""Durations of a row from which its median is taken: the latest ones."""
MOST_PAIRS = 512
"""Most rows of a process: pairs of group and operation. Chosen: several times what a job has; a
window of 64 such processes is closed in some hundredths of a second."""
_END = 3
MOST_US = 0xFFFF_FFFF
MOST_BYTES = (1 << 64) - 1
AGAIN_NS = 60_000_000_000
"""Nanoseconds after which groups are said whole again. Chosen: as what else seldom changes."""


@dataclass(slots=True)
class Said:
    """What a process said once, in its ring's lines."""

    job: str = "job"
    rank: int = -1
    world: int = 0
    netns: int = 0
    source: str = "hooks"
    whole: bool = False
    ops: dict[int, str] = field(default_factory=dict)
    groups: dict[int, OperatorGroup] = field(default_factory=dict)
    former: set[int] = field(default_factory=set)
    """Groups whose name a newer one has, as where a job made its groups anew."""
    _named: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> "Said":
        """Return what lines say; what makes no sense is passed over."""
        said = cls()
        for each in lines:
            if "job" in each:
                said.job = _text(each["job"]) or "job"
                said.rank = _number(each.get("rank"), wire.MOST_RANKS, -1)
                said.world = _number(each.get("world"), wire.MOST_RANKS, 0)
                said.netns = _number(each.get("netns"), 1 << 63, 0)
                said.source = _text(each.get("source")) or "hooks"
            elif "whole" in each:
                said.whole = each["whole"] is True
            elif "op" in each and len(said.ops) < wire.MOST_OPS:
                said.ops[_number(each["op"], NO_GROUP, NO_GROUP)] = _text(each.get("name"))
            elif "group" in each and len(said.groups) < wire.MOST_GROUPS:
                said._add_group(each)
        return said

    def _add_group(self, line: Mapping[str, Any]) -> None:
        number = _number(line["group"], NO_GROUP, NO_GROUP)
        known = self.groups.get(number)
        if known is None:
            given = line.get("members")
            members = [_number(each, wire.MOST_RANKS, -1) for each in _list(given)]
            fits = members and min(members) >= 0 and len(members) <= wire.MOST_MEMBERS
            # Probes name it by an address, which another process may have, too.
            own = f"{self.rank}." if self.source == "uprobes" else ""
            ends = zip(*_ends(line.get("ends")), strict=True)
            self.groups[number] = pack(
                OperatorGroup,
                job=self.job,
                name=_text(f"{own}{_text(line.get('name'))}"),
                kind=_text(line.get("kind")),
                size=_number(line.get("size"), wire.MOST_RANKS, 0),
                members=members if fits else (),
                place=_number(line.get("place"), wire.MOST_RANKS, -1),
                **dict(zip(("end_places", "own_ends", "their_ends"), ends, strict=False)),
            )
            name = self.groups[number].name
            if name and name in self._named:
                self.former.add(self._named[name])
            self._named[name] = number
        elif "kind" in line:
            self.groups[number] = replace(known, kind=_text(line["kind"]))


def _text(value: object) -> str:
    text = value[: wire.MOST_TEXT] if isinstance(value, str) else ""
    return text if text.isprintable() else ""


def _number(value: object, below: int, otherwise: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below
    return value if fits and isinstance(value, int) else otherwise


def _ends(value: object) -> Iterator[tuple[int, int, int]]:
    """Yield what a process says of its group's connections: place, own address, that member's."""
    for each in _list(value)[: wire.MOST_ENDS]:
        numbers = [_number(one, 1 << 63, -1) for one in _list(each)]
        if len(numbers) == _END and min(numbers) >= 0 and numbers[0] < wire.MOST_RANKS:
            yield numbers[0], numbers[1], numbers[2]


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def ended_ns(record: Record) -> int:
    """Return when an operation ended, by the process' own clock; 0 where it has not.

    Where somebody began to wait for it only after it had ended, that is not known: then it is how
    long the process was held up that counts from its beginning.
    """
    if record.ended_ns <= 0:
        return 0
    held_ns = record.ended_ns - record.waited_ns
    if held_ns >= AWAITED_NS or record.waited_ns - record.begun_ns < AWAITED_NS:
        return max(record.begun_ns, record.ended_ns)
    return record.begun_ns + max(0, held_ns)


@dataclass(slots=True)
class _Row:
    kind: int = 0
    count: int = 0
    bytes: int = 0
    sum_us: int = 0
    max_us: int = 0
    begun: int = 0
    ended: int = 0
    times: list[int] = field(default_factory=list)

    def end(self, record: Record) -> None:
        took_us = min(MOST_US, max(0, ended_ns(record) - record.begun_ns) // 1000)
        if len(self.times) < MOST_TIMES:
            self.times.append(took_us)
        else:
            self.times[self.count % MOST_TIMES] = took_us
        self.count += 1
        self.bytes = min(MOST_BYTES, self.bytes + record.bytes)
        self.sum_us += took_us
        self.max_us = max(self.max_us, took_us)
        if record.kind == form.COLLECTIVE:
            self.ended = max(self.ended, record.sequence)

    def reset(self) -> None:
        self.count = self.bytes = self.sum_us = self.max_us = 0
        self.times.clear()


_Key = tuple[int, int]
"""Numbers of group and operation, as the process has them."""


@dataclass(slots=True)
class Process:
    """What is known of one ring."""

    head: Head
    uid: int = 0
    writer: int = 0
    """Inode of the network namespace of who writes the ring, as the kernel says; 0: not known."""
    container: str = ""
    """Whose network namespace it is in."""
    lines: int = -1
    """Bytes of lines of which `said` is."""
    said: Said = field(default_factory=Said)
    next: int = 0
    """Number of the next record to read."""
    gone: bool = False
    step: int = -1
    missed: int = 0
    """In the window."""
    since_ns: int = field(init=False)
    """When the ring was made, as it was said first."""
    open: dict[int, Record] = field(default_factory=dict)
    """By number: what had not ended when it was looked at last."""
    _rows: dict[_Key, _Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note since when it is recorded."""
        self.since_ns = _stamp(self.head.wall_ns)

    def hear(self, said: Said) -> None:
        """Take what it says once; of what it did in former groups nothing counts any more."""
        self.said = said
        if said.former:
            self._rows = {key: row for key, row in self._rows.items() if key[0] not in said.former}
            self.open = {n: each for n, each in self.open.items() if each.group not in said.former}

    def take(self, records: Iterable[Record]) -> None:
        """Take new records, and open ones looked at again."""
        for each in records:
            if each.group in self.said.former:
                continue
            key = each.group, each.op
            row = self._rows.get(key)
            if row is None:
                if len(self._rows) >= MOST_PAIRS:
                    self.missed += 1
                    continue
                row = self._rows[key] = _Row(each.kind if each.kind < 5 else 0)
            if each.kind == form.COLLECTIVE:
                row.begun = max(row.begun, each.sequence)
            self.step = max(self.step, each.step)
            if each.ended_ns > 0:
                self.open.pop(each.number, None)
                row.end(each)
            elif len(self.open) < MOST_OPEN or each.number in self.open:
                self.open[each.number] = each

    def forget(self, number: int) -> None:
        """Forget an open record that was overwritten: how it ended nobody knows."""
        self.missed += self.open.pop(number, None) is not None

    def wall_ns(self, monotonic_ns: int) -> int:
        """Return the wall clock's time of one of the process' times."""
        return self.head.wall_ns - self.head.monotonic_ns + monotonic_ns

    def close(self, now_ns: int) -> "list[tuple[_Key, _Row, int]]":
        """Return the window's rows, each with the time for which something is open."""
        oldest: dict[_Key, int] = {}
        for each in self.open.values():
            key = each.group, each.op
            oldest[key] = min(oldest.get(key, each.begun_ns), each.begun_ns)

        def open_ms(key: _Key) -> int:
            since_ns = now_ns - self.wall_ns(oldest[key]) if key in oldest else 0
            return max(0, since_ns) // 1_000_000

        return [
            (key, row, open_ms(key))
            for key, row in self._rows.items()
            if row.count or key in oldest
        ]

    def reset(self) -> None:
        """Begin another window."""
        self.missed = 0
        for row in self._rows.values():
            row.reset()

    def netns(self, own: int) -> int:
        """Return the inode of the process' network namespace; 0 where it is not known.

        Who writes the ring cannot claim another one, but in the agent's own namespace, `own`: there
        a worker may write of what it sees of others.
        """
        return self.said.netns if self.writer and self.writer == own else self.writer

    def identity(self) -> OperatorProcess:
        """Return who it is."""
        said, head = self.said, self.head
        return OperatorProcess(
            job=said.job, rank=said.rank, world=said.world, source=said.source, pid=head.pid,
            since_ns=self.since_ns, uid=self.uid, netns=said.netns, container=self.container,
            gone=self.gone, step=self.step, missed=min(self.missed, MOST_US),
            left_out=min(head.left_out, MOST_US), whole=said.whole,
        )  # fmt: skip


class _Tables:
    """Groups and operations that rows name by number; the same of several processes is one."""

    def __init__(self, *, whole: bool, ends: bool = False) -> None:
        self.groups: dict[tuple[str, str, str], OperatorGroup] = {}
        self.ops: dict[str, int] = {}
        self._places: dict[tuple[str, str, str], int] = {}
        self._named = 0
        self._whole, self._ends = whole, ends

    def group(self, of: Process, number: int) -> int | None:
        known = of.said.groups.get(number)
        if known is None:
            return NO_GROUP
        # What one container says of a group is nothing that another one said.
        key = of.container, known.job, known.name
        if key not in self.groups:
            if len(self.groups) >= wire.MOST_GROUPS:
                return None
            members = known.members if self._whole else b""
            known = known if self._ends else replace(
                known, place=-1, end_places=b"", own_ends=b"", their_ends=b""
            )  # fmt: skip
            self._named += len(members) // 4
            if self._named > wire.MOST_NAMED:
                self._named -= len(members) // 4
                members = b""
            self._places[key] = len(self._places)
            self.groups[key] = replace(known, members=members)
        return self._places[key]

    def op(self, said: Said, number: int) -> int | None:
        name = said.ops.get(number, "?")
        if name not in self.ops and len(self.ops) >= wire.MOST_OPS:
            return None
        return self.ops.setdefault(name, len(self.ops))


class OperatorTally:
    """All rings of a host."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        """By ring."""
        self.unread = 0
        """Rings that could not be read when they were looked at last."""
        self._said_ns = 0

    def close(self, now_ns: int) -> OperatorColumns | None:
        """Return the rows of the window that is over at `now_ns` (wall clock); None without any."""
        if not self.processes and not self.unread:
            return None
        whole = not 0 <= now_ns - self._said_ns < AGAIN_NS
        if whole:
            self._said_ns = now_ns
        tables, omitted = _Tables(whole=whole), 0
        columns: dict[str, list[int]] = {name: [] for name in _ROW}
        known = list(self.processes.values())[: wire.MOST_PROCESSES]
        for place, process in enumerate(known):
            for (group, op), row, open_ms in process.close(now_ns):
                full = len(columns["process"]) >= wire.MOST_ROWS
                numbers = (
                    (None, None)
                    if full
                    else (tables.group(process, group), tables.op(process.said, op))
                )
                if None in numbers:
                    omitted += 1
                    continue
                values = (
                    place, *numbers, row.kind, row.count, row.bytes, row.sum_us, row.max_us,
                    median_low(row.times) if row.times else 0, row.begun, row.ended,
                    min(open_ms, MOST_US),
                )  # fmt: skip
                for name, value in zip(_ROW, values, strict=True):
                    columns[name].append(value or 0)
        said = tuple(each.identity() for each in known)
        for each in known:
            each.reset()
        return pack(
            OperatorColumns, processes=said, groups=tuple(tables.groups.values()),
            ops=tuple(tables.ops), omitted=omitted, unread=self.unread, **columns,
        )  # fmt: skip


_ROW = (
    "process", "group", "op", "kind", "count", "bytes", "sum_us", "max_us", "median_us", "begun",
    "ended", "open_ms",
)  # fmt: skip


def wanted(request: OperatorsRequest, process: Process) -> bool:
    """Tell whether a question is about a process."""
    said = process.said
    return said.job == request.job and (not request.ranks or said.rank in request.ranks)


def is_within(request: OperatorsRequest, process: Process, record: Record) -> bool:
    """Tell whether a record is of a question's time."""
    return request.since_ns <= process.wall_ns(record.begun_ns) < request.until_ns


def shares(request: OperatorsRequest, asked: Iterable[Process]) -> list[int]:
    """Return how many records each of these processes may have: containers have as many."""
    containers = [each.container for each in asked]  # which another thread may change
    counted = Counter(containers)
    return [max(1, request.most // len(counted) // counted[each]) for each in containers]


def answer(
    request: OperatorsRequest, found: Sequence[tuple[Process, Sequence[Record]]]
) -> OperatorsReply:
    """Return the records of a question's time; `found` are those that rings hold still, in order.

    Of too many, the newest of each process, and as many of each container.
    """
    allowed = shares(request, [process for process, _ in found])
    tables, omitted = _Tables(whole=True, ends=True), 0
    columns: dict[str, list[int]] = {name: [] for name in _DETAIL}
    known = found[: wire.MOST_PROCESSES]
    for place, ((process, records), share) in enumerate(zip(known, allowed, strict=False)):
        within = [each for each in records if is_within(request, process, each)]
        omitted += max(0, len(within) - share)
        for each in within[-share:]:
            group, op = tables.group(process, each.group), tables.op(process.said, each.op)
            if group is None or op is None:
                omitted += 1
                continue
            end_ns = ended_ns(each)
            values = (
                place, group, op, each.kind if each.kind < 5 else 0,
                each.step if each.step >= 0 else NONE, each.peer if each.peer >= 0 else NONE,
                each.tag, each.bytes, each.sequence, _stamp(process.wall_ns(each.begun_ns)),
                _stamp(process.wall_ns(end_ns)) if end_ns else 0,
            )  # fmt: skip
            for name, value in zip(_DETAIL, values, strict=True):
                columns[name].append(value)
    return pack(
        OperatorsReply, processes=tuple(process.identity() for process, _ in known),
        groups=tuple(tables.groups.values()), ops=tuple(tables.ops), omitted=omitted, **columns,
    )  # fmt: skip


_DETAIL = (
    "process", "group", "op", "kind", "step", "peer", "tag", "bytes", "sequence", "begun_ns",
    "ended_ns",
)  # fmt: skip


def _stamp(wall_ns: int) -> int:
    return min(max(0, wall_ns), (1 << 64) - 1)
