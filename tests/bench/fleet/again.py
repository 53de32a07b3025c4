# SPDX-License-Identifier: Apache-2.0
"""Bodies that are sent again and again with other instants in them, deflated once.

To deflate them each time takes most of the CPU of a load that shares its cores with what it loads.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from netagent.wire.codec import APART, LEVEL

NUMBER = 8
"""Bytes of a number that differs."""
HEAD = b"\x78\xda"
"""What a zlib stream begins with (RFC 1950): a window of 32 KiB, the best level."""
RAW = -15
"""What zlib calls a window of 32 KiB without that head and the checksum at the end."""
STORED = b"\x00" + NUMBER.to_bytes(2, "little") + (NUMBER ^ 0xFFFF).to_bytes(2, "little")
"""Head of a block of so many bytes as they are, not the last one (RFC 1951, 3.2.4)."""


@dataclass(frozen=True, slots=True)
class Again:
    """A body with places for numbers."""

    parts: tuple[bytes, ...]
    """What stands before, between and behind these."""
    packed: tuple[bytes, ...]
    """The same, each deflated without a look at the others."""

    @classmethod
    def of(cls, body: bytes, places: Sequence[int]) -> "Again":
        """Return a body that has NUMBER bytes of another value each time in these places."""
        begins = [0, *(place + NUMBER for place in places)]
        parts = [body[a:b] for a, b in zip(begins, [*places, len(body)], strict=True)]
        packed = [_deflated(part, zlib.Z_FULL_FLUSH) for part in parts[:-1]]
        return cls(tuple(parts), (*packed, _deflated(parts[-1], zlib.Z_FINISH)))

    def sent(self, numbers: Sequence[int]) -> bytes:
        """Return what is sent with these numbers in the places."""
        given = [each.to_bytes(NUMBER, "big") for each in numbers]
        *packed, last = self.packed
        stored = chain.from_iterable(
            (part, STORED, number) for part, number in zip(packed, given, strict=True)
        )
        *parts, end = self.parts
        plain = (*chain.from_iterable(zip(parts, given, strict=True)), end)
        checked = zlib.adler32(b"".join(plain)).to_bytes(4, "big")
        return b"".join((HEAD, *stored, last, checked))


def _deflated(part: bytes, end: int) -> bytes:
    """Return a part as agents deflate it; see `netagent.wire.codec.deflated`."""
    packing, packed, begin = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW), list[bytes](), 0
    for name in APART:
        place = part.find(name, begin)
        if place > 0:
            packed += packing.compress(part[begin:place]), packing.flush(zlib.Z_BLOCK)
            begin = place
    return b"".join([*packed, packing.compress(part[begin:]), packing.flush(end)])
