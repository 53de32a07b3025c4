# SPDX-License-Identifier: Apache-2.0
"""Which packets a trace is about, in Open vSwitch's notation: `udp,nw_dst=10.0.0.12,tp_dst=53`."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, fields

from bpf.trace.abi import NAME_BYTES, Filter, FlowKey
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.errors import ConfigError

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
_NAMES = {number: name for name, number in PROTOCOLS.items()}
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
_WITH_PORTS = {6, 17}
"""IP protocols with ports: IPPROTO_TCP and IPPROTO_UDP."""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """Packets of one tenant, as inside of the tunnel; what is not given may be anything."""

    nw_proto: int = 0
    nw_src: ipaddress.IPv4Network | None = None
    nw_dst: ipaddress.IPv4Network | None = None
    tp_src: int = 0
    tp_dst: int = 0
    tun_id: int | None = None
    in_port: str = ""
    """Name of the switch's port that the packets come in by."""

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
        source, target = self.nw_src or _ANY, self.nw_dst or _ANY
        return Filter(
            netns,
            source=int(source.network_address),
            source_mask=int(source.netmask),
            target=int(target.network_address),
            target_mask=int(target.netmask),
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
        words = [_NAMES.get(self.nw_proto, "ip")]
        if self.nw_proto and self.nw_proto not in _NAMES:
            words.append(f"nw_proto={self.nw_proto}")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value or (value == 0 and field.name == "tun_id"):
                words.append(f"{field.name}={str(value).removesuffix('/32')}")
        return ",".join(words)


_ANY = ipaddress.IPv4Network("0.0.0.0/0")


def parse_flow(text: str) -> FlowSpec:
    """Return the packets that `text` names; raises ConfigError, which names the word at fault."""
    if not text.strip(", "):
        raise ConfigError("flow", "empty; every packet is: ip")
    values: dict[str, object] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        key, equals, value = word.partition("=")
        key = _SYNONYMS.get(key, key)
        if word == "ip":
            continue
        if not equals and key in PROTOCOLS:
            key, value = "nw_proto", str(PROTOCOLS[key])
        reader = _READERS.get(key)
        if reader is None or not value:
            raise ConfigError("flow", f"{word}: know {', '.join(('ip', *PROTOCOLS, *_READERS))}")
        if key in values:
            raise ConfigError("flow", f"{key} given twice")
        try:
            values[key] = reader(value)
        except ValueError as error:
            raise ConfigError("flow", f"{word}: {error}") from error
    spec = FlowSpec(**values)  # type: ignore[arg-type]  # each reader makes its field's type
    if (spec.tp_src or spec.tp_dst) and spec.nw_proto not in _WITH_PORTS:
        raise ConfigError("flow", "ports need udp or tcp")
    return spec


def flow_text(flow: FlowKey) -> str:
    """Return one packet's flow in the notation `parse_flow` reads."""
    source, target = ipaddress.IPv4Address(flow.source), ipaddress.IPv4Address(flow.target)
    name = _NAMES.get(flow.protocol)
    words = [name] if name else ["ip", f"nw_proto={flow.protocol}"]
    words += [f"nw_src={source}", f"nw_dst={target}"]
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
    "tp_src": _number(65535, 1),
    "tp_dst": _number(65535, 1),
    "tun_id": _number((1 << 24) - 1),
    "in_port": _name,
}
