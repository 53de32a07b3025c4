# SPDX-License-Identifier: Apache-2.0
"""A recording's bytes: frames, each with its length and a checksum over all of it.

A frame is ``u32 length | u32 crc32 | u8 flags | payload``, little-endian; the length is that of the
payload, the checksum covers length, flags and payload. Flag 1: the payload is deflated (RFC 1950).
Frames follow each other without anything between, so recordings can be put together from parts.
"""

import contextlib
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import quickly_deflated

HEAD = struct.Struct("<IIB")
DEFLATED = 1
"""Flag of a frame whose payload is deflated; part of the file format."""
WORTH_BYTES = 512
"""Bytes below which a payload is not deflated. Chosen: small payloads hardly shrink."""
SAMPLE_BYTES = 4096
"""Bytes that are deflated to see whether a payload shrinks. Chosen: tens of microseconds; summaries
come deflated, and a second time takes a hundred times as long for nothing."""
MOST_LEFT = 0.9
"""Share of it that may be left, at most. Chosen: less gain is not worth the time."""
MAX_BYTES = 64 << 20
"""Most bytes of a payload, as stored and inflated. Chosen: bounds memory for a damaged or hostile
file."""


class DamagedRecording(RemoteProtocolError):
    """A recording cannot be read on from `offset`, its byte `offset`, in frame `number`."""

    def __init__(self, offset: int, number: int, why: str) -> None:
        super().__init__(f"damaged at byte {offset} (frame {number}): {why}")
        self.offset, self.number, self.why = offset, number, why


def frame(payload: bytes, *, may_shrink: bool = True) -> bytes:
    """Return the payload as a frame; one that is known to be deflated may not shrink."""
    flags = 0
    if may_shrink and len(payload) >= WORTH_BYTES and _may_shrink(payload):
        packed = quickly_deflated(payload)
        if len(packed) < len(payload):
            flags, payload = DEFLATED, packed
    return HEAD.pack(len(payload), _checksum(flags, payload), flags) + payload


def _may_shrink(payload: bytes) -> bool:
    """Return whether deflating may be worth its time: of much, by a part from the middle."""
    middle = len(payload) // 2
    if middle < SAMPLE_BYTES:
        return True
    part = payload[middle : middle + SAMPLE_BYTES]
    return len(quickly_deflated(part)) < MOST_LEFT * len(part)


def _checksum(flags: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<IB", len(payload), flags)))


def payloads(source: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, number and payload of each frame.

    Raises DamagedRecording, which names the place.
    """
    for number, (offset, flags, payload) in enumerate(_frames(source)):
        yield offset, number, _inflated(payload, offset, number) if flags else payload


def whole(source: BinaryIO) -> tuple[int, int]:
    """Return how many frames are whole from the beginning on, and how many bytes they take."""
    count = end = 0
    with contextlib.suppress(DamagedRecording):
        for offset, _, payload in _frames(source):
            count, end = count + 1, offset + HEAD.size + len(payload)
    return count, end


def _frames(source: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    offset = number = 0
    while head := source.read(HEAD.size):
        if len(head) < HEAD.size:
            raise DamagedRecording(offset, number, "it ends within a frame's head")
        length, checksum, flags = HEAD.unpack(head)
        if length > MAX_BYTES or flags > DEFLATED:
            raise DamagedRecording(offset, number, "no frame begins here")
        payload = source.read(length)
        if len(payload) < length:
            raise DamagedRecording(offset, number, "it ends within a frame")
        if _checksum(flags, payload) != checksum:
            raise DamagedRecording(offset, number, "the checksum differs")
        yield offset, flags, payload
        offset += HEAD.size + length
        number += 1


def _inflated(payload: bytes, offset: int, number: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(payload, MAX_BYTES)
    except zlib.error as error:
        raise DamagedRecording(offset, number, str(error)) from error
    if not inflating.eof or inflating.unused_data:
        raise DamagedRecording(offset, number, f"its payload is no {MAX_BYTES} bytes at most")
    return inflated
