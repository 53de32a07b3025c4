# SPDX-License-Identifier: Apache-2.0
"""Which flows of the datapath, and which filters of tc, a packet matches.

A packet is what is known of it: fields that are not known match whatever is asked of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ovs_checks.datapath.key import MEMBERS
from ovs_checks.datapath.layers import Filter, Megaflow
from ovs_checks.openflow.action_text import StrayError, split
from ovs_checks.openflow.notation import bounded, ipv4, ipv6, mac

Known = Mapping[str, int]
"""Slot of a packet (`ovs_checks.openflow.packet.SLOTS`) -> its value, for what is known of it."""

_LOOKED_AT: Mapping[str, tuple[str, ...]] = {
    "eth": ("src", "dst"),
    "ipv4": ("src", "dst", "proto"),
    "ipv6": ("src", "dst", "proto"),
    "udp": ("src", "dst"),
    "tunnel": ("tun_id", "src", "dst", "ipv6_src", "ipv6_dst"),
}
"""Parts of a datapath flow's key that tell packets of two endpoints from others'."""
_EVERY_BIT = -1
_ITEM = re.compile(r"\s*([a-z_0-9]+)\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entrance:
    """A packet, and by which ports of the datapath it may come in."""

    packet: Known
    ports: frozenset[str]
    """Names and numbers of ports of the datapath."""


def crosses(entrance: Entrance, megaflow: Megaflow) -> bool:
    """Return whether the packet matches a flow of the datapath.

    Raises
    ------
    ValueError
        If the flow's key is not understood.
    """
    return megaflow.in_port in entrance.ports and _fits(entrance.packet, _asked(megaflow.key))


def passes(entrance: Entrance, one: Filter) -> bool:
    """Return whether the packet matches a filter of tc.

    Raises
    ------
    ValueError
        If a field of the filter is not understood.
    """
    return one.device in entrance.ports and _fits(entrance.packet, _filtered(one.text))


def _fits(packet: Known, asked: Iterator[tuple[str, int, int]]) -> bool:
    return all(not (packet[slot] ^ value) & mask for slot, value, mask in asked if slot in packet)


def _asked(key: str) -> Iterator[tuple[str, int, int]]:
    """Yield (slot, value, mask) of what a datapath flow asks of packets."""
    try:
        parts = [key[begin:end] for begin, end in split(key)]
    except StrayError as error:
        raise ValueError(str(error)) from error
    for part in parts:
        found = _ITEM.fullmatch(part)
        name, inner = found.groups() if found else ("", "")
        if name == "encap":
            yield from _asked(inner)
        elif name == "eth_type":
            value, _, mask = inner.partition("/")
            yield "eth_type", bounded(value, 16), bounded(mask, 16) if mask else _EVERY_BIT
        elif name in _LOOKED_AT:
            yield from _members(name, inner)


def _members(name: str, inner: str) -> Iterator[tuple[str, int, int]]:
    try:
        parts = [inner[begin:end] for begin, end in split(inner)]
    except StrayError as error:
        raise ValueError(str(error)) from error
    for part in parts:
        member, _, text = part.strip().partition("=")
        if member in _LOOKED_AT[name]:
            slot, read = MEMBERS[name][member]
            value, _, mask = text.partition("/")
            yield slot, read(value), read(mask) if mask else _EVERY_BIT


# --- tc ------------------------------------------------------------------------------------------

_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}
"""How tc writes protocols of IP (IANA's numbers)."""
_TYPES = {"ipv4": 0x0800, "ipv6": 0x86DD, "arp": 0x0806}
"""How tc writes Ethernet types (IEEE's numbers)."""
_FIELDS = {
    "dst_mac": ("eth_dst", mac),
    "src_mac": ("eth_src", mac),
    "eth_type": ("eth_type", lambda text: _TYPES.get(text) or bounded(text, 16)),
    "ip_proto": ("nw_proto", lambda text: _PROTOCOLS.get(text) or bounded(text, 8)),
    "dst_port": ("tp_dst", lambda text: bounded(text, 16)),
    "src_port": ("tp_src", lambda text: bounded(text, 16)),
    "enc_key_id": ("tun_id", lambda text: bounded(text, 64)),
}
_ADDRESSES = {
    "dst_ip": ("nw_dst", "ipv6_dst"),
    "src_ip": ("nw_src", "ipv6_src"),
    "enc_dst_ip": ("tun_dst", "tun_ipv6_dst"),
    "enc_src_ip": ("tun_src", "tun_ipv6_src"),
}
"""Slots of IPv4 and of IPv6: tc writes both under one name (`flower_print_ip_addr()`)."""
_FIELD = re.compile(rf"(?<=\s)({'|'.join((*_FIELDS, *_ADDRESSES))})\s+(\S+)")


def _filtered(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (slot, value, mask) of what a filter, in one line, asks of packets."""
    for name, asked in _FIELD.findall(text.partition("action order")[0]):
        value, _, mask = asked.partition("/")
        if name in _ADDRESSES:
            yield _address(_ADDRESSES[name], value, mask)
        else:
            slot, read = _FIELDS[name]
            yield slot, read(value), read(mask) if mask else _EVERY_BIT


def _address(slots: tuple[str, str], value: str, mask: str) -> tuple[str, int, int]:
    """Return (slot, value, mask) of an address, whose mask is a prefix length or like an address.

    `slots` are those of IPv4 and of IPv6.
    """
    v6 = ":" in value
    read, width = (ipv6, 128) if v6 else (ipv4, 32)
    bits = _EVERY_BIT
    if mask.isdecimal():
        length = bounded(mask, 8)
        bits = (1 << width) - (1 << max(0, width - length))
    elif mask:
        bits = read(mask)
    return slots[v6], read(value), bits
