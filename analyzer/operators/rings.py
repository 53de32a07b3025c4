# SPDX-License-Identifier: Apache-2.0
"""The rings of a job's processes, as files were taken from hosts, become a log.

`netagent_torch/form.py` says what a ring is. Jobs write them, and may write anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, UNKNOWN, Group, GroupKind, Log, Place, State, log_of
from netagent_torch import form

AWAITED_NS = 100_000
"""Nanoseconds from which on a wait says when an operation ended; as the agent has it."""
MOST_RANKS = 1 << 20
MOST_NAMES = 4096
"""Most operations and groups of a ring. Chosen: several times what a job has."""
MOST_TEXT = 64
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


def log(files: Mapping[str, bytes]) -> Log:
    """Return the log of rings, by any names. Raises ValueError where none of them is a ring.

    Of several jobs, that of most processes is taken; of two rings of one rank, the one that is
    named first. Notes say what was left out.
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
    columns = {each: np.concatenate([part[each] for part in parts]) for each in parts[0]} if parts \
        else {"rank": np.empty(0, np.int64)}  # fmt: skip
    return log_of(
        columns, ops=tuple(ops) or ("",), groups=tuple(known[each] for each in groups),
        world=world, places={rank: Place() for rank in ranks}, silent=tuple(silent),
        unseen=tuple(rank for rank in range(world) if rank not in ranks), source=source,
        notes=tuple(notes),
    )  # fmt: skip


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
        of_all = said.world > 0 and line.get("size") == said.world
        name = "world" if of_all else f"{said.rank}.{name}"
    ranks = [_number(each, UNKNOWN) for each in given] if isinstance(given, list) else []
    members = tuple(sorted(set(ranks))) if min(ranks, default=UNKNOWN) >= 0 else ()
    kind = GroupKind.WORLD if said.world and len(members) == said.world else GroupKind.UNKNOWN
    said.groups[number] = Group(name, kind, members)


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
    return {
        "rank": np.full(len(records), said.rank), "step": records["step"].clip(UNKNOWN),
        "kind": records["kind"], "op": named[records["op"]], "group": places[records["group"]],
        "peer": records["peer"].clip(UNKNOWN), "microbatch": records["tag"].astype(np.int64),
        "bytes": records["bytes"].astype(np.int64).clip(0),
        "sequence": np.where(sequence > 0, sequence, UNKNOWN),
        "enqueued_ns": begun + offset, "started_ns": begun + offset,
        "ended_ns": np.where(over, until + offset, NEVER),
        "state": np.where(over, int(State.ENDED), int(State.STARTED)),
    }  # fmt: skip


def _bounded(value: int) -> int:
    return max(-(1 << 62), min(value, 1 << 62))
