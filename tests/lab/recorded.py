# SPDX-License-Identifier: Apache-2.0
"""What a job recorded, as a table that the analyzer reads: rings in, CSV out."""

import csv
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netagent_torch import form

COLUMNS = (
    "step", "rank", "kind", "op", "group", "peer", "microbatch", "bytes", "sequence", "start_us",
    "end_us", "dp", "pp", "tp",
)  # fmt: skip
KINDS = {
    form.OTHER: "other", form.COMPUTE: "compute", form.COLLECTIVE: "collective",
    form.SEND: "send", form.RECV: "recv",
}  # fmt: skip
AWAITED_NS = 100_000
"""Nanoseconds from which on a wait says when an operation ended: of a shorter one, what was waited
for had ended before. Chosen: far more than a call takes."""


@dataclass(frozen=True, slots=True)
class Ring:
    """One process's ring, read."""

    rank: int
    pid: int
    ops: Mapping[int, str]
    groups: Mapping[int, str]
    records: tuple[form.Record, ...]
    """In the order of their numbers; the oldest ones may be gone."""
    worlds: frozenset[int] = frozenset()
    """Groups of all ranks, where only sizes are known."""


def read(data: bytes) -> Ring:
    """Return what a ring's bytes hold; ValueError where it is none."""
    head = form.read_head(data)
    lines = form.read_lines(data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used])
    start = form.HEAD_BYTES + head.lines_bytes
    used = min(head.written, head.capacity) * form.RECORD_BYTES
    records = form.read_records(data[start : start + used])
    kept = sorted(each for each in records if head.first <= each.number <= head.written)
    return Ring(
        next((each["rank"] for each in lines if "rank" in each), form.NONE),
        head.pid,
        {each["op"]: each["name"] for each in lines if "op" in each},
        {each["group"]: each["name"] for each in lines if "group" in each and "name" in each},
        tuple(kept),
        frozenset(
            each["group"] for each in lines if "place" in each and each["size"] == _world(lines)
        ),
    )


def since(data: bytes, begun_ns: int, *, over: bool) -> bytes:
    """Return a ring's bytes without what began before an instant (monotonic).

    `over`: and without what has not ended.
    """
    head, kept = form.read_head(data), bytearray(data)
    for at in range(form.HEAD_BYTES + head.lines_bytes, len(data), form.RECORD_BYTES):
        each = form.Record._make(form.RECORD.unpack_from(kept, at))
        if each.begun_ns < begun_ns or (over and not each.ended_ns):
            kept[at : at + form.RECORD_BYTES] = bytes(form.RECORD_BYTES)
    return bytes(kept)


def _world(lines: list[dict[str, Any]]) -> int:
    return next((each["world"] for each in lines if "world" in each), 0)


def stepped(ring: Ring, hooks: Ring) -> Ring:
    """Return a ring of probes, which know no steps, with the steps that the same rank recorded.

    Probes know a group by its address in one process: of all groups but the world, those of two
    ranks are told apart.
    """
    begins: dict[int, int] = {}
    for each in hooks.records:
        begins.setdefault(each.step, each.begun_ns)
    starts, steps = list(begins.values()), list(begins)
    numbered = tuple(
        each._replace(step=steps[place - 1])
        for each in ring.records
        if (place := bisect_right(starts, each.begun_ns))
    )
    names = {
        number: "world" if number in ring.worlds else f"{ring.rank}.{number}"
        for number in ring.groups
    }
    return replace(ring, records=numbered, groups=names)


def ended_ns(record: form.Record) -> int:
    """Return when an operation ended; 0 where it has not.

    Of one that had ended before somebody waited for it, it is how long it held its rank up that
    counts, whenever that was.
    """
    if not record.ended_ns:
        return 0
    awaited = record.ended_ns - record.waited_ns >= AWAITED_NS
    sync = record.waited_ns - record.begun_ns < AWAITED_NS
    if awaited or sync:
        return record.ended_ns
    return record.begun_ns + record.ended_ns - record.waited_ns


def rows(ring: Ring, place: tuple[int, int, int], *, steps: range) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of COLUMNS of what a rank did in some steps; `place` is its dp, pp and tp."""
    for each in ring.records:
        if each.step not in steps:
            continue
        end_ns = ended_ns(each)
        yield (
            each.step, ring.rank, KINDS[each.kind], ring.ops.get(each.op, "?"),
            ring.groups.get(each.group, ""), "" if each.peer == form.NONE else each.peer,
            each.tag, each.bytes, each.sequence or "", each.begun_ns // 1000,
            end_ns // 1000 if end_ns else "", *place,
        )  # fmt: skip


def write(path: Path, table: Iterable[tuple[Any, ...]]) -> int:
    """Write a table; return how many rows it has."""
    made = list(table)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(made)
    return len(made)
