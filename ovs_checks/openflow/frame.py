# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch reads of an Ethernet frame (`miniflow_extract()`).

A header that is cut off, or contradicts itself, ends the reading: what is above it stays zero.
"""

from collections.abc import Callable, Mapping

from .packet import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_RARP,
    FRAGMENT,
    ICMP,
    ICMPV6,
    IGMP,
    LATER_FRAGMENT,
    MAX_MPLS,
    MAX_VLANS,
    NO_TYPE,
    SCTP,
    SLOTS,
    TAG_PRESENT,
    TCP,
    UDP,
    Header,
    Slots,
    is_mpls,
    is_vlan_type,
)

MIN_BYTES = 14
"""Bytes of the shortest frame, an Ethernet header (IEEE 802.3)."""

_MIN_TYPE = 0x0600
"""Lowest Ethernet type; a smaller number is the frame's length (IEEE 802.3, `ETH_TYPE_MIN`)."""
_SNAP = bytes.fromhex("aaaa03000000")
_BOTTOM_OF_STACK = 0x100
"""Bit of an MPLS label stack entry that marks the last label (RFC 3032)."""
_HOP_BY_HOP, _ROUTING, _FRAGMENT_HEADER, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
"""Protocol numbers of IPv6 extension headers (IANA; RFC 8200, RFC 4302)."""
_EXTENSIONS = frozenset({_HOP_BY_HOP, _ROUTING, _FRAGMENT_HEADER, _AUTHENTICATION, _DESTINATION})
_SOLICITATION, _ADVERTISEMENT = 135, 136
"""ICMPv6 types of neighbour solicitation and advertisement (RFC 4861)."""
_CARRIED = (
    *(name for name in SLOTS if name.startswith(("tun_", "ct_"))),
    *("skb_priority", "pkt_mark", "dp_hash", "in_port", "recirc_id"),
)
"""What is not in the frame, but is known of it where it comes in (`pkt_metadata_from_flow()`)."""

_NOWHERE = Header()


class _Cut(Exception):
    """Nothing more can be read."""


class _Reader:
    """Reads a frame from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def __len__(self) -> int:
        return len(self._data)

    def peek(self, size: int, offset: int = 0) -> int:
        """Return a number without going on."""
        if offset + size > len(self._data):
            raise _Cut
        return int.from_bytes(self._data[offset : offset + size], "big")

    def take(self, size: int) -> int:
        """Return a number."""
        value = self.peek(size)
        self._data = self._data[size:]
        return value

    def skip(self, size: int) -> None:
        """Go on behind some bytes."""
        self.take(size)

    def end_after(self, size: int) -> None:
        """Leave out what is behind that many bytes: padding."""
        self._data = self._data[:size]


def read_frame(data: bytes, arrived: Header = _NOWHERE) -> Header:
    """Return the packet that the frame `data` is; metadata are those of `arrived`.

    Raises
    ------
    ValueError
        If it is too short for an Ethernet header.
    """
    if len(data) < MIN_BYTES:
        raise ValueError("Packet data too short for Ethernet")
    slots = [0] * len(SLOTS)
    for name in _CARRIED:
        slots[SLOTS[name]] = getattr(arrived, name)
    try:
        _ethernet(_Reader(data), slots)
    except _Cut:
        return Header._make(slots)
    return Header._make(slots)


def _put(slots: Slots, **values: int) -> None:
    for name, value in values.items():
        slots[SLOTS[name]] = value


def _ethernet(reader: _Reader, slots: Slots) -> None:
    _put(slots, eth_dst=reader.take(6), eth_src=reader.take(6))
    for n in ("", "1")[:MAX_VLANS]:
        if not is_vlan_type(reader.peek(2)) or len(reader) < 6:
            break
        tpid, tci = reader.take(2), reader.take(2)
        _put(slots, **{f"vlan_tpid{n}": tpid, f"vlan_tci{n}": tci | TAG_PRESENT})
    kind = _type(reader)
    _put(slots, eth_type=kind)
    if is_mpls(kind):
        _labels(reader, slots)
    elif kind == ETH_IPV4:
        _ipv4(reader, slots)
    elif kind == ETH_IPV6:
        _ipv6(reader, slots)
    elif kind in {ETH_ARP, ETH_RARP}:
        _arp(reader, slots)


def _type(reader: _Reader) -> int:
    """Return the Ethernet type; that of SNAP where the frame has a length (IEEE 802.2)."""
    kind = reader.take(2)
    if kind >= _MIN_TYPE:
        return kind
    if len(reader) < len(_SNAP) + 2 or reader.peek(len(_SNAP)) != int.from_bytes(_SNAP, "big"):
        return NO_TYPE
    reader.skip(len(_SNAP))
    kind = reader.take(2)
    return kind if kind >= _MIN_TYPE else NO_TYPE


def _labels(reader: _Reader, slots: Slots) -> None:
    for n in ("", "1", "2")[:MAX_MPLS]:
        label = reader.take(4)
        _put(slots, **{f"mpls_lse{n}": label})
        if label & _BOTTOM_OF_STACK:
            return


def _ipv4(reader: _Reader, slots: Slots) -> None:
    length, total = (reader.peek(1) & 0xF) * 4, reader.peek(2, 2)
    if length < 20 or not length <= total <= len(reader):
        return
    reader.end_after(total)
    flags = reader.peek(2, 6)
    fragment = FRAGMENT if flags & 0x3FFF else 0
    fragment |= LATER_FRAGMENT if flags & 0x1FFF else 0
    _put(
        slots,
        nw_src=reader.peek(4, 12),
        nw_dst=reader.peek(4, 16),
        nw_tos=reader.peek(1, 1),
        nw_ttl=reader.peek(1, 8),
        nw_proto=reader.peek(1, 9),
        nw_frag=fragment,
    )
    reader.skip(length)
    _transport(reader, slots)


def _ipv6(reader: _Reader, slots: Slots) -> None:
    size = 40
    if len(reader) < size or reader.peek(2, 4) + size > len(reader):
        return
    words, length = reader.peek(4), reader.peek(2, 4)
    protocol, hops = reader.peek(1, 6), reader.peek(1, 7)
    _put(slots, ipv6_src=reader.peek(16, 8), ipv6_dst=reader.peek(16, 24))
    reader.skip(size)
    reader.end_after(length)
    protocol, fragment = _extensions(reader, protocol)
    _put(
        slots,
        ipv6_label=words & 0xFFFFF,
        nw_tos=words >> 20 & 0xFF,
        nw_ttl=hops,
        nw_proto=protocol,
        nw_frag=fragment,
    )
    _transport(reader, slots)


def _extensions(reader: _Reader, protocol: int) -> tuple[int, int]:
    """Go on behind IPv6's extension headers; return the protocol above, and `nw_frag`."""
    fragment = 0
    while protocol in _EXTENSIONS:
        following, length = reader.peek(1), reader.peek(1, 1)
        reader.peek(8)
        if protocol == _FRAGMENT_HEADER:
            where = reader.peek(2, 2)
            reader.skip(8)
            if where:
                fragment = FRAGMENT
            if where & 0xFFF8:
                return _FRAGMENT_HEADER, FRAGMENT | LATER_FRAGMENT
        else:
            reader.skip((length + 2) * 4 if protocol == _AUTHENTICATION else (length + 1) * 8)
        protocol = following
    return protocol, fragment


def _arp(reader: _Reader, slots: Slots) -> None:
    reader.peek(28)
    if reader.peek(6) != 0x000108000604:
        return
    operation = reader.peek(2, 6)
    _put(slots, arp_sha=reader.peek(6, 8), nw_src=reader.peek(4, 14))
    _put(slots, arp_tha=reader.peek(6, 18), nw_dst=reader.peek(4, 24))
    if operation <= 0xFF:
        _put(slots, nw_proto=operation)


# --- above IP ------------------------------------------------------------------------------------


def _transport(reader: _Reader, slots: Slots) -> None:
    read = _READERS.get(slots[SLOTS["nw_proto"]])
    if read is not None and not slots[SLOTS["nw_frag"]] & LATER_FRAGMENT:
        read(reader, slots)


def _tcp(reader: _Reader, slots: Slots) -> None:
    reader.peek(20)
    words = reader.peek(2, 12)
    if (words >> 12) * 4 < 20 or len(reader) < (words >> 12) * 4:
        return
    _put(slots, tp_src=reader.peek(2), tp_dst=reader.peek(2, 2), tcp_flags=words & 0xFFF)


def _ports(size: int) -> Callable[[_Reader, Slots], None]:
    def read(reader: _Reader, slots: Slots) -> None:
        reader.peek(size)
        _put(slots, tp_src=reader.peek(2), tp_dst=reader.peek(2, 2))

    return read


def _icmp(reader: _Reader, slots: Slots) -> None:
    reader.peek(8)
    _put(slots, tp_src=reader.peek(1), tp_dst=reader.peek(1, 1))


def _igmp(reader: _Reader, slots: Slots) -> None:
    _icmp(reader, slots)
    _put(slots, igmp_group=reader.peek(4, 4))


def _icmpv6(reader: _Reader, slots: Slots) -> None:
    _icmp(reader, slots)
    kind, code, reserved = reader.peek(1), reader.peek(1, 1), reader.peek(4, 4)
    if code or kind not in {_SOLICITATION, _ADVERTISEMENT}:
        return
    _put(slots, igmp_group=reserved)
    reader.skip(8)
    target = reader.take(16)
    addresses, first = _neighbour_options(reader)
    if addresses is not None:
        sender, wanted = addresses
        _put(slots, nd_target=target, arp_sha=sender, arp_tha=wanted)
    _put(slots, tcp_flags=first)


def _neighbour_options(reader: _Reader) -> tuple[tuple[int, int] | None, int]:
    """Return both link-layer addresses, or None if one occurs twice; and the type of the first."""
    found, first = [0, 0], 0
    while len(reader) >= 8:
        kind, size = reader.peek(1), reader.peek(1, 1) * 8
        if not size or size > len(reader):
            break
        if kind in {1, 2} and size == 8:
            if found[kind - 1]:
                return None, first
            found[kind - 1], first = reader.peek(6, 2), first or kind
        reader.skip(size)
    return (found[0], found[1]), first


_READERS: Mapping[int, Callable[[_Reader, Slots], None]] = {
    TCP: _tcp, UDP: _ports(8), SCTP: _ports(12), ICMP: _icmp, IGMP: _igmp, ICMPV6: _icmpv6,
}  # fmt: skip
