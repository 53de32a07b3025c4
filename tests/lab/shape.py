# SPDX-License-Identifier: Apache-2.0
"""The lab on paper: sizes, names, addresses and cables. Pure.

Every host has one RNIC per rail. Each (segment, rail) has its own leaf, each leaf a link to every
spine: a rail-optimised leaf-spine fabric. All fabric links are unnumbered: a router owns exactly
one address, on its loopback, so that is the address it answers TTL-exceeded with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address

from netagent.model.strenum import StrEnum
from tests.lab.errors import LabError

PREFIX = "na-"
"""Every namespace and every link that the lab makes in the root namespace starts with this."""

INITIAL_NAMESPACE = ""
"""Stands for the namespace that the lab itself runs in, where a namespace's name is asked for."""

MANAGEMENT_BRIDGE = "na-mgmt"
ANALYZER_ADDRESS = "198.18.0.1"
ANALYZER_PORT = 8420
PAGE_PORT = 8443
AGENT_PORT = 8421
MANAGEMENT_PREFIX_LENGTH = 24
CENTRAL = "ovn"
"""The namespace of OVN's databases, and of what translates between them."""
CENTRAL_ADDRESS = "198.18.0.2"
NORTHBOUND, SOUTHBOUND = f"tcp:{CENTRAL_ADDRESS}:6641", f"tcp:{CENTRAL_ADDRESS}:6642"
VTEP_PREFIX_LENGTH = {4: 24, 6: 64}
ADDRESS_LENGTH = {4: 32, 6: 128}
INTEGRATION_BRIDGE = "br-int"
UNDERLAY_MTU = 1500

MAX_HOSTS, MAX_RAILS, MAX_SPINES = 200, 8, 16


class Transport(StrEnum):
    """What the endpoints of a lab speak."""

    UDP = "udp"
    """Sockets, in a namespace per container; tenants have overlapping addresses."""

    RDMA = "rdma"
    """Soft-RoCE. It works in the initial namespace only, so all endpoints live there."""


class Tunnel(StrEnum):
    """What wraps the overlay's packets."""

    VXLAN = "vxlan"
    GENEVE = "geneve"

    @property
    def port(self) -> int:
        """The UDP port that it arrives at (RFC 7348, RFC 8926)."""
        return 4789 if self is Tunnel.VXLAN else 6081


class Controller(StrEnum):
    """What drives the virtual switches of a lab."""

    NONE = "none"
    """The lab itself: its own flows, in `tests.lab.pipeline`."""

    OVN = "ovn"
    """OVN, which the lab tells what should be, as a cloud management system does."""

    @property
    def encapsulation(self) -> Tunnel:
        """What it wraps packets in, unless it is told."""
        return Tunnel.GENEVE if self is Controller.OVN else Tunnel.VXLAN


class Runtime(StrEnum):
    """What makes the containers of a lab."""

    NETNS = "netns"
    """The lab itself: namespaces with names, and nothing in them."""

    PODMAN = "podman"
    """Podman: pods, as a container runtime of Kubernetes makes them."""


@dataclass(frozen=True, slots=True, order=True)
class Versions:
    """Which versions of IP a lab is of."""

    overlay: int = 4
    underlay: int = 4


IPV4 = Versions()


@dataclass(frozen=True, slots=True)
class Wire:
    """A veth pair: one interface in each of two namespaces (full names)."""

    left: str
    left_interface: str
    right: str
    right_interface: str


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between a leaf and a spine (short names), as faults and the topology name it."""

    leaf: str
    spine: str

    @property
    def name(self) -> str:
        """Return the name in the vocabulary of verdicts."""
        return " -- ".join(sorted((self.leaf, self.spine)))


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a lab, and its transport; everything else follows from them.

    Raises `LabError` where the addressing plan cannot hold the sizes.
    """

    hosts: int = 4
    rails: int = 2
    segments: int = 2
    spines: int = 2
    transport: Transport = Transport.UDP
    traced: bool = True
    """Whether agents trace the ways of flows. Where RNICs encapsulate, they see no outer header."""
    encapsulation: Tunnel = Tunnel.VXLAN
    ip: Versions = IPV4
    controller: Controller = Controller.NONE
    containers: Runtime = Runtime.NETNS

    def __post_init__(self) -> None:
        limits = {
            "hosts": (self.hosts, MAX_HOSTS),
            "rails": (self.rails, MAX_RAILS),
            "segments": (self.segments, self.hosts),
            "spines": (self.spines, MAX_SPINES),
        }
        for name, (value, most) in limits.items():
            if not 1 <= value <= most:
                raise LabError(f"{name} is {value}", f"give a number from 1 to {most}")
        if self.transport is Transport.RDMA and self.ip != IPV4:
            raise LabError("Soft-RoCE's endpoints have IPv4 addresses", "add --transport udp")
        if self.containers is Runtime.PODMAN and self.transport is Transport.RDMA:
            raise LabError("Soft-RoCE's endpoints are in no container", "add --transport udp")
        if self.controller is Controller.OVN:
            if self.transport is Transport.RDMA:
                raise LabError("on OVN endpoints have namespaces", "add --transport udp")
            if self.ip != IPV4:
                raise LabError("on OVN the lab is of IPv4", "leave --overlay and --underlay out")

    # --- names -----------------------------------------------------------------------------

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return the short names of all hosts."""
        return tuple(f"h{index}" for index in range(self.hosts))

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """Return the short names of all leaves, segment by segment."""
        return tuple(
            leaf_name(segment, rail)
            for segment in range(self.segments)
            for rail in range(self.rails)
        )

    @property
    def spine_names(self) -> tuple[str, ...]:
        """Return the short names of all spines."""
        return tuple(f"spine-{index}" for index in range(self.spines))

    @property
    def router_names(self) -> tuple[str, ...]:
        """Return the short names of all leaves, then all spines."""
        return self.leaf_names + self.spine_names

    def segment(self, host: int) -> int:
        """Return the segment of host number `host`; segments are equal in size, or nearly."""
        return host * self.segments // self.hosts

    def leaf_of(self, host: int, rail: int) -> str:
        """Return the leaf that the host's RNIC of `rail` is plugged into."""
        return leaf_name(self.segment(host), rail)

    def links(self) -> tuple[Link, ...]:
        """Return all cables between leaves and spines."""
        return tuple(Link(leaf, spine) for leaf in self.leaf_names for spine in self.spine_names)

    # --- addresses -------------------------------------------------------------------------

    def router_address(self, router: str) -> str:
        """Return the only address of a router, of IPv6 beside those that hold on a link alone."""
        tier, number = self._place(router)
        if self.ip.underlay == 6:
            return _six(f"fd00:254:{tier}::{number}")
        return f"10.254.{tier}.{number}"

    def gateway(self, router: str) -> str:
        """Return the address at which its neighbours reach a router.

        By IPv4 it is its only one, for which it answers on every link. By IPv6 a router answers
        for what the interface itself has, so it is one that all its interfaces have.
        """
        if self.ip.underlay == 4:
            return self.router_address(router)
        tier, number = self._place(router)
        return _six(f"fe80::{1 + tier}:{number}")

    def vtep(self, host: int, rail: int) -> str:
        """Return the underlay address of a host's RNIC, where its tunnels end."""
        return vtep(host, rail, self.ip.underlay)

    def _place(self, router: str) -> tuple[int, int]:
        if router in self.leaf_names:
            return 0, 1 + self.leaf_names.index(router)
        return 1, 1 + self.spine_names.index(router)

    @property
    def option_bytes(self) -> int:
        """Bytes of the option that OVN has in Geneve headers (ovn-architecture(7))."""
        on_ovn = self.controller is Controller.OVN
        return 8 if on_ovn and self.encapsulation is Tunnel.GENEVE else 0

    # --- cables ----------------------------------------------------------------------------

    def wires(self) -> Iterator[Wire]:
        """Yield every veth pair of the fabric, RNICs included."""
        for host in range(self.hosts):
            for rail in range(self.rails):
                leaf = namespace(self.leaf_of(host, rail))
                yield Wire(namespace(f"h{host}"), rnic(rail), leaf, f"to-h{host}")
        for link in self.links():
            yield Wire(
                namespace(link.leaf), f"to-{link.spine}", namespace(link.spine), f"to-{link.leaf}"
            )


def driven_by(controller: Controller) -> Shape:
    """Return the default shape where that drives the virtual switches."""
    return Shape(controller=controller, encapsulation=controller.encapsulation)


def leaf_name(segment: int, rail: int) -> str:
    """Return the short name of the leaf of a segment and rail."""
    return f"leaf-s{segment}-r{rail}"


def namespace(short_name: str) -> str:
    """Return the network namespace of a host, router or container; full names stay as they are."""
    return short_name if short_name.startswith(PREFIX) else PREFIX + short_name


def rnic(rail: int) -> str:
    """Return the RNIC's interface name in its host."""
    return f"rnic{rail}"


def underlay_bridge(rail: int) -> str:
    """Return the bridge (and its internal port) that carries a rail's tunnel endpoint."""
    return f"br-phy{rail}"


def tunnel(rail: int) -> str:
    """Return the tunnel port of a rail, whatever its kind."""
    return f"vxlan{rail}"


def tunnel_ofport(rail: int) -> int:
    """Return the OpenFlow port number requested for the rail's tunnel."""
    return 1 + rail


def vtep(host: int, rail: int, version: int = 4) -> str:
    """Return the underlay address of a host's RNIC, where its tunnels end."""
    if version == 6:
        return _six(f"fd00:30:{rail}::{10 + host}")
    return f"172.30.{rail}.{10 + host}"


def vtep_mac(host: int, rail: int) -> str:
    """Return the hardware address of a tunnel endpoint: the same after every restart.

    It differs from the RNIC's own, so that the kernel leaves tunnelled packets to Open vSwitch.
    """
    return f"02:01:00:00:{rail:02x}:{10 + host:02x}"


def management_address(host: int) -> str:
    """Return a host's address in the management network."""
    return f"198.18.0.{10 + host}"


def _six(text: str) -> str:
    return str(IPv6Address(text))


def host_number(name: str) -> int:
    """Return 3 for ``h3``; raise `LabError` for anything that names no host."""
    if not name.startswith("h") or not name[1:].isdigit():
        raise LabError(f"{name!r} names no host", "hosts are h0, h1, ...")
    return int(name[1:])
