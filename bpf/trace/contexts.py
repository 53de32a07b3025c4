# SPDX-License-Identifier: Apache-2.0
"""Which group a context of gloo is, read out of the memory of the process that has it.

A context is an address, and another one in each process. What tells a group's contexts is that a
context has a connection to each other member, and knows the addresses of both ends. One of the two
listened at an address of this connection alone, which the other one knows as that of its peer; so
who has such an address in common is in one group. It needs no word from the job. (Of the other end
gloo 0.5 has the address from which the connection came, or where it had listened in vain.)

The layouts are those of gloo 0.5 (torch 1.13) and of what torch 2.14 brings; whatever is not as it
is there makes nothing: ranks and sizes have to agree wherever they stand twice.
"""

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

Read = Callable[[int, int], bytes]
"""Address, length -> bytes of the process' memory, fewer where it has none."""

MOST_RANKS = 1 << 20
WHOLE = 32
"""Ranks of a group up to which all connections are told. Of a larger one those to places at a
distance of a power of two: who is in it follows, one from the other."""
_POINTER, _CONTEXT, _PAIR = (struct.Struct(each) for each in ("<Q", "<Qii", "<QQii"))
_MUTEXES = (40, 48)
"""Bytes of a mutex on x86_64 and on aarch64."""
_BEHIND = 16
"""Where in a group's context that of its transport is searched from, and where in that one a mutex
is, with pointers to pairs behind it."""
_WORDS = 8
_SELF_AT, _SOCKET_BYTES = 80, 128
"""Where in a pair its own address is: a pointer to virtual functions, a socket's address, a number
(-1 in gloo 0.5, where each pair listens by itself)."""
_PAIR_BYTES = 416
_HOST_AT = {b"\2\0": slice(4, 8), b"\12\0": slice(8, 24)}
"""By family of a socket's address, AF_INET or AF_INET6."""


class Context(NamedTuple):
    """A context of a transport."""

    address: int
    place: int
    size: int
    ends: dict[int, tuple[int, int]]
    """Place of another member -> numbers of the own address and of that member's, of 63 bits."""


def context(read: Read, address: int) -> Context | None:
    """Return what is at an address: a group's context or its transport's; None for anything else.

    The first has a pointer to the second.
    """
    found = _transport(read, address)
    if found is not None:
        return found
    words = read(address + _BEHIND, 8 * _WORDS)
    for (inner,) in struct.iter_unpack("<Q", words[: len(words) // 8 * 8]):
        found = _transport(read, inner) if inner and inner % 8 == 0 else None
        if found is not None and (found.place, found.size) in _ranked(read, address):
            return found
    return None


def _ranked(read: Read, address: int) -> list[tuple[int, int]]:
    """Return rank and size as they are where a group's context begins, or behind a pointer."""
    data = read(address, _CONTEXT.size)
    if len(data) < _CONTEXT.size:
        return []
    return [struct.unpack_from("<ii", data, at) for at in (0, 8)]


def _transport(read: Read, address: int) -> Context | None:
    data = read(address, _BEHIND + max(_MUTEXES) + 16)
    if len(data) < _BEHIND + max(_MUTEXES) + 16:
        return None
    _, place, size = _CONTEXT.unpack_from(data)
    vectors = (struct.unpack_from("<QQ", data, _BEHIND + mutex) for mutex in _MUTEXES)
    first = next((first for first, last in vectors if last - first == 8 * size), 0)
    if not 0 <= place < size < MOST_RANKS or not first:
        return None
    ends = {}
    for other in _told(place, size):
        pointer = read(first + 8 * other, 8)
        if len(pointer) == 8 and (end := _end(read, pointer, address, other)):
            ends[other] = end
    return Context(address, place, size, ends)


def _told(place: int, size: int) -> list[int]:
    if size <= WHOLE:
        return [each for each in range(size) if each != place]
    steps = [1 << n for n in range((size - 1).bit_length())]
    return sorted({(place + step * way) % size for step in steps for way in (1, -1)} - {place})


def _end(read: Read, pointer: bytes, context: int, other: int) -> tuple[int, int] | None:
    """Return the numbers of a pair's addresses; None where it is no pair of this context."""
    (pair,) = _POINTER.unpack(pointer)
    data = read(pair, _PAIR_BYTES) if pair else b""
    if len(data) < _PAIR_BYTES:
        return None
    of, _, rank, _ = _PAIR.unpack_from(data, 24)
    if (of, rank) != (context, other):
        return None
    whole = 8 + _SOCKET_BYTES + 8
    own = data[_SELF_AT : _SELF_AT + whole]
    # The next address begins with the same pointer.
    after = (_SELF_AT + whole + gap for gap in (0, *_MUTEXES))
    at = next((each for each in after if data[each : each + 8] == own[:8]), None)
    if at is None:
        return None
    mine, its = _number(own[8:]), _number(data[at + 8 : at + whole])
    return (mine, its) if mine and its else None


def _number(address: bytes) -> int:
    """Return a number of an end's port, host and number; 0 where it is not known."""
    family, port, number = address[:2], address[2:4], address[_SOCKET_BYTES:]
    if not any(port) or family not in _HOST_AT:
        return 0
    named = port + address[_HOST_AT[family]] + number
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "little") >> 1
