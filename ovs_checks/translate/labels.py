# SPDX-License-Identifier: Apache-2.0
"""VLAN tags and MPLS labels of a packet; as in `lib/flow.c`."""

from ovs_checks.openflow.packet import (
    ETH_IPV6,
    MAX_MPLS,
    MAX_VLANS,
    SLOTS,
    STAGES,
    TAG_PRESENT,
    Slots,
    is_ip,
    is_mpls,
)

_LSE = (SLOTS["mpls_lse"], SLOTS["mpls_lse1"], SLOTS["mpls_lse2"])
_TAGS = ((SLOTS["vlan_tpid"], SLOTS["vlan_tci"]), (SLOTS["vlan_tpid1"], SLOTS["vlan_tci1"]))
_TYPE, _TOS, _TTL = SLOTS["eth_type"], SLOTS["nw_tos"], SLOTS["nw_ttl"]
_DP_HASH = SLOTS["dp_hash"]
BOTTOM = 0x100
"""Bit of a label stack entry that marks the last label (RFC 3032)."""


def count_tags(flow: Slots) -> int:
    """Return how many VLAN tags the packet has."""
    for n in range(MAX_VLANS):
        if not flow[_TAGS[n][1]] & TAG_PRESENT:
            return n
    return MAX_VLANS


def pop_tag(flow: Slots, looked: Slots | None) -> None:
    """Remove the outermost VLAN tag, if there is one."""
    n = count_tags(flow)
    if n > 1:
        for slot in _TAGS[1]:
            if looked is not None:
                looked[slot] = 0xFFFF
        flow[_TAGS[0][0]], flow[_TAGS[0][1]] = flow[_TAGS[1][0]], flow[_TAGS[1][1]]
    if n:
        flow[_TAGS[n - 1][0]] = flow[_TAGS[n - 1][1]] = 0


def push_tag(flow: Slots, looked: Slots, tpid: int, tci: int) -> None:
    """Add a VLAN tag; one more than fits is lost."""
    for n in range(count_tags(flow)):
        for slot in _TAGS[n]:
            looked[slot] = 0xFFFF
    flow[_TAGS[1][0]], flow[_TAGS[1][1]] = flow[_TAGS[0][0]], flow[_TAGS[0][1]]
    flow[_TAGS[0][0]], flow[_TAGS[0][1]] = tpid, tci


def count_labels(flow: Slots, looked: Slots | None = None) -> int:
    """Return how many MPLS labels the packet has, as far as one can see."""
    if not is_mpls(flow[_TYPE]):
        return 0
    count = 0
    for n in range(MAX_MPLS):
        if looked is not None:
            looked[_LSE[n]] |= BOTTOM
        if flow[_LSE[n]] & BOTTOM:
            return n + 1
        count += bool(flow[_LSE[n]])
    return count


def count_common(a: Slots, a_n: int, b: Slots, b_n: int) -> int:
    """Return how many labels, from the innermost, two packets have in common."""
    common = 0
    while common < min(a_n, b_n) and a[_LSE[a_n - 1 - common]] == b[_LSE[b_n - 1 - common]]:
        common += 1
    return common


def push_label(flow: Slots, n: int, kind: int, looked: Slots | None, *, clear: bool) -> None:
    """Add an MPLS label to `n` that are there; with the first, what it hides is forgotten."""
    if n:
        for slot in _LSE[:n]:
            if looked is not None:
                looked[slot] = 0xFFFFFFFF
        for i in range(n, 0, -1):
            flow[_LSE[i]] = flow[_LSE[i - 1]]
        flow[_LSE[0]] = flow[_LSE[1]] & ~BOTTOM
    else:
        flow[_LSE[0]] = _first_label(flow, looked)
        if clear:
            for slot in range(STAGES[1], len(flow)):
                flow[slot] = 0
            flow[_DP_HASH] = 0
    flow[_TYPE] = kind


def _first_label(flow: Slots, looked: Slots | None) -> int:
    label, traffic_class, ttl = 2 if flow[_TYPE] == ETH_IPV6 else 0, 0, 64
    if is_ip(flow):
        traffic_class = flow[_TOS] >> 2 & 7
        if looked is not None:
            looked[_TOS] |= 0xFC
            looked[_TTL] = 0xFF
        ttl = flow[_TTL] or ttl
    return label << 12 | traffic_class << 9 | BOTTOM | ttl


def pop_label(flow: Slots, n: int, kind: int, looked: Slots | None) -> bool:
    """Remove the outermost of `n` labels; return whether that was possible."""
    if not n:
        return False
    if n == MAX_MPLS:
        if looked is not None:
            looked[_LSE[n - 1]] |= BOTTOM
        if not flow[_LSE[n - 1]] & BOTTOM:
            return False
    for i in range(1, n):
        if looked is not None:
            looked[_LSE[i]] = 0xFFFFFFFF
        flow[_LSE[i - 1]] = flow[_LSE[i]]
    flow[_LSE[n - 1]] = 0
    flow[_TYPE] = kind
    return True
