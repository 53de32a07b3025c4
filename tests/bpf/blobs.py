# SPDX-License-Identifier: Apache-2.0
"""Writes BTF, type by type, as a compiler would."""

import struct
from collections.abc import Sequence

STRUCT, UNION, ENUM, TYPEDEF, CONST, ENUM64 = 4, 5, 6, 8, 10, 19


class Blob:
    """Types are added in order and get ids from `first_id` on."""

    def __init__(self, first_id: int = 1, first_string: int = 0) -> None:
        self._types = b""
        self._strings = b"\0" if not first_string else b""
        self._first_string = first_string
        self._next_id = first_id

    def string(self, text: str) -> int:
        """Add a string, return its offset."""
        if not text:
            return 0
        at = self._first_string + len(self._strings)
        self._strings += text.encode() + b"\0"
        return at

    def add(
        self, kind: int, name: str, size_or_type: int, tail: bytes = b"", count: int = 0,
        *, bits: bool = False,
    ) -> int:  # fmt: skip
        """Add a type, return its id."""
        info = bits << 31 | kind << 24 | count
        self._types += struct.pack("<III", self.string(name), info, size_or_type) + tail
        self._next_id += 1
        return self._next_id - 1

    def integer(self, name: str = "int") -> int:
        """Add a four-byte integer."""
        return self.add(1, name, 4, struct.pack("<I", 32))

    def record(
        self, name: str, members: Sequence[tuple[str, int, int]], *, kind: int = STRUCT,
        bits: bool = False,
    ) -> int:  # fmt: skip
        """Add a struct of (name, type, offset in bits)."""
        tail = b"".join(struct.pack("<III", self.string(n), t, at) for n, t, at in members)
        return self.add(kind, name, 8, tail, len(members), bits=bits)

    def enum(self, name: str, values: dict[str, int], *, large: bool = False) -> int:
        """Add an enum."""
        tail = b"".join(
            struct.pack("<III", self.string(n), v & 0xFFFFFFFF, v >> 32)
            if large
            else struct.pack("<II", self.string(n), v)
            for n, v in values.items()
        )
        return self.add(ENUM64 if large else ENUM, name, 8, tail, len(values))

    def bytes(self) -> bytes:
        """Return the whole."""
        header = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings)
        )
        return header + self._types + self._strings
