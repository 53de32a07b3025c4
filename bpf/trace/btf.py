# SPDX-License-Identifier: Apache-2.0
"""Reads what a kernel says of its own structs: BTF, of vmlinux or of a module.

Format: Documentation/bpf/btf.rst of the kernel. A module's types and names continue those of
vmlinux ("split BTF"). Only what is asked for is decoded: a kernel has a hundred thousand types.
"""

import struct
from array import array
from functools import cached_property

from netagent.model.errors import RemoteProtocolError

MAX_BYTES = 64 << 20
"""Most bytes of BTF that are read. Chosen: vmlinux has some megabytes; bounds memory for damaged
data."""
MAX_DEPTH = 16
"""Most structs within structs, or aliases of aliases, that are followed. Chosen: kernels nest far
less, and damaged data may loop."""

_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_MAGIC = 0xEB9F
"""First two bytes of BTF: BTF_MAGIC of linux/btf.h."""
_STRUCT, _UNION, _ENUM, _TYPEDEF, _ENUM64 = 4, 5, 6, 8, 19
"""Kinds of types: BTF_KIND_* of linux/btf.h."""
_ALIASES = {_TYPEDEF, 9, 10, 11, 18}  # typedef, volatile, const, restrict, type tag
"""Kinds of types that only name another type; BTF_KIND_* of linux/btf.h."""
# Bytes behind the common part: fixed, and for each of `vlen`. Unknown kinds end the reading.
_TAIL = {
    1: (4, 0), 2: (0, 0), 3: (12, 0), 4: (0, 12), 5: (0, 12), 6: (0, 8), 7: (0, 0), 8: (0, 0),
    9: (0, 0), 10: (0, 0), 11: (0, 0), 12: (0, 0), 13: (0, 8), 14: (4, 0), 15: (0, 12),
    16: (0, 0), 17: (4, 0), 18: (0, 0), 19: (0, 12),
}  # fmt: skip


class Btf:
    """The types of one object; raises RemoteProtocolError for bytes that are no BTF."""

    def __init__(self, data: bytes, base: "Btf | None" = None) -> None:
        if len(data) > MAX_BYTES:
            raise RemoteProtocolError(f"BTF of {len(data)} bytes")
        self._base = base
        self._types, self._strings = _sections(data)
        self._first_id = base.end_id if base else 1
        self._first_string = base.end_string if base else 0
        self._positions = _positions(self._types)

    @property
    def end_id(self) -> int:
        """The first type id that is not of this object or before."""
        return self._first_id + len(self._positions)

    @property
    def end_string(self) -> int:
        """The first offset of a string that is not of this object or before."""
        return self._first_string + len(self._strings)

    def offset(self, name: str, member: str) -> int:
        """Return the offset of a struct's member in bytes, looking into anonymous ones.

        Raises RemoteProtocolError if there is no such struct or member here.
        """
        position = self._named.get((name, False))
        bits = None if position is None else self._find(position, member, 0)
        if bits is None:
            raise RemoteProtocolError(f"BTF has no {member} in struct {name}")
        return bits // 8

    def enumerators(self, name: str) -> dict[int, str]:
        """Return names by value of an enum; nothing if there is no such enum here."""
        position = self._named.get((name, True))
        if position is None:
            return {}
        _, info, _ = _TYPE.unpack_from(self._types, position)
        large = info >> 24 & 0x1F == _ENUM64
        entry = struct.Struct("<III" if large else "<II")
        found = {}
        for index in range(info & 0xFFFF):
            fields = entry.unpack_from(self._types, position + 12 + index * entry.size)
            value = fields[1] | (fields[2] << 32 if large else 0)
            found[value] = self._string(fields[0])
        return found

    @cached_property
    def _named(self) -> dict[tuple[str, bool], int]:
        """Positions by (name, is an enum); of several of one name, the first with members."""
        found: dict[tuple[str, bool], int] = {}
        for position in self._positions:
            name, info, _ = _TYPE.unpack_from(self._types, position)
            kind = info >> 24 & 0x1F
            if name and info & 0xFFFF and kind in {_STRUCT, _UNION, _ENUM, _ENUM64}:
                found.setdefault((self._string(name), kind in {_ENUM, _ENUM64}), position)
        return found

    def _find(self, position: int, member: str, depth: int) -> int | None:
        """Return the offset of `member` in bits, or None."""
        if depth > MAX_DEPTH:
            return None
        _, info, _ = _TYPE.unpack_from(self._types, position)
        for index in range(info & 0xFFFF):
            at = position + 12 + index * _MEMBER.size
            name, type_id, offset = _MEMBER.unpack_from(self._types, at)
            # With its width in the high byte, where the struct has bit fields.
            bits: int = offset & 0xFFFFFF if info >> 31 else offset
            if name:
                if self._string(name) == member:
                    return bits
            elif (within := self._find_in(type_id, member, depth + 1)) is not None:
                return bits + within
        return None

    def _find_in(self, type_id: int, member: str, depth: int) -> int | None:
        if type_id < self._first_id:
            if self._base is None:
                return None
            return self._base._find_in(type_id, member, depth)  # noqa: SLF001 - the same class
        for _ in range(MAX_DEPTH):
            index = type_id - self._first_id
            if not 0 <= index < len(self._positions):
                return None
            position = self._positions[index]
            _, info, target = _TYPE.unpack_from(self._types, position)
            kind = info >> 24 & 0x1F
            if kind in {_STRUCT, _UNION}:
                return self._find(position, member, depth)
            if kind not in _ALIASES:
                return None
            type_id = target
        return None

    def _string(self, offset: int) -> str:
        if offset < self._first_string:
            return self._base._string(offset) if self._base else ""  # noqa: SLF001 - the same class
        start = offset - self._first_string
        end = self._strings.find(b"\0", start)
        return self._strings[start : max(start, end)].decode("ascii", "replace")


def _sections(data: bytes) -> tuple[bytes, bytes]:
    """Return the type section and the string section."""
    if len(data) < _HEADER.size:
        raise RemoteProtocolError("BTF shorter than its header")
    magic, version, _, length, type_at, type_bytes, string_at, string_bytes = _HEADER.unpack_from(
        data
    )
    if magic != _MAGIC or version != 1:
        raise RemoteProtocolError("not BTF of version 1 in little-endian order")
    ends = (length + type_at + type_bytes, length + string_at + string_bytes)
    if length < _HEADER.size or max(ends) > len(data):
        raise RemoteProtocolError("BTF sections reach beyond its end")
    return (
        data[length + type_at : ends[0]],
        data[length + string_at : ends[1]],
    )


def _positions(types: bytes) -> "array[int]":
    """Return where each type begins."""
    found: array[int] = array("I")
    at, end = 0, len(types)
    unpack, tails = _TYPE.unpack_from, _TAIL
    while at < end:
        if at + 12 > end:
            raise RemoteProtocolError("BTF type cut short")
        info = unpack(types, at)[1]
        tail = tails.get(info >> 24 & 0x1F)
        if tail is None:
            raise RemoteProtocolError(f"BTF type of unknown kind {info >> 24 & 0x1F}")
        found.append(at)
        at += 12 + tail[0] + tail[1] * (info & 0xFFFF)
    if at != end:
        raise RemoteProtocolError("BTF type cut short")
    return found
