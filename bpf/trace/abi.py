# SPDX-License-Identifier: Apache-2.0
"""The bytes that programs and reader exchange: mirrors include/abi.h, keep in sync.

Addresses and ports cross in network byte order and are integers in host order here. An address has
128 bits: an IPv6 one, or an IPv4 one as IPv6 maps it.
"""

import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netagent.model.encapsulation import VXLAN
from netagent.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    from typing_extensions import Self

STAGES = (
    "rxe_transmit",
    "uplink_receive",
    "decapsulate",
    "port_receive",
    "tunnel_receive",
    "lookup",
    "upcall",
    "execute",
    "actions",
    "output",
    "port_transmit",
    "encapsulate",
    "uplink_transmit",
    "rxe_receive",
    "dropped",
)
"""Names of `enum stage`, in its order."""

COUNTERS = ("events_lost", "not_followed", "not_sampled", "unreadable", "map_full")
"""Names of `enum counter`, in its order."""

BUCKETS = 128
"""Buckets in a latency histogram: BUCKETS of include/abi.h."""
NAME_BYTES = 16
"""Bytes of a device's name: the kernel's IFNAMSIZ."""

FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "filter": (
        ("source", "16s"),
        ("source_mask", "16s"),
        ("target", "16s"),
        ("target_mask", "16s"),
        ("in_port", "16s"),
        ("uplink", "16s"),
        ("netns", "I"),
        ("vni", "I"),
        ("journeys_per_s", "I"),
        ("events_per_s", "I"),
        ("source_port", "2s"),
        ("target_port", "2s"),
        ("tunnel_port", "2s"),
        ("protocol", "B"),
        ("version", "B"),
        ("with_vni", "B"),
        ("geneve", "B"),
        ("reserved", "6s"),
    ),
    "flow": (
        ("source", "16s"),
        ("target", "16s"),
        ("source_port", "2s"),
        ("target_port", "2s"),
        ("protocol", "B"),
        ("version", "B"),
        ("reserved", "2s"),
    ),
    "totals": (
        ("packets", "Q"),
        ("octets", "Q"),
        ("repeats", "Q"),
        ("foreign", "Q"),
        ("buckets", f"{8 * BUCKETS}s"),
    ),
    "port_key": (("stage", "I"), ("vni", "I"), ("device", "16s")),
    "drop_key": (("location", "Q"), ("reason", "I"), ("after", "I"), ("device", "16s")),
    "upcall_key": (("command", "I"), ("result", "i")),
    "outer_key": (
        ("inner", "40s"),
        ("source", "16s"),
        ("target", "16s"),
        ("vni", "I"),
        ("source_port", "2s"),
        ("transmitted", "B"),
        ("reserved", "B"),
    ),
    "roce_key": (("transmitted", "I"), ("encapsulated", "I"), ("device", "16s")),
    "event": (
        ("at_ns", "Q"),
        ("journey", "Q"),
        ("location", "Q"),
        ("flow", "40s"),
        ("stage", "I"),
        ("vni", "I"),
        ("reason", "I"),
        ("outer_port", "2s"),
        ("reserved", "2s"),
        ("device", "16s"),
    ),
}
"""Members of each struct of the header, in order, with their `struct` format."""

_FORMATS = {
    name: struct.Struct("<" + "".join(form for _, form in fields))
    for name, fields in FIELDS.items()
}


def size(name: str) -> int:
    """Return the size of a struct, in bytes."""
    return _FORMATS[name].size


def _unpack(name: str, data: bytes) -> dict[str, bytes | int]:
    layout = _FORMATS[name]
    if len(data) != layout.size:
        raise RemoteProtocolError(f"struct {name} of {len(data)} bytes, not {layout.size}")
    members = (member for member, _ in FIELDS[name])
    return dict(zip(members, layout.unpack(data), strict=True))


def _number(value: bytes | int) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "big")


def _name(value: bytes | int) -> str:
    return bytes(value).split(b"\0", 1)[0].decode("utf-8", "replace") if value else ""


MAPPED = 0xFFFF << 32
"""What an IPv4 address is added to, to be an IPv6 one: ::ffff:0:0/96 (RFC 4291, 2.5.5.2)."""


def address_text(value: int) -> str:
    """Return an address as people write it: an IPv4 one in dotted form."""
    address = ipaddress.IPv6Address(value)
    return str(address.ipv4_mapped or address)


def stage_name(stage: int) -> str:
    """Return a stage's name, empty for none; raises RemoteProtocolError for what is no stage."""
    if stage == len(STAGES):
        return ""
    if not 0 <= stage < len(STAGES):
        raise RemoteProtocolError(f"stage {stage}")
    return STAGES[stage]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which packets count, and how many events report them; zero and empty mean any."""

    netns: int
    """Inode of the network namespace that holds the switch; 0 matches no packet at all."""

    source: int = 0
    source_mask: int = 0
    target: int = 0
    target_mask: int = 0
    version: int = 0
    """4 or 6, of IP inside of the tunnels."""

    source_port: int = 0
    target_port: int = 0
    tunnel_port: int = VXLAN.port
    """UDP destination port of the tunnels."""

    protocol: int = 0
    vni: int | None = None
    journeys_per_s: int = 0
    events_per_s: int = 0
    geneve: bool = False
    """Whether the tunnels are Geneve's; else they are VXLAN's."""

    in_port: str = ""
    uplink: str = ""

    def pack(self) -> bytes:
        """Return the bytes of `struct filter`."""
        return _FORMATS["filter"].pack(
            *(
                value.to_bytes(16, "big")
                for value in (
                    self.source & self.source_mask,
                    self.source_mask,
                    self.target & self.target_mask,
                    self.target_mask,
                )
            ),
            self.in_port.encode()[: NAME_BYTES - 1],
            self.uplink.encode()[: NAME_BYTES - 1],
            self.netns,
            self.vni or 0,
            self.journeys_per_s,
            self.events_per_s,
            *(
                port.to_bytes(2, "big")
                for port in (self.source_port, self.target_port, self.tunnel_port)
            ),
            self.protocol,
            self.version,
            self.vni is not None,
            self.geneve,
            b"",
        )


@dataclass(frozen=True, slots=True)
class FlowKey:
    """An IP packet's addresses and ports; ports are 0 where the protocol has none."""

    source: int
    target: int
    source_port: int
    target_port: int
    protocol: int
    version: int
    """4 or 6, of IP."""

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct flow`."""
        found = _unpack("flow", data)
        return cls(*(_number(found[name]) for name, _ in FIELDS["flow"][:-1]))


@dataclass(frozen=True, slots=True)
class Totals:
    """What passed one stage."""

    packets: int
    octets: int
    repeats: int
    """Further passes of packets already counted."""

    foreign: int
    """Packets of the flow with another VNI, not in `packets`."""

    buckets: tuple[int, ...]
    """Latencies since the stage before; see `histogram`."""

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read one CPU's `struct totals`."""
        found = _unpack("totals", data)
        buckets = struct.unpack(f"<{BUCKETS}Q", bytes(found["buckets"]))
        numbers = [_number(found[name]) for name, _ in FIELDS["totals"][:-1]]
        packets, octets, repeats, foreign = numbers
        return cls(packets, octets, repeats, foreign, buckets)

    def __add__(self, other: "Totals") -> "Totals":
        """Return the totals of both."""
        return Totals(
            self.packets + other.packets,
            self.octets + other.octets,
            self.repeats + other.repeats,
            self.foreign + other.foreign,
            tuple(map(int.__add__, self.buckets, other.buckets)),
        )


NOTHING = Totals(0, 0, 0, 0, (0,) * BUCKETS)


@dataclass(frozen=True, slots=True)
class PortKey:
    """A device at a stage; VNI 0 means none, or not known yet."""

    stage: str
    vni: int
    device: str

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct port_key`."""
        found = _unpack("port_key", data)
        return cls(
            stage_name(_number(found["stage"])), _number(found["vni"]), _name(found["device"])
        )


@dataclass(frozen=True, slots=True)
class DropKey:
    """Where packets ended."""

    location: int
    """Kernel address of the call that freed them; 0: a flow without actions."""

    reason: int
    after: str
    """Last stage passed; empty for packets that were not followed."""

    device: str

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct drop_key`."""
        found = _unpack("drop_key", data)
        return cls(
            _number(found["location"]),
            _number(found["reason"]),
            stage_name(_number(found["after"])),
            _name(found["device"]),
        )


@dataclass(frozen=True, slots=True)
class UpcallKey:
    """A kind of upcall (1 miss, 2 action) and what it returned: 0 or a negative errno."""

    command: int
    result: int

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct upcall_key`."""
        found = _unpack("upcall_key", data)
        return cls(_number(found["command"]), _number(found["result"]))


@dataclass(frozen=True, slots=True)
class OuterKey:
    """An inner flow and the outer header it was seen in."""

    inner: FlowKey
    source: int
    target: int
    vni: int
    source_port: int
    transmitted: bool

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct outer_key`."""
        found = _unpack("outer_key", data)
        return cls(
            FlowKey.unpack(bytes(found["inner"])),
            _number(found["source"]),
            _number(found["target"]),
            _number(found["vni"]),
            _number(found["source_port"]),
            bool(found["transmitted"]),
        )


@dataclass(frozen=True, slots=True)
class RoceKey:
    """A device by which RoCE passed the kernel."""

    transmitted: bool
    encapsulated: bool
    device: str

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct roce_key`."""
        found = _unpack("roce_key", data)
        return cls(bool(found["transmitted"]), bool(found["encapsulated"]), _name(found["device"]))


@dataclass(frozen=True, slots=True)
class Event:
    """One followed packet at one stage."""

    at_ns: int
    journey: int
    """Number that all events of one packet share."""

    location: int
    flow: FlowKey
    stage: str
    vni: int
    reason: int
    outer_port: int
    device: str

    @classmethod
    def unpack(cls, data: bytes) -> "Self":
        """Read `struct event`."""
        found = _unpack("event", data)
        return cls(
            _number(found["at_ns"]),
            _number(found["journey"]),
            _number(found["location"]),
            FlowKey.unpack(bytes(found["flow"])),
            stage_name(_number(found["stage"])),
            _number(found["vni"]),
            _number(found["reason"]),
            _number(found["outer_port"]),
            _name(found["device"]),
        )


@dataclass(frozen=True)
class Readings:
    """All that was counted."""

    stages: dict[str, Totals]
    ports: dict[PortKey, int]
    drops: dict[DropKey, int]
    upcalls: dict[UpcallKey, int]
    outers: dict[OuterKey, int]
    roce: dict[RoceKey, int]
    counters: dict[str, int]
