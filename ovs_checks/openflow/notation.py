# SPDX-License-Identifier: Apache-2.0
"""How Open vSwitch writes the values of fields: `decode` and `encode` are each other's inverse.

Everything here raises `ValueError` on text it does not understand; `parse` says where it was.
"""

import re
from collections.abc import Callable, Mapping

from .fields import FIELDS, Field, read
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
    SCTP,
    SLOTS,
    TCP,
    UDP,
    Header,
)

SPECIAL_PORTS: Mapping[str, int] = {
    "in_port": 0xFFF8,
    "table": 0xFFF9,
    "normal": 0xFFFA,
    "flood": 0xFFFB,
    "all": 0xFFFC,
    "controller": 0xFFFD,
    "local": 0xFFFE,
    "none": 0xFFFF,
    "any": 0xFFFF,
    "unset": 0xFFF7,
}
"""OpenFlow's reserved ports; Open vSwitch takes and prints these names in either case."""

SHORTHANDS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "ip": (("eth_type", ETH_IPV4),),
    "ipv6": (("eth_type", ETH_IPV6),),
    "arp": (("eth_type", ETH_ARP),),
    "rarp": (("eth_type", ETH_RARP),),
    "mpls": (("eth_type", ETH_MPLS),),
    "mplsm": (("eth_type", ETH_MPLS_MC),),
    "eth": (("packet_type", 0),),
    "icmp": (("eth_type", ETH_IPV4), ("nw_proto", ICMP)),
    "igmp": (("eth_type", ETH_IPV4), ("nw_proto", IGMP)),
    "tcp": (("eth_type", ETH_IPV4), ("nw_proto", TCP)),
    "udp": (("eth_type", ETH_IPV4), ("nw_proto", UDP)),
    "sctp": (("eth_type", ETH_IPV4), ("nw_proto", SCTP)),
    "icmp6": (("eth_type", ETH_IPV6), ("nw_proto", ICMPV6)),
    "tcp6": (("eth_type", ETH_IPV6), ("nw_proto", TCP)),
    "udp6": (("eth_type", ETH_IPV6), ("nw_proto", UDP)),
    "sctp6": (("eth_type", ETH_IPV6), ("nw_proto", SCTP)),
}
"""Words that stand for a protocol, and the fields they fix."""

CT_STATES = ("new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat")
TCP_FLAGS = (
    *("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"),
    *("[200]", "[400]", "[800]"),
)
TUN_FLAGS = ("df", "csum", "key", "oam")
FLAGS: Mapping[str, tuple[str, ...]] = {
    "ct_state": CT_STATES,
    "tcp_flags": TCP_FLAGS,
    "tun_flags": TUN_FLAGS,
}
"""Names of the bits of fields that are sets of flags, the lowest first."""

_FRAGS = {"no": (0, 3), "yes": (1, 1), "first": (1, 3), "later": (3, 3), "not_later": (0, 2)}
"""Word of `ip_frag` -> value and mask of `nw_frag`."""
_SIGNED = re.compile(r"([+-])([a-z]+|\[[0-9]+\])")
_INTEGER = re.compile(r"0[xX][0-9a-fA-F]{1,256}|[0-9]{1,40}")


def integer(text: str) -> int:
    """Return a non-negative integer written in decimal or, after `0x`, in hexadecimal."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"not a number: {text[:40]!r}")
    return int(text, 16) if text[1:2] in {"x", "X"} else int(text)


def mac(text: str) -> int:
    """Return an Ethernet address, `aa:bb:cc:dd:ee:ff`, as an integer."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}", text):
        raise ValueError(f"not an Ethernet address: {text[:40]!r}")
    return int.from_bytes(bytes(int(part, 16) for part in text.split(":")), "big")


def ipv4(text: str) -> int:
    """Return an IPv4 address in dotted form as an integer."""
    parts = text.split(".")
    known = all(re.fullmatch("[0-9]{1,3}", part) and int(part) < 256 for part in parts)
    if len(parts) != 4 or not known:
        raise ValueError(f"not an IPv4 address: {text[:40]!r}")
    return int.from_bytes(bytes(int(part) for part in parts), "big")


def ipv6(text: str) -> int:
    """Return an IPv6 address as an integer."""
    if not re.fullmatch(r"[0-9a-fA-F:.]{2,45}", text) or "." in text.rpartition(":")[0]:
        raise ValueError(f"not an IPv6 address: {text[:40]!r}")
    head, gap, tail = text.partition("::")
    before, after = _groups(head), _groups(tail)
    missing = 8 - len(before) - len(after)
    if "::" in tail or missing < bool(gap) or (not gap and missing):
        raise ValueError(f"not an IPv6 address: {text!r}")
    value = 0
    for group in before + [0] * missing + after:
        value = value << 16 | group
    return value


def _groups(text: str) -> list[int]:
    """Return the 16-bit groups of one side of an IPv6 address; it may end in an IPv4 address."""
    groups: list[int] = []
    for part in text.split(":") if text else ():
        if "." in part:
            address = ipv4(part)
            groups += [address >> 16, address & 0xFFFF]
        elif 1 <= len(part) <= 4:
            groups.append(int(part, 16))
        else:
            raise ValueError(f"not part of an IPv6 address: {part!r}")
    return groups


def or_zero(parser: Callable[[str], int], text: str) -> int:
    """Return what `parser` makes of a port's option, 0 where the option is absent or odd."""
    try:
        return parser(text)
    except ValueError:
        return 0


def bounded(text: str, bits: int) -> int:
    """Return an integer of at most `bits` bits."""
    value = integer(text)
    if value >> bits:
        raise ValueError(f"wider than {bits} bits: {text}")
    return value


def format_mac(value: int) -> str:
    """Return `value` as `aa:bb:cc:dd:ee:ff`."""
    return value.to_bytes(6, "big").hex(":")


def format_ipv4(value: int) -> str:
    """Return `value` in dotted form."""
    return ".".join(str(byte) for byte in value.to_bytes(4, "big"))


def format_ipv6(value: int) -> str:
    """Return `value` as the C library does, the longest run of zeroes left out."""
    if value >> 32 == 0xFFFF or (not value >> 32 and value >> 16):
        return ("::ffff:" if value >> 32 else "::") + format_ipv4(value & 0xFFFFFFFF)
    groups = ":".join(f"{value >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))
    runs = re.finditer(r"(?:^|(?<=:))0(?::0)+(?=:|$)", groups)
    longest = max(runs, key=lambda run: len(run[0]), default=None)
    if longest is None:
        return groups
    return f"{groups[: longest.start()].rstrip(':')}::{groups[longest.end() :].lstrip(':')}"


def flags(text: str, names: tuple[str, ...]) -> int:
    """Return the bits of `syn|ack`; numbers may be among them."""
    value = 0
    for part in text.split("|"):
        value |= 1 << names.index(part) if part in names else integer(part)
    return value


def format_flags(value: int, names: tuple[str, ...], between: str = "|") -> str:
    """Return the names of the bits that are set, lowest first; `0` if none is."""
    said = [name for n, name in enumerate(names) if value >> n & 1]
    rest = value >> len(names) << len(names)
    return between.join([*said, hex(rest)] if rest else said) or "0"


def packet_type(text: str) -> tuple[int, int]:
    """Return (value, mask) of `(1,0x800)`; either part may be `*`."""
    found = re.fullmatch(r"\(([^,()]+),([^,()]+)\)", text)
    if found is None:
        raise ValueError(f"not a packet type: {text[:40]!r}")
    value = mask = 0
    for part in found.groups():
        number, slash, bits = part.partition("/")
        part_mask = 0 if part == "*" else bounded(bits, 16) if slash else 0xFFFF
        value = value << 16 | (0 if part == "*" else bounded(number, 16))
        mask = mask << 16 | part_mask
    return value & mask, mask


_PARSERS: Mapping[str, Callable[[str], int]] = {
    "int": integer,
    "hex": integer,
    "mac": mac,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "port": integer,
    "frag": integer,
    "tcp_flags": lambda text: flags(text, TCP_FLAGS),
    "ct_state": lambda text: flags(text, CT_STATES),
    "tun_flags": lambda text: flags(text, TUN_FLAGS),
}
_FORMATTERS: Mapping[str, Callable[[int], str]] = {
    "hex": hex,
    "mac": format_mac,
    "ipv4": format_ipv4,
    "ipv6": format_ipv6,
    "tcp_flags": hex,
    "ct_state": hex,
    "tun_flags": hex,
}


def _signed(text: str, names: tuple[str, ...]) -> tuple[int, int]:
    """Decode `+trk-new`: named bits that must be set or clear."""
    value = mask = end = 0
    for found in _SIGNED.finditer(text):
        if found.start() != end or found[2] not in names:
            break
        end = found.end()
        bit = 1 << names.index(found[2])
        mask |= bit
        value |= bit if found[1] == "+" else 0
    if end != len(text) or not text:
        raise ValueError(f"unknown flags: {text[end:][:40]!r}")
    return value, mask


def _mask(field: Field, text: str) -> int:
    """Decode what follows the slash: a prefix length for addresses, else a mask like the value."""
    if field.kind in {"ipv4", "ipv6"} and text.isascii() and text.isdigit():
        length = integer(text)
        if length > field.width:
            raise ValueError(f"prefix longer than the address: {length}")
        return (1 << field.width) - (1 << field.width - length)
    return _PARSERS[field.kind](text)


def decode(field: Field, text: str) -> tuple[int, int]:
    """Return (value, mask) of `text`, which may carry its mask after a slash."""
    if field.kind == "frag" and text in _FRAGS:
        return _FRAGS[text]
    if field.kind in FLAGS and text[:1] in {"+", "-"}:
        return _signed(text, FLAGS[field.kind])
    if field.kind == "packet_type":
        return packet_type(text)
    value_text, slash, mask_text = text.partition("/")
    value = _PARSERS[field.kind](value_text)
    mask = _mask(field, mask_text) if slash else field.bits
    if (value | mask) >> field.width:
        raise ValueError(f"wider than the {field.width} bits of {field.name}: {text[:80]!r}")
    return value & mask, mask & field.bits


def encode(field: Field, value: int, mask: int) -> str:
    """Return (value, mask) as text that `decode` takes back."""
    if field.kind == "packet_type":
        return f"({value >> 16},{value & 0xFFFF:#x})"
    formatter = _FORMATTERS.get(field.kind, str)
    if field.kind == "frag" and mask != field.bits:
        return next(name for name, pair in _FRAGS.items() if pair == (value, mask))
    return formatter(value) if mask == field.bits else f"{formatter(value)}/{formatter(mask)}"


_CONTEXT_NAMES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "arp": (("nw_proto", "arp_op"), ("nw_src", "arp_spa"), ("nw_dst", "arp_tpa")),
    "tcp": (("tp_src", "tcp_src"), ("tp_dst", "tcp_dst")),
    "udp": (("tp_src", "udp_src"), ("tp_dst", "udp_dst")),
    "sctp": (("tp_src", "sctp_src"), ("tp_dst", "sctp_dst")),
    "icmp": (("tp_src", "icmp_type"), ("tp_dst", "icmp_code")),
    "icmp6": (("tp_src", "icmpv6_type"), ("tp_dst", "icmpv6_code")),
}


def _shorthand(header: Header) -> str:
    """Return the longest protocol word that is true of the packet, or nothing."""
    return max(
        (
            word
            for word, fixed in SHORTHANDS.items()
            if all(header[SLOTS[name]] == value for name, value in fixed)
        ),
        key=lambda word: len(SHORTHANDS[word]),
        default="",
    )


_OPTIONS = frozenset({"tun_present", "tun_metadata"})


def format_header(header: Header) -> str:
    """Return the packet in the flow syntax that `ofproto/trace` takes; zero fields are left out."""
    word = _shorthand(header)
    said = {name for name, _ in SHORTHANDS.get(word, ())}
    context = dict(_CONTEXT_NAMES.get(word.removesuffix("6") if word != "icmp6" else word, ()))
    parts = [word] if word else []
    for slot, value in zip(Header._fields, header, strict=True):
        if slot in said or slot in _OPTIONS or not (value or slot == "in_port"):
            continue
        parts += [f"{name}={text}" for name, text in _spell(slot, context.get(slot, slot), value)]
    for n in range(header.tun_present.bit_length()):
        if header.tun_present >> n & 1:  # an option may be there and be zero
            field = FIELDS[f"tun_metadata{n}"]
            parts.append(f"{field.name}={encode(field, read(field, header), field.bits)}")
    return ",".join(parts)


def _spell(slot: str, name: str, value: int) -> list[tuple[str, str]]:
    """Return the assignments that say `value`; the type of service takes two fields."""
    if slot == "nw_tos":
        pairs = [("nw_tos", value & 0xFC), ("nw_ecn", value & 3)]
    else:
        pairs = [(slot if value >> FIELDS[name].width else name, value)]
    return [(n, encode(FIELDS[n], v, FIELDS[n].bits)) for n, v in pairs if v or n == "in_port"]
