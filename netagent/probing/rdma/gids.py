# SPDX-License-Identifier: Apache-2.0
"""GIDs: how they are written, which one an endpoint has, and who sent a packet.

RoCE v2 writes an IPv4 address as an IPv4-mapped GID. The index of a GID changes whenever addresses
come and go, so the search for a GID is by type and address.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry of a port's GID table."""

    index: int
    gid: str
    """The GID as `canonical_gid` writes it."""
    type: int
    """enum ibv_gid_type: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2."""
    ifindex: int
    """Netdev that carries it; 0 where there is none."""


def canonical_gid(text: str) -> str:
    """Return a GID as ibverbs' tools write it; ValueError if it is none.

    An IPv4 address is the GID that RoCE v2 makes of it.
    """
    packed = packed_gid(text)
    prefix, last = packed[:12], packed[12:]
    # inet_ntop(3), which those tools use, also writes what is IPv4-compatible with dots.
    if prefix == _MAPPED or (prefix == bytes(12) and any(last[:2])):
        return f"{'::ffff:' if any(prefix) else '::'}{IPv4Address(last)}"
    return str(IPv6Address(packed))


def packed_gid(text: str) -> bytes:
    """Return the 16 bytes of a GID or IPv4 address; ValueError if it is none."""
    try:
        # "%" would begin a zone, which a GID does not have.
        plain = text.replace("%", " ")
        return IPv6Address(plain).packed if ":" in plain else _MAPPED + IPv4Address(plain).packed
    except AddressValueError as error:
        raise ValueError(f"{text!r} is no GID") from error


def verbose_gid(text: str) -> str:
    """Return eight groups of four digits: the only form that pyverbs reads."""
    digits = packed_gid(text).hex()
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


def address_of(gid: str) -> str:
    """Return the IPv4 address of a mapped GID, any other GID as it is."""
    packed = packed_gid(gid)
    return str(IPv4Address(packed[12:])) if packed[:12] == _MAPPED else gid


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
