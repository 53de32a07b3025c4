# SPDX-License-Identifier: Apache-2.0
"""One packet as Open vSwitch sees it: `struct flow`, one slot per member.

As there, fields share storage where no packet has both: ARP's operation and addresses live in
`nw_proto`, `nw_src` and `nw_dst`, ICMP's type and code in the L4 ports. Which one is meant follows
from a field's prerequisite (`fields`).
"""

from collections.abc import Mapping
from typing import NamedTuple

TAG_PRESENT = 0x1000
"""Bit of a `vlan_tci`: there is a VLAN header (`VLAN_CFI`)."""

FRAGMENT = 1
"""Bit of `nw_frag`: the packet is a fragment (`FLOW_NW_FRAG_ANY`)."""
LATER_FRAGMENT = 2
"""Bit of `nw_frag`: the fragment has no L4 header (`FLOW_NW_FRAG_LATER`)."""

ETH_IPV4, ETH_ARP, ETH_RARP, ETH_IPV6 = 0x0800, 0x0806, 0x8035, 0x86DD
"""Ethernet types (IANA)."""
ETH_VLAN, ETH_QINQ, ETH_MPLS, ETH_MPLS_MC = 0x8100, 0x88A8, 0x8847, 0x8848
"""Ethernet types of VLAN tags (IEEE 802.1Q) and of MPLS (RFC 5332)."""
ICMP, IGMP, TCP, UDP, ICMPV6, SCTP = 1, 2, 6, 17, 58, 132
"""IP protocol numbers (IANA)."""

NO_TYPE = 0x05FF
"""Ethernet type of a frame that has a length instead (`FLOW_DL_TYPE_NONE`)."""

MAX_VLANS = 2
"""VLAN tags that `struct flow` holds (`FLOW_MAX_VLAN_HEADERS`)."""
MAX_MPLS = 3
"""MPLS labels that `struct flow` holds (`FLOW_MAX_MPLS_LABELS`)."""

TUN_METADATAS, TUN_METADATA_LANE = 64, 1024
"""Tunnel options of a packet (`TUN_METADATA_NUM_OPTS`), and bits kept for each. Chosen: an option
has 124 bytes at most."""

CS_NEW, CS_EST, CS_REL, CS_RPL, CS_INV, CS_TRK, CS_SNAT, CS_DNAT = (1 << n for n in range(8))
"""Bits of `ct_state`."""

TUN_DF, TUN_CSUM, TUN_KEY, TUN_OAM = 1, 2, 4, 8
"""Bits of `tun_flags`; only the last is OpenFlow's."""

NO_TARGET = 0xFFF7
"""`actset_output` of an action set that outputs nowhere (`OFPP_UNSET`)."""


class Header(NamedTuple):
    """A packet's header and metadata, all integers; 0 where the packet has no such field.

    A tuple, because lookups read by position and visited states are hashed by the thousand. The
    order is that of `struct flow`: a classifier looks at metadata first, then at L2, L3 and L4.
    """

    tun_id: int = 0
    tun_src: int = 0
    tun_dst: int = 0
    tun_ipv6_src: int = 0
    tun_ipv6_dst: int = 0
    tun_flags: int = 0
    tun_tos: int = 0
    tun_ttl: int = 0
    tun_tp_src: int = 0
    tun_tp_dst: int = 0
    tun_gbp_id: int = 0
    tun_gbp_flags: int = 0
    tun_erspan_ver: int = 0
    tun_erspan_idx: int = 0
    tun_erspan_dir: int = 0
    tun_erspan_hwid: int = 0
    tun_gtpu_flags: int = 0
    tun_gtpu_msgtype: int = 0
    tun_present: int = 0
    """A bit for each `tun_metadata` that the packet carries."""
    tun_metadata: int = 0
    """All of them in one number, each in `TUN_METADATA_LANE` bits, the first in the lowest."""
    metadata: int = 0
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
    skb_priority: int = 0
    pkt_mark: int = 0
    dp_hash: int = 0
    in_port: int = 0
    recirc_id: int = 0
    ct_state: int = 0
    ct_nw_proto: int = 0
    ct_zone: int = 0
    ct_mark: int = 0
    packet_type: int = 0
    """Name space above, type in the low 16 bits; 0 is an Ethernet frame."""
    ct_label: int = 0
    conj_id: int = 0
    actset_output: int = 0

    eth_dst: int = 0
    eth_src: int = 0
    eth_type: int = 0
    vlan_tpid: int = 0
    vlan_tci: int = 0
    vlan_tpid1: int = 0
    vlan_tci1: int = 0
    mpls_lse: int = 0
    mpls_lse1: int = 0
    mpls_lse2: int = 0

    nw_src: int = 0
    nw_dst: int = 0
    ct_nw_src: int = 0
    ct_nw_dst: int = 0
    ipv6_src: int = 0
    ipv6_dst: int = 0
    ct_ipv6_src: int = 0
    ct_ipv6_dst: int = 0
    ipv6_label: int = 0
    nw_frag: int = 0
    nw_tos: int = 0
    nw_ttl: int = 0
    nw_proto: int = 0

    nd_target: int = 0
    arp_sha: int = 0
    arp_tha: int = 0
    tcp_flags: int = 0
    tp_src: int = 0
    tp_dst: int = 0
    ct_tp_src: int = 0
    ct_tp_dst: int = 0
    igmp_group: int = 0
    """IGMP's group; the reserved word of neighbour discovery."""


SLOTS: Mapping[str, int] = {name: index for index, name in enumerate(Header._fields)}

STAGES = tuple(SLOTS[name] for name in ("eth_dst", "nw_src", "nd_target"))
"""Where L2, L3 and L4 begin: a classifier looks at one after the other (`FLOW_SEGMENT_*`)."""

TUNNEL = tuple(n for name, n in SLOTS.items() if name.startswith("tun_"))
REGISTERS = tuple(SLOTS[f"reg{n}"] for n in range(16))
CONNTRACK = tuple(SLOTS[name] for name in ("ct_state", "ct_zone", "ct_mark", "ct_label"))

BRIDGE_LOCAL = {
    name: 0
    for name in Header._fields
    if name.startswith(("reg", "tun_", "ct_")) or name == "metadata"
}
"""What a packet forgets when it crosses a patch port into another bridge."""

Slots = list[int]
"""A packet at work, or the mask of the bits that decided about it, by `SLOTS`."""


def limit_tags(header: Header, limit: int) -> Header:
    """Return what is read of a packet by a switch that looks behind at most `limit` VLAN tags."""
    if limit >= MAX_VLANS or not is_vlan_type(header.vlan_tpid1):
        return header
    slots = list(header)
    slots[SLOTS["mpls_lse"] :] = [0] * (len(slots) - SLOTS["mpls_lse"])
    kept = Header._make(slots)
    return kept._replace(eth_type=header.vlan_tpid1, vlan_tpid1=0, vlan_tci1=0)


def dl_type(flow: "Header | Slots") -> int:
    """Return the Ethernet type, also of a packet that has no Ethernet header; 0 for none."""
    packet_type = flow[PACKET_TYPE]
    if not packet_type:
        return flow[ETH_TYPE]
    return packet_type & 0xFFFF if packet_type >> 16 == 1 else 0


PACKET_TYPE, ETH_TYPE = SLOTS["packet_type"], SLOTS["eth_type"]
ETH_DST, NW_DST, IPV6_DST = SLOTS["eth_dst"], SLOTS["nw_dst"], SLOTS["ipv6_dst"]


def is_ip(flow: "Header | Slots") -> bool:
    """Tell whether the packet is IPv4 or IPv6."""
    return dl_type(flow) in {ETH_IPV4, ETH_IPV6}


def is_mpls(eth_type: int) -> bool:
    """Tell whether an Ethernet type is one of MPLS."""
    return eth_type in {ETH_MPLS, ETH_MPLS_MC}


def is_vlan_type(eth_type: int) -> bool:
    """Tell whether an Ethernet type announces a VLAN tag."""
    return eth_type in {ETH_VLAN, ETH_QINQ}
