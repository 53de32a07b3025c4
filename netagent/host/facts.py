# SPDX-License-Identifier: Apache-2.0
"""What a host reads of its vSwitch, links and namespaces, and what it concludes from that.

`VswitchView` and `LinkView` come in from OVSDB and netlink; `HostView` goes out to the agent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from netagent.model.encapsulation import VXLAN, Encapsulation
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory
from netagent.wire.unprobed import Unprobed


@dataclass(frozen=True, slots=True)
class Port:
    """A row of OVSDB's Port table; several interfaces make it an OVS bond."""

    name: str
    interfaces: tuple[Interface, ...] = ()
    external_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A row of OVSDB's Bridge table."""

    name: str
    datapath_type: str = ""
    ports: tuple[Port, ...] = ()
    external_ids: Mapping[str, str] = field(default_factory=dict)
    connected: tuple[bool, ...] = ()
    """Of each of its OpenFlow controllers, whether it is connected."""

    def interfaces(self) -> Iterator[Interface]:
        """Yield the interfaces of all ports."""
        for port in self.ports:
            yield from port.interfaces


@dataclass(frozen=True, slots=True)
class VswitchView:
    """What OVSDB says, as of its last change; kept while OVSDB is away."""

    connected: bool = False
    """Whether OVSDB answers now."""
    bridges: tuple[Bridge, ...] = ()
    external_ids: Mapping[str, str] = field(default_factory=dict)
    """The external_ids of the Open_vSwitch row: system-id and the like."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its other_config: hw-offload, dpdk-init and the like."""
    version: str = ""
    """Open vSwitch's; "" where the database does not say."""

    def bridge(self, name: str) -> Bridge | None:
        """Return the bridge `name`, if there is one."""
        return next((bridge for bridge in self.bridges if bridge.name == name), None)


@dataclass(frozen=True, slots=True)
class Link:
    """A network device in one namespace, with its addresses."""

    index: int
    name: str
    kind: str | None = None
    """``veth``, ``bond``, ``tun``, ...; None for hardware."""
    mac: str = ""
    mtu: int = 1500
    """Bytes."""
    up: bool = True
    """Administratively up (IFF_UP)."""
    carrier: bool = True
    operstate: str = "unknown"
    master: int | None = None
    """Index of the bond or bridge it belongs to."""
    peer: int | None = None
    """Index of a veth's other end, in the namespace `netnsid` (None: the same namespace)."""
    netnsid: int | None = None
    """Id by which its namespace knows the namespace of the other end; None of hardware's
    functions, whose other end is known by its address alone."""
    carrier_changes: int | None = None
    """Carrier transitions since the device was made."""
    active: int | None = None
    """Index of the member that a bond sends by, where it is one only."""
    primary: int | None = None
    """Index of the member that a bond should send by, where that is set."""
    switch_port: str = ""
    """Name of the port of a switch in the NIC that it stands for: ``pf0vf3`` of a representor."""
    parent: str = ""
    """Name of the bus's device that it belongs to (IFLA_PARENT_DEV_NAME, since Linux 5.14):
    ``0000:08:00.2`` of a PCI function, ``mlx5_core.sf.4`` of a sub-function."""
    held_down: bool = False
    """Whether the bond that it is a member of holds its link for down."""
    addresses: tuple[str, ...] = ()
    """IPv4 and IPv6 addresses in use, sorted as text; those of IPv6 that hold on its link alone are
    left out, and of very many all but some that came first."""
    duplicates: tuple[str, ...] = ()
    """IPv6 addresses that it was given and may not use, since another device answered for them
    (RFC 4862, section 5.4.5); sorted."""

    @property
    def usable(self) -> bool:
        """Whether it is up and has a carrier."""
        return self.up and self.carrier


@dataclass(frozen=True, slots=True)
class Namespace:
    """A container's network namespace.

    Open `path` when needed and compare the inode; hold no descriptor (nor a socket made inside)
    longer than this is listed, for both keep a dead namespace and its devices alive.
    """

    path: str
    """``/run/netns/NAME`` or ``/proc/PID/ns/net``."""
    inode: int
    """Identity: st_ino of what `path` opens."""


@dataclass(frozen=True, slots=True)
class LinkView:
    """Devices of the host's namespace and of the containers' namespaces it is wired to."""

    host: Mapping[str, Link] = field(default_factory=dict)
    """Devices by name."""
    inside: Mapping[int, Mapping[int, Link]] = field(default_factory=dict)
    """Devices by `Link.netnsid`, then by index; no entry where the namespace cannot be read."""
    namespaces: Mapping[int, Namespace] = field(default_factory=dict)
    """Namespaces by `Link.netnsid`; no entry where none was found or where it is gone."""
    by_path: Mapping[str, int] = field(default_factory=dict)
    """Ids of the namespaces at paths that somebody named."""
    own: int | None = None
    """Id by which the host's namespace knows itself, where it has one."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """PCI addresses of the physical functions to which `Link.parent`s of devices in containers
    belong: of a virtual function its card's, of a sub-function the one that it was made of."""


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """A file of the folder in which endpoints are declared that have no port."""

    name: str
    text: bytes = b""
    problem: str = ""
    """Why it is not read."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """How one rail leaves the host."""

    rail: int
    device: str
    """RNIC netdev that carries the outer packets; the first one of a bond."""
    address: str
    """Underlay address (VTEP)."""
    vtep: str
    """Device that holds the address: an OVS internal port, a bond, or the RNIC itself."""
    tunnel: str
    """Name of the tunnel's port on the integration bridge."""
    members: tuple[str, ...] = ()
    """All RNIC netdevs: more than one for a bond."""
    bond: str | None = None
    encapsulation: Encapsulation = VXLAN


@dataclass(frozen=True, slots=True)
class HostView:
    """What the agent acts upon. A new one replaces the old one whole."""

    endpoints: tuple[Endpoint, ...] = ()
    """Sorted by id."""
    namespaces: Mapping[EndpointId, Namespace] = field(default_factory=dict)
    """The namespace to probe from; an endpoint without an entry cannot probe now."""
    findings: tuple[Finding, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    """Sorted by rail."""
    complete: bool = False
    """False until OVSDB and netlink were read once: then no endpoints does not mean none are."""
    netdevs: Mapping[EndpointId, str] = field(default_factory=dict)
    """Name of each endpoint's interface inside its namespace, as last seen."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Open vSwitch's other_config."""
    inventory: Inventory | None = None
    """None until the board was looked at."""
    rnics: tuple[str, ...] = ()
    """Netdevs of RNICs in the host's namespace that carry rails or endpoints; sorted."""
    controller: ControllerState | None = None
    """None where no controller drives the virtual switch."""
    unprobed: Unprobed = field(default_factory=Unprobed)
    """What of the virtual switch is no endpoint, and why."""
