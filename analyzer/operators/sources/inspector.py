# SPDX-License-Identifier: Apache-2.0
"""NCCL Inspector: one JSON object a line, of what ended.

Formats up to v4.3, after `plugins/profiler/inspector` of NVIDIA/nccl, which was
`ext-profiler/inspector`. Until v4.2 each line has `header` (communicator, rank in it) and
`metadata`; since v4.3 only a `dump_stats` line has, and the lines after it are of the same. The
rest of a line is `coll_perf`, `p2p_perf` (whose peer is a place in the communicator), or
`proxy_trace`, which is left out. `coll_sn` counts per type of collective. Only verbose lines
(`event_trace_ts`) have moments; of others only durations are known.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.operators.log import UNKNOWN, Group, Kind, Log, Place, State, log_of
from analyzer.operators.sources.dump import MAX_BYTES
from analyzer.operators.sources.names import kind_of
from netagent.model.errors import RemoteProtocolError

SOURCE = "nccl-inspector"
MAX_ROWS = 20_000_000
"""Most operations of a log. Chosen: some 2 GB of columns."""

MAX_LINES = 2_000_000
"""Most lines of a file. Chosen: several times what a file of this size has."""

_OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "gather": "gather",
    "scatter": "scatter", "send": "send", "recv": "recv",
}  # fmt: skip
_MAX_US = 1 << 52

Record = Mapping[str, Any]
Process = tuple[str, int]
"""Host and process id. Each process has one GPU."""


def is_inspector(content: bytes) -> bool:
    """Return whether the first line looks like one of NCCL Inspector's."""
    first = content[:4096].lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b"n_ranks" in first


def records(content: bytes) -> list[Record]:
    """Return the objects of a file; a last line that is cut off is left out.

    Raises RemoteProtocolError where another line is none.
    """
    if len(content) > MAX_BYTES:
        raise RemoteProtocolError(f"{len(content)} bytes, more than {MAX_BYTES}")
    ends = content.count(b"\n") + content.count(b"\r")
    if ends > MAX_LINES:
        raise RemoteProtocolError(f"{ends} ends of lines, more than {MAX_LINES}")
    lines = content.splitlines()
    found: list[Record] = []
    context: Record = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # a job that was killed
            raise RemoteProtocolError(f"line {number}: {str(error)[:80]}") from error
        if isinstance(value, Mapping):
            if isinstance(value.get("header"), Mapping):
                context = {"header": value["header"], "metadata": value.get("metadata")}
            if context:
                found.append({**value, **context})
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    process: Process
    comm: str
    place: int
    op: str
    kind: Kind
    peer: int
    sequence: int
    bytes: int
    started_ns: int
    ended_ns: int


def log(files: Mapping[str, Sequence[Record]]) -> Log:
    """Return the log of records by file. Raises RemoteProtocolError beyond `MAX_ROWS`."""
    every = [record for each in files.values() for record in each]
    if len(every) > MAX_ROWS:
        raise RemoteProtocolError(f"{len(every)} operations, more than {MAX_ROWS}")
    rows = [row for record in every if (row := _row(record)) is not None]
    comms = _comms(every)
    ranks, whole = _ranks(comms)
    rows.sort(key=lambda row: (ranks[row.process], row.ended_ns, row.sequence))
    names = {comm: number for number, comm in enumerate(comms)}
    ops = tuple(dict.fromkeys(row.op for row in rows)) or ("",)
    numbers = {op: number for number, op in enumerate(ops)}
    world = max(comms[whole].size, max(ranks.values(), default=-1) + 1) if comms else 0
    seen = set(ranks.values())
    columns: dict[str, Sequence[int]] = {
        "rank": [ranks[row.process] for row in rows],
        "kind": [row.kind for row in rows],
        "op": [numbers[row.op] for row in rows],
        "group": [names[row.comm] for row in rows],
        "peer": [_peer(row, comms, ranks) for row in rows],
        "bytes": [row.bytes for row in rows],
        "sequence": [row.sequence for row in rows],
        "started_ns": [row.started_ns for row in rows],
        "ended_ns": [row.ended_ns for row in rows],
        "state": [State.ENDED] * len(rows),
    }
    return log_of(
        columns,
        ops=ops,
        groups=tuple(_group(comm, each, ranks) for comm, each in comms.items()),
        places={rank: Place(host=process[0]) for process, rank in ranks.items()},
        world=world,
        unseen=tuple(each for each in range(world) if each not in seen),
        source=SOURCE,
        notes=tuple(_notes(every, rows)),
    )


@dataclass(slots=True)
class _Comm:
    name: str
    size: int
    places: dict[int, Process]


def _comms(every: Sequence[Record]) -> dict[str, _Comm]:
    comms: dict[str, _Comm] = {}
    for record in every:
        header = record["header"]
        size = min(_integer(header.get("n_ranks")), MAX_ROWS)
        comm = comms.setdefault(
            _text(header.get("id"))[:80], _Comm(_text(header.get("comm_name"))[:80], size, {})
        )
        comm.size = max(comm.size, size)
        comm.places.setdefault(_integer(header.get("rank")), _process(record))
    return comms


def _ranks(comms: Mapping[str, _Comm]) -> tuple[dict[Process, int], str]:
    """Return ranks of the job: places in the largest communicator; others come after it."""
    whole = max(comms, key=lambda each: (comms[each].size, len(comms[each].places)), default="")
    ranks: dict[Process, int] = {}
    if comms:
        for place, process in sorted(comms[whole].places.items()):
            ranks.setdefault(process, max(place, 0))
    following = max([comms[whole].size - 1 if comms else -1, *ranks.values()]) + 1
    for comm in comms.values():
        for process in comm.places.values():
            if process not in ranks:
                ranks[process] = following
                following += 1
    return ranks, whole


def _group(comm: str, each: _Comm, ranks: Mapping[Process, int]) -> Group:
    named = each.name if each.name not in ("", "unknown", "None") else ""
    members = tuple(sorted({ranks[process] for process in each.places.values()}))
    return Group(f"{named or 'comm'}/{comm}", kind_of(named), members)


def _peer(row: _Row, comms: Mapping[str, _Comm], ranks: Mapping[Process, int]) -> int:
    process = comms[row.comm].places.get(row.peer)
    return UNKNOWN if row.peer == UNKNOWN or process is None else ranks[process]


def _process(record: Record) -> Process:
    metadata = record.get("metadata")
    said: Record = metadata if isinstance(metadata, Mapping) else {}
    return _text(said.get("hostname"))[:120] or "?", _integer(said.get("pid"))


def _row(record: Record) -> _Row | None:
    for prefix, kind in (("coll", Kind.COLLECTIVE), ("p2p", Kind.SEND)):
        perf = record.get(f"{prefix}_perf")
        if isinstance(perf, Mapping):
            return _of(record, perf, prefix, kind)
    return None


def _of(record: Record, perf: Record, prefix: str, kind: Kind) -> _Row:
    header = record["header"]
    bare = re.sub(r"[^a-z]", "", _text(perf.get(prefix))[:80].lower())
    if prefix == "p2p" and bare == "recv":
        kind = Kind.RECV
    started, ended = _moments(record, perf, prefix)
    return _Row(
        process=_process(record),
        comm=_text(header.get("id"))[:80],
        place=_integer(header.get("rank")),
        op=_OPS.get(bare, bare or "?")[:40],
        kind=kind,
        peer=_integer(perf.get(f"{prefix}_peer")) if prefix == "p2p" else UNKNOWN,
        sequence=_integer(perf.get(f"{prefix}_sn")),
        bytes=_integer(perf.get(f"{prefix}_msg_size_bytes")),
        started_ns=started,
        ended_ns=ended,
    )


def _moments(record: Record, perf: Record, prefix: str) -> tuple[int, int]:
    """Return start and end: where no trace has them, the dump's time and the duration before it."""
    took_us = max(_integer(perf.get(f"{prefix}_exec_time_us")), 0)
    trace = perf.get("event_trace_ts")
    if isinstance(trace, Mapping):
        kernels = trace.get("kernel_events")
        said = kernels if isinstance(kernels, list) else ()
        channels = [each for each in said if isinstance(each, Mapping)]
        starts = [_integer(each.get("kernel_start_ts")) for each in channels]
        start = min((each for each in starts if each > 0), default=0)
        start = start or _integer(trace.get(f"{prefix}_start_ts"))
        if start > 0:
            return start * 1000, (start + took_us) * 1000
    metadata = record.get("metadata")
    at = _integer(metadata.get("dump_timestamp_us")) if isinstance(metadata, Mapping) else 0
    return (max(at, 0) - took_us) * 1000, max(at, 0) * 1000


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    return int(value) if -_MAX_US < value < _MAX_US else UNKNOWN


def _text(value: object) -> str:
    """Return a text, or a number as one; each line has that of its header, which may be a list."""
    return str(value) if isinstance(value, str | int) else ""


def _notes(every: Sequence[Record], rows: Sequence[_Row]) -> Iterator[str]:
    lost = 0
    for record in every:
        stats = record.get("dump_stats")
        if isinstance(stats, Mapping):
            for what in ("coll", "p2p"):
                lost += max(_integer(stats.get(f"{what}_dropped_since_last_dump")), 0)
    if lost:
        yield f"NCCL Inspector lost {lost} operations, since its rings were full"
    if rows and not any(
        isinstance(perf, Mapping) and "event_trace_ts" in perf
        for record in every
        for perf in (record.get("coll_perf"), record.get("p2p_perf"))
    ):
        yield "there are durations and no moments: NCCL_INSPECTOR_DUMP_VERBOSE=1 writes those"
    yield "it logs what ended: a job that stands still is not seen in it"
