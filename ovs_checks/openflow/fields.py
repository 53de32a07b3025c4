# SPDX-License-Identifier: Apache-2.0
"""The fields under which OpenFlow speaks of a packet: where their bits live, and what they need.

Names, widths and prerequisites are those of Open vSwitch's `meta-flow.h`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .packet import (
    CS_EST,
    CS_NEW,
    CS_RPL,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_RARP,
    ETH_VLAN,
    ICMP,
    ICMPV6,
    LATER_FRAGMENT,
    SCTP,
    SLOTS,
    TAG_PRESENT,
    TCP,
    TUN_METADATA_LANE,
    TUN_METADATAS,
    UDP,
    Header,
    Slots,
    dl_type,
    is_ip,
    is_mpls,
)


class Part(NamedTuple):
    """Where some bits of a field live: `width` bits of slot `slot`, from bit `shift` up."""

    slot: int
    shift: int
    width: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of OpenFlow: where its bits live and how its values are written."""

    name: str
    """The field's name in Open vSwitch's messages."""

    parts: tuple[Part, ...]
    """Most significant first."""

    kind: str
    """`int`, `hex`, `mac`, `ipv4`, `ipv6`, `port`, `frag`, `packet_type` or a set of flags."""

    needs: str
    """Prerequisite of having it: a key of `_PREREQUISITES`; the empty one always holds."""

    bits: int
    """Mask of the bits that exist; `nw_tos` for one has no low two."""

    writable: bool

    present: int = 0
    """Bit of `tun_present`, for tunnel metadata."""

    @property
    def width(self) -> int:
        """Width in bits."""
        return sum(part.width for part in self.parts)


# names (Open vSwitch's own first), OXM and NXM names, slot, lowest bit, width, kind, prerequisite
_ROWS = (
    ("in_port", "NXM_OF_IN_PORT", "in_port", 0, 16, "port", ""),
    ("in_port_oxm", "OXM_OF_IN_PORT", "in_port", 0, 32, "port", ""),
    ("actset_output", "OXM_OF_ACTSET_OUTPUT ONFOXM_ET_ACTSET_OUTPUT", "actset_output", 0, 32,
     "port", ""),
    ("eth_src dl_src", "NXM_OF_ETH_SRC OXM_OF_ETH_SRC", "eth_src", 0, 48, "mac", "ethernet"),
    ("eth_dst dl_dst", "NXM_OF_ETH_DST OXM_OF_ETH_DST", "eth_dst", 0, 48, "mac", "ethernet"),
    ("eth_type dl_type", "NXM_OF_ETH_TYPE OXM_OF_ETH_TYPE", "eth_type", 0, 16, "hex", "ethernet"),
    ("vlan_tci", "NXM_OF_VLAN_TCI", "vlan_tci", 0, 16, "hex", "ethernet"),
    ("vlan_tci1", "", "vlan_tci1", 0, 16, "hex", "ethernet"),
    ("vlan_vid", "OXM_OF_VLAN_VID", "vlan_tci", 0, 13, "int", "ethernet"),
    ("vlan_pcp", "OXM_OF_VLAN_PCP", "vlan_tci", 13, 3, "int", "vlan"),
    ("mpls_label", "OXM_OF_MPLS_LABEL", "mpls_lse", 12, 20, "int", "mpls"),
    ("mpls_tc", "OXM_OF_MPLS_TC", "mpls_lse", 9, 3, "int", "mpls"),
    ("mpls_bos", "OXM_OF_MPLS_BOS", "mpls_lse", 8, 1, "int", "mpls"),
    ("mpls_ttl", "NXM_NX_MPLS_TTL", "mpls_lse", 0, 8, "int", "mpls"),
    ("mpls_lse1", "", "mpls_lse1", 0, 32, "hex", "mpls"),
    ("mpls_lse2", "", "mpls_lse2", 0, 32, "hex", "mpls"),
    ("ip_src nw_src", "NXM_OF_IP_SRC OXM_OF_IPV4_SRC", "nw_src", 0, 32, "ipv4", "ipv4"),
    ("ip_dst nw_dst", "NXM_OF_IP_DST OXM_OF_IPV4_DST", "nw_dst", 0, 32, "ipv4", "ipv4"),
    ("ipv6_src", "NXM_NX_IPV6_SRC OXM_OF_IPV6_SRC", "ipv6_src", 0, 128, "ipv6", "ipv6"),
    ("ipv6_dst", "NXM_NX_IPV6_DST OXM_OF_IPV6_DST", "ipv6_dst", 0, 128, "ipv6", "ipv6"),
    ("ipv6_label", "NXM_NX_IPV6_LABEL OXM_OF_IPV6_FLABEL", "ipv6_label", 0, 32, "hex", "ipv6"),
    ("nw_proto ip_proto", "NXM_OF_IP_PROTO OXM_OF_IP_PROTO", "nw_proto", 0, 8, "int", "ip"),
    ("nw_tos ip_tos", "NXM_OF_IP_TOS", "nw_tos", 0, 8, "int", "ip"),
    ("ip_dscp", "OXM_OF_IP_DSCP", "nw_tos", 2, 6, "int", "ip"),
    ("nw_ecn ip_ecn", "NXM_NX_IP_ECN OXM_OF_IP_ECN", "nw_tos", 0, 2, "int", "ip"),
    ("nw_ttl ip_ttl", "NXM_NX_IP_TTL", "nw_ttl", 0, 8, "int", "ip"),
    ("ip_frag nw_frag", "NXM_NX_IP_FRAG", "nw_frag", 0, 2, "frag", "ip"),
    ("arp_op", "NXM_OF_ARP_OP OXM_OF_ARP_OP", "nw_proto", 0, 16, "int", "arp"),
    ("arp_spa", "NXM_OF_ARP_SPA OXM_OF_ARP_SPA", "nw_src", 0, 32, "ipv4", "arp"),
    ("arp_tpa", "NXM_OF_ARP_TPA OXM_OF_ARP_TPA", "nw_dst", 0, 32, "ipv4", "arp"),
    ("arp_sha", "NXM_NX_ARP_SHA OXM_OF_ARP_SHA", "arp_sha", 0, 48, "mac", "arp"),
    ("arp_tha", "NXM_NX_ARP_THA OXM_OF_ARP_THA", "arp_tha", 0, 48, "mac", "arp"),
    ("tcp_src", "NXM_OF_TCP_SRC OXM_OF_TCP_SRC", "tp_src", 0, 16, "int", "tcp"),
    ("tcp_dst", "NXM_OF_TCP_DST OXM_OF_TCP_DST", "tp_dst", 0, 16, "int", "tcp"),
    ("tcp_flags", "NXM_NX_TCP_FLAGS ONFOXM_ET_TCP_FLAGS OXM_OF_TCP_FLAGS", "tcp_flags", 0, 16,
     "tcp_flags", "tcp"),
    ("udp_src", "NXM_OF_UDP_SRC OXM_OF_UDP_SRC", "tp_src", 0, 16, "int", "udp"),
    ("udp_dst", "NXM_OF_UDP_DST OXM_OF_UDP_DST", "tp_dst", 0, 16, "int", "udp"),
    ("sctp_src", "OXM_OF_SCTP_SRC", "tp_src", 0, 16, "int", "sctp"),
    ("sctp_dst", "OXM_OF_SCTP_DST", "tp_dst", 0, 16, "int", "sctp"),
    ("tp_src", "", "tp_src", 0, 16, "int", "l4"),
    ("tp_dst", "", "tp_dst", 0, 16, "int", "l4"),
    ("igmp_type", "", "tp_src", 0, 16, "int", "l4"),
    ("igmp_code", "", "tp_dst", 0, 16, "int", "l4"),
    ("icmp_type", "NXM_OF_ICMP_TYPE OXM_OF_ICMPV4_TYPE", "tp_src", 0, 8, "int", "icmp"),
    ("icmp_code", "NXM_OF_ICMP_CODE OXM_OF_ICMPV4_CODE", "tp_dst", 0, 8, "int", "icmp"),
    ("icmpv6_type", "NXM_NX_ICMPV6_TYPE OXM_OF_ICMPV6_TYPE", "tp_src", 0, 8, "int", "icmpv6"),
    ("icmpv6_code", "NXM_NX_ICMPV6_CODE OXM_OF_ICMPV6_CODE", "tp_dst", 0, 8, "int", "icmpv6"),
    ("nd_target", "NXM_NX_ND_TARGET OXM_OF_IPV6_ND_TARGET", "nd_target", 0, 128, "ipv6", "nd"),
    ("nd_sll", "NXM_NX_ND_SLL OXM_OF_IPV6_ND_SLL", "arp_sha", 0, 48, "mac", "ns"),
    ("nd_tll", "NXM_NX_ND_TLL OXM_OF_IPV6_ND_TLL", "arp_tha", 0, 48, "mac", "na"),
    ("nd_reserved", "ERICOXM_OF_ICMPV6_ND_RESERVED", "igmp_group", 0, 32, "hex", "nd"),
    ("nd_options_type", "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", "tcp_flags", 0, 8, "int", "nd"),
    ("tun_id tunnel_id", "NXM_NX_TUN_ID OXM_OF_TUNNEL_ID", "tun_id", 0, 64, "hex", ""),
    ("tun_src", "NXM_NX_TUN_IPV4_SRC", "tun_src", 0, 32, "ipv4", ""),
    ("tun_dst", "NXM_NX_TUN_IPV4_DST", "tun_dst", 0, 32, "ipv4", ""),
    ("tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC", "tun_ipv6_src", 0, 128, "ipv6", ""),
    ("tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST", "tun_ipv6_dst", 0, 128, "ipv6", ""),
    ("tun_flags", "NXM_NX_TUN_FLAGS", "tun_flags", 0, 16, "tun_flags", ""),
    ("tun_ttl", "", "tun_ttl", 0, 8, "int", ""),
    ("tun_tos", "", "tun_tos", 0, 8, "hex", ""),
    ("tun_gbp_id", "NXM_NX_TUN_GBP_ID", "tun_gbp_id", 0, 16, "int", ""),
    ("tun_gbp_flags", "NXM_NX_TUN_GBP_FLAGS", "tun_gbp_flags", 0, 8, "hex", ""),
    ("tun_erspan_ver", "NXOXM_ET_ERSPAN_VER", "tun_erspan_ver", 0, 4, "int", ""),
    ("tun_erspan_idx", "NXOXM_ET_ERSPAN_IDX", "tun_erspan_idx", 0, 20, "hex", ""),
    ("tun_erspan_dir", "NXOXM_ET_ERSPAN_DIR", "tun_erspan_dir", 0, 1, "int", ""),
    ("tun_erspan_hwid", "NXOXM_ET_ERSPAN_HWID", "tun_erspan_hwid", 0, 6, "hex", ""),
    ("tun_gtpu_flags gtpu_flags", "NXOXM_ET_GTPU_FLAGS", "tun_gtpu_flags", 0, 8, "hex", ""),
    ("tun_gtpu_msgtype gtpu_msgtype", "NXOXM_ET_GTPU_MSGTYPE", "tun_gtpu_msgtype", 0, 8, "int", ""),
    ("metadata", "OXM_OF_METADATA", "metadata", 0, 64, "hex", ""),
    ("pkt_mark", "NXM_NX_PKT_MARK", "pkt_mark", 0, 32, "hex", ""),
    ("skb_priority", "", "skb_priority", 0, 32, "hex", ""),
    ("dp_hash", "NXOXM_ET_DP_HASH", "dp_hash", 0, 32, "hex", ""),
    ("recirc_id", "NXM_NX_RECIRC_ID", "recirc_id", 0, 32, "hex", ""),
    ("conj_id", "NXM_NX_CONJ_ID", "conj_id", 0, 32, "int", ""),
    ("packet_type", "OXM_OF_PACKET_TYPE", "packet_type", 0, 32, "packet_type", ""),
    ("ct_state", "NXM_NX_CT_STATE", "ct_state", 0, 32, "ct_state", ""),
    ("ct_zone", "NXM_NX_CT_ZONE", "ct_zone", 0, 16, "hex", ""),
    ("ct_mark", "NXM_NX_CT_MARK", "ct_mark", 0, 32, "hex", ""),
    ("ct_label", "NXM_NX_CT_LABEL", "ct_label", 0, 128, "hex", ""),
    ("ct_nw_proto", "NXM_NX_CT_NW_PROTO", "ct_nw_proto", 0, 8, "int", "ct"),
    ("ct_nw_src", "NXM_NX_CT_NW_SRC", "ct_nw_src", 0, 32, "ipv4", "ct"),
    ("ct_nw_dst", "NXM_NX_CT_NW_DST", "ct_nw_dst", 0, 32, "ipv4", "ct"),
    ("ct_ipv6_src", "NXM_NX_CT_IPV6_SRC", "ct_ipv6_src", 0, 128, "ipv6", "ct"),
    ("ct_ipv6_dst", "NXM_NX_CT_IPV6_DST", "ct_ipv6_dst", 0, 128, "ipv6", "ct"),
    ("ct_tp_src", "NXM_NX_CT_TP_SRC", "ct_tp_src", 0, 16, "int", "ct"),
    ("ct_tp_dst", "NXM_NX_CT_TP_DST", "ct_tp_dst", 0, 16, "int", "ct"),
    # without a name in OpenFlow, named here so that a whole packet can be written down
    ("vlan_tpid", "", "vlan_tpid", 0, 16, "hex", "ethernet"),
    ("vlan_tpid1", "", "vlan_tpid1", 0, 16, "hex", "ethernet"),
    ("mpls_lse", "", "mpls_lse", 0, 32, "hex", "mpls"),
    ("igmp_group", "", "igmp_group", 0, 32, "ipv4", "l4"),
    ("tun_tp_src", "", "tun_tp_src", 0, 16, "int", ""),
    ("tun_tp_dst", "", "tun_tp_dst", 0, 16, "int", ""),
)  # fmt: skip

_BITS = {
    "nw_tos": 0xFC,
    "arp_op": 0xFF,  # cut to 8 bits, as in struct flow
    "ipv6_label": 0xFFFFF,
    "tcp_flags": 0xFFF,
    "tun_flags": 0x8,
}
"""Fields whose mask is not all bits of their slot -> the mask."""
_READ_ONLY = {"eth_type", "nw_proto", "ip_frag", "tcp_flags", "ct_state", "ct_zone", "vlan_tci1"}
_READ_ONLY |= {"mpls_lse1", "mpls_lse2", "mpls_bos", "igmp_type", "igmp_code", "tp_src", "tp_dst"}
_READ_ONLY |= {"dp_hash", "recirc_id", "conj_id", "packet_type", "actset_output", "tun_ttl"}
_READ_ONLY |= {"tun_tos", "skb_priority", "ct_nw_proto", "ct_nw_src", "ct_nw_dst"}
_READ_ONLY |= {"vlan_tpid", "vlan_tpid1", "mpls_lse", "igmp_group", "tun_tp_src", "tun_tp_dst"}
_READ_ONLY |= {"ct_ipv6_src", "ct_ipv6_dst", "ct_tp_src", "ct_tp_dst"}


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


def _tunnel_metadata() -> dict[str, Field]:
    """Return the fields for tunnel options; how long one is, only the bridge's mapping knows."""
    found: dict[str, Field] = {}
    slot, width = SLOTS["tun_metadata"], TUN_METADATA_LANE - 32
    for n in range(TUN_METADATAS):
        part = Part(slot, n * TUN_METADATA_LANE, width)
        bits = (1 << width) - 1
        field = Field(f"tun_metadata{n}", (part,), "hex", "", bits, writable=True, present=1 << n)
        found[field.name] = found[f"NXM_NX_TUN_METADATA{n}"] = field
    return found


def _fields() -> dict[str, Field]:
    found = {**_registers(), **_tunnel_metadata()}
    for names, oxm, slot, shift, width, kind, needs in _ROWS:
        every = names.split()
        bits = _BITS.get(every[0], (1 << width) - 1)
        parts = (Part(SLOTS[slot], shift, width),)
        field = Field(every[0], parts, kind, needs, bits, every[0] not in _READ_ONLY)
        found.update(dict.fromkeys(every + oxm.split(), field))
    return found


FIELDS: Mapping[str, Field] = _fields()
"""Every field that can be looked up or written, by each of its names (NXM and OXM ones too)."""


# --- prerequisites -------------------------------------------------------------------------------

_SLOT = SLOTS
_TCI, _TPID = _SLOT["vlan_tci"], _SLOT["vlan_tpid"]
_PROTO, _FRAG = _SLOT["nw_proto"], _SLOT["nw_frag"]
_TP_SRC, _TP_DST = _SLOT["tp_src"], _SLOT["tp_dst"]
_CT_STATE, _PACKET_TYPE = _SLOT["ct_state"], _SLOT["packet_type"]
_CT_VALID = CS_NEW | CS_EST | CS_RPL

_Flow = Header | Slots
_Looked = Slots | None


def _ethernet(flow: _Flow, looked: _Looked) -> bool:
    if looked is not None:
        looked[_PACKET_TYPE] = 0xFFFFFFFF
    return not flow[_PACKET_TYPE]


def _tagged(flow: _Flow, looked: _Looked) -> bool:
    if not _ethernet(flow, looked):
        return False
    if looked is not None:
        looked[_TCI] |= TAG_PRESENT
    return bool(flow[_TCI] & TAG_PRESENT)


def _protocol(flow: _Flow, looked: _Looked, protocol: int) -> bool:
    if looked is not None:
        looked[_PROTO] = 0xFF
    return flow[_PROTO] == protocol


def is_icmpv4(flow: _Flow, looked: _Looked = None) -> bool:
    """Tell whether the packet is ICMP over IPv4."""
    return dl_type(flow) == ETH_IPV4 and _protocol(flow, looked, ICMP)


def is_icmpv6(flow: _Flow, looked: _Looked = None) -> bool:
    """Tell whether the packet is ICMPv6."""
    return dl_type(flow) == ETH_IPV6 and _protocol(flow, looked, ICMPV6)


def is_nd(flow: _Flow, looked: _Looked = None) -> bool:
    """Tell whether the packet is a neighbour solicitation or advertisement."""
    if not is_icmpv6(flow, looked):
        return False
    if looked is not None:
        looked[_TP_DST] = 0xFFFF
    if flow[_TP_DST]:
        return False
    if looked is not None:
        looked[_TP_SRC] = 0xFFFF
    return flow[_TP_SRC] in {135, 136}


def is_ct_valid(flow: _Flow, looked: _Looked = None) -> bool:
    """Tell whether the packet belongs to a connection that is tracked."""
    if looked is not None:
        looked[_CT_STATE] |= _CT_VALID
    return bool(flow[_CT_STATE] & _CT_VALID)


def _transport(protocol: int) -> Callable[[_Flow, _Looked], bool]:
    return lambda flow, looked: (
        is_ip(flow) and _protocol(flow, looked, protocol) and not flow[_FRAG] & LATER_FRAGMENT
    )


_PREREQUISITES: Mapping[str, Callable[[_Flow, _Looked], bool]] = {
    "": lambda _flow, _looked: True,
    "ethernet": _ethernet,
    "vlan": _tagged,
    "mpls": lambda flow, _: is_mpls(dl_type(flow)),
    "ip": lambda flow, _: is_ip(flow),
    "ipv4": lambda flow, _: dl_type(flow) == ETH_IPV4,
    "ipv6": lambda flow, _: dl_type(flow) == ETH_IPV6,
    "arp": lambda flow, _: dl_type(flow) in {ETH_ARP, ETH_RARP},
    "l4": lambda flow, _: is_ip(flow) and not flow[_FRAG] & LATER_FRAGMENT,
    "tcp": _transport(TCP),
    "udp": _transport(UDP),
    "sctp": _transport(SCTP),
    "icmp": is_icmpv4,
    "icmpv6": is_icmpv6,
    "nd": is_nd,
    "ns": lambda flow, looked: is_nd(flow, looked) and flow[_TP_SRC] == 135,
    "na": lambda flow, looked: is_nd(flow, looked) and flow[_TP_SRC] == 136,
    "ct": is_ct_valid,
}


def applies(field: Field, flow: _Flow, looked: _Looked = None) -> bool:
    """Return whether the packet has `field`; set in `looked` the bits that decide it."""
    return _PREREQUISITES[field.needs](flow, looked)


# --- values --------------------------------------------------------------------------------------


def read(field: Field, flow: _Flow) -> int:
    """Return the value of `field`."""
    value = 0
    for slot, shift, width in field.parts:
        value = value << width | flow[slot] >> shift & (1 << width) - 1
    return value & field.bits


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


def write(field: Field, flow: Slots, value: int, mask: int) -> None:
    """Take the bits of `field` that are in `mask` from `value`.

    Writing a VLAN's priority makes a tag, and a tag is 802.1Q by default, as in
    `mf_set_flow_value()`.
    """
    for slot, part, part_mask in spread(field, value, mask):
        flow[slot] = flow[slot] & ~part_mask | part
    if field.parts[0].slot == _TCI:
        if field.name == "vlan_pcp":
            flow[_TCI] |= TAG_PRESENT
        if flow[_TCI] and not flow[_TPID]:
            flow[_TPID] = ETH_VLAN
    flow[_PRESENT] |= field.present


_PRESENT = SLOTS["tun_present"]
_L3 = frozenset(
    {"ip_src", "ip_dst", "ipv6_src", "ipv6_dst", "ipv6_label", "nw_tos", "nw_ecn", "nw_ttl"}
)


def look_at_protocol(field: Field, flow: _Flow, looked: Slots) -> None:
    """Note that what is above IP mattered where a field of IP is written.

    Without a protocol, Open vSwitch takes the packet to have no IP header, and writes nothing
    (`mf_set_mask_l3_prereqs`, the answer to CVE-2023-1668).
    """
    if field.name in _L3 and is_ip(flow):
        looked[_PROTO] = 0xFF


def look(field: Field, looked: Slots, mask: int | None = None) -> None:
    """Note in `looked` that `field`, or its bits in `mask`, mattered."""
    for slot, _, part_mask in spread(field, 0, field.bits if mask is None else mask):
        looked[slot] |= part_mask
    looked[_PRESENT] |= field.present
