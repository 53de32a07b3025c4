# SPDX-License-Identifier: Apache-2.0
"""GIDs: how they are written, which one an endpoint has, and who sent a packet.

RoCE v2 writes an IPv4 address as an IPv4-mapped GID. The index of a GID changes whenever addresses
come and go, so that a GID is looked for by type and address.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry of a port's GID table."""

    index: int
    gid: str
    """As `canonical_gid` writes it."""
    type: int
    """enum ibv_gid_type: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2."""
    ifindex: int
    """Netdev that carries it; 0 where there is none."""


def canonical_gid(text: str) -> str:
    """Return a GID as ibverbs' tools write it; ValueError if it is none.

    An IPv4 address is the GID that RoCE v2 makes of it.
    """
    return socket.inet_ntop(socket.AF_INET6, packed_gid(text))


def packed_gid(text: str) -> bytes:
    """Return the 16 bytes of a GID or IPv4 address; ValueError if it is none."""
    try:
        if ":" in text:
            return socket.inet_pton(socket.AF_INET6, text)
        return _MAPPED + socket.inet_pton(socket.AF_INET, text)
    except OSError as error:
        raise ValueError(f"{text!r} is no GID") from error


def verbose_gid(text: str) -> str:
    """Return eight groups of four digits: the only form that pyverbs reads."""
    digits = packed_gid(text).hex()
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


def address_of(gid: str) -> str:
    """Return the IPv4 address of a mapped GID, any other GID as it is."""
    packed = packed_gid(gid)
    return socket.inet_ntop(socket.AF_INET, packed[12:]) if packed[:12] == _MAPPED else gid


def choose_gid(table: Iterable[Gid], kind: int, gid: str, *, ifindex: int = 0) -> int | None:
    """Return the index of the GID of that type and address, on netdev `ifindex` where given."""
    wanted = canonical_gid(gid)
    for entry in table:
        if entry.type == kind and entry.gid == wanted and ifindex in {0, entry.ifindex}:
            return entry.index
    return None


def sender_slice(own: bytes) -> slice:
    """Return where in the 40 bytes of a packet for `own` (packed) sender and receiver are."""
    return slice(32, 40) if own[:12] == _MAPPED else slice(8, 40)


def sender_key(sender: bytes, own: bytes) -> bytes:
    """Return what is there in a packet from `sender` (packed)."""
    skip = 12 if own[:12] == _MAPPED else 0
    return sender[skip:] + own[skip:]


def sender_of(grh: bytes, own: bytes) -> bytes | None:
    """Return the packed GID that a packet for `own` (packed) came from; None if it is for others.

    `grh` is the 40 bytes before a UD payload: an IPv6-like GRH, or with IPv4 twenty undefined
    bytes and the IPv4 header (IBTA annex A17, RoCEv2).
    """
    if own[:12] == _MAPPED:
        for_us = grh[20] >> 4 == 4 and grh[36:40] == own[12:]
        return _MAPPED + grh[32:36] if for_us else None
    return grh[8:24] if grh[24:40] == own else None
