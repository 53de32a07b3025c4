# SPDX-License-Identifier: Apache-2.0
"""Packets and matches in words, as Open vSwitch prints them: `flow_format()`, `match_format()`."""

from collections.abc import Callable, Iterator

from .fields import is_ct_valid, is_nd
from .notation import (
    CT_STATES,
    SPECIAL_PORTS,
    TCP_FLAGS,
    TUN_FLAGS,
    format_flags,
    format_ipv4,
    format_ipv6,
    format_mac,
)
from .packet import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_MPLS,
    ETH_MPLS_MC,
    ETH_RARP,
    ICMP,
    ICMPV6,
    IGMP,
    LATER_FRAGMENT,
    SCTP,
    SLOTS,
    TAG_PRESENT,
    TCP,
    TUN_KEY,
    TUN_METADATA_LANE,
    UDP,
    Header,
    Slots,
    dl_type,
    is_ip,
    is_mpls,
)

_FULL = {"eth": (1 << 48) - 1, "ipv4": (1 << 32) - 1, "ipv6": (1 << 128) - 1}
"""Kind of address -> the mask of all its bits."""
_PORT_NAMES = {number: name.upper() for name, number in SPECIAL_PORTS.items() if name != "any"}
_PORT_NAMES[SPECIAL_PORTS["none"]] = "ANY"

_L4 = frozenset({ICMP, ICMPV6, TCP, UDP, SCTP, IGMP})


def port_text(number: int) -> str:
    """Return an OpenFlow port as printed: reserved ones have names."""
    return _PORT_NAMES.get(number, str(number))


def describe_packet(flow: Header | Slots) -> str:
    """Return what `flow_format()` prints: every field that the packet has."""
    return ",".join(_parts(list(flow), _looked_at(flow)))


def describe_match(flow: Header | Slots, looked: Slots) -> str:
    """Return what `match_format()` prints of the bits of `flow` that are set in `looked`."""
    return ",".join(_parts(list(flow), looked))


def _looked_at(flow: Header | Slots) -> Slots:
    """Return the mask of all fields that a packet of this kind has."""
    looked = [0] * len(SLOTS)

    def look(*names: str) -> None:
        for name in names:
            looked[SLOTS[name]] = _ALL[SLOTS[name]]

    values = Header._make(flow)
    if values.tun_dst or values.tun_ipv6_dst:
        look(*(name for name in SLOTS if name.startswith("tun_") and name not in _TUN_APART))
        if values.tun_flags & TUN_KEY:
            look("tun_id")
        looked[SLOTS["tun_present"]] = values.tun_present
        looked[SLOTS["tun_metadata"]] = _lanes(values.tun_present)
    elif values.tun_id:
        look("tun_id")
    for name in ("in_port", "skb_priority", "pkt_mark", "recirc_id", "dp_hash", "metadata"):
        if getattr(values, name):
            look(name)
    for name in ("ct_state", "ct_zone", "ct_mark", "ct_label"):
        if getattr(values, name):
            look(name)
    look(*(f"reg{n}" for n in range(16) if getattr(values, f"reg{n}")))
    look("packet_type")
    if not values.packet_type:
        look("eth_src", "eth_dst", "eth_type", "vlan_tci")
        if values.vlan_tci:
            look("vlan_tci1")
    _look_above(flow, look)
    return looked


_TUN_APART = frozenset({"tun_id", "tun_present", "tun_metadata"})


def _lanes(present: int) -> int:
    mask = 0
    for n in range(present.bit_length()):
        if present >> n & 1:
            mask |= ((1 << TUN_METADATA_LANE) - 1) << n * TUN_METADATA_LANE
    return mask


def _look_above(flow: Header | Slots, look: Callable[..., None]) -> None:
    """Look at what is above Ethernet."""
    values, kind = Header._make(flow), dl_type(flow)
    tracked = is_ct_valid(flow) and values.ct_nw_proto
    if kind == ETH_IPV4:
        look("nw_src", "nw_dst")
    elif kind == ETH_IPV6:
        look("ipv6_src", "ipv6_dst", "ipv6_label")
        if is_nd(flow):
            look("arp_sha", "arp_tha", "nd_target")
    elif kind in {ETH_ARP, ETH_RARP}:
        look("nw_src", "nw_dst", "nw_proto", "arp_sha", "arp_tha")
    elif is_mpls(kind):
        for name in ("mpls_lse", "mpls_lse1", "mpls_lse2"):
            look(name)
            if getattr(values, name) & 0x100:
                break
    if kind not in {ETH_IPV4, ETH_IPV6}:
        return
    look("nw_frag", "nw_tos", "nw_ttl", "nw_proto")
    if tracked:
        v6 = kind == ETH_IPV6
        look("ct_nw_proto", "ct_tp_src", "ct_tp_dst")
        look(*(("ct_ipv6_src", "ct_ipv6_dst") if v6 else ("ct_nw_src", "ct_nw_dst")))
    if values.nw_proto in _L4 and not values.nw_frag & LATER_FRAGMENT:
        look("tp_src", "tp_dst")
        if values.nw_proto == TCP:
            look("tcp_flags")


_WIDTHS = {
    "eth_src": 48,
    "eth_dst": 48,
    "arp_sha": 48,
    "arp_tha": 48,
    "tun_id": 64,
    "metadata": 64,
    "ct_label": 128,
    "nd_target": 128,
    **dict.fromkeys(("nw_frag",), 2),
    **dict.fromkeys(("nw_tos", "nw_ttl", "nw_proto", "ct_nw_proto", "ct_state"), 8),
    **dict.fromkeys(("tun_tos", "tun_ttl", "tun_gbp_flags"), 8),
    **dict.fromkeys(("eth_type", "vlan_tpid", "vlan_tci", "vlan_tpid1", "vlan_tci1"), 16),
    **dict.fromkeys(("tp_src", "tp_dst", "ct_tp_src", "ct_tp_dst", "tcp_flags"), 16),
    **dict.fromkeys(("in_port", "ct_zone", "tun_gbp_id", "tun_flags"), 16),
    **dict.fromkeys(
        (f"{p}{e}" for p in ("", "ct_", "tun_") for e in ("ipv6_src", "ipv6_dst")), 128
    ),
}
_ALL = [(1 << _WIDTHS.get(name, 32)) - 1 for name in Header._fields]
ALL_BITS: tuple[int, ...] = tuple(_ALL)
"""For each slot, the mask of all its bits."""


def _parts(flow: Slots, looked: Slots) -> Iterator[str]:
    values, masks = Header._make(flow), Header._make(looked)
    yield from _metadata(values, masks)
    kind = values.eth_type
    if masks.packet_type and (values.packet_type or masks.recirc_id):
        yield _packet_type(values.packet_type, masks.packet_type)
        kind = dl_type(flow)
    word = _word(kind, values, masks)
    if word:
        yield word
    for n in range(16):
        yield from _hex(f"reg{n}", getattr(values, f"reg{n}"), getattr(masks, f"reg{n}"), 32)
    yield from _tunnel(values, masks)
    yield from _hex("metadata", values.metadata, masks.metadata, 64)
    if masks.in_port:
        yield f"in_port={port_text(values.in_port)}"
    for tag in ("", "1"):
        tci, mask = getattr(values, f"vlan_tci{tag}"), getattr(masks, f"vlan_tci{tag}")
        if not mask:
            break
        yield from _vlan(tag, tci, mask)
    yield from _mac("dl_src", values.eth_src, masks.eth_src)
    yield from _mac("dl_dst", values.eth_dst, masks.eth_dst)
    if not word and masks.eth_type:
        yield f"dl_type=0x{values.eth_type:04x}"
    yield from _network(kind, word, values, masks)
    yield from _transport(kind, flow, values, masks)


def _packet_type(value: int, mask: int) -> str:
    def part(value: int, mask: int) -> str:
        if not mask:
            return "*"
        text = f"0x{value:x}" if value > 9 else str(value)
        return text if mask == 0xFFFF else f"{text}/0x{mask:x}"

    if not value and mask == 0xFFFFFFFF:
        return "eth"
    return f"packet_type=({part(value >> 16, mask >> 16)},{part(value & 0xFFFF, mask & 0xFFFF)})"


def _metadata(values: Header, masks: Header) -> Iterator[str]:
    yield from _hex("pkt_mark", values.pkt_mark, masks.pkt_mark, 32)
    yield from _hex("recirc_id", values.recirc_id, masks.recirc_id, 32)
    yield from _hex("dp_hash", values.dp_hash, masks.dp_hash, 32)
    if masks.conj_id:
        yield f"conj_id={values.conj_id}"
    if masks.skb_priority:
        yield f"skb_priority={values.skb_priority:#x}" if values.skb_priority else "skb_priority=0"
    if masks.actset_output:
        yield f"actset_output={port_text(values.actset_output)}"
    if masks.ct_state:
        yield "ct_state=" + flags_text(values.ct_state, masks.ct_state, 0xFF, CT_STATES)
    yield from _decimal("ct_zone", values.ct_zone, masks.ct_zone)
    yield from _hex("ct_mark", values.ct_mark, masks.ct_mark, 32)
    yield from _hex("ct_label", values.ct_label, masks.ct_label, 128)
    yield from _ipv4("ct_nw_src", values.ct_nw_src, masks.ct_nw_src)
    yield from _ipv6("ct_ipv6_src", values.ct_ipv6_src, masks.ct_ipv6_src)
    yield from _ipv4("ct_nw_dst", values.ct_nw_dst, masks.ct_nw_dst)
    yield from _ipv6("ct_ipv6_dst", values.ct_ipv6_dst, masks.ct_ipv6_dst)
    if masks.ct_nw_proto:
        yield f"ct_nw_proto={values.ct_nw_proto}"
        yield from _decimal("ct_tp_src", values.ct_tp_src, masks.ct_tp_src)
        yield from _decimal("ct_tp_dst", values.ct_tp_dst, masks.ct_tp_dst)


def flags_text(value: int, mask: int, full: int, names: tuple[str, ...]) -> str:
    """Return `syn|ack` where all bits matter, else `+syn-ack`."""
    if mask == full:
        return format_flags(value, names)
    if not mask:
        return "0/0"
    bits = [n for n in range(mask.bit_length()) if mask >> n & 1]
    named = [names[n] if n < len(names) else "[Unknown]" for n in bits]
    return "".join(
        ("+" if value >> n & 1 else "-") + name for n, name in zip(bits, named, strict=True)
    )


_WORDS = {
    ETH_IPV4: {ICMP: "icmp", TCP: "tcp", UDP: "udp", SCTP: "sctp"},
    ETH_IPV6: {ICMPV6: "icmp6", TCP: "tcp6", UDP: "udp6", SCTP: "sctp6"},
}
_KINDS = {
    ETH_IPV4: "ip",
    ETH_IPV6: "ipv6",
    ETH_ARP: "arp",
    ETH_RARP: "rarp",
    ETH_MPLS: "mpls",
    ETH_MPLS_MC: "mplsm",
}


def _word(kind: int, values: Header, masks: Header) -> str:
    """Return the protocol's name; empty if Open vSwitch has none for it."""
    if not masks.eth_type:
        return ""
    if masks.nw_proto and values.nw_proto in _WORDS.get(kind, {}):
        return _WORDS[kind][values.nw_proto]
    return _KINDS.get(kind, "")


def _tunnel(values: Header, masks: Header) -> Iterator[str]:
    yield from _hex("tun_id", values.tun_id, masks.tun_id, 64)
    yield from _ipv4("tun_src", values.tun_src, masks.tun_src)
    yield from _ipv4("tun_dst", values.tun_dst, masks.tun_dst)
    yield from _ipv6("tun_ipv6_src", values.tun_ipv6_src, masks.tun_ipv6_src)
    yield from _ipv6("tun_ipv6_dst", values.tun_ipv6_dst, masks.tun_ipv6_dst)
    if masks.tun_gbp_id:
        yield from _decimal("tun_gbp_id", values.tun_gbp_id, masks.tun_gbp_id)
    if masks.tun_gbp_flags:
        yield f"tun_gbp_flags={hex_text(values.tun_gbp_flags)}"
    if masks.tun_tos:
        yield f"tun_tos={values.tun_tos}"
    if masks.tun_ttl:
        yield f"tun_ttl={values.tun_ttl}"
    for name in ("erspan_ver", "erspan_idx", "erspan_dir", "erspan_hwid"):
        shown = name == "erspan_ver" or getattr(values, f"tun_{name}")
        if getattr(masks, f"tun_{name}") and shown:
            form = "" if name in {"erspan_ver", "erspan_dir"} else "#x"
            yield f"tun_{name}={getattr(values, f'tun_{name}'):{form}}"
    if masks.tun_gtpu_flags:
        yield f"gtpu_flags={values.tun_gtpu_flags:#x}" if values.tun_gtpu_flags else "gtpu_flags=0"
    if masks.tun_gtpu_msgtype:
        yield f"gtpu_msgtype={values.tun_gtpu_msgtype}"
    if masks.tun_flags & 0xF:
        mask = masks.tun_flags & 0xF
        yield "tun_flags=" + flags_text(values.tun_flags & 0xF, mask, 0xF, TUN_FLAGS)
    for n in range(masks.tun_present.bit_length()):
        if masks.tun_present >> n & 1:
            yield f"tun_metadata{n}{_option(values, masks, n)}"


def _option(values: Header, masks: Header, n: int) -> str:
    """Return what stands behind the name of option `n` of a tunnel (`tun_metadata`).

    `=NP` if the match forbids the option; nothing if any value will do; else `=VALUE`. `/MASK`
    follows unless the mask has all bits of the lowest 32, 64, 96 ... and no others.
    """
    if not values.tun_present >> n & 1:
        return "=NP"
    lane, shift = (1 << TUN_METADATA_LANE) - 1, n * TUN_METADATA_LANE
    value, mask = values.tun_metadata >> shift & lane, masks.tun_metadata >> shift & lane
    if not mask:
        return ""
    # Adding one to ones without a gap, from bit 0 up, leaves no common bit.
    if not mask & mask + 1 and not mask.bit_length() % 32:
        return f"={hex_text(value)}"
    return f"={hex_text(value & mask)}/{hex_text(mask)}"


def _vlan(n: str, tci: int, mask: int) -> Iterator[str]:
    vid, pcp = mask & 0xFFF, mask & 0xE000
    whole = vid in {0, 0xFFF} and pcp in {0, 0xE000} and (vid or pcp)
    if mask & tci & TAG_PRESENT and whole:
        if vid:
            yield f"dl_vlan{n}={tci & 0xFFF}"
        if pcp:
            yield f"dl_vlan_pcp{n}={tci >> 13}"
    elif mask == 0xFFFF:
        yield f"vlan_tci{n}=0x{tci:04x}"
    else:
        yield f"vlan_tci{n}=0x{tci & mask:04x}/0x{mask:04x}"


def _network(kind: int, word: str, values: Header, masks: Header) -> Iterator[str]:
    arp = kind in {ETH_ARP, ETH_RARP}
    if kind == ETH_IPV6:
        yield from _ipv6("ipv6_src", values.ipv6_src, masks.ipv6_src)
        yield from _ipv6("ipv6_dst", values.ipv6_dst, masks.ipv6_dst)
        if masks.ipv6_label:
            mask = masks.ipv6_label & 0xFFFFF
            tail = "" if masks.ipv6_label == 0xFFFFFFFF else f"/0x{mask:05x}"
            yield f"ipv6_label=0x{values.ipv6_label:05x}{tail}"
    else:
        yield from _ipv4("arp_spa" if arp else "nw_src", values.nw_src, masks.nw_src)
        yield from _ipv4("arp_tpa" if arp else "nw_dst", values.nw_dst, masks.nw_dst)
    if masks.nw_proto and word not in _PROTOCOL_WORDS:
        yield f"{'arp_op' if arp else 'nw_proto'}={values.nw_proto}"
    if arp:
        yield from _mac("arp_sha", values.arp_sha, masks.arp_sha)
        yield from _mac("arp_tha", values.arp_tha, masks.arp_tha)
    if masks.nw_tos & 0xFC:
        yield f"nw_tos={values.nw_tos & 0xFC}"
    if masks.nw_tos & 3:
        yield f"nw_ecn={values.nw_tos & 3}"
    if masks.nw_ttl:
        yield f"nw_ttl={values.nw_ttl}"
    for name, shift, width in (("label", 12, 20), ("tc", 9, 3), ("ttl", 0, 8), ("bos", 8, 1)):
        bits = (1 << width) - 1
        if masks.mpls_lse >> shift & bits:
            yield f"mpls_{name}={values.mpls_lse >> shift & bits}"
    yield from _decimal("mpls_lse1", values.mpls_lse1, masks.mpls_lse1, 32)
    yield from _decimal("mpls_lse2", values.mpls_lse2, masks.mpls_lse2, 32)
    yield from _frag(values.nw_frag, masks.nw_frag & 3)


_PROTOCOL_WORDS = {word for words in _WORDS.values() for word in words.values()}


def _frag(frag: int, mask: int) -> Iterator[str]:
    later = bool(frag & LATER_FRAGMENT)
    if mask == 3:
        yield "nw_frag=" + (("later" if later else "first") if frag & 1 else "no")
    elif mask == 1:
        yield f"nw_frag={'yes' if frag & 1 else 'no'}"
    elif mask == LATER_FRAGMENT:
        yield f"nw_frag={'later' if later else 'not_later'}"


def _transport(kind: int, flow: Slots, values: Header, masks: Header) -> Iterator[str]:
    ports, src, dst = (values.tp_src, values.tp_dst), "tp_src", "tp_dst"
    if (kind, values.nw_proto) in {(ETH_IPV4, ICMP), (ETH_IPV6, ICMPV6)}:
        src, dst = "icmp_type", "icmp_code"
    yield from _decimal(src, ports[0], masks.tp_src)
    yield from _decimal(dst, ports[1], masks.tp_dst)
    if kind == ETH_IPV6 and values.nw_proto == ICMPV6:
        yield from _ipv6("nd_target", values.nd_target, masks.nd_target)
        yield from _mac("nd_sll", values.arp_sha, masks.arp_sha)
        yield from _mac("nd_tll", values.arp_tha, masks.arp_tha)
        yield from _hex("nd_reserved", values.igmp_group, masks.igmp_group, 32)
        if masks.tcp_flags:
            yield from _decimal("nd_options_type", values.tcp_flags, masks.tcp_flags)
    if is_ip(flow) and values.nw_proto == TCP and masks.tcp_flags & 0xFFF:
        mask = masks.tcp_flags & 0xFFF
        yield "tcp_flags=" + flags_text(values.tcp_flags, mask, 0xFFF, TCP_FLAGS)


# --- one field -----------------------------------------------------------------------------------


def hex_text(value: int) -> str:
    """Return what C prints for `%#x`: no prefix on zero."""
    return f"{value:#x}" if value else "0"


def _hex(name: str, value: int, mask: int, width: int) -> Iterator[str]:
    if not mask:
        return
    text = hex_text(value & mask)
    yield f"{name}={text}" if mask == (1 << width) - 1 else f"{name}={text}/{hex_text(mask)}"


def _decimal(name: str, value: int, mask: int, width: int = 16) -> Iterator[str]:
    if mask == (1 << width) - 1:
        yield f"{name}={value}"
    elif mask:
        yield f"{name}={value & mask:#x}/{mask:#x}"


def _mac(name: str, value: int, mask: int) -> Iterator[str]:
    if mask == _FULL["eth"]:
        yield f"{name}={format_mac(value)}"
    elif mask:
        yield f"{name}={format_mac(value & mask)}/{format_mac(mask)}"


def _ipv4(name: str, value: int, mask: int) -> Iterator[str]:
    if mask:
        yield f"{name}={format_ipv4(value & mask)}{prefix_text(mask, 32, format_ipv4)}"


def _ipv6(name: str, value: int, mask: int) -> Iterator[str]:
    if mask:
        yield f"{name}={format_ipv6(value & mask)}{prefix_text(mask, 128, format_ipv6)}"


def prefix_text(mask: int, width: int, formatter: Callable[[int], str]) -> str:
    """Return `/24`, or the mask in full where it is no prefix; nothing for a host's."""
    full = (1 << width) - 1
    if mask == full:
        return ""
    length = width - (~mask & full).bit_length()
    if mask == full >> (width - length) << (width - length):
        return f"/{length}"
    return f"/{formatter(mask)}"
