# SPDX-License-Identifier: Apache-2.0
"""One packet as Open vSwitch sees it, and the fields under which its tables speak of it.

As in Open vSwitch's `struct flow`, fields share storage where no packet has both: ARP's operation
and addresses live in `nw_proto`, `nw_src` and `nw_dst`, ICMP's type and code in the L4 ports.
Which one is meant follows from a field's prerequisite.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

TAG_PRESENT = 0x1000
"""Bit of a `vlan_tci` that says that there is a VLAN header at all."""

FRAGMENT = 1
LATER_FRAGMENT = 2
"""Bits of `nw_frag`: a fragment; a fragment without the L4 header."""

ETH_IPV4, ETH_ARP, ETH_RARP, ETH_IPV6 = 0x0800, 0x0806, 0x8035, 0x86DD
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132


class Header(NamedTuple):
    """A packet's header and metadata, all integers; 0 where the packet has no such field.

    A tuple, because lookups read by position and visited states are hashed by the thousand.
    """

    in_port: int = 0
    eth_src: int = 0
    eth_dst: int = 0
    eth_type: int = 0
    vlan_tci: int = 0
    inner_tci: int = 0
    nw_src: int = 0
    nw_dst: int = 0
    nw_proto: int = 0
    nw_tos: int = 0
    nw_ttl: int = 0
    nw_frag: int = 0
    ipv6_src: int = 0
    ipv6_dst: int = 0
    ipv6_label: int = 0
    tp_src: int = 0
    tp_dst: int = 0
    tcp_flags: int = 0
    arp_sha: int = 0
    arp_tha: int = 0
    nd_target: int = 0
    tun_id: int = 0
    tun_src: int = 0
    tun_dst: int = 0
    metadata: int = 0
    pkt_mark: int = 0
    ct_state: int = 0
    ct_zone: int = 0
    ct_mark: int = 0
    ct_label: int = 0
    reg0: int = 0
    reg1: int = 0
    reg2: int = 0
    reg3: int = 0
    reg4: int = 0
    reg5: int = 0
    reg6: int = 0
    reg7: int = 0
    reg8: int = 0
    reg9: int = 0
    reg10: int = 0
    reg11: int = 0
    reg12: int = 0
    reg13: int = 0
    reg14: int = 0
    reg15: int = 0


SLOTS: Mapping[str, int] = {name: index for index, name in enumerate(Header._fields)}

BRIDGE_LOCAL = {
    name: 0
    for name in Header._fields
    if name.startswith(("reg", "tun_", "ct_")) or name == "metadata"
}
"""What a packet forgets when it crosses a patch port into another bridge."""


class Part(NamedTuple):
    """Where some bits of a field live: `width` bits of slot `slot`, from bit `shift` up."""

    slot: int
    shift: int
    width: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of OpenFlow: where its bits live and how its values are written."""

    name: str
    parts: tuple[Part, ...]
    """Most significant first."""

    kind: str
    """`int`, `hex`, `mac`, `ipv4`, `ipv6`, `port`, `frag`, `tcp_flags` or `ct_state`."""

    needs: str
    """Prerequisite of writing it: a key of `_PREREQUISITES`; the empty one always holds."""

    bits: int
    """Mask of the bits that exist; `nw_tos` for one has no low two."""

    writable: bool

    @property
    def width(self) -> int:
        """Width in bits."""
        return sum(part.width for part in self.parts)


def is_ip(header: Header) -> bool:
    """Tell whether the packet is IPv4 or IPv6."""
    return header.eth_type in {ETH_IPV4, ETH_IPV6}


def _has_l4(header: Header, *protocols: int) -> bool:
    return (
        is_ip(header)
        and not header.nw_frag & LATER_FRAGMENT
        and (not protocols or header.nw_proto in protocols)
    )


def _is_icmpv6(header: Header) -> bool:
    return header.eth_type == ETH_IPV6 and _has_l4(header, ICMPV6)


_PREREQUISITES: Mapping[str, Callable[[Header], bool]] = {
    "": lambda _: True,
    "vlan": lambda h: bool(h.vlan_tci & TAG_PRESENT),
    "ip": is_ip,
    "ipv4": lambda h: h.eth_type == ETH_IPV4,
    "ipv6": lambda h: h.eth_type == ETH_IPV6,
    "arp": lambda h: h.eth_type in {ETH_ARP, ETH_RARP},
    "l4": _has_l4,
    "tcp": lambda h: _has_l4(h, TCP),
    "udp": lambda h: _has_l4(h, UDP),
    "sctp": lambda h: _has_l4(h, SCTP),
    "icmp": lambda h: h.eth_type == ETH_IPV4 and _has_l4(h, ICMP),
    "icmpv6": _is_icmpv6,
    "nd": lambda h: _is_icmpv6(h) and h.tp_src in {135, 136} and h.tp_dst == 0,
    "ns": lambda h: _is_icmpv6(h) and h.tp_src == 135 and h.tp_dst == 0,
    "na": lambda h: _is_icmpv6(h) and h.tp_src == 136 and h.tp_dst == 0,
}

# names (ours first), NXM and OXM names, slot, lowest bit, width, kind, prerequisite
_ROWS = (
    ("in_port", "NXM_OF_IN_PORT", "in_port", 0, 16, "port", ""),
    ("dl_src eth_src", "NXM_OF_ETH_SRC OXM_OF_ETH_SRC", "eth_src", 0, 48, "mac", ""),
    ("dl_dst eth_dst", "NXM_OF_ETH_DST OXM_OF_ETH_DST", "eth_dst", 0, 48, "mac", ""),
    ("dl_type eth_type", "NXM_OF_ETH_TYPE OXM_OF_ETH_TYPE", "eth_type", 0, 16, "hex", ""),
    ("vlan_tci", "NXM_OF_VLAN_TCI", "vlan_tci", 0, 16, "hex", ""),
    ("vlan_tci1", "", "inner_tci", 0, 16, "hex", ""),
    ("vlan_vid", "OXM_OF_VLAN_VID", "vlan_tci", 0, 13, "int", "vlan"),
    ("vlan_pcp", "OXM_OF_VLAN_PCP", "vlan_tci", 13, 3, "int", "vlan"),
    ("nw_src ip_src", "NXM_OF_IP_SRC OXM_OF_IPV4_SRC", "nw_src", 0, 32, "ipv4", "ipv4"),
    ("nw_dst ip_dst", "NXM_OF_IP_DST OXM_OF_IPV4_DST", "nw_dst", 0, 32, "ipv4", "ipv4"),
    ("nw_proto ip_proto", "NXM_OF_IP_PROTO OXM_OF_IP_PROTO", "nw_proto", 0, 8, "int", "ip"),
    ("nw_tos", "NXM_OF_IP_TOS", "nw_tos", 0, 8, "int", "ip"),
    ("ip_dscp", "OXM_OF_IP_DSCP", "nw_tos", 2, 6, "int", "ip"),
    ("nw_ecn ip_ecn", "NXM_NX_IP_ECN OXM_OF_IP_ECN", "nw_tos", 0, 2, "int", "ip"),
    ("nw_ttl", "NXM_NX_IP_TTL", "nw_ttl", 0, 8, "int", "ip"),
    ("nw_frag ip_frag", "NXM_NX_IP_FRAG", "nw_frag", 0, 2, "frag", "ip"),
    ("ipv6_src", "NXM_NX_IPV6_SRC OXM_OF_IPV6_SRC", "ipv6_src", 0, 128, "ipv6", "ipv6"),
    ("ipv6_dst", "NXM_NX_IPV6_DST OXM_OF_IPV6_DST", "ipv6_dst", 0, 128, "ipv6", "ipv6"),
    ("ipv6_label", "NXM_NX_IPV6_LABEL OXM_OF_IPV6_FLABEL", "ipv6_label", 0, 20, "hex", "ipv6"),
    ("tp_src", "", "tp_src", 0, 16, "int", "l4"),
    ("tp_dst", "", "tp_dst", 0, 16, "int", "l4"),
    ("tcp_src", "NXM_OF_TCP_SRC OXM_OF_TCP_SRC", "tp_src", 0, 16, "int", "tcp"),
    ("tcp_dst", "NXM_OF_TCP_DST OXM_OF_TCP_DST", "tp_dst", 0, 16, "int", "tcp"),
    ("udp_src", "NXM_OF_UDP_SRC OXM_OF_UDP_SRC", "tp_src", 0, 16, "int", "udp"),
    ("udp_dst", "NXM_OF_UDP_DST OXM_OF_UDP_DST", "tp_dst", 0, 16, "int", "udp"),
    ("sctp_src", "OXM_OF_SCTP_SRC", "tp_src", 0, 16, "int", "sctp"),
    ("sctp_dst", "OXM_OF_SCTP_DST", "tp_dst", 0, 16, "int", "sctp"),
    ("tcp_flags", "NXM_NX_TCP_FLAGS OXM_OF_TCP_FLAGS", "tcp_flags", 0, 12, "tcp_flags", "tcp"),
    ("icmp_type", "NXM_OF_ICMP_TYPE OXM_OF_ICMPV4_TYPE", "tp_src", 0, 8, "int", "icmp"),
    ("icmp_code", "NXM_OF_ICMP_CODE OXM_OF_ICMPV4_CODE", "tp_dst", 0, 8, "int", "icmp"),
    ("icmpv6_type", "NXM_NX_ICMPV6_TYPE OXM_OF_ICMPV6_TYPE", "tp_src", 0, 8, "int", "icmpv6"),
    ("icmpv6_code", "NXM_NX_ICMPV6_CODE OXM_OF_ICMPV6_CODE", "tp_dst", 0, 8, "int", "icmpv6"),
    ("arp_op", "NXM_OF_ARP_OP OXM_OF_ARP_OP", "nw_proto", 0, 16, "int", "arp"),
    ("arp_spa", "NXM_OF_ARP_SPA OXM_OF_ARP_SPA", "nw_src", 0, 32, "ipv4", "arp"),
    ("arp_tpa", "NXM_OF_ARP_TPA OXM_OF_ARP_TPA", "nw_dst", 0, 32, "ipv4", "arp"),
    ("arp_sha", "NXM_NX_ARP_SHA OXM_OF_ARP_SHA", "arp_sha", 0, 48, "mac", "arp"),
    ("arp_tha", "NXM_NX_ARP_THA OXM_OF_ARP_THA", "arp_tha", 0, 48, "mac", "arp"),
    ("nd_target", "NXM_NX_ND_TARGET OXM_OF_IPV6_ND_TARGET", "nd_target", 0, 128, "ipv6", "nd"),
    ("nd_sll", "NXM_NX_ND_SLL OXM_OF_IPV6_ND_SLL", "arp_sha", 0, 48, "mac", "ns"),
    ("nd_tll", "NXM_NX_ND_TLL OXM_OF_IPV6_ND_TLL", "arp_tha", 0, 48, "mac", "na"),
    ("tun_id tunnel_id", "NXM_NX_TUN_ID OXM_OF_TUNNEL_ID", "tun_id", 0, 64, "hex", ""),
    ("tun_src", "NXM_NX_TUN_IPV4_SRC", "tun_src", 0, 32, "ipv4", ""),
    ("tun_dst", "NXM_NX_TUN_IPV4_DST", "tun_dst", 0, 32, "ipv4", ""),
    ("metadata", "OXM_OF_METADATA", "metadata", 0, 64, "hex", ""),
    ("pkt_mark", "NXM_NX_PKT_MARK", "pkt_mark", 0, 32, "hex", ""),
    ("ct_state", "NXM_NX_CT_STATE", "ct_state", 0, 32, "ct_state", ""),
    ("ct_zone", "NXM_NX_CT_ZONE", "ct_zone", 0, 16, "hex", ""),
    ("ct_mark", "NXM_NX_CT_MARK", "ct_mark", 0, 32, "hex", ""),
    ("ct_label", "NXM_NX_CT_LABEL", "ct_label", 0, 128, "hex", ""),
)

_BITS = {"nw_tos": 0xFC, "arp_op": 0xFF}  # ARP's operation is cut to 8 bits, as in struct flow
_READ_ONLY = {"dl_type", "nw_proto", "nw_frag", "tcp_flags", "ct_state", "ct_zone", "vlan_tci1"}
_READ_ONLY |= {"ct_mark", "ct_label"}  # only within ct(exec(...))


def _registers() -> dict[str, Field]:
    """Return the 16 registers and the 8 + 4 wide ones that Open vSwitch overlays on them."""
    found: dict[str, Field] = {}
    for prefix, oxm, words in (
        ("reg", "NXM_NX_REG", 1),
        ("xreg", "OXM_OF_PKT_REG", 2),
        ("xxreg", "NXM_NX_XXREG", 4),
    ):
        for n in range(16 // words):
            parts = tuple(Part(SLOTS[f"reg{n * words + i}"], 0, 32) for i in range(words))
            field = Field(f"{prefix}{n}", parts, "hex", "", (1 << 32 * words) - 1, writable=True)
            found[field.name] = found[f"{oxm}{n}"] = field
    return found


def _fields() -> dict[str, Field]:
    found = _registers()
    for names, oxm, slot, shift, width, kind, needs in _ROWS:
        every = names.split()
        bits = _BITS.get(every[0], (1 << width) - 1)
        parts = (Part(SLOTS[slot], shift, width),)
        field = Field(every[0], parts, kind, needs, bits, every[0] not in _READ_ONLY)
        found.update(dict.fromkeys(every + oxm.split(), field))
    return found


FIELDS: Mapping[str, Field] = _fields()
"""Every field that can be looked up or written, by each of its names (NXM and OXM ones too)."""


def applies(field: Field, header: Header) -> bool:
    """Tell whether the packet has `field`, that is whether its prerequisites hold."""
    return _PREREQUISITES[field.needs](header)


def read(field: Field, header: Header) -> int:
    """Return the value of `field`."""
    value = 0
    for slot, shift, width in field.parts:
        value = value << width | header[slot] >> shift & (1 << width) - 1
    return value & field.bits


def write(field: Field, header: Header, value: int, mask: int) -> Header:
    """Return `header` with the bits of `field` that are in `mask` taken from `value`."""
    slots = list(header)
    for slot, slot_value, slot_mask in spread(field, value, mask):
        slots[slot] = slots[slot] & ~slot_mask | slot_value
    return Header(*slots)


def spread(field: Field, value: int, mask: int) -> list[tuple[int, int, int]]:
    """Return (slot, value, mask) for each slot that `mask` of `field` touches."""
    found = []
    below = field.width
    mask &= field.bits
    for slot, shift, width in field.parts:
        below -= width
        part_mask = mask >> below & (1 << width) - 1
        if part_mask:
            found.append((slot, (value >> below & part_mask) << shift, part_mask << shift))
    return found
