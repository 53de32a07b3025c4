# SPDX-License-Identifier: Apache-2.0
"""Where in a shared library's file its exported functions begin (ELF of 64 bits, little-endian)."""

import struct
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

Read = Callable[[int, int], bytes]
"""Offset, length -> bytes of the file, fewer at its end."""

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNSYM, _FUNCTION = 1, 11, 2
MOST_BYTES = 64 << 20
"""Most bytes of a table. Chosen: ten times the names of torch 2.15's libtorch_cpu.so."""


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


def offsets(read: Read, names: Collection[str]) -> dict[str, int]:
    """Return the functions of `names` that the library exports, with their offsets in its file.

    Raises ValueError where it is no such library.
    """
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size or head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits, little-endian")
    fields = _HEADER.unpack(head)
    segments_at, sections_at = fields[7], fields[8]
    segment_bytes, segments, section_bytes, sections = fields[11:15]
    if segment_bytes != _SEGMENT.size or section_bytes != _SECTION.size:
        raise ValueError("an ELF file without the tables of a library")
    table = _checked(read, sections_at, sections * section_bytes)
    known = [_Section(each[1], each[4], each[5], each[6]) for each in _SECTION.iter_unpack(table)]
    loaded = _checked(read, segments_at, segments * segment_bytes)
    loads = [each for each in _SEGMENT.iter_unpack(loaded) if each[0] == _LOAD]
    found = {}
    for section in known:
        if section.kind == _DYNSYM and section.link < len(known):
            for name, address in _symbols(read, section, known[section.link], names):
                for _, _, offset, start, _, size, _, _ in loads:
                    if start <= address < start + size:
                        found[name] = address - start + offset
    return found


def _symbols(
    read: Read, symbols: _Section, texts: _Section, names: Collection[str]
) -> Iterator[tuple[str, int]]:
    text = _checked(read, texts.offset, texts.size)
    wanted = {}
    for name in names:
        ending = name.encode() + b"\0"
        at = text.find(ending)
        while at >= 0:  # it may be the end of another name: linkers keep those once
            wanted[at] = name
            at = text.find(ending, at + 1)
    table = _checked(read, symbols.offset, symbols.size - symbols.size % _SYMBOL.size)
    for name_at, info, _, section, address, _ in _SYMBOL.iter_unpack(table):
        if name_at in wanted and section and info & 0xF == _FUNCTION:
            yield wanted[name_at], address


def _checked(read: Read, offset: int, size: int) -> bytes:
    if size > MOST_BYTES:
        raise ValueError(f"an ELF file with a table of {size} bytes")
    data = read(offset, size)
    if len(data) < size:
        raise ValueError("an ELF file that ends in the middle")
    return data
