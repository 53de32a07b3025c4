# SPDX-License-Identifier: Apache-2.0
"""What a recording holds: everything that a diagnosis was given, in order, and what it told.

The first record is a `Header`, the last an `End`. All instants are Unix nanoseconds.
"""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Struct, field

from analyzer.detect.arrival import AFTER_NS
from analyzer.detect.held import JobVerdict
from analyzer.detect.latency.floors import Sensitivity
from analyzer.intent.differences.contract import Difference
from analyzer.questions import Answer, Failed, MeaningReply, Reply, Why
from analyzer.replay.frames import MAX_BYTES
from analyzer.roster.registry import HostState
from netagent.model.errors import RemoteProtocolError
from netagent.model.task import Task
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.codec import decode, encode
from netagent.wire.messages import CheckReply, PathReply, Registration, Status
from netagent.wire.trace import TraceReply
from netagent.wire.validate import ValidateReply

FORMAT = 3
"""Version of the recording format; a reader refuses a higher one."""


class Header(Struct, frozen=True, kw_only=True, tag="header"):
    """Who recorded, and what the diagnosis was made with."""

    format: int = FORMAT
    netagent: str
    """Version of netagent that recorded."""
    run: int = 0
    """When the judge started that recorded: another one begins anew."""
    whole: bool = True
    """Whether the `State` that follows says all that was learned before, or nothing was; without it
    a replay may differ at first."""
    window_s: int
    probe_port: int
    topology: DeclaredTopology = field(default_factory=DeclaredTopology)
    sensitivity: Sensitivity = field(default_factory=Sensitivity)
    missing_after_ns: int = AFTER_NS


class Roster(Struct, frozen=True, kw_only=True, tag="roster"):
    """Who was in the cluster as the recording began."""

    hosts: tuple[HostState, ...]
    tasks: tuple[Task, ...]


class State(Struct, frozen=True, kw_only=True, tag="state"):
    """What the diagnosis had learned as the recording began; see `analyzer.replay.state`."""

    body: bytes


class Registered(Struct, frozen=True, kw_only=True, tag="registered"):
    """A host registered."""

    registration: Registration
    now_ns: int


class Heard(Struct, frozen=True, kw_only=True, tag="heard"):
    """A summary of a host came in, of which nothing else may be told."""

    host: str
    start_ns: int
    now_ns: int


class Forgotten(Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A host left the cluster."""

    host: str
    now_ns: int


class Expired(Struct, frozen=True, kw_only=True, tag="expired"):
    """Endpoints that vanished long ago were dropped."""

    now_ns: int


class TaskPut(Struct, frozen=True, kw_only=True, tag="task-put"):
    """A task was declared."""

    task: Task
    now_ns: int


class TaskDeleted(Struct, frozen=True, kw_only=True, tag="task-deleted"):
    """A declaration was withdrawn."""

    task: str
    now_ns: int


class Restored(Struct, frozen=True, kw_only=True, tag="restored"):
    """Incidents that were open before a restart."""

    incidents: tuple[Incident, ...]
    now_ns: int


class Began(Struct, frozen=True, kw_only=True, tag="began"):
    """Windows that end later are judged."""

    now_ns: int


class Ingested(Struct, frozen=True, kw_only=True, tag="ingested"):
    """A summary, as the host sent it."""

    payload: bytes
    now_ns: int
    heard: bool = False
    """Whether its host was heard by it; otherwise a record before this one says so."""


class Impaired(Struct, frozen=True, kw_only=True, tag="impaired"):
    """The analyzer refused a summary, or stood still."""

    stood_still: bool = False
    now_ns: int


class Arriving(Struct, frozen=True, kw_only=True, tag="arriving"):
    """Before a step: what came to the analyzer since then may not be ingested yet."""

    since_ns: int
    now_ns: int


class Differed(Struct, frozen=True, kw_only=True, tag="differed"):
    """All that stood between controllers and their hosts, from then on."""

    differences: tuple[Difference, ...]
    is_young: bool = False
    """Whether it is too early to tell that anything is over."""
    now_ns: int


class HeldUp(Struct, frozen=True, kw_only=True, tag="held-up"):
    """All that operators of jobs said, from then on."""

    jobs: tuple[JobVerdict, ...]
    now_ns: int


class Stepped(Struct, frozen=True, kw_only=True, tag="stepped"):
    """The diagnosis was stepped."""

    now_ns: int


class PutLate(Struct, frozen=True, kw_only=True, tag="put-late"):
    """The questions of the newest step were put to agents only now."""

    now_ns: int


class Answered(Struct, frozen=True, kw_only=True, tag="answered"):
    """The reply to a question."""

    question: int
    kind: str
    """`failed`, or which message `body` is."""
    body: bytes
    now_ns: int


class Told(Struct, frozen=True, kw_only=True, tag="told"):
    """What the diagnosis said of an incident: what a replay is held against."""

    incident: Incident


class Lost(Struct, frozen=True, kw_only=True, tag="lost"):
    """Records that could not be written; what follows does not fit what came before."""

    records: int


class End(Struct, frozen=True, kw_only=True, tag="end"):
    """Nothing is missing at the end."""

    records: int
    """Frames before this one."""


Record = (
    Header
    | Roster
    | State
    | Registered
    | Heard
    | Forgotten
    | Expired
    | TaskPut
    | TaskDeleted
    | Restored
    | Began
    | Ingested
    | Impaired
    | Arriving
    | Differed
    | HeldUp
    | Stepped
    | PutLate
    | Answered
    | Told
    | Lost
    | End
)

_REPLIES: Mapping[str, type[Answer]] = {
    "status": Status,
    "check": CheckReply,
    "path": PathReply,
    "trace": TraceReply,
    "validate": ValidateReply,
    "meaning": MeaningReply,
}
_NAMES = {kind: name for name, kind in _REPLIES.items()}


def answered(question: int, reply: Reply, now_ns: int) -> Answered:
    """Return the record of a reply."""
    if isinstance(reply, Failed):
        body = encode({"why": reply.why.value, "text": reply.text})
        return Answered(question=question, kind="failed", body=body, now_ns=now_ns)
    kind = _NAMES[type(reply)]
    return Answered(question=question, kind=kind, body=encode(reply), now_ns=now_ns)


def reply_of(record: Answered) -> Reply:
    """Return the reply that `record` holds; RemoteProtocolError if it is none."""
    if record.kind == "failed":
        plain = decode(record.body, dict[str, str])
        try:
            return Failed(Why(plain["why"]), plain["text"])
        except (KeyError, ValueError) as error:
            raise RemoteProtocolError(f"no reason for a failure: {error}") from error
    kind = _REPLIES.get(record.kind)
    if kind is None:
        raise RemoteProtocolError(f"a reply of unknown kind {record.kind!r}")
    return decode(record.body, kind)


def pack(record: Record) -> bytes:
    """Return a record as bytes."""
    return encode(record)


def unpack(payload: bytes) -> Record:
    """Return the record that `payload` holds; RemoteProtocolError if it is none."""
    # A record wraps a body that may be as large as bodies get. Mypy knows no union as a type.
    record = decode(payload, cast("type[Record]", Record), max_bytes=MAX_BYTES)
    if isinstance(record, Header) and record.format > FORMAT:
        raise RemoteProtocolError(
            f"a recording of format {record.format}; this netagent reads up to {FORMAT}: update it"
        )
    if isinstance(record, Header) and not (record.window_s > 0 and 0 < record.probe_port < 1 << 16):
        raise RemoteProtocolError("a header without a window, or without a port")
    return record


def same(one: Incident, other: Incident) -> bool:
    """Return whether two incidents are the same, byte for byte."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)
