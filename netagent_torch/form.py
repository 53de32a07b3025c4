# SPDX-License-Identifier: Apache-2.0
"""The form of a ring: a file of fixed size into which one process writes what it communicates.

A head, then lines of JSON that say once what records name by number, then records. The record
numbered n is at place (n - 1) modulo the capacity: newer ones take the place of the oldest, and who
reads knows from the numbers which he missed. A record is written when its operation begins, without
an end, and its end is added later. The writer holds a lock on the file (flock) while it lives.
Little-endian; the standard library only, since a job imports it.

Any process that may write to the folder may write anything into a file: readers take nothing for
granted, and never map such a file, since its writer may cut it short.
"""

import json
import struct
from typing import Any, NamedTuple

MAGIC = b"NAOPRING"
VERSION = 1
SUFFIX = ".ring"
FOLDER = "/run/netagent/operators"
"""Where rings are, unless NETAGENT_OPERATORS names another folder."""

HEAD = struct.Struct("<8sIIIIQIIqqQ")
"""MAGIC, VERSION, bytes of a record, capacity in records, bytes for lines, number of the newest
record, bytes of lines so far, pid, wall clock and monotonic clock at one moment (ns), operations
that were left out (sampling)."""
HEAD_BYTES = 128
WRITTEN_AT = 24
LINES_USED = struct.Struct("<I")
LINES_USED_AT = 32
LEFT_OUT_AT = 56

LINES_BYTES = 128 << 10
"""Bytes for lines. Chosen: three hundred groups of sixty members; of more, members are left out."""
MOST_LINES = 2048
"""Most lines that are read. Chosen: 512 groups with their kinds, 256 operations, and as many again;
who may write 128 KiB of empty ones would keep a reader busy for a second."""
CAPACITY = 1 << 15
"""Records of a ring by default: 2 MiB. Chosen: minutes at some hundred operations a second."""
MAX_CAPACITY = 1 << 20
MAX_LINES_BYTES = 4 << 20

RECORD = struct.Struct("<QqqqQIiiHHBxHxxxx")
"""Number, begun, waited, ended (ns, monotonic), bytes, sequence in the group, step, peer, numbers
of operation and group, kind, tag."""
BEGUN = struct.Struct("<Qq16xQIi16s")
"""The same of one that begins: number, begun, bytes, sequence, step, and a `TAIL`."""
TAIL = struct.Struct("<iHHBxHxxxx")
"""Peer, operation, group, kind, tag: of a group's operation the same each time."""
WAITED_AT = 16
"""Where in a record `waited_ns` and `ended_ns` are."""
RECORD_BYTES = RECORD.size

NONE = -1
"""No step, no peer."""
NO_GROUP = 0xFFFF
"""What is in no group, or in one too many."""
MOST_SEQUENCE = 0xFFFF_FFFF
"""After it comes 0, so that no number of a collective is too large for a record."""
NEVER = 0
"""A time that is not (yet) known."""

OTHER, COMPUTE, COLLECTIVE, SEND, RECV = range(5)
"""Kinds of operations; numbers as in the analyzer's logs."""


class Head(NamedTuple):
    """What a ring says first."""

    capacity: int
    lines_bytes: int
    written: int
    lines_used: int
    pid: int
    wall_ns: int
    monotonic_ns: int
    left_out: int

    @property
    def first(self) -> int:
        """Return the number of the oldest record that is still there."""
        return max(1, self.written - self.capacity + 1)

    def offset(self, number: int) -> int:
        """Return where the record of that number is, or was."""
        place = (number - 1) % self.capacity
        return HEAD_BYTES + self.lines_bytes + place * RECORD_BYTES


class Record(NamedTuple):
    """One operation of one process."""

    number: int
    begun_ns: int
    waited_ns: int
    """When the process began to wait for the end: later than `begun_ns` where it did something else
    meanwhile; 0: not yet."""
    ended_ns: int
    """When that wait was over; 0: not yet, or never waited for."""
    bytes: int
    sequence: int
    """Of the operation's group, from 1, over all of its collectives, or over what is sent to, or
    received from, a peer in it; 0: unknown."""
    step: int
    peer: int
    op: int
    group: int
    kind: int
    tag: int
    """Of sending and receiving, modulo 65536."""


def pack_head(head: Head) -> bytes:
    """Return the head's bytes."""
    return HEAD.pack(
        MAGIC, VERSION, RECORD_BYTES, head.capacity, head.lines_bytes, head.written,
        head.lines_used, head.pid, head.wall_ns, head.monotonic_ns, head.left_out,
    )  # fmt: skip


def read_head(data: bytes) -> Head:
    """Return a ring's head; ValueError where the bytes are of no ring, or of one out of bounds."""
    if len(data) < HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise ValueError("no ring of operators")
    _, version, record_bytes, *rest = HEAD.unpack_from(data)
    if version != VERSION or record_bytes != RECORD_BYTES:
        raise ValueError(f"a ring of version {version}; {VERSION} is read")
    head = Head(*rest)
    if not 0 < head.capacity <= MAX_CAPACITY or head.lines_bytes > MAX_LINES_BYTES:
        raise ValueError(f"a ring of {head.capacity} records and {head.lines_bytes} bytes of lines")
    if head.lines_used > head.lines_bytes:
        raise ValueError(f"a ring with {head.lines_used} bytes of lines of {head.lines_bytes}")
    return head


def read_records(data: bytes) -> "list[Record]":
    """Return the records that bytes hold, in the order in which they are there."""
    whole = len(data) - len(data) % RECORD_BYTES
    return [Record._make(each) for each in RECORD.iter_unpack(data[:whole])]


def read_lines(data: bytes) -> "list[dict[str, Any]]":
    """Return what a ring's first lines say; what is no object of JSON is passed over."""
    found = []
    for line in data.split(b"\n", MOST_LINES)[:MOST_LINES]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
