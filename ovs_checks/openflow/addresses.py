# SPDX-License-Identifier: Apache-2.0
"""Addresses of IPv4 and IPv6 alike, and the slots of a packet that hold them."""

from .notation import format_ipv4, format_ipv6, ipv4, ipv6, mac
from .packet import ETH_IPV4, ETH_IPV6, ICMP, ICMPV6, TCP, UDP, Header, dl_type

_MAPPED = 0xFFFF
"""Upper 96 bits of an IPv6 address that stands for an IPv4 one (RFC 4291, 2.5.5.2)."""


class TwoFamilies(ValueError):
    """One of two ends has an IPv4 address, the other an IPv6 one: no packet goes between them."""


def either(text: str) -> tuple[int, int]:
    """Return an address as (IPv4, IPv6), with 0 for the one that it is not.

    An IPv4-mapped address is IPv4, as in Open vSwitch (`in6_addr_get_mapped_ipv4()`).

    Raises
    ------
    ValueError
        For what is no address.
    """
    if ":" not in text:
        return ipv4(text), 0
    value = ipv6(text)
    return (value & 0xFFFFFFFF, 0) if value >> 32 == _MAPPED else (0, value)


def either_or_zero(text: str) -> tuple[int, int]:
    """Return an address as (IPv4, IPv6); (0, 0) where it is absent or odd."""
    try:
        return either(text)
    except ValueError:
        return 0, 0


def text_of(v4: int, v6: int) -> str:
    """Return the address that is not 0, as Open vSwitch writes it; empty if both are."""
    return format_ipv4(v4) if v4 else format_ipv6(v6) if v6 else ""


def canonical(text: str) -> str:
    """Return an address as `text_of` writes it, and whatever is no address as it is."""
    return text_of(*either_or_zero(text)) or text


def network(source: str, target: str) -> dict[str, int]:
    """Return the slots of a packet between two addresses: its Ethernet type, and they.

    Raises
    ------
    ValueError
        For what is no address.
    TwoFamilies
        For an IPv4 and an IPv6 address.
    """
    (source4, source6), (target4, target6) = either(source), either(target)
    if source4 or target4:
        if source6 or target6:
            reason = f"no packet goes from {source} to {target}: one is IPv4, one IPv6"
            raise TwoFamilies(reason)
        return {"eth_type": ETH_IPV4, "nw_src": source4, "nw_dst": target4}
    return {"eth_type": ETH_IPV6, "ipv6_src": source6, "ipv6_dst": target6}


def outer(tun_dst: str, tun_src: str) -> dict[str, int]:
    """Return a tunnel's ends as slots of a packet, those of the other family included, which are 0.

    What is no address, such as an empty text, is 0 as well.
    """
    (dst4, dst6), (src4, src6) = either_or_zero(tun_dst), either_or_zero(tun_src)
    return {"tun_dst": dst4, "tun_src": src4, "tun_ipv6_dst": dst6, "tun_ipv6_src": src6}


def destination(header: Header) -> str:
    """Return the IP address that a packet is for; empty for a packet that is neither IP nor ARP."""
    if dl_type(header) == ETH_IPV6:
        return format_ipv6(header.ipv6_dst)
    return text_of(header.nw_dst, 0)


def udp_between(
    source: tuple[str, str], target: tuple[str, str], *, source_port: int, destination_port: int
) -> Header:
    """Return a UDP packet between two ends, each (MAC, IP address).

    Raises
    ------
    ValueError
        For what is no address.
    TwoFamilies
        For an IPv4 and an IPv6 address.
    """
    return Header(
        eth_src=mac(source[0]),
        eth_dst=mac(target[0]),
        **network(source[1], target[1]),
        nw_proto=UDP,
        nw_ttl=64,
        tp_src=source_port,
        tp_dst=destination_port,
    )


_ECHO = {ICMP: (8, 0), ICMPV6: (128, 129)}
"""Types of an echo request and its reply (RFC 792, RFC 4443)."""
_SYN, _SYN_ACK = 0x002, 0x012
"""TCP's flags in the packet that asks for a connection, and in its answer (RFC 9293)."""


def of_protocol(header: Header, protocol: str, *, is_reply: bool = False) -> Header:
    """Return a UDP packet as the first of a connection of ``tcp``, ``icmp`` or ``udp``.

    With `is_reply` as the first answer to one. ICMP has echoes, which have no ports.
    """
    if protocol == "tcp":
        return header._replace(nw_proto=TCP, tcp_flags=_SYN_ACK if is_reply else _SYN)
    if protocol == "icmp":
        number = ICMPV6 if dl_type(header) == ETH_IPV6 else ICMP
        return header._replace(nw_proto=number, tp_src=_ECHO[number][is_reply], tp_dst=0)
    return header
