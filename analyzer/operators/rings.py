# SPDX-License-Identifier: Apache-2.0
"""The rings of a job's processes, as files were taken from hosts, become a log.

`netagent_torch/form.py` says what a ring is. Jobs write them, and may write anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.joined import UNSEEN, Stated, resolved
from analyzer.operators.log import (
    NEVER,
    UNKNOWN,
    Group,
    GroupKind,
    Kind,
    Log,
    Place,
    State,
    log_of,
)
from analyzer.operators.plausible import are_plausible
from netagent_torch import form

AWAITED_NS = 100_000
"""Nanoseconds from which on a wait says when an operation ended; as the agent has it."""
MOST_RANKS = 1 << 20
MOST_NAMES = 4096
"""Most operations and groups of a ring. Chosen: several times what a job has."""
MOST_TEXT = 64
STANDS, STANDS_NS, MOST_STANDS_NS = 3, 5_000_000_000, 60_000_000_000
"""How many times as long as its longest pause a job has to do nothing to stand still, but at least,
and at most, so many nanoseconds. Chosen: steps take seconds, and who reads rings can read again."""
MOST_ENDS = 64
"""Most connections that a rank states of a group. Chosen: more than `bpf.trace.contexts` reads."""
_END = 3  # place, own address, the member's
NO_GROUP = 0xFFFF
PROBES = "uprobes"

_RECORD = np.dtype(
    [
        ("number", "<u8"), ("begun", "<i8"), ("waited", "<i8"), ("ended", "<i8"), ("bytes", "<u8"),
        ("sequence", "<u4"), ("step", "<i4"), ("peer", "<i4"), ("op", "<u2"), ("group", "<u2"),
        ("kind", "u1"), ("", "u1"), ("tag", "<u2"), ("", "<u4"),
    ]
)  # fmt: skip


@dataclass(slots=True)
class _Said:
    """What a ring's lines say; what makes no sense is passed over."""

    job: str = "job"
    rank: int = UNKNOWN
    world: int = 0
    source: str = "hooks"
    ops: dict[int, str] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    is_whole: bool = False
    """Of probes: whether they see all in which the process may wait."""
    stated: dict[int, Stated] = field(default_factory=dict)
    """Of probes: by group, by which it is known to be that of others."""


def log(files: Mapping[str, bytes], *, now_ns: int | None = None) -> Log:
    """Return the log of rings, by any names. Raises ValueError where none of them is a ring.

    Of several jobs, that of most processes is taken; of two rings of one rank, the one that is
    named first. Where they were read at `now_ns` (Unix) of a job that is at work, what is under way
    is left out: some rings are read before others. Notes say what was left out.
    """
    notes: list[str] = []
    read: list[tuple[str, _Said, form.Head, NDArray[Any]]] = []
    for name, data in sorted(files.items()):
        try:
            read.append((name, *_read(data)))
        except ValueError as error:
            notes.append(f"{name} is left out: {error}")
    if not read:
        raise ValueError(notes[0] if notes else "no rings")
    jobs = [said.job for _, said, _, _ in read]
    job = max(sorted(set(jobs)), key=jobs.count)
    parts, groups, ops = list[dict[str, NDArray[Any]]](), dict[str, int](), dict[str, int]()
    known: dict[str, Group] = {}
    ranks: set[int] = set()
    silent, world, source = list[int](), 0, "hooks"
    stated, whole = dict[int, Stated](), True
    for name, said, head, records in read:
        if said.job != job or said.rank < 0 or said.rank in ranks:
            notes.append(f"{name} is left out: rank {said.rank} of {said.job}")
            continue
        ranks.add(said.rank)
        world, source = max(world, said.world, said.rank + 1), said.source
        if not len(records):
            silent.append(said.rank)
        if head.first > 1:
            notes.append(f"rank {said.rank}: {head.first - 1} older records are overwritten")
        if head.left_out:
            notes.append(f"rank {said.rank}: {head.left_out} operations were not recorded")
        parts.append(_columns(said, head, records, groups, known, ops))
        stated |= {groups[said.groups[number].name]: each for number, each in said.stated.items()}
        whole &= said.is_whole or source != PROBES
    columns = {each: np.concatenate([part[each] for part in parts]) for each in parts[0]} if parts \
        else {"rank": np.empty(0, np.int64)}  # fmt: skip
    kept = tuple(known[each] for each in groups)
    columns, left_out = _done(columns, now_ns)
    if source == PROBES and parts:
        columns, kept, all_known = resolved(columns, kept, stated, world)
        whole &= all_known and UNSEEN not in {tuple(ops)[op] for op in set(columns["op"].tolist())}
    return log_of(
        columns, ops=tuple(ops) or ("",), groups=kept, is_whole=whole,
        world=world, places={rank: Place() for rank in ranks}, silent=tuple(silent),
        unseen=tuple(rank for rank in range(world) if rank not in ranks), source=source,
        notes=(*notes, *left_out),
    )  # fmt: skip


def _done(
    columns: dict[str, NDArray[Any]], now_ns: int | None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return what has ended, and that the rest was left out; all of it where the job stands still.

    It stands still if nothing has begun or ended for much longer than ever before, or a collective
    has been under way for so long.
    """
    over = columns.get("ended_ns", np.zeros(0)) != NEVER
    if now_ns is None or over.all() or not over.any():
        return columns, []
    instants = np.sort(np.concatenate([columns["started_ns"], columns["ended_ns"][over]]))
    long_ns = min(max(STANDS * int(np.diff(instants).max()), STANDS_NS), MOST_STANDS_NS)
    since_ns = now_ns - int(instants[-1])
    held = columns["started_ns"][~over & (columns["kind"] == Kind.COLLECTIVE)]
    if abs(since_ns) >= long_ns or (len(held) and now_ns - int(held.min()) >= long_ns):
        return columns, []
    said = f"{int((~over).sum())} operators under way are left out: the job was at work"
    kept = {name: values[over] for name, values in columns.items()}
    return kept, [f"{said} {max(0.0, since_ns / 1e9):.1f} s before; read again if it stands still"]


def _read(data: bytes) -> tuple[_Said, form.Head, NDArray[Any]]:
    head = form.read_head(data)
    start = form.HEAD_BYTES + head.lines_bytes
    used = min(head.written, head.capacity) * form.RECORD_BYTES
    whole = (min(len(data), start + used) - start) // form.RECORD_BYTES
    records = (
        np.frombuffer(data, _RECORD, max(0, whole), start) if whole > 0 else np.empty(0, _RECORD)
    )
    numbers = records["number"].astype(np.int64)
    there = (numbers >= head.first) & (numbers <= head.written) & (records["kind"] <= form.RECV)
    records = records[there][np.argsort(numbers[there], kind="stable")]
    lines = form.read_lines(data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used])
    said = _said(lines)
    return said, head, records[~np.isin(records["group"], _former(said))]


def _former(said: _Said) -> list[int]:
    """Return the groups whose name a newer one has, as where a job made its groups anew.

    Probes know an address, and name after it what several groups may be.
    """
    newest = {group.name: number for number, group in said.groups.items()}
    return [
        number for number, group in said.groups.items()
        if said.source != PROBES and group.name and newest[group.name] != number
    ]  # fmt: skip


def _said(lines: Iterable[Mapping[str, Any]]) -> _Said:
    said = _Said()
    for line in lines:
        if "job" in line:
            said.job, said.source = (
                _text(line["job"]) or "job",
                _text(line.get("source")) or "hooks",
            )
            said.rank = _number(line.get("rank"), UNKNOWN)
            said.world = _number(line.get("world"), 0)
        elif "whole" in line:
            said.is_whole = line["whole"] is True
        elif "op" in line and len(said.ops) < MOST_NAMES:
            said.ops[_number(line["op"], UNKNOWN)] = _text(line.get("name"))
        elif "group" in line and len(said.groups) < MOST_NAMES:
            _add_group(said, line)
    return said


def _add_group(said: _Said, line: Mapping[str, Any]) -> None:
    number = _number(line["group"], UNKNOWN)
    known = said.groups.get(number)
    if known is not None:
        said.groups[number] = Group(known.name, _kind(_text(line.get("kind"))), known.members)
        return
    name, given = _text(line.get("name")), line.get("members")
    if said.source == PROBES:  # an address: the same group has another one at another rank
        stated = _stated(line)
        if stated is not None:
            said.stated[number] = stated
        of_all = stated is None and said.world > 0 and line.get("size") == said.world
        name = "world" if of_all else f"{said.rank}.{number}.{name}"
    ranks = [_number(each, UNKNOWN) for each in given] if isinstance(given, list) else []
    members = tuple(sorted(set(ranks))) if min(ranks, default=UNKNOWN) >= 0 else ()
    kind = GroupKind.WORLD if said.world and len(members) == said.world else GroupKind.UNKNOWN
    said.groups[number] = Group(name, kind, members)


def _stated(line: Mapping[str, Any]) -> Stated | None:
    """Return by what a group that probes saw is known to be that of others."""
    place, size = _number(line.get("place"), UNKNOWN), _number(line.get("size"), 0)
    given = line.get("ends")
    rows = [
        each
        for each in (given if isinstance(given, list) else [])[:MOST_ENDS]
        if isinstance(each, list) and len(each) == _END and all(type(one) is int for one in each)
    ]
    ends = {at: (mine, its) for at, mine, its in rows if 0 <= at < size}
    return Stated(place, size, ends) if 0 <= place < size and ends else None


def _kind(text: str) -> GroupKind:
    return GroupKind(text) if text in set(GroupKind) else GroupKind.UNKNOWN


def _text(value: object) -> str:
    text = value[:MOST_TEXT] if isinstance(value, str) else ""
    return text if text.isprintable() else ""


def _number(value: object, otherwise: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 <= value < MOST_RANKS else otherwise


def _columns(
    said: _Said, head: form.Head, records: NDArray[Any], groups: dict[str, int],
    known: dict[str, Group], ops: dict[str, int],
) -> dict[str, NDArray[Any]]:  # fmt: skip
    places = np.full(1 << 16, UNKNOWN, np.int64)
    for number, group in said.groups.items():
        if 0 <= number < NO_GROUP:
            places[number] = groups.setdefault(group.name, len(groups))
            known.setdefault(group.name, group)
    named = np.zeros(1 << 16, np.int64)
    used = np.unique(records["op"]).tolist()
    for number in used:
        named[number] = ops.setdefault(said.ops.get(number) or "?", len(ops))
    begun, waited = records["begun"].astype(np.int64), records["waited"].astype(np.int64)
    ended = records["ended"].astype(np.int64)
    held = ended - waited
    # As `netagent.collect.operators.ended_ns`: an end that nobody waited for is not known.
    seen = (held >= AWAITED_NS) | (waited - begun < AWAITED_NS)
    until = np.where(seen, np.maximum(begun, ended), begun + np.maximum(0, held))
    over, offset = ended > 0, np.int64(_bounded(head.wall_ns - head.monotonic_ns))
    sequence = records["sequence"].astype(np.int64)
    # Probes see when a transfer is waited for, and of one that is not there is nothing to wait for.
    moves = np.isin(records["kind"], (form.SEND, form.RECV)) & (said.source == PROBES)
    begun_only = np.where(moves & (waited == form.NEVER), int(State.UNKNOWN), int(State.STARTED))
    made: dict[str, NDArray[Any]] = {
        "rank": np.full(len(records), said.rank), "step": records["step"].clip(UNKNOWN),
        "kind": records["kind"], "op": named[records["op"]], "group": places[records["group"]],
        "peer": records["peer"].clip(UNKNOWN), "microbatch": records["tag"].astype(np.int64),
        "bytes": records["bytes"].astype(np.int64).clip(0),
        "sequence": np.where(sequence > 0, sequence, UNKNOWN),
        "enqueued_ns": begun + offset, "started_ns": begun + offset,
        "ended_ns": np.where(over, until + offset, NEVER),
        "state": np.where(over, int(State.ENDED), begun_only),
    }  # fmt: skip
    meant = are_plausible(begun, until, over)
    return {name: each[meant] for name, each in made.items()}


def _bounded(value: int) -> int:
    return max(-(1 << 62), min(value, 1 << 62))
