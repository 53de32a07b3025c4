# SPDX-License-Identifier: Apache-2.0
"""The few rtnetlink messages the agent speaks: bytes to values and back, no socket.

pyroute2 speaks all of them and is what tests compare this with; importing it costs the agent 10 MB
of its 60, and a dump of all links and addresses with it takes six times as long.
Numbers are those of linux/rtnetlink.h, if_link.h, if_addr.h and net_namespace.h.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.collect.hostfacts import Link

ERROR, DONE = 2, 3
NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWNSID, DELNSID, GETNSID = 88, 89, 90

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_GENERIC = struct.Struct("=Bxxx")  # family
_ATTRIBUTE = struct.Struct("=HH")  # length, type

_F_REQUEST, _F_DUMP = 0x1, 0x300
_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_SKIP_STATISTICS = 1 << 3  # RTEXT_FILTER_SKIP_STATS: two thirds of a link message

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 1, 3, 4, 5, 10
_IFLA_OPERSTATE, _IFLA_LINKINFO, _IFLA_EXT_MASK, _IFLA_CARRIER = 16, 18, 29, 33
_IFLA_CARRIER_CHANGES, _IFLA_LINK_NETNSID, _IFLA_TARGET_NETNSID = 35, 37, 46
_IFLA_INFO_KIND = 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_TARGET_NETNSID = 1, 2, 10
_NETNSA_NSID, _NETNSA_FD = 1, 3

_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A device appeared or changed; its `Link.addresses` are empty, they come by themselves."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkGone:
    """A device was deleted or moved to another namespace."""

    index: int


@dataclass(frozen=True, slots=True)
class AddressSeen:
    """A device got an IPv4 address."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class AddressGone:
    """A device lost an IPv4 address."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class NamespaceId:
    """The id `nsid` is (or, with `gone`, is no longer) that of a namespace; -1: it has none."""

    nsid: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The kernel refused the request with `errno`; 0 is a plain acknowledgement."""

    errno: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A dump is complete."""


Message = LinkSeen | LinkGone | AddressSeen | AddressGone | NamespaceId | Failed | Finished


def dump_links(sequence: int, *, nsid: int | None = None) -> bytes:
    """Return the request for all links of this namespace, or of the one known here as `nsid`."""
    attributes = _attribute(_IFLA_EXT_MASK, struct.pack("=I", _SKIP_STATISTICS))
    if nsid is not None:
        attributes += _attribute(_IFLA_TARGET_NETNSID, struct.pack("=i", nsid))
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attributes
    return _request(GETLINK, sequence, body, _F_DUMP)


def dump_addresses(sequence: int, *, nsid: int | None = None) -> bytes:
    """Return the request for all IPv4 addresses, as `dump_links`."""
    body = _ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0)
    if nsid is not None:
        body += _attribute(_IFA_TARGET_NETNSID, struct.pack("=i", nsid))
    return _request(GETADDR, sequence, body, _F_DUMP)


def ask_nsid(sequence: int, fd: int) -> bytes:
    """Return the question by which id the namespace open as `fd` is known here."""
    body = _GENERIC.pack(0) + _attribute(_NETNSA_FD, struct.pack("=I", fd))
    return _request(GETNSID, sequence, body, 0)


def parse(data: bytes) -> Iterator[Message]:
    """Yield what the datagram `data` says; other kinds of message and torn ones are skipped."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            return
        message = _message(kind, data[offset + _HEADER.size : offset + length])
        if message is not None:
            yield message
        offset += _aligned(length)


def _message(kind: int, body: bytes) -> Message | None:
    try:
        if kind in {NEWLINK, DELLINK}:
            return _link(body, gone=kind == DELLINK)
        if kind in {NEWADDR, DELADDR}:
            return _address(body, gone=kind == DELADDR)
        if kind in {NEWNSID, DELNSID}:
            (nsid,) = struct.unpack("=i", _attributes(body, _GENERIC.size)[_NETNSA_NSID])
            return NamespaceId(nsid, gone=kind == DELNSID)
        if kind in {ERROR, DONE}:
            return _result(kind, body)
    except (struct.error, KeyError):
        return None
    return None


def _result(kind: int, body: bytes) -> Failed | Finished:
    # A dump that the kernel refuses ends at once, and says so only in its DONE.
    (result,) = struct.unpack_from("=i", body) if body or kind == ERROR else (0,)
    return Finished() if kind == DONE and result >= 0 else Failed(-result)


def _link(body: bytes, *, gone: bool) -> LinkSeen | LinkGone | None:
    family, _, index, flags, _ = _LINK.unpack_from(body)
    if family != socket.AF_UNSPEC:
        return None  # a bridge's or IPv6's view of the same device, or of its leaving a bridge
    if gone:
        return LinkGone(index)
    found = _attributes(body, _LINK.size)
    state = found.get(_IFLA_OPERSTATE, b"\0")[0]
    carrier = found.get(_IFLA_CARRIER)
    link = Link(
        index=index,
        name=_text(found[_IFLA_IFNAME]),
        kind=_kind(found.get(_IFLA_LINKINFO, b"")),
        mac=found.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu=_number(found.get(_IFLA_MTU)) or 0,
        up=bool(flags & _IFF_UP),
        carrier=carrier != b"\0" if carrier else bool(flags & _IFF_LOWER_UP),
        operstate=_OPERSTATES[state] if state < len(_OPERSTATES) else "unknown",
        master=_number(found.get(_IFLA_MASTER)),
        peer=_number(found.get(_IFLA_LINK)),
        netnsid=_number(found.get(_IFLA_LINK_NETNSID)),
        carrier_changes=_number(found.get(_IFLA_CARRIER_CHANGES)),
    )
    return LinkSeen(link)


def _address(body: bytes, *, gone: bool) -> AddressSeen | AddressGone | None:
    family, _, _, _, index = _ADDRESS.unpack_from(body)
    found = _attributes(body, _ADDRESS.size)
    # On a point-to-point device IFA_ADDRESS is the other end.
    packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS) or b""
    if family != socket.AF_INET or len(packed) != 4:
        return None
    address = socket.inet_ntoa(packed)
    return AddressGone(index, address) if gone else AddressSeen(index, address)


def _attributes(body: bytes, offset: int) -> dict[int, bytes]:
    found = {}
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size or offset + length > len(body):
            break
        found[kind & _TYPE_MASK] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def _kind(linkinfo: bytes) -> str | None:
    kind = _attributes(linkinfo, 0).get(_IFLA_INFO_KIND)
    return _text(kind) if kind else None


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _number(value: bytes | None) -> int | None:
    """Return a 32-bit attribute; ids of namespaces are signed, none of the others is that large."""
    return struct.unpack("=i", value)[0] if value is not None and len(value) == 4 else None


def _request(kind: int, sequence: int, body: bytes, flags: int) -> bytes:
    header = _HEADER.pack(_HEADER.size + len(body), kind, _F_REQUEST | flags, sequence, 0)
    return header + body


def _attribute(kind: int, value: bytes) -> bytes:
    padding = b"\0" * (_aligned(len(value)) - len(value))
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + padding


def _aligned(length: int) -> int:
    return (length + 3) & ~3
