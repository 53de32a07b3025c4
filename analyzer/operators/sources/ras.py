# SPDX-License-Identifier: Apache-2.0
"""NCCL RAS: what `ncclras` prints, as JSON (`-f json`, since 2.28.7) or as text (since 2.24).

It says how many collectives each rank of a communicator has launched, per type since 2.26, and
which ranks do not answer. Of that a log is made in which each rank that has launched more than
another waits in the one which that has not launched. One status cannot tell a job that stands still
from one that runs, whose counts differ by a little for a moment.

After `src/ras/client_support.cc` of NVIDIA/nccl and its guide. Ranks in it are those of the
communicator; the job's are those of the largest one, where it has all processes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzer.operators.log import UNKNOWN, Group, Kind, Log, Place, State, log_of
from analyzer.operators.sources.names import text_of
from netagent.model.errors import RemoteProtocolError

SOURCE = "nccl-ras"
MAX_RANKS = 1_000_000
"""Most ranks of a communicator. Chosen: ten times the largest job."""
MAX_WHERE = 400
"""Most characters that say where a rank is. Chosen: a few times what it takes; to look for it takes
their third power."""
MAX_PLACES = 8 * MAX_RANKS
"""Most ranks of all communicators together. Chosen: a rank of the largest job is in some dozens."""

Process = tuple[str, int, int]
"""Host, process id and device."""

_COMMUNICATOR = re.compile(r"^\s*#(\d+-\d+) \(([0-9a-fx:]{1,80})[^)]{0,400}\)\s+(\w+)")
_COUNTS = re.compile(r"ranks have different (?:(\w+) )?(?:collective )?operation counts")
_MANY = re.compile(r"^\s*(\d+) ranks? ha(?:ve|s) launched up to operation (\d{1,18})\b")
_ONE = re.compile(r"^\s*Rank (\d{1,9}) has launched up to operation (\d{1,18})\b(.*)")
_NONE = re.compile(r"^\s*(\d+) ranks have not launched any operations")
_ONE_NONE = re.compile(r"^\s*Rank (\d{1,9}) has not launched any operations(.*)")
_RANK = re.compile(r"^\s*Rank (\d{1,9}) -- (.*)")
_WHERE = re.compile(r"GPU (\d+)\D.*?process (\d+).*? node (\S+)")
_LOST = re.compile(r"missing ranks?: ([\d, ]+)", re.IGNORECASE)
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\S+\s+\S+\s+(\d+)\s+\d+\s+[A-Z,/]+\s+[A-Z,/]+\s*$")


@dataclass(slots=True)
class Comm:
    """One communicator."""

    name: str
    size: int
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    """Collectives launched, by type and rank in the communicator."""
    processes: dict[int, Process] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """Ranks that do not answer, or are considered dead."""


@dataclass(frozen=True, slots=True)
class Status:
    """What one query returned."""

    comms: tuple[Comm, ...]


def is_status(value: object) -> bool:
    """Return whether a plain value looks like RAS' JSON."""
    return isinstance(value, Mapping) and isinstance(value.get("communicators"), list)


def is_text(content: bytes) -> bool:
    """Return whether a file looks like RAS' text."""
    head = content[:4096]
    return head.lstrip()[:1] not in (b"{", b"[") and (
        b"Communicators..." in head or (b"Job summary" in head and b"Nodes" in head)
    )


def status_of(value: Mapping[str, Any]) -> Status:
    """Return a status from RAS' JSON. Raises RemoteProtocolError where it is out of bounds."""
    comms = tuple(_comm(each) for each in value["communicators"] if isinstance(each, Mapping))
    _check_places(sum(each.size for each in comms))
    return Status(comms)


def _check_places(places: int) -> None:
    if places > MAX_PLACES:
        raise RemoteProtocolError(f"communicators of {places} ranks, more than {MAX_PLACES}")


def _comm(value: Mapping[str, Any]) -> Comm:
    size = _integer(value.get("size"))
    if size > MAX_RANKS:
        raise RemoteProtocolError(f"a communicator of {size} ranks, more than {MAX_RANKS}")
    comm = Comm(text_of(value.get("hash"), 80, "?"), max(size, 0))
    for each in _mappings(value.get("ranks")):
        rank = _integer(each.get("rank"))
        comm.processes[rank] = _process(each)
        counts = each.get("collective_counts")
        for kind, count in counts.items() if isinstance(counts, Mapping) else ():
            comm.counts.setdefault(text_of(kind, 40), {})[rank] = max(_integer(count), 0)
    for each in _mappings(value.get("missing_ranks")):
        rank = _integer(each.get("rank"))
        comm.processes[rank] = _process(each)
        comm.lost.add(rank)
    return comm


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and _integer(each.get("rank")) in range(MAX_RANKS):
            yield each


def _process(value: Mapping[str, Any]) -> Process:
    device = _integer(value.get("nvml_dev", value.get("cuda_dev")))
    return text_of(value.get("host"), 120, "?"), _integer(value.get("pid")), device


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 62:
        return UNKNOWN
    return value


def status_of_text(content: bytes) -> Status:
    """Return a status from RAS' text, as far as it names ranks. Raises RemoteProtocolError."""
    lines = content.decode("utf-8", "replace").splitlines()
    sizes = {found[1]: int(found[2][:9]) for line in lines if (found := _ROW.match(line))}
    comms: dict[str, _Text] = {}
    largest = max(sizes.values(), default=0)
    if largest > MAX_RANKS:
        raise RemoteProtocolError(f"a communicator of {largest} ranks, more than {MAX_RANKS}")
    current: _Text | None = None
    for line in lines:
        if found := _COMMUNICATOR.match(line):
            size = sizes.get(found[1].partition("-")[0], 0)
            current = comms.setdefault(found[2], _Text(Comm(found[2], size)))
        elif current is not None:
            current.read(line)
    _check_places(sum(each.comm.size for each in comms.values()))
    whole = [each.finished() for each in comms.values()]
    if not any(each.size == largest for each in whole):
        whole.insert(0, Comm("all", largest))
    return Status(tuple(whole))


@dataclass(slots=True)
class _Text:
    """The lines on one communicator: counts, each followed by the ranks that it is of, if few."""

    comm: Comm
    _kind: str | None = None
    _count: int = 0
    _said: dict[str, list[tuple[int, set[int]]]] = field(default_factory=dict)

    def read(self, line: str) -> None:
        if found := _COUNTS.search(line):
            self._kind = found[1] or "collective"
        elif found := _LOST.search(line):
            self.comm.lost |= {int(each) for each in re.findall(r"\d{1,7}", found[1])}
        elif found := _MANY.match(line):
            self._begin(int(found[2]))
        elif _NONE.match(line):
            self._begin(0)
        elif found := _ONE.match(line):
            self._begin(int(found[2]))
            self._rank(int(found[1]), found[3])
        elif found := _ONE_NONE.match(line):
            self._begin(0)
            self._rank(int(found[1]), found[2])
        elif (found := _RANK.match(line)) and self._kind in self._said:
            self._rank(int(found[1]), found[2])
        elif not line.strip():
            self._kind = None

    def _begin(self, count: int) -> None:
        if self._kind is not None:
            self._said.setdefault(self._kind, []).append((count, set()))

    def _rank(self, rank: int, where: str) -> None:
        if self._kind is None or rank >= MAX_RANKS:
            return
        self._said[self._kind][-1][1].add(rank)
        if found := _WHERE.search(where[:MAX_WHERE]):
            device, process, node = found.groups()
            self.comm.processes[rank] = (node, int(process[:18]), int(device[:9]))

    def finished(self) -> Comm:
        """Return the communicator; a kind with two parts that list no ranks is left out."""
        for kind, parts in self._said.items():
            unnamed = [count for count, ranks in parts if not ranks]
            if len(unnamed) > 1:
                continue
            named = {rank: count for count, ranks in parts for rank in ranks}
            rest = dict.fromkeys(range(self.comm.size), unnamed[0]) if unnamed else {}
            self.comm.counts[kind] = {
                rank: count for rank, count in (rest | named).items() if rank not in self.comm.lost
            }
        return self.comm


def log(statuses: Mapping[str, Status]) -> Log:
    """Return the log that the last status, by file's name, amounts to."""
    comms = statuses[max(statuses)].comms
    whole = max(comms, key=lambda each: each.size, default=Comm("none", 0))
    places = {process: rank for rank, process in whole.processes.items()}
    rows = [row for number, comm in enumerate(comms) for row in _rows(number, comm)]
    mapped = [_ranked(comms[row.comm], row.rank, whole, places) for row in rows]
    known = [(row, rank) for row, rank in zip(rows, mapped, strict=True) if rank is not None]
    known.sort(key=lambda each: (each[1], each[0].sequence))
    ops = tuple(dict.fromkeys(row.op for row, _ in known)) or ("",)
    numbers = {op: number for number, op in enumerate(ops)}
    lost = {
        rank
        for comm in comms
        for each in comm.lost
        if (rank := _ranked(comm, each, whole, places)) is not None
    }
    columns: dict[str, Sequence[int]] = {
        "rank": [rank for _, rank in known],
        "kind": [Kind.COLLECTIVE] * len(known),
        "op": [numbers[row.op] for row, _ in known],
        "group": [row.comm for row, _ in known],
        "sequence": [row.sequence for row, _ in known],
        "state": [row.state for row, _ in known],
    }
    return log_of(
        columns,
        ops=ops,
        groups=tuple(_group(number, comm, whole, places) for number, comm in enumerate(comms)),
        places={rank: Place(host=process[0]) for rank, process in whole.processes.items()},
        world=whole.size,
        silent=tuple(sorted(lost)),
        source=SOURCE,
        notes=tuple(_notes(statuses, len(rows) - len(known))),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    comm: int
    rank: int
    op: str
    sequence: int
    state: State


def _rows(number: int, comm: Comm) -> Iterator[_Row]:
    """Yield where each rank is: what is launched past the least waits, as all must take part."""
    for kind, counts in comm.counts.items():
        least = min(counts.values(), default=0)
        # Whoever does not answer may not have come either, and then all wait in the last one.
        least = least - 1 if comm.lost and least == max(counts.values(), default=0) > 0 else least
        for rank, count in counts.items():
            if least > 0:
                yield _Row(number, rank, kind, least, State.ENDED)
            if count > least:
                yield _Row(number, rank, kind, least + 1, State.STARTED)


def _ranked(comm: Comm, rank: int, whole: Comm, places: Mapping[Process, int]) -> int | None:
    """Return a rank of the job; None where the process is not one of those that are known."""
    if comm is whole or comm.size == whole.size:
        return rank
    process = comm.processes.get(rank)
    return places.get(process) if process is not None else None


def _group(number: int, comm: Comm, whole: Comm, places: Mapping[Process, int]) -> Group:
    ranks: Iterable[int] = range(comm.size) if comm.size else comm.processes
    members = (_ranked(comm, each, whole, places) for each in ranks)
    return Group(
        f"{comm.name}#{number}", members=tuple(sorted({m for m in members if m is not None}))
    )


def _notes(statuses: Mapping[str, Status], unmapped: int) -> Iterator[str]:
    if len(statuses) > 1:
        yield f"of {len(statuses)} statuses only the last one by its file's name was read"
    if unmapped:
        yield f"{unmapped} counts are of processes whose rank in the job is not known"
    yield "one status cannot tell a job that stands still from one that runs: ask again"
