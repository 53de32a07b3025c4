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

MOST_DIFFERENT = 1_000
"""Most entries of each kind in an answer. Chosen: of a host that lacks all, nobody reads more."""
MOST_MATCH = 2_000
"""Most characters of a match that are told. Chosen: to be read; a policy's has some hundred."""


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


class AskDifference(Struct, frozen=True, kw_only=True, tag="ask-difference"):
    """Say what of a host's flows is not as it should be."""

    query: int
    chassis: str
    installed: tuple[tuple[int, int, int], ...]
    """As of `AskMeaning`."""
    keys: tuple[int, ...] = ()
    """What stands for table, priority and match of each of `installed`; 0: not to be remembered."""
    kinds: dict[str, str] = {}
    """Logical ports that are bound there -> what else of their flows depends on."""
    moving: tuple[str, ...] = ()
    """Logical ports that may be at several hosts."""


class AskOfRows(Struct, frozen=True, kw_only=True, tag="ask-of-rows"):
    """Answer a question by rows that an agent read (`netagent.wire.zone.EXPLAINING`)."""

    asked: AskFlows | AskMeaning | AskDifference
    northbound: bytes
    southbound: bytes


Down = Open | AskFlows | AskMeaning | AskOfRows | AskDifference
Asked = AskFlows | AskMeaning | AskDifference


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


class MissingFlow(Struct, frozen=True, kw_only=True):
    """A logical flow of which a host has none, in some of its networks at least."""

    cookie: int
    stage: str
    pipeline: str
    logical_table: int
    table: int
    """Of OpenFlow, where other flows of its stage are; -1 where there are none."""
    priority: int
    match: str
    networks: tuple[str, ...]
    """Logical switches and routers that lack it."""
    owner: str
    """What it was made for: a northbound object, or the networks themselves."""


class FewerFlows(Struct, frozen=True, kw_only=True):
    """A logical flow of which a host had more flows, of the same rows."""

    cookie: int
    stage: str
    match: str
    owner: str
    had: int
    has: int


class MissingPort(Struct, frozen=True, kw_only=True):
    """A logical port without flows that those of its kind have."""

    port: str
    cookie: int
    tables: tuple[int, ...]
    """Of OpenFlow."""
    is_here: bool
    """Whether it is the host's own; else it is one that the host should send to."""


class StaleFlows(Struct, frozen=True, kw_only=True):
    """Flows that no row stands for."""

    cookie: int
    tables: tuple[int, ...]
    flows: int


class UnclearFlow(Struct, frozen=True, kw_only=True):
    """A logical flow that nobody can compare."""

    cookie: int
    stage: str
    match: str
    owner: str


class Differences(Struct, frozen=True, kw_only=True, tag="differences"):
    """What of a host's flows is not as it should be, `MOST_DIFFERENT` of each kind at most."""

    query: int
    missing: tuple[MissingFlow, ...] = ()
    fewer: tuple[FewerFlows, ...] = ()
    ports: tuple[MissingPort, ...] = ()
    stale: tuple[StaleFlows, ...] = ()
    unclear: tuple[UnclearFlow, ...] = ()
    more: int = 0
    """How many there are besides."""
    compared: int = 0
    """Logical flows that belong there."""
    compared_ports: int = 0
    several: int = 0
    """Of those logical flows, how many have more than one flow in a network."""
    is_remembered: bool = False
    """Whether it would be told if some of their flows were gone."""
    alone: int = 0
    """Ports that are like too few others."""


class NoFlows(Struct, frozen=True, kw_only=True, tag="no-flows"):
    """Why there is no answer."""

    query: int
    error: str


Up = Ready | Told | Source | Flows | Meanings | Differences | NoFlows
Answered = Flows | Meanings | Differences


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
