# SPDX-License-Identifier: Apache-2.0
"""One dump of PyTorch's flight recorder, which is one rank's, as rows.

It is a pickle (what `TORCH_NCCL_DUMP_ON_TIMEOUT` writes) or JSON (`_dump_nccl_trace_json`,
`_dump_fr_trace_json`). What fields mean, and how they changed, is after PyTorch's
`torch/csrc/distributed/c10d/FlightRecorder*.{hpp,cpp}` and `torch/distributed/flight_recorder`:

- Until 2.3 a dump is the bare list of entries, with `seq_id`, microseconds and no groups' members.
- `process_group` is a name and a description; `pg_config` has the ranks of each name, which may be
  the name of another group on another rank. `pg_id` is a count of each rank's own.
- JSON leaves `entries` out where there are none, and says 0 for a time that there is not.
- What an abort ended is "completed", after as long as it may take at most.
- gloo states no end, but retires what ended, and what it gave up alike. Of NCCL, what is retired
  without an end timed out.
- The operators inside of a coalesced one have no state of their own: that is in the entry
  `coalesced` (or `ALLGATHER_coalesced`, ...) which follows them with the same number.
- `send 0->1` and `recv 1<-0` name places in the group, not ranks of the job.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.operators.log import NEVER, UNKNOWN, Kind, State
from analyzer.operators.sources import pickles
from analyzer.operators.sources.names import MAX_RANK, text_of
from netagent.model.errors import RemoteProtocolError

MAX_BYTES = 128 << 20
"""Largest dump. Chosen: 100,000 entries with their frames; the default is 2,000."""
MAX_ENTRIES = 1_000_000
"""Most entries of a dump. Chosen: ten times as many; one may be there a million times in a pickle
that has it once."""
MAX_TENSORS = 65_536
"""Most tensors of an entry whose sizes are added up. Chosen: more than a model's layers."""

MAX_TEXT = 16 << 20
"""Most characters in which members of groups are listed. Chosen: of two million ranks."""
MAX_NAME = 200
"""Longest name of an operation that is looked at. Chosen: real ones have some dozen characters."""

COUNTED = "?"
"""With what the name of a group begins that is known by a count of the rank's own only."""
_TOP = frozenset({"entries", "pg_config", "pg_status", "comm_lib_version", "nccl_comm_state"})
_WIDTHS = {
    "double": 8, "long": 8, "complexfloat": 8, "int": 4, "float": 4, "complexhalf": 4, "half": 2,
    "bfloat16": 2, "short": 2, "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2,
    "int16": 2, "complexdouble": 16, "uint64": 8, "uint32": 4, "uint16": 2,
}  # fmt: skip
_STATES = {
    "completed": State.ENDED, "started": State.STARTED, "scheduled": State.ENQUEUED,
}  # fmt: skip
_TO, _FROM = re.compile(r"(\d+) ?-> ?(\d+)$"), re.compile(r"(\d+) ?<- ?(\d+)$")
_MAX_TIME = 1 << 62


@dataclass(slots=True)
class Entry:
    """One operator of a rank, as its dump has it."""

    group: tuple[str, str]
    """Name and description."""
    op: str
    kind: Kind
    peer: int
    """Place in the group, or `UNKNOWN`."""
    sequence: int
    bytes: int
    enqueued_ns: int
    started_ns: int
    ended_ns: int
    state: State
    signature: str
    """Types and sizes that are the same on all ranks of a collective."""
    timed_out: bool
    sure: bool
    """Whether the dump tells what ended from what was given up."""
    closes: bool
    """Whether it stands for what was coalesced before it."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank's flight recorder held."""

    rank: int | None
    """As the dump itself says it; most do not."""
    entries: tuple[Entry, ...]
    members: Mapping[str, tuple[int, ...]]
    """Ranks in ascending order, by group's name; only where the dump has them."""
    whole: bool
    """Whether nothing has fallen off the recorder's ring."""
    left_out: int = 0
    """Entries that made no sense."""
    pickled: bool = False
    """Whether it is a pickle, as watchdogs write them; JSON is what a program asks for."""
    version: str = ""


def decoded(content: bytes) -> Any:
    """Return the plain value in a pickle or in JSON. Raises RemoteProtocolError."""
    if len(content) > MAX_BYTES:
        raise RemoteProtocolError(f"{len(content)} bytes, more than {MAX_BYTES}")
    if pickles.is_pickle(content):
        return pickles.plain(content)
    # A bracket of one byte becomes an object of sixty.
    if content.count(b"[") + content.count(b"{") > pickles.MAX_CONTAINERS:
        raise RemoteProtocolError(f"more than {pickles.MAX_CONTAINERS} lists and objects")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"neither a pickle nor JSON: {str(error)[:80]}") from error


def is_dump(value: object) -> bool:
    """Return whether a plain value looks like a dump, of any version."""
    if isinstance(value, Mapping):
        return bool(_TOP & set(value)) and "communicators" not in value
    if isinstance(value, list):
        return all(isinstance(each, Mapping) and "profiling_name" in each for each in value[:3])
    return False


def dump_of(value: Any, *, pickled: bool = False) -> Dump:
    """Return the rows of a dump's plain value. Raises RemoteProtocolError where it is none."""
    if not is_dump(value):
        raise RemoteProtocolError("not a flight recorder's dump")
    whole: Mapping[Any, Any] = value if isinstance(value, Mapping) else {"entries": value}
    listed = whole.get("entries") or []
    if not isinstance(listed, list | tuple):
        raise RemoteProtocolError("a flight recorder's dump whose entries are no list")
    if len(listed) > MAX_ENTRIES:
        raise RemoteProtocolError(f"{len(listed)} entries, more than {MAX_ENTRIES}")
    usable = [each for each in listed if isinstance(each, Mapping)]
    usable.sort(key=lambda each: _integer(each.get("record_id"), 0))
    first = _integer(usable[0].get("record_id"), 1) if usable else 0
    read = [entry for entry in map(_entry, usable) if entry is not None]
    rank = _integer(whole.get("rank"), UNKNOWN)
    return Dump(
        rank=rank if 0 <= rank <= MAX_RANK else None,
        entries=tuple(_settled(read)),
        members=_members(whole.get("pg_config")),
        whole=first == 0,
        left_out=len(listed) - len(read),
        pickled=pickled,
        version=text_of(whole.get("version"), 20),
    )


def _settled(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries, with what is coalesced in the state of the entry that closes it.

    That entry goes where it closed something, and stays as one operator where it did not.
    """
    settled: list[Entry] = []
    open_: dict[tuple[tuple[str, str], bool], list[Entry]] = {}
    for each in entries:
        inside = open_.setdefault((each.group, each.kind is Kind.COLLECTIVE), [])
        if inside and inside[-1].sequence != each.sequence:
            inside.clear()
        if inside and each.closes:
            for one in inside:
                one.state, one.timed_out = each.state, each.timed_out
                one.started_ns, one.ended_ns = each.started_ns, each.ended_ns
            inside.clear()
            continue
        inside.append(each)
        settled.append(each)
    return settled


def _entry(raw: Mapping[Any, Any]) -> Entry | None:
    """Return one entry, or None where it says no operation."""
    name = raw.get("profiling_name")
    if not isinstance(name, str):
        return None
    backend, _, op = name[:MAX_NAME].rpartition(":")
    kind, peer = _direction(op)
    inputs, outputs = _tensors(raw, "input"), _tensors(raw, "output")
    apart = kind is not Kind.COLLECTIVE or raw.get("is_p2p") is True
    bare = op.partition(" ")[0][:60]
    if apart and kind is Kind.COLLECTIVE:
        kind = Kind.OTHER  # it closes transfers, and is no collective of its group
    state, timed_out = _state(raw, backend)
    started, ended = _moments(raw)
    return Entry(
        group=_group(raw),
        op=bare,
        kind=kind,
        peer=peer,
        sequence=_sequence(raw, apart),
        bytes=_bytes(outputs if kind is Kind.RECV else inputs),
        enqueued_ns=_moment(raw, "time_created_ns", "time_created_us"),
        started_ns=started,
        ended_ns=ended,
        state=state,
        signature="" if apart else _signature(bare, inputs, outputs),
        timed_out=timed_out,
        sure=backend != "gloo" or state is not State.ENDED,
        closes=bare == "coalesced" or bare.endswith("_coalesced"),
    )


def _group(raw: Mapping[Any, Any]) -> tuple[str, str]:
    """Return name and description; of groups in old dumps, but for that of all, `?` and a number.

    Those have a count of the rank's own only, so that equal ones need not be one group.
    """
    said = raw.get("process_group", raw.get("pg_name"))
    if isinstance(said, list | tuple) and said:
        return text_of(said[0], 200), text_of(said[1] if len(said) > 1 else "", 200)
    if isinstance(said, str):
        return said[:200], ""
    number = _integer(raw.get("pg_id"), 0)
    return (f"{COUNTED}{number}" if number else "0"), ""


def _direction(op: str) -> tuple[Kind, int]:
    if op.startswith("send"):
        found = _TO.search(op)
        return Kind.SEND, _place(found, 2)
    if op.startswith("recv"):
        found = _FROM.search(op)
        return Kind.RECV, _place(found, 2)
    return Kind.COLLECTIVE, UNKNOWN


def _place(found: re.Match[str] | None, number: int) -> int:
    return int(found[number]) if found and len(found[number]) < 9 else UNKNOWN


def _sequence(raw: Mapping[Any, Any], apart: bool) -> int:  # noqa: FBT001 - which of two counts
    if apart and "p2p_seq_id" in raw:
        return _integer(raw.get("p2p_seq_id"), UNKNOWN)
    return _integer(raw.get("collective_seq_id", raw.get("seq_id")), UNKNOWN)


def _state(raw: Mapping[Any, Any], backend: str) -> tuple[State, bool]:
    state = _STATES.get(text_of(raw.get("state"), 40), State.UNKNOWN)
    if _integer(raw.get("time_discovered_completed_ns"), 0) > 0:
        state = State.ENDED
    if state is State.ENDED and _took_too_long(raw):
        return State.STARTED, True
    retired = raw.get("retired") is True
    if retired and backend == "gloo":
        return State.ENDED, False
    return state, retired and state is not State.ENDED


def _took_too_long(raw: Mapping[Any, Any]) -> bool:
    """Return whether what ended took as long as it may: the watchdog's abort ended it."""
    limit_ms = _integer(raw.get("timeout_ms"), 0)
    created = _moment(raw, "time_created_ns")
    ended = _moment(raw, "time_discovered_completed_ns")
    return limit_ms > 0 and NEVER not in (created, ended) and ended - created >= limit_ms * 10**6


def _moments(raw: Mapping[Any, Any]) -> tuple[int, int]:
    """Return start and end, where the duration was timed.

    Else there is only when the watchdog found out, which may be much later.
    """
    ended = _moment(raw, "time_discovered_completed_ns")
    took_ms = raw.get("duration_ms", raw.get("duration"))
    if ended == NEVER or isinstance(took_ms, bool) or not isinstance(took_ms, int | float):
        return NEVER, NEVER
    if not 0 <= took_ms < 1e12:
        return NEVER, NEVER
    return ended - int(took_ms * 1e6), ended


def _moment(raw: Mapping[Any, Any], in_ns: str, in_us: str = "") -> int:
    """Return a time; 0 is none, as in JSON."""
    if (value := _integer(raw.get(in_ns), 0)) > 0:
        return value
    value = _integer(raw.get(in_us), 0) if in_us else 0
    return value * 1000 if 0 < value < _MAX_TIME // 1000 else NEVER


def _integer(value: object, otherwise: int) -> int:
    """Return a number that may be written as text; tests of PyTorch's do so."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_TIME:
        return otherwise
    return value


Tensors = list[tuple[int, str]]
"""Number of elements and type of each tensor."""


def _tensors(raw: Mapping[Any, Any], which: str) -> Tensors:
    sizes, types = raw.get(f"{which}_sizes"), raw.get(f"{which}_dtypes")
    if not isinstance(sizes, list | tuple):
        return []
    several = types if isinstance(types, list | tuple) else ()
    named = [types] * len(sizes) if isinstance(types, str) else [*several]
    named += [""] * (len(sizes) - len(named))
    pairs = zip(sizes[:MAX_TENSORS], named, strict=False)
    return [(_elements(shape), text_of(name, 30)) for shape, name in pairs]


def _elements(shape: object) -> int:
    if not isinstance(shape, list | tuple) or len(shape) > 64:
        return 0
    count = math.prod(_integer(each, 0) for each in shape)
    return min(max(count, 0), _MAX_TIME)


def _bytes(tensors: Tensors) -> int:
    """Return bytes; `UNKNOWN` where the types are not said."""
    if not tensors or not all(name for _, name in tensors):
        return UNKNOWN
    total = sum(count * _WIDTHS.get(name.lower(), 1) for count, name in tensors)
    return min(total, _MAX_TIME)


def _signature(op: str, inputs: Tensors, outputs: Tensors) -> str:
    """Return what must be alike on all ranks, as `torchfrtrace` has it, but of sizes the sums.

    Of a gather only one rank has outputs, of a scatter inputs; all-to-all may be uneven.
    """
    if "all_to_all" in op or "alltoall" in op or "barrier" in op:
        return ""
    gathers = op in ("gather", "gatherv") or op.endswith("_gather_oop")
    scatters = op in ("scatter", "scatterv")
    parts = []
    for tensors, matters in ((inputs, not scatters), (outputs, not gathers)):
        if not tensors:
            continue
        names = "/".join(sorted({name for _, name in tensors if name}))
        parts.append(f"{sum(count for count, _ in tensors)} {names}".strip() if matters else "")
    return " to ".join(part for part in parts if part)


def _members(config: object) -> dict[str, tuple[int, ...]]:
    """Return ranks by group's name. They are a list, or a list as text."""
    if not isinstance(config, Mapping):
        return {}
    said = {
        text_of(name, 200): each.get("ranks") if isinstance(each, Mapping) else each
        for name, each in config.items()
    }
    if sum(len(each) for each in said.values() if isinstance(each, str)) > MAX_TEXT:
        raise RemoteProtocolError(f"groups' members take more than {MAX_TEXT} characters")
    return {name: ranks for name, each in said.items() if (ranks := _ranks(each))}


def _ranks(said: object) -> tuple[int, ...]:
    if isinstance(said, str):
        said = [int(each) for each in re.findall(r"(?<![\w.-])\d{1,8}(?![\w.])", said)]
    if not isinstance(said, list | tuple):
        return ()
    ranks = {rank for each in said if (rank := _integer(each, UNKNOWN)) in range(MAX_RANK + 1)}
    return tuple(sorted(ranks))
