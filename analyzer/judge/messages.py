# SPDX-License-Identifier: Apache-2.0
"""What the analyzer and its judge say to each other: frames over a local socket. Pure.

A frame is ``u32 length | payload``, little-endian; the payload is one message as msgpack. Down go
an `Open`, a roster, then the records of `analyzer.replay.records` in the order in which things
happened, and queries between them. Up comes what the diagnosis asks and says.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct, field

from analyzer.config import History, Recording
from analyzer.picture.asked import Question as Picture
from analyzer.questions import Ask, MeaningRequest, Question, Reply, Request, StatusRequest
from analyzer.replay import records
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode, encode
from netagent.wire.messages import CheckRequest, PathRequest, Service
from netagent.wire.trace import TraceRequest
from netagent.wire.validate import ValidateRequest

MAX_FRAME_BYTES = (1 << 32) - 1
"""Most bytes of a message, as many as its head can say: who speaks is ours, and the roster of a
large cluster is one message."""
HEAD = struct.Struct("<I")
"""Length of the payload that follows."""


class Open(Struct, frozen=True, kw_only=True, tag="open"):
    """What to judge with, and what to keep beside it."""

    header: records.Header
    recording: Recording
    database: str
    """The analyzer's database; recordings, baselines and history are beside it."""
    history: History = field(default_factory=History)


class Walk(Struct, frozen=True, kw_only=True, tag="walk"):
    """Walk each of these pairs now, source to target and back; answered by a list of walks."""

    query: int
    pairs: tuple[tuple[EndpointId, EndpointId], ...]
    layers: bool = False
    services: tuple[Service | None, ...] = ()
    """What each source asks its target for; None, or nothing said of any: for a probe."""


class Look(Struct, frozen=True, kw_only=True, tag="look"):
    """Say what is known.

    `what` is `findings`, `topology`, `history` (what became of minutes), `figures` (what windows
    add up to) or `recording` (write one to a file).
    """

    query: int
    what: str


class Draw(Struct, frozen=True, kw_only=True, tag="draw"):
    """Say what the newest window shows; answered by plain data."""

    query: int
    asked: Picture


class Replies(Struct, frozen=True, kw_only=True, tag="replies"):
    """What agents answered to the newest `Asking` of a query, in its order."""

    query: int
    replies: tuple[records.Answered, ...]
    """Their question is the place in `Asking.asks`."""


Down = Open | Walk | Look | Draw | Replies | records.Record
Query = Walk | Look | Draw


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    """The judge runs, and reads."""

    pid: int


class Holds(Struct, frozen=True, kw_only=True, tag="holds"):
    """What was kept over a restart; said once, after an `Open` and a roster."""

    since_ns: int
    """Instant from which the judge has to be told what was received; 0: of all."""


class Put(Struct, frozen=True, kw_only=True, tag="put"):
    """A question to put to an agent now."""

    host: str
    kind: str
    """Which request `body` is."""
    body: bytes
    question: int = 0
    deadline_ns: int = 0


class Asking(Struct, frozen=True, kw_only=True, tag="asking"):
    """What a query has to ask of agents before it goes on."""

    query: int
    asks: tuple[Put, ...]


class Result(Struct, frozen=True, kw_only=True, tag="result"):
    """The answer to a query."""

    query: int
    body: bytes


class NoResult(Struct, frozen=True, kw_only=True, tag="no-result"):
    """Why a query has no answer."""

    query: int
    error: str
    capability: str = ""
    """What is missing, where that is the reason; `error` is then its remedy."""
    bug: bool = False


class Said(Struct, frozen=True, kw_only=True, tag="said"):
    """Something for the log of the analyzer."""

    event: str
    values: dict[str, str | int | float] = field(default_factory=dict)
    error: str | None = None
    """A bug: a window could not be judged."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """A stored summary could not be used."""

    host: str
    error: str
    bug: bool = False


class Done(Struct, frozen=True, kw_only=True, tag="done"):
    """A step is done; what it asks and says came before."""

    deadline_ns: int | None


Up = Ready | Holds | Put | Asking | Result | NoResult | Said | Refused | Done | records.Told

_REQUESTS: Mapping[str, type[Request]] = {
    "status": StatusRequest,
    "check": CheckRequest,
    "path": PathRequest,
    "trace": TraceRequest,
    "validate": ValidateRequest,
    "meaning": MeaningRequest,
}
_KINDS = {kind: name for name, kind in _REQUESTS.items()}


def put(ask: Ask | Question) -> Put:
    """Return what is to be asked, as a message."""
    kind, body = _KINDS[type(ask.request)], encode(ask.request)
    if isinstance(ask, Question):
        number, until_ns = ask.id, ask.deadline_ns
        return Put(host=ask.host, kind=kind, body=body, question=number, deadline_ns=until_ns)
    return Put(host=ask.host, kind=kind, body=body)


def request_of(message: Put) -> Request:
    """Return the request of a message; RemoteProtocolError if it holds none."""
    kind = _REQUESTS.get(message.kind)
    if kind is None:
        raise RemoteProtocolError(f"a request of unknown kind {message.kind!r}")
    return decode(message.body, cast("type[CheckRequest]", kind))


def question_of(message: Put) -> Question:
    """Return the question of a message; RemoteProtocolError if it holds none."""
    return Question(message.question, message.host, request_of(message), message.deadline_ns)


def replies(query: int, given: tuple[Reply, ...]) -> Replies:
    """Return what agents answered, as a message."""
    answered = (records.answered(number, each, 0) for number, each in enumerate(given))
    return Replies(query=query, replies=tuple(answered))


def framed(message: Down | Up) -> bytes:
    """Return a message as a frame."""
    payload = encode(message)
    return HEAD.pack(len(payload)) + payload


class Frames:
    """Payloads of frames, out of chunks that begin and end anywhere."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Chunks of a frame of which more is to come."""
        self._lacks = HEAD.size
        """Bytes that come before anything is whole, at least."""

    def whole(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what is whole with `chunk`; to be read to its end before the next one."""
        self._rest.append(chunk)
        self._lacks -= len(chunk)
        if self._lacks > 0:  # a roster is many chunks, which are joined once
            return
        data, at = b"".join(self._rest), 0
        while len(data) - at >= HEAD.size:
            (length,) = HEAD.unpack_from(data, at)
            if len(data) - at - HEAD.size < length:
                break
            at += HEAD.size + length
            yield data[at - length : at]
        self._rest = [data[at:]]
        size = len(data) - at
        wanted = HEAD.size + HEAD.unpack_from(data, at)[0] if size >= HEAD.size else HEAD.size
        self._lacks = wanted - size


def down(payload: bytes) -> Down:
    """Return the message to the judge that `payload` holds; RemoteProtocolError if it is none."""
    return decode(payload, cast("type[Down]", Down), max_bytes=MAX_FRAME_BYTES)


def up(payload: bytes) -> Up:
    """Return the message of the judge that `payload` holds; RemoteProtocolError if it is none."""
    return decode(payload, cast("type[Up]", Up), max_bytes=MAX_FRAME_BYTES)
