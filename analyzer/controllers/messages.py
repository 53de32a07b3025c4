# SPDX-License-Identifier: Apache-2.0
"""What the analyzer and its reader of a controller say to each other: frames over a local socket.

A frame is ``u32 length | payload``, little-endian; the payload is one message as msgpack. Down goes
an `Open`, then questions. Up comes what changed, where it is read from, and answers. Pure.
"""

import struct
from typing import cast

from msgspec import Struct

from analyzer.intent.changes import Changes
from analyzer.intent.logical import LogicalFlow
from analyzer.questions import Meant
from netagent.wire.codec import decode, encode
from netagent.wire.walk import End

HEAD = struct.Struct("<I")
"""Length of the payload that follows."""
MAX_FRAME_BYTES = 16 << 20
"""Most bytes of a message. Chosen: `MOST_TOLD` of the largest rows are a tenth of that."""
MOST_TOLD = 1_000
"""Most ports, placements and chassis in a message. Chosen: read within milliseconds, since nothing
else is done meanwhile."""
MOST_FLOWS = 1_000
"""Most logical flows of an answer. Chosen: one network's are some hundred."""


class Open(Struct, frozen=True, kw_only=True, tag="open"):
    """What to read."""

    northbound: tuple[str, ...]
    southbound: tuple[str, ...]
    """Remotes as OVSDB writes them, each a member of one cluster."""
    ca: str = ""
    cert: str = ""
    key: str = ""
    """Files in PEM, for remotes that begin with ``ssl:``."""


class AskFlows(Struct, frozen=True, kw_only=True, tag="ask-flows"):
    """Read logical flows now."""

    query: int
    prefixes: tuple[str, ...] = ()
    """First digits of their uuids, as cookies say them; none: all of the datapath."""
    datapath: int | None = None
    """Their datapath's number, as OpenFlow's metadata has it; None: of any."""
    most: int = MOST_FLOWS


class AskMeaning(Struct, frozen=True, kw_only=True, tag="ask-meaning"):
    """Say what ends of walks on a host mean."""

    query: int
    chassis: str
    installed: tuple[tuple[int, int, int], ...]
    """Table, cookie and metadata of each of the host's flows; 0 for any metadata."""
    ends: tuple[End, ...]
    disabled: tuple[str, ...] = ()
    """Logical ports that are disabled."""


class AskOfRows(Struct, frozen=True, kw_only=True, tag="ask-of-rows"):
    """Answer a question by rows that an agent read (`netagent.wire.zone.EXPLAINING`)."""

    asked: AskFlows | AskMeaning
    northbound: bytes
    southbound: bytes


Down = Open | AskFlows | AskMeaning | AskOfRows
Asked = AskFlows | AskMeaning


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    """The reader runs."""

    pid: int


class Told(Struct, frozen=True, kw_only=True, tag="told"):
    """What changed of the intent."""

    changes: Changes


class Source(Struct, frozen=True, kw_only=True, tag="source"):
    """Where a database is read from."""

    database: str
    remote: str
    """"" where there is no connection."""
    lacks: tuple[str, ...] = ()
    """Columns that its server does not have, ``TABLE.COLUMN``: what they say is not known."""


class Flows(Struct, frozen=True, kw_only=True, tag="flows"):
    """Logical flows that were asked for."""

    query: int
    flows: tuple[LogicalFlow, ...]
    more: int = 0
    """How many there are besides."""
    owners: dict[str, str] = {}
    """First digits of the northbound rows that they were made for -> what each is."""


class Meanings(Struct, frozen=True, kw_only=True, tag="meanings"):
    """What ends mean that were asked about, in order."""

    query: int
    meant: tuple[Meant, ...]


class NoFlows(Struct, frozen=True, kw_only=True, tag="no-flows"):
    """Why there is no answer."""

    query: int
    error: str


Up = Ready | Told | Source | Flows | Meanings | NoFlows


def framed(message: Down | Up) -> bytes:
    """Return a message as a frame."""
    payload = encode(message)
    return HEAD.pack(len(payload)) + payload


def down(payload: bytes) -> Down:
    """Return the message to the reader that `payload` holds; RemoteProtocolError if it is none."""
    return decode(payload, cast("type[Down]", Down))


def up(payload: bytes) -> Up:
    """Return the message of the reader that `payload` holds; RemoteProtocolError if it is none."""
    return decode(payload, cast("type[Up]", Up), max_bytes=MAX_FRAME_BYTES)
