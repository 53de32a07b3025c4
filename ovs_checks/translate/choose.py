# SPDX-License-Identifier: Apache-2.0
"""Choosing one of several by a hash of the packet: `multipath` and `bundle`."""

from ovs_checks.openflow.actions import Members, Multipath
from ovs_checks.openflow.fields import FIELDS, look, write
from ovs_checks.openflow.hashing import hash_fields, hash_words
from ovs_checks.openflow.notation import SPECIAL_PORTS
from ovs_checks.openflow.packet import (
    ETH_IPV4,
    ETH_IPV6,
    FRAGMENT,
    ICMP,
    SCTP,
    SLOTS,
    TAG_PRESENT,
    TCP,
    UDP,
    is_ip,
)

from .context import Context

_PORTS = ("tp_src", "tp_dst")
_NONE = SPECIAL_PORTS["none"]
_RESERVED = frozenset(SPECIAL_PORTS[name] for name in ("in_port", "table", "normal", "flood"))
_ALWAYS = _RESERVED | {SPECIAL_PORTS["all"], _NONE}


def note_hashed(x: Context, fields: str) -> None:
    """Note that what is hashed mattered (`flow_mask_hash_fields`)."""
    match fields:
        case "eth_src":
            _look(x, ("eth_src",), 48)
        case "symmetric_l4":
            _note_symmetric_l4(x)
        case "symmetric_l3l4" | "symmetric_l3l4+udp":
            _note_symmetric_l3l4(x, udp=fields.endswith("udp"))
        case "symmetric_l3":
            _look_addresses(x, ("src", "dst"))
        case _:
            _look_addresses(x, (fields.removeprefix("nw_"),))


def _look(x: Context, names: tuple[str, ...], width: int) -> None:
    for name in names:
        x.looked[SLOTS[name]] |= (1 << width) - 1


def _look_addresses(x: Context, ends: tuple[str, ...]) -> bool:
    kind = x.header.eth_type
    if kind == ETH_IPV4:
        _look(x, tuple(f"nw_{end}" for end in ends), 32)
    elif kind == ETH_IPV6:
        _look(x, tuple(f"ipv6_{end}" for end in ends), 128)
    return kind in {ETH_IPV4, ETH_IPV6}


def _note_symmetric_l4(x: Context) -> None:
    _look(x, ("eth_src", "eth_dst"), 48)
    _look_addresses(x, ("src", "dst"))
    protocol = x.header.nw_proto
    if is_ip(x.flow):
        _look(x, ("nw_proto",), 8)
        if protocol != UDP:
            _look(x, _PORTS, 8 if protocol == ICMP else 16)
    for name in ("vlan_tci", "vlan_tci1"):
        x.looked[SLOTS[name]] |= 0xFFF | TAG_PRESENT


def _note_symmetric_l3l4(x: Context, *, udp: bool) -> None:
    header = x.header
    whole = not header.nw_frag & FRAGMENT
    if udp and is_ip(x.flow) and header.nw_proto == UDP and whole:
        _look(x, _PORTS, 16)
    if not _look_addresses(x, ("src", "dst")):
        return
    _look(x, ("nw_proto",), 8)
    if header.nw_proto in {TCP, SCTP} and whole:
        _look(x, _PORTS, 16)


def multipath(x: Context, action: Multipath) -> int:
    """Write the number of the chosen link; return it."""
    hashed = hash_fields(x.header, action.fields, action.basis)
    link = _link(hashed, action.algorithm, action.links, action.argument)
    note_hashed(x, action.fields)
    field, start = FIELDS[action.target.field], action.target.start
    mask = ((1 << action.target.width) - 1) << start
    look(field, x.looked, mask)
    write(field, x.flow, link << start, mask)
    return link


def _link(hashed: int, algorithm: str, links: int, argument: int) -> int:
    match algorithm:
        case "modulo_n":
            return hashed % links
        case "hash_threshold":
            return 0 if links == 1 else hashed // (0xFFFFFFFF // links + 1)
        case "hrw" if links <= 64:
            weights = [hash_words(hashed, n) for n in range(links)]
            return weights.index(max(weights))
        case "hrw":
            return _iterate(hashed, links, 0)
        case _:
            return _iterate(hashed, links, argument)


def _iterate(hashed: int, links: int, modulo: int) -> int:
    if modulo < links or modulo // 2 > links:
        modulo = 1 << (links - 1).bit_length()
    n = 0
    while (link := (hash_words(hashed, n) & 0xFFFFFFFF) % modulo) >= links:
        n += 1
    return link


def member(x: Context, action: Members) -> int:
    """Return the port of the chosen member; `none` where none is live."""
    if action.algorithm == "active_backup":
        return next((port for port in action.ports if _enabled(x, port)), _NONE)
    if len(action.ports) > 1:
        note_hashed(x, action.fields)
    hashed = hash_fields(x.header, action.fields, action.basis)
    best, best_hash = _NONE, -1
    for n, port in enumerate(action.ports):
        if _enabled(x, port) and hash_words(n, hashed) > best_hash:
            best, best_hash = port, hash_words(n, hashed)
    return best


def _enabled(x: Context, number: int) -> bool:
    if number in _ALWAYS:
        return True
    port = x.port(number)
    return port is not None and port.live
