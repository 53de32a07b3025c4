# SPDX-License-Identifier: Apache-2.0
"""What a job recorded, as a table that the analyzer reads: rings in, CSV out."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netagent_torch import form

COLUMNS = (
    "step", "rank", "kind", "op", "group", "peer", "microbatch", "bytes", "start_us", "end_us",
    "dp", "pp", "tp",
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


def read(path: Path) -> Ring:
    """Return what a ring's file holds; ValueError where it is none."""
    data = path.read_bytes()
    head = form.read_head(data)
    lines = form.read_lines(data[form.HEAD_BYTES : form.HEAD_BYTES + head.lines_used])
    records = form.read_records(data[form.HEAD_BYTES + head.lines_bytes :])
    kept = sorted(each for each in records if head.first <= each.number <= head.written)
    return Ring(
        next((each["rank"] for each in lines if "rank" in each), form.NONE),
        head.pid,
        {each["op"]: each["name"] for each in lines if "op" in each},
        {each["group"]: each["name"] for each in lines if "group" in each and "name" in each},
        tuple(kept),
    )


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
            each.tag, each.bytes, each.begun_ns // 1000, end_ns // 1000 if end_ns else "", *place,
        )  # fmt: skip


def write(path: Path, table: Iterable[tuple[Any, ...]]) -> int:
    """Write a table; return how many rows it has."""
    made = list(table)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(made)
    return len(made)
