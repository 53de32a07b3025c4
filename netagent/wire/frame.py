# SPDX-License-Identifier: Apache-2.0
"""The bytes of one probe and of its reply; shared by the UDP and the RDMA transport.

A probe is one echo. Clocks of two hosts are never compared: each host only subtracts its own
stamps. With the six timestamps

    t1 prober asks the kernel to send        t4 responder's kernel sends the reply
    t2 prober's kernel sends                 t5 prober's kernel receives it
    t3 responder's kernel receives           t6 prober takes it from the socket

network round trip = (t5 - t2) - (t4 - t3), prober delay = (t2 - t1) + (t6 - t5), responder
delay = t4 - t3. No packet can carry its own t4 as the kernel or the RNIC stamps it, so a reply
carries the responder delay of the *previous* reply on the flow (`held_seq`, `held_ns`); R-Pingmesh
(SIGCOMM '24) sends a second ACK instead, which doubles the packets. Where there are no stamps but
the responder's own, taken just before it sends, a reply carries its own delay.

A RoCE receiver does not learn the UDP source port of what it received: the frame carries it.

Layout, network byte order, after which zero bytes pad the frame to its size:

    0  u32 magic     4  u8 version   5  u8 flags   6  u16 port
    8  u32 session  12  u32 seq     16  u32 held_seq  20  u32 held_ns

and, where the flags say so, 24  u64 seal: of these bytes, the target and the minute, by the key of
its group. An agent that knows no seals takes it for padding.
"""

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from netagent.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = 0x6E615072
"""First four bytes of a frame: "naPr". Chosen: they identify probes among other packets."""
VERSION = 2
"""Version of the frame's layout; other versions are refused. The second names the flow by its port
(decision 14)."""
_HEADER = struct.Struct("!IBBHIIII")
_unpack = _HEADER.unpack_from
_unpack_name = struct.Struct("!II").unpack_from
_NAME_OFFSET = 8
"""Bytes from the frame's start to session and sequence number, by the layout above."""
_pack_held = struct.Struct("!I").pack_into
_HELD_NS_OFFSET = 20
"""Bytes from the frame's start to `held_ns`, by the layout above."""
HEADER_BYTES = _HEADER.size
"""Smallest probe payload."""

REPLY = 0x01
"""Bit of the flags: the frame is a reply. Chosen: the first free bit."""
MARKED = 0x02
"""Bit of the flags: observe this packet's outer header on the uplink (a kernel filter looks at this
bit). Chosen: the next free bit."""
HELD = 0x04
"""Bit of the flags: `held_seq` and `held_ns` are valid. Chosen: the next free bit."""
SEALED = 0x08
"""Bit of the flags: a seal follows the header. Chosen: the next free bit."""
SEAL_BYTES = 8
"""Bytes of a seal. Chosen: who guesses is right once in 2^64, and the smallest probe has room."""
SEALED_BYTES = HEADER_BYTES + SEAL_BYTES
"""Smallest payload of a probe with a seal."""
EPOCH_NS = 60 * 10**9
"""Nanoseconds of an epoch, of which a seal is. Chosen: what was recorded is worth nothing two
minutes later, and a clock that is further off has its host judged by nobody."""

FLAGS_OFFSET = 5
"""Bytes from the frame's start to the flags, by the layout above, for the filter on the uplink."""

MAX_HELD_NS = 0xFFFFFFFF
"""Nanoseconds of the longest delay a frame can carry, some 4.3 s: the field has 32 bits."""


class Frame(NamedTuple):
    """A probe or a reply. A tuple, because a frozen dataclass takes four times as long to make."""

    session: int
    """u32, random at each start of a prober: replies to a former life are recognised."""
    seq: int
    """u32, per socket, wraps."""
    port: int = 0
    """u16, UDP source port of the probe, which names the flow; a reply repeats it."""
    flags: int = 0
    held_seq: int = 0
    """The probe, an earlier one or this one, whose responder delay this reply carries."""
    held_ns: int = 0
    """Nanoseconds, saturated at MAX_HELD_NS."""


def encode(frame: Frame, *, size: int = HEADER_BYTES) -> bytes:
    """Return `frame` padded with zeros to `size` bytes of payload (at least the header)."""
    return _HEADER.pack(
        MAGIC,
        VERSION,
        frame.flags,
        frame.port,
        frame.session,
        frame.seq & 0xFFFFFFFF,
        frame.held_seq & 0xFFFFFFFF,
        min(frame.held_ns, MAX_HELD_NS),
    ).ljust(size, b"\0")


def sealed(frame: Frame, key: bytes, target: str, *, size: int, wall_ns: int) -> bytes:
    """Return `frame` as `encode` does, with a seal by `key` (up to 64 bytes) for `target`.

    `wall_ns` is Unix time. One that is too small for a seal has none.
    """
    if size < SEALED_BYTES:
        return encode(frame, size=size)
    header = encode(frame._replace(flags=frame.flags | SEALED))
    seal = _seal(header, key, target, wall_ns // EPOCH_NS)
    return (header + seal).ljust(size, b"\0")


def sealed_at(payload: bytes, key: bytes, target: str, *, wall_ns: int) -> int | None:
    """Return of which epoch the seal by `key` of a probe to `target` is, this one or one beside it.

    None where it is of none. Keyed BLAKE2b of RFC 7693, with the epoch as its salt.
    """
    header, seal = payload[:HEADER_BYTES], payload[HEADER_BYTES:SEALED_BYTES]
    now = wall_ns // EPOCH_NS
    for epoch in (now, now - 1, now + 1):
        if compare_digest(seal, _seal(header, key, target, epoch)):
            return epoch
    return None


def _seal(header: bytes, key: bytes, target: str, epoch: int) -> bytes:
    salt = (epoch & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")
    seal = blake2b(header, key=key, salt=salt, digest_size=SEAL_BYTES)
    seal.update(target.encode())
    return seal.digest()


def tell_held(buffer: "WriteableBuffer", offset: int, held_ns: int) -> None:
    """Write the responder delay into the frame at `offset` of `buffer`, at the last moment."""
    if not 0 <= held_ns <= MAX_HELD_NS:
        held_ns = 0 if held_ns < 0 else MAX_HELD_NS
    _pack_held(buffer, offset + _HELD_NS_OFFSET, held_ns)


def name(payload: bytes) -> tuple[int, int] | None:
    """Return (session, seq) of a frame that we sent ourselves; None where it is cut short."""
    return _unpack_name(payload, _NAME_OFFSET) if len(payload) >= HEADER_BYTES else None


def decode(payload: bytes) -> Frame:
    """Return the frame that `payload` begins with; RemoteProtocolError if it is none of ours."""
    if len(payload) < HEADER_BYTES:
        raise RemoteProtocolError(f"probe of {len(payload)} bytes; {HEADER_BYTES} at least")
    magic, version, flags, port, session, seq, held_seq, held_ns = _unpack(payload)
    if magic != MAGIC:
        raise RemoteProtocolError(f"not a probe: magic {magic:#010x}")
    if version != VERSION:
        raise RemoteProtocolError(f"probe of version {version}; this agent speaks {VERSION}")
    return Frame(session, seq, port, flags, held_seq, held_ns)
