# SPDX-License-Identifier: Apache-2.0
"""Packets as the datapath writes them (`odp_flow_from_string`): `in_port(1),eth(...),...`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ovs_checks.openflow.action_text import StrayError, split
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.notation import bounded, decode, ipv4, ipv6, mac
from ovs_checks.openflow.packet import (
    FRAGMENT,
    LATER_FRAGMENT,
    MAX_MPLS,
    SLOTS,
    TAG_PRESENT,
    TUN_CSUM,
    TUN_DF,
    TUN_KEY,
    TUN_METADATA_LANE,
    TUN_OAM,
    Header,
)
from ovs_checks.openflow.parse import MalformedLine
from ovs_checks.switch.snapshot import TunnelOption

_UFID = re.compile(r"\s*ufid:[0-9a-fA-F-]+,?\s*")
_FORM = re.compile(rf"(?:{_UFID.pattern})?\s*[a-z_0-9]+\(")
_ITEM = re.compile(r"\s*([a-z_0-9]+)\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(
    r"\{class=([^,{}]+),type=([^,{}]+),len=([^,{}]+)(?:,([^,{}/]*)(?:/[^{}]*)?)?\}"
)
_TUNNEL_FLAGS = {"df": TUN_DF, "csum": TUN_CSUM, "key": TUN_KEY, "oam": TUN_OAM}
_FLAG = re.compile(r"([|+-]?)([^|+-]+)")
_FRAGMENTS = {"no": 0, "first": FRAGMENT, "later": FRAGMENT | LATER_FRAGMENT}

Reader = Callable[[str], int]


def _int(bits: int) -> Reader:
    return lambda text: bounded(text, bits)


def _fragment(text: str) -> int:
    if text not in _FRAGMENTS:
        raise ValueError(f"no kind of fragment: {text!r}")
    return _FRAGMENTS[text]


def _tunnel_flags(text: str) -> int:
    """Return the flags of `df|key`, or of the masked form `-df-csum+key` (`format_flags_masked()`).

    A packet that the masked form takes has what `+` names and lacks what `-` names; as with all
    masks, what is not named may be either, and is read as absent.

    Raises
    ------
    ValueError
        For a flag that no tunnel has, and for one that is both to be there and not.
    """
    present = absent = 0
    for sign, word in _FLAG.findall(text.partition("/")[0]):
        if word not in {"0", *_TUNNEL_FLAGS}:
            raise ValueError(f"no flag of a tunnel: {word!r}")
        flag = _TUNNEL_FLAGS.get(word, 0)
        if sign == "-":
            absent |= flag
        else:
            present |= flag
        if present & absent:
            raise ValueError(f"a flag of a tunnel that is there and not: {word!r}")
    return present


_SINGLES: Mapping[str, tuple[str, Reader]] = {
    "recirc_id": ("recirc_id", _int(32)),
    "dp_hash": ("dp_hash", _int(32)),
    "skb_priority": ("skb_priority", _int(32)),
    "skb_mark": ("pkt_mark", _int(32)),
    "ct_state": ("ct_state", lambda text: decode(FIELDS["ct_state"], text)[0]),
    "ct_zone": ("ct_zone", _int(16)),
    "ct_mark": ("ct_mark", _int(32)),
    "ct_label": ("ct_label", _int(128)),
    "eth_type": ("eth_type", _int(16)),
}
_TRANSPORT = {"src": ("tp_src", _int(16)), "dst": ("tp_dst", _int(16))}
_ICMP = {"type": ("tp_src", _int(8)), "code": ("tp_dst", _int(8))}
_TRACKED = {"proto": ("ct_nw_proto", _int(8)), "tp_src": ("ct_tp_src", _int(16)),
            "tp_dst": ("ct_tp_dst", _int(16))}  # fmt: skip
MEMBERS: Mapping[str, Mapping[str, tuple[str, Reader]]] = {
    "ct_tuple4": _TRACKED | {"src": ("ct_nw_src", ipv4), "dst": ("ct_nw_dst", ipv4)},
    "ct_tuple6": _TRACKED | {"src": ("ct_ipv6_src", ipv6), "dst": ("ct_ipv6_dst", ipv6)},
    "tunnel": {
        "tun_id": ("tun_id", _int(64)),
        "src": ("tun_src", ipv4),
        "dst": ("tun_dst", ipv4),
        "ipv6_src": ("tun_ipv6_src", ipv6),
        "ipv6_dst": ("tun_ipv6_dst", ipv6),
        "tos": ("tun_tos", _int(8)),
        "ttl": ("tun_ttl", _int(8)),
        "tp_src": ("tun_tp_src", _int(16)),
        "tp_dst": ("tun_tp_dst", _int(16)),
    },
    "gtpu": {"flags": ("tun_gtpu_flags", _int(8)), "msgtype": ("tun_gtpu_msgtype", _int(8))},
    "erspan": {
        "ver": ("tun_erspan_ver", _int(8)),
        "idx": ("tun_erspan_idx", _int(20)),
        "dir": ("tun_erspan_dir", _int(1)),
        "hwid": ("tun_erspan_hwid", _int(6)),
    },
    "eth": {"src": ("eth_src", mac), "dst": ("eth_dst", mac)},
    "ipv4": {
        "src": ("nw_src", ipv4),
        "dst": ("nw_dst", ipv4),
        "proto": ("nw_proto", _int(8)),
        "tos": ("nw_tos", _int(8)),
        "ttl": ("nw_ttl", _int(8)),
        "frag": ("nw_frag", _fragment),
    },
    "ipv6": {
        "src": ("ipv6_src", ipv6),
        "dst": ("ipv6_dst", ipv6),
        "label": ("ipv6_label", _int(20)),
        "proto": ("nw_proto", _int(8)),
        "tclass": ("nw_tos", _int(8)),
        "hlimit": ("nw_ttl", _int(8)),
        "frag": ("nw_frag", _fragment),
    },
    "tcp": _TRANSPORT,
    "udp": _TRANSPORT,
    "sctp": _TRANSPORT,
    "icmp": _ICMP,
    "icmpv6": _ICMP,
    "arp": {
        "sip": ("nw_src", ipv4),
        "tip": ("nw_dst", ipv4),
        "op": ("nw_proto", _int(8)),
        "sha": ("arp_sha", mac),
        "tha": ("arp_tha", mac),
    },
    "nd": {"target": ("nd_target", ipv6), "sll": ("arp_sha", mac), "tll": ("arp_tha", mac)},
}


Option = tuple[int, int, int, int]
"""An option of Geneve: class, type, length in bytes, value."""


def mapped(options: Iterable[Option], known: Iterable[TunnelOption]) -> tuple[int, int]:
    """Return which `tun_metadata` fields a bridge that maps them so sees, and what is in them."""
    present = metadata = 0
    fields = list(known)
    for option_class, kind, length, value in options:
        for one in fields:
            if (one.option_class, one.type, one.length) == (option_class, kind, length):
                present |= 1 << one.index
                metadata |= value << one.index * TUN_METADATA_LANE
    return present, metadata


@dataclass(slots=True)
class DatapathKey:
    """A packet as the datapath sees it."""

    in_port: str = ""
    """Number or name in the datapath; empty where it is not said."""

    slots: list[int] = field(default_factory=lambda: [0] * len(SLOTS))
    options: list[Option] = field(default_factory=list)
    """Geneve's."""

    tags: int = 0
    labels: int = 0

    def header(self, ofport: int, known: tuple[TunnelOption, ...] = ()) -> Header:
        """Return the packet as a bridge sees it that maps Geneve options so."""
        header = Header._make(self.slots)._replace(in_port=ofport)
        present, metadata = mapped(self.options, known)
        return header._replace(tun_present=present, tun_metadata=metadata)

    def put(self, slot: str, value: int) -> None:
        """Set one slot."""
        self.slots[SLOTS[slot]] = value


def is_datapath_key(text: str) -> bool:
    """Tell the datapath's notation from that of flows."""
    return _FORM.match(text) is not None


def parse_key(text: str) -> DatapathKey:
    """Read a packet from the datapath's notation; masks, as dumps have them, are passed over.

    Raises
    ------
    MalformedLine
        For anything that is not understood.
    """
    key = DatapathKey()
    named = _UFID.match(text)
    start = named.end() if named else 0
    _read(key, text[start:], start, text)
    return key


def parse_question(text: str) -> DatapathKey:
    """Read the packet of a question: without `eth()` it is no frame (`odp_flow_key_to_flow`).

    Raises
    ------
    MalformedLine
        For anything that is not understood.
    """
    key = parse_key(text)
    kind = key.slots[SLOTS["eth_type"]]
    if kind and not re.search(r"\b(eth|packet_type)\(", text):
        key.put("packet_type", 1 << 16 | kind)
    return key


def _read(key: DatapathKey, text: str, offset: int, whole: str) -> None:
    for begin, item in _items(text, offset, whole):
        found = _ITEM.fullmatch(item)
        name, inner = found.groups() if found else ("", "")
        if name == "encap":
            _read(key, inner, begin + item.index("(") + 1, whole)
            continue
        try:
            _item(key, name or item[:60], inner)
        except ValueError as e:
            raise MalformedLine(str(e), line=1, column=begin + 1, text=whole) from e


def _items(text: str, offset: int, whole: str) -> Iterator[tuple[int, str]]:
    try:
        for begin, end in split(text):
            if text[begin:end].strip():
                yield offset + begin, text[begin:end]
    except StrayError as e:
        raise MalformedLine(str(e), line=1, column=offset + e.index + 1, text=whole) from e


def _item(key: DatapathKey, name: str, inner: str) -> None:
    value = inner.partition("/")[0]
    if name == "in_port":
        key.in_port = value.strip()
    elif name in _SINGLES:
        slot, read = _SINGLES[name]
        key.put(slot, read(value))
    elif name == "vlan":
        _vlan(key, inner)
    elif name == "mpls":
        _mpls(key, inner)
    elif name == "tunnel":
        _tunnel(key, inner)
    elif name == "tcp_flags":
        key.put("tcp_flags", bounded(value, 12))
    elif name == "packet_type":
        parts = _pairs(inner)
        space, kind = parts.get("ns", "0"), parts.get("id", "0")
        key.put("packet_type", bounded(space, 16) << 16 | bounded(kind, 16))
    elif name in MEMBERS:
        _members(key, name, _pairs(inner))
    else:
        raise ValueError(f"unknown part of a packet: {name!r}")


def _pairs(inner: str) -> dict[str, str]:
    """Return `a=1,b=2/3` as a mapping, masks left out."""
    pairs = {}
    for begin, end in split(inner):
        name, _, value = inner[begin:end].strip().partition("=")
        if name:
            pairs[name] = value.partition("/")[0]
    return pairs


def _members(key: DatapathKey, name: str, pairs: Mapping[str, str]) -> None:
    known = MEMBERS[name]
    for member, value in pairs.items():
        if member not in known:
            raise ValueError(f"unknown in {name}(): {member}")
        slot, read = known[member]
        key.put(slot, read(value))


def _vlan(key: DatapathKey, inner: str) -> None:
    """Read one tag; its type is the Ethernet type read before."""
    pairs, suffix = _pairs(inner), "1" if key.tags else ""
    if "tci" in pairs:
        tci = bounded(pairs["tci"], 16)
    else:
        tci = bounded(pairs.get("pcp", "0"), 3) << 13 | bounded(pairs.get("vid", "0"), 12)
        tci |= TAG_PRESENT if pairs.get("cfi", "1") != "0" else 0
    key.put(f"vlan_tpid{suffix}", key.slots[SLOTS["eth_type"]])
    key.put(f"vlan_tci{suffix}", tci)
    key.tags += 1


_LABEL = {"label": (20, 12), "tc": (3, 9), "bos": (1, 8), "ttl": (8, 0)}
"""Part of an MPLS label -> number of its bits, and the lowest one's position (RFC 3032)."""


def _mpls(key: DatapathKey, inner: str) -> None:
    pairs = _pairs(inner)
    for name, slot in (("lse0", "mpls_lse"), ("lse1", "mpls_lse1"), ("lse2", "mpls_lse2")):
        if name in pairs:
            key.put(slot, bounded(pairs.pop(name), 32))
    if not pairs.keys() <= _LABEL.keys():
        raise ValueError(f"unknown in mpls(): {inner[:60]}")
    if not pairs:
        return
    labels = [0]
    seen: set[str] = set()
    for begin, end in split(inner):  # a name that comes again begins the next label
        name, _, value = inner[begin:end].strip().partition("=")
        if name not in _LABEL:
            continue
        if name in seen:
            seen.clear()
            labels.append(0)
        seen.add(name)
        bits, at = _LABEL[name]
        labels[-1] |= bounded(value.partition("/")[0], bits) << at
    if len(labels) > MAX_MPLS:
        raise ValueError(f"over {MAX_MPLS} labels: {inner[:60]}")
    for slot, label in zip(("mpls_lse", "mpls_lse1", "mpls_lse2"), labels, strict=False):
        key.put(slot, label)


def _tunnel(key: DatapathKey, inner: str) -> None:
    plain = []
    for begin, end in split(inner):
        part = inner[begin:end].strip()
        name, _, tail = part.partition("(")
        if name == "geneve":
            key.options += parse_options(tail[:-1])
        elif name == "flags":
            key.put("tun_flags", _tunnel_flags(tail[:-1]))
        elif name == "vxlan":
            pairs = _pairs(tail[:-1].removeprefix("gbp(").removesuffix(")"))
            key.put("tun_gbp_id", bounded(pairs.get("id", "0"), 16))
            key.put("tun_gbp_flags", bounded(pairs.get("flags", "0"), 8))
        elif name in {"gtpu", "erspan"}:
            _members(key, name, _pairs(tail[:-1]))
        else:
            plain.append(part)
    _members(key, "tunnel", _pairs(",".join(plain)))


def parse_options(text: str) -> Iterator[Option]:
    """Yield Geneve's options as the datapath prints them; ValueError for anything else."""
    position = 0
    for found in _OPTION.finditer(text):
        option_class, kind, length, value = found.groups()
        size = bounded(length, 8)
        yield bounded(option_class, 16), bounded(kind, 8), size, bounded(value or "0", size * 8)
        position = found.end()
    if position != len(text.rstrip()):
        raise ValueError(f"no option of Geneve: {text[position:][:60]!r}")
