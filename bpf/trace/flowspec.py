# SPDX-License-Identifier: Apache-2.0
"""Which packets a trace is about, in Open vSwitch's notation: `udp,nw_dst=10.0.0.12,tp_dst=53`.

As there, `ip`, `udp` and the like are IPv4, and `ipv6`, `udp6` and the like are IPv6.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, fields

from bpf.trace.abi import MAPPED, NAME_BYTES, Filter, FlowKey, address_text
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.errors import ConfigError

PROTOCOLS = {
    4: {"icmp": 1, "tcp": 6, "udp": 17},
    6: {"icmp6": 58, "tcp6": 6, "udp6": 17},
}
"""Version of IP -> word of the notation -> protocol (IANA's numbers)."""
_ANY_PROTOCOL = {4: "ip", 6: "ipv6"}
_ADDRESSES = {4: ("nw_src", "nw_dst"), 6: ("ipv6_src", "ipv6_dst")}
_NAMES = {(v, n): name for v, known in PROTOCOLS.items() for name, n in known.items()}
_VERSIONS = {word: v for v, words in _ADDRESSES.items() for word in words} | {
    word: v for v, known in PROTOCOLS.items() for word in (_ANY_PROTOCOL[v], *known)
}
"""Word of the notation -> version of IP, of those that imply one."""
_SYNONYMS = {
    "ip_src": "nw_src",
    "ip_dst": "nw_dst",
    "ip_proto": "nw_proto",
    "udp_src": "tp_src",
    "udp_dst": "tp_dst",
    "tcp_src": "tp_src",
    "tcp_dst": "tp_dst",
    "tunnel_id": "tun_id",
}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_WITH_PORTS = {6, 17}
"""IP protocols with ports: IPPROTO_TCP and IPPROTO_UDP."""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """Packets of one tenant, as inside of the tunnel; what is not given may be anything."""

    nw_proto: int = 0
    nw_src: Network | None = None
    """Of the family that `version` says, as is `nw_dst`."""

    nw_dst: Network | None = None
    tp_src: int = 0
    tp_dst: int = 0
    tun_id: int | None = None
    in_port: str = ""
    """Name of the switch's port that the packets come in by."""

    version: int = 4
    """4 or 6, of IP."""

    def filter(
        self,
        netns: int,
        *,
        uplink: str,
        journeys_per_s: int,
        events_per_s: int,
        tunnel: Encapsulation = VXLAN,
    ) -> Filter:
        """Return what the kernel is told."""
        (source, source_mask), (target, target_mask) = map(_bits, (self.nw_src, self.nw_dst))
        return Filter(
            netns,
            source=source,
            source_mask=source_mask,
            target=target,
            target_mask=target_mask,
            version=self.version,
            source_port=self.tp_src,
            target_port=self.tp_dst,
            protocol=self.nw_proto,
            vni=self.tun_id,
            journeys_per_s=journeys_per_s,
            events_per_s=events_per_s,
            in_port=self.in_port,
            uplink=uplink,
            tunnel_port=tunnel.port,
            geneve=tunnel.kind == GENEVE.kind,
        )

    def __str__(self) -> str:
        """Return the notation that `parse_flow` reads."""
        word = _NAMES.get((self.version, self.nw_proto))
        words = [word or _ANY_PROTOCOL[self.version]]
        if self.nw_proto and not word:
            words.append(f"nw_proto={self.nw_proto}")
        names = dict(zip(_ADDRESSES[4], _ADDRESSES[self.version], strict=True))
        for field in fields(self)[1:-1]:
            value = getattr(self, field.name)
            if value or (value == 0 and field.name == "tun_id"):
                name = names.get(field.name, field.name)
                words.append(f"{name}={_text(value) if field.name in names else value}")
        return ",".join(words)


def _text(network: Network) -> str:
    alone = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if alone else str(network)


def _bits(network: Network | None) -> tuple[int, int]:
    """Return a network as address and mask of 128 bits; none asks nothing."""
    if network is None:
        return 0, 0
    address, mask = int(network.network_address), int(network.netmask)
    if network.version == 6:
        return address, mask
    return MAPPED | address, (1 << 128) - (1 << 32) | mask


def parse_flow(text: str) -> FlowSpec:
    """Return the packets that `text` names; raises ConfigError, which names the word at fault."""
    if not text.strip(", "):
        raise ConfigError("flow", "empty; every packet is: ip, or ipv6")
    values: dict[str, object] = {}
    versions: dict[int, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        key, value, version = _split(word)
        if version:
            versions.setdefault(version, word)
        if word in _ANY_PROTOCOL.values():
            continue
        reader = _READERS.get(key)
        if reader is None or not value:
            raise ConfigError("flow", f"{word}: know {', '.join(_KNOWN)}")
        key = _FIELDS.get(key, key)
        if key in values:
            raise ConfigError("flow", f"{key} given twice")
        try:
            values[key] = reader(value)
        except ValueError as error:
            raise ConfigError("flow", f"{word}: {error}") from error
    if len(versions) > 1:
        raise ConfigError("flow", f"{versions[4]} is IPv4, {versions[6]} is IPv6")
    values["version"] = min(versions, default=4)
    spec = FlowSpec(**values)  # type: ignore[arg-type]  # each reader makes its field's type
    if (spec.tp_src or spec.tp_dst) and spec.nw_proto not in _WITH_PORTS:
        raise ConfigError("flow", f"ports need {' or '.join(_PORTS_NEED[spec.version])}")
    return spec


def _split(word: str) -> tuple[str, str, int | None]:
    """Return a word as key and value, and the version of IP that it implies."""
    key, equals, value = word.partition("=")
    key = _SYNONYMS.get(key, key)
    version = _VERSIONS.get(key)
    if not equals and version and key in PROTOCOLS[version]:
        key, value = "nw_proto", str(PROTOCOLS[version][key])
    return key, value, version


def flow_text(flow: FlowKey) -> str:
    """Return one packet's flow in the notation `parse_flow` reads."""
    version = 6 if flow.version == 6 else 4
    name = _NAMES.get((version, flow.protocol))
    words = [name] if name else [_ANY_PROTOCOL[version], f"nw_proto={flow.protocol}"]
    ends = map(address_text, (flow.source, flow.target))
    words += [f"{name}={end}" for name, end in zip(_ADDRESSES[version], ends, strict=True)]
    if flow.protocol in _WITH_PORTS:
        words += [f"tp_src={flow.source_port}", f"tp_dst={flow.target_port}"]
    return ",".join(words)


def _number(limit: int, lowest: int = 0) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text, 0)
        except ValueError:
            value = -1
        if not lowest <= value <= limit:
            raise ValueError(f"no number within {lowest} and {limit}")
        return value

    return read


def _network6(text: str) -> Network:
    if "%" in text:
        raise ValueError("an address on the wire has no zone")
    return ipaddress.IPv6Network(text, strict=False)


def _name(text: str) -> str:
    if len(text.encode()) >= NAME_BYTES or not text.isprintable() or "/" in text:
        raise ValueError("no name of a device")
    if text.isdecimal():
        raise ValueError("the name of a port is wanted, not its number")
    return text


_READERS: dict[str, Callable[[str], object]] = {
    "nw_proto": _number(255),
    "nw_src": lambda text: ipaddress.IPv4Network(text, strict=False),
    "nw_dst": lambda text: ipaddress.IPv4Network(text, strict=False),
    "ipv6_src": _network6,
    "ipv6_dst": _network6,
    "tp_src": _number(65535, 1),
    "tp_dst": _number(65535, 1),
    "tun_id": _number((1 << 24) - 1),
    "in_port": _name,
}
_KNOWN = (*_ANY_PROTOCOL.values(), *PROTOCOLS[4], *PROTOCOLS[6], *_READERS)
_FIELDS = dict(zip(_ADDRESSES[6], _ADDRESSES[4], strict=True))
_PORTS_NEED = {
    version: [name for name, number in known.items() if number in _WITH_PORTS][::-1]
    for version, known in PROTOCOLS.items()
}
