# SPDX-License-Identifier: Apache-2.0
"""Datapath actions that turn the packet as it is into what the flows made of it.

Follows `commit_odp_actions()` of `lib/odp-util.c`. A key is written with a mask where the datapath
can: a member that changed with the bits that were read or written; the others not at all.
"""

from collections.abc import Sequence

from ovs_checks.openflow.fields import is_icmpv4, is_icmpv6
from ovs_checks.openflow.notation import format_mac
from ovs_checks.openflow.packet import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ETH_MPLS,
    ETH_VLAN,
    ICMPV6,
    SCTP,
    SLOTS,
    TAG_PRESENT,
    TCP,
    TUNNEL,
    UDP,
    Slots,
    is_ip,
    is_mpls,
)

from .context import Context
from .datapath import Member, Step, set_key, set_number
from .labels import count_common, count_labels, count_tags, pop_label, push_label

_MAC, _V4, _V6 = "mac", "ipv4", "ipv6"
_ETHERNET = (Member("src", "mac"), Member("dst", "mac"))
_ETHERNET_SLOTS = (SLOTS["eth_src"], SLOTS["eth_dst"])
_IPV4 = (
    Member("src", "ipv4"),
    Member("dst", "ipv4"),
    Member("proto", "dec8"),
    Member("tos", "hex8"),
    Member("ttl", "dec8"),
    Member("frag", "frag"),
)
_IPV4_SLOTS = tuple(
    SLOTS[name] for name in ("nw_src", "nw_dst", "nw_proto", "nw_tos", "nw_ttl", "nw_frag")
)
_IPV6 = (
    Member("src", "ipv6"),
    Member("dst", "ipv6"),
    Member("label", "label"),
    Member("proto", "dec8"),
    Member("tclass", "hex8"),
    Member("hlimit", "dec8"),
    Member("frag", "frag"),
)
_IPV6_SLOTS = tuple(
    SLOTS[name]
    for name in ("ipv6_src", "ipv6_dst", "ipv6_label", "nw_proto", "nw_tos", "nw_ttl", "nw_frag")
)
_ARP = (
    Member("sip", "ipv4"),
    Member("tip", "ipv4"),
    Member("op", "op"),
    Member("sha", "mac"),
    Member("tha", "mac"),
)
_ARP_SLOTS = tuple(SLOTS[name] for name in ("nw_src", "nw_dst", "nw_proto", "arp_sha", "arp_tha"))
_ND = (Member("target", "ipv6"), Member("sll", "mac"), Member("tll", "mac"))
_ND_SLOTS = tuple(SLOTS[name] for name in ("nd_target", "arp_sha", "arp_tha"))
_ICMP = (Member("type", "dec8"), Member("code", "dec8"))
_PORTS = (Member("src", "dec16"), Member("dst", "dec16"))
_PORTS_SLOTS = (SLOTS["tp_src"], SLOTS["tp_dst"])
_PORT_KEYS = {TCP: "tcp", UDP: "udp", SCTP: "sctp"}

_TYPE, _PROTO, _TOS = SLOTS["eth_type"], SLOTS["nw_proto"], SLOTS["nw_tos"]
_LSE = (SLOTS["mpls_lse"], SLOTS["mpls_lse1"], SLOTS["mpls_lse2"])
_TAGS = ((SLOTS["vlan_tpid"], SLOTS["vlan_tci"]), (SLOTS["vlan_tpid1"], SLOTS["vlan_tci1"]))
_PRIORITY, _MARK, _PACKET_TYPE = SLOTS["skb_priority"], SLOTS["pkt_mark"], SLOTS["packet_type"]
_TUN_DST, _TUN_DST6 = SLOTS["tun_dst"], SLOTS["tun_ipv6_dst"]
_GROUP, _FLAGS = SLOTS["igmp_group"], SLOTS["tcp_flags"]


def commit(x: Context) -> None:
    """Append what makes the packet as the flows want it."""
    flow, base = x.flow, x.base
    _packet_type(x)
    if not flow[_PACKET_TYPE] and not base[_PACKET_TYPE]:
        _key(x, "eth", _ETHERNET, _ETHERNET_SLOTS)
    unlabelled = is_mpls(base[_TYPE]) and not is_mpls(flow[_TYPE])
    if unlabelled:
        _mpls(x)
    _network(x)
    _ports(x)
    _icmp(x)
    if not unlabelled:
        _mpls(x)
    _vlan(x)
    _number(x, "skb_priority", _PRIORITY)
    _number(x, "skb_mark", _MARK)


def _packet_type(x: Context) -> None:
    """Put on the Ethernet header that the flows want, or take it off."""
    flow, base = x.flow, x.base
    x.looked[_PACKET_TYPE] = 0xFFFFFFFF
    if flow[_PACKET_TYPE] == base[_PACKET_TYPE]:
        return
    if not flow[_PACKET_TYPE]:
        source, target = (format_mac(flow[slot]) for slot in _ETHERNET_SLOTS)
        x.steps.append(Step(f"push_eth(src={source},dst={target})", 16))
        for slot in _ETHERNET_SLOTS:
            base[slot] = flow[slot]
    elif not base[_PACKET_TYPE]:
        x.steps.append(Step("pop_eth", 4))
        for slot in _ETHERNET_SLOTS:
            base[slot] = 0
    base[_PACKET_TYPE] = flow[_PACKET_TYPE]


def _key(
    x: Context,
    key: str,
    members: Sequence[Member],
    slots: Sequence[int],
    *,
    masked: bool | None = None,
    fixed: Sequence[str] = (),
    tos_mask: int = 0xFF,
) -> bool:
    """Write a key if it changed; members in `fixed` cannot be written, only named."""
    changed = [x.flow[slot] != x.base[slot] for slot in slots]
    if not any(changed):
        return False
    masks = [
        (x.looked[slot] & member.full) if change and member.name not in fixed else 0
        for slot, member, change in zip(slots, members, changed, strict=True)
    ]
    for n, member in enumerate(members):
        if member.name in {"tos", "tclass"}:
            masks[n] &= tos_mask
    values = [_odp(member, x.flow[slot]) for member, slot in zip(members, slots, strict=True)]
    exact = all(mask == member.full for mask, member in zip(masks, members, strict=True))
    use_masked = x.features.masked_set if masked is None else masked
    if use_masked and not exact:
        x.steps.append(set_key(key, members, values, masks))
    else:
        x.steps.append(set_key(key, members, values, None))
        for slot, member in zip(slots, members, strict=True):
            x.looked[slot] |= member.full
    for slot in slots:
        x.base[slot] = x.flow[slot]
    return True


def _odp(member: Member, value: int) -> int:
    """Return a value as the datapath has it: it counts kinds of fragments from 0."""
    if member.form == "frag":
        return {0: 0, 1: 1, 3: 2}.get(value, 1)
    return value


def _network(x: Context) -> None:
    if not x.flow[_PROTO]:
        return  # there is no header above Ethernet to speak of
    tunnelled = x.base[_TUN_DST] or x.base[_TUN_DST6]
    same_ecn = not (x.base[_TOS] ^ x.flow[_TOS]) & 3
    tos_mask = 0xFC if tunnelled and same_ecn else 0xFF
    match x.base[_TYPE]:
        case kind if kind == ETH_IPV4:
            _key(x, "ipv4", _IPV4, _IPV4_SLOTS, fixed=("proto", "frag"), tos_mask=tos_mask)
        case kind if kind == ETH_IPV6:
            _key(x, "ipv6", _IPV6, _IPV6_SLOTS, fixed=("proto", "frag"), tos_mask=tos_mask)
            if x.base[_PROTO] == ICMPV6:
                _neighbour(x)
        case kind if kind == ETH_ARP:
            if _key(x, "arp", _ARP, _ARP_SLOTS, masked=True):
                x.slow.add("action")


def _neighbour(x: Context) -> None:
    if x.flow[_GROUP] != x.base[_GROUP] or x.flow[_FLAGS] != x.base[_FLAGS]:
        reserved = f"nd_reserved={x.flow[_GROUP]:#x}" if x.flow[_GROUP] else "nd_reserved=0"
        kind = f",nd_options_type={x.flow[_FLAGS]}" if x.flow[_FLAGS] != x.base[_FLAGS] else ""
        x.steps.append(Step(f"set(nd_ext({reserved}{kind}))", 20))
        x.base[_GROUP], x.base[_FLAGS] = x.flow[_GROUP], x.flow[_FLAGS]
        x.slow.add("action")
    if _key(x, "nd", _ND, _ND_SLOTS):
        x.slow.add("action")


def _ports(x: Context) -> None:
    if x.flow[_PROTO] and is_ip(x.base) and x.flow[_PROTO] in _PORT_KEYS:
        _key(x, _PORT_KEYS[x.flow[_PROTO]], _PORTS, _PORTS_SLOTS)


def _icmp(x: Context) -> None:
    v4, v6 = is_icmpv4(x.flow), is_icmpv6(x.flow)
    if (v4 or v6) and _key(x, "icmp" if v4 else "icmpv6", _ICMP, _PORTS_SLOTS, masked=False):
        x.slow.add("action")


def _number(x: Context, key: str, slot: int) -> None:
    if x.flow[slot] == x.base[slot]:
        return
    mask = x.looked[slot] or 0xFFFFFFFF
    if not x.features.masked_set:
        mask = 0xFFFFFFFF
    x.steps.append(set_number(key, x.flow[slot], mask))
    x.base[slot] = x.flow[slot]


# --- tags and labels -----------------------------------------------------------------------------


def _vlan(x: Context) -> None:
    """Pop the tags that differ, push those wanted."""
    base_n, flow_n = count_tags(x.base) - 1, count_tags(x.flow) - 1
    while base_n >= 0 and flow_n >= 0 and _tag(x.base, base_n) == _tag(x.flow, flow_n):
        base_n, flow_n = base_n - 1, flow_n - 1
    for n in range(base_n, -1, -1):
        x.steps.append(Step("pop_vlan", 4))
        for slot in _TAGS[n]:
            x.looked[slot] = 0xFFFF
    for n in range(flow_n, -1, -1):
        x.steps.append(_push_vlan(*_tag(x.flow, n)))
    for slots in _TAGS:
        for slot in slots:
            x.base[slot] = x.flow[slot]


def _tag(flow: Slots, n: int) -> tuple[int, int]:
    return flow[_TAGS[n][0]], flow[_TAGS[n][1]]


def _push_vlan(tpid: int, tci: int) -> Step:
    kind = f"tpid=0x{tpid:04x}," if tpid != ETH_VLAN else ""
    tail = "" if tci & TAG_PRESENT else ",cfi=0"
    return Step(f"push_vlan({kind}vid={tci & 0xFFF},pcp={tci >> 13}{tail})", 8)


def _mpls(x: Context) -> None:
    flow, base = x.flow, x.base
    base_n, flow_n = count_labels(base), count_labels(flow)
    common = count_common(flow, flow_n, base, base_n)
    while base_n > common:
        if base_n - 1 == common and flow_n > common:
            label = flow[_LSE[flow_n - base_n]]
            x.steps.append(Step(f"set(mpls({_label(label)}))", 12))
            base[_LSE[0]] = label
            common += 1
        else:
            inner = ETH_MPLS if not is_mpls(flow[_TYPE]) and base_n > 1 else flow[_TYPE]
            x.steps.append(Step(f"pop_mpls(eth_type=0x{inner:x})", 8))
            pop_label(base, base_n, flow[_TYPE], None)
            base_n -= 1
    while base_n < flow_n:
        label = flow[_LSE[flow_n - base_n - 1]]
        x.steps.append(Step(f"push_mpls({_label(label)},eth_type=0x{flow[_TYPE]:x})", 12))
        push_label(base, base_n, flow[_TYPE], None, clear=False)
        base[_LSE[0]] = label
        base_n += 1


def _label(lse: int) -> str:
    return f"label={lse >> 12},tc={lse >> 9 & 7},ttl={lse & 0xFF},bos={lse >> 8 & 1}"


# --- tunnels of the kernel -----------------------------------------------------------------------


def commit_tunnel(x: Context, text: str) -> None:
    """Append the outer header that the kernel shall put on; `text` says it."""
    if all(x.flow[slot] == x.base[slot] for slot in TUNNEL):
        return
    for slot in TUNNEL:
        x.base[slot] = x.flow[slot]
    x.steps.append(Step(f"set(tunnel({text}))", 64))
