# SPDX-License-Identifier: Apache-2.0
"""What a compiler made of programs, as values: it can be kept and loaded again, without a compiler.

An instruction that names a map holds the map's file descriptor (linux/bpf.h, BPF_PSEUDO_MAP_FD):
descriptors last as long as a process, so they are taken out here and put in again at loading.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netagent.model.errors import RemoteProtocolError

HASH, ARRAY, PERCPU_ARRAY, LRU_HASH, RING_BUFFER = 1, 2, 6, 9, 27
"""enum bpf_map_type, as far as the programs use it."""

MAX_ENTRIES = 1 << 27
"""Most entries of a map. Chosen: a larger number comes from a damaged cache."""
MAX_BYTES = 1 << 16
"""Most bytes of a map's key or value. Chosen: a larger number comes from a damaged cache."""
MAX_INSTRUCTIONS = 1 << 16
"""Most instructions of a program. Chosen: a larger number comes from a damaged cache."""

_INSTRUCTION = struct.Struct("<BBhi")
_LOAD_IMMEDIATE_64 = 0x18
"""Opcode of a 64-bit load: BPF_LD | BPF_IMM | BPF_DW of linux/bpf.h."""
_PSEUDO_MAP_FD = 1
"""Source register that marks a map's descriptor: BPF_PSEUDO_MAP_FD of linux/bpf.h."""


@dataclass(frozen=True, slots=True)
class Map:
    """How a map is made."""

    name: str
    kind: int
    """enum bpf_map_type."""

    key_bytes: int
    leaf_bytes: int
    entries: int
    flags: int


@dataclass(frozen=True, slots=True)
class Function:
    """The instructions of a program, without descriptors."""

    name: str
    instructions: bytes
    uses: tuple[tuple[int, str], ...]
    """(number of the instruction, map that it names)."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """All that is loaded for one trace."""

    maps: tuple[Map, ...]
    functions: tuple[Function, ...]


def unlinked(name: str, instructions: bytes, maps: Mapping[int, str]) -> Function:
    """Return the function with descriptors taken out; `maps` names each of them.

    Raises RemoteProtocolError where a descriptor is none of these.
    """
    plain = bytearray(instructions)
    uses: list[tuple[int, str]] = []
    for number, (code, registers, offset, value) in enumerate(_INSTRUCTION.iter_unpack(plain)):
        if code != _LOAD_IMMEDIATE_64 or registers >> 4 != _PSEUDO_MAP_FD:
            continue
        if value not in maps:
            raise RemoteProtocolError(f"{name} uses a map that has no name")
        uses.append((number, maps[value]))
        _INSTRUCTION.pack_into(plain, number * _INSTRUCTION.size, code, registers, offset, 0)
    return Function(name, bytes(plain), tuple(uses))


def linked(function: Function, descriptors: Mapping[str, int]) -> bytes:
    """Return the instructions with these maps' descriptors."""
    code = bytearray(function.instructions)
    for number, name in function.uses:
        struct.pack_into("<i", code, number * _INSTRUCTION.size + 4, descriptors[name])
    return bytes(code)


def to_data(compiled: Compiled) -> dict[str, object]:
    """Return plain data for a cache."""
    return {
        "maps": [
            [m.name, m.kind, m.key_bytes, m.leaf_bytes, m.entries, m.flags] for m in compiled.maps
        ],
        "functions": [
            [f.name, base64.b64encode(f.instructions).decode("ascii"), [list(u) for u in f.uses]]
            for f in compiled.functions
        ],
    }


def from_data(data: Any) -> Compiled:
    """Return what `to_data` stored; raises RemoteProtocolError for anything else."""
    try:
        maps = tuple(_map(*row) for row in data["maps"])
        names = {each.name for each in maps}
        functions = tuple(_function(names, *row) for row in data["functions"])
    except (TypeError, KeyError, ValueError, binascii.Error) as error:
        raise RemoteProtocolError(f"cached programs of another form: {error}") from error
    return Compiled(maps, functions)


def _map(name: str, kind: int, key_bytes: int, leaf_bytes: int, entries: int, flags: int) -> Map:
    numbers = (kind, key_bytes, leaf_bytes, entries, flags)
    if not _is_name(name) or not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError("a map")
    if kind not in {HASH, ARRAY, PERCPU_ARRAY, LRU_HASH, RING_BUFFER}:
        raise ValueError("a map's kind")
    if entries > MAX_ENTRIES or max(key_bytes, leaf_bytes) > MAX_BYTES:
        raise ValueError("a map's size")
    return Map(name, kind, key_bytes, leaf_bytes, entries, flags)


def _function(maps: set[str], name: str, encoded: str, uses: list[tuple[int, str]]) -> Function:
    code = base64.b64decode(encoded, validate=True)
    count, rest = divmod(len(code), _INSTRUCTION.size)
    if not _is_name(name) or rest or not 0 < count <= MAX_INSTRUCTIONS:
        raise ValueError("a function")
    for number, used in uses:
        if used not in maps or type(number) is not int or not 0 <= number < count:
            raise ValueError("a use of a map")
    return Function(name, code, tuple((number, used) for number, used in uses))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()
