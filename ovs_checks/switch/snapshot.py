# SPDX-License-Identifier: Apache-2.0
"""What one host's virtual switch holds: bridges with their ports, tables, groups. Values only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from netagent.model.vswitch import Interface
from ovs_checks.openflow.actions import Action
from ovs_checks.openflow.addresses import canonical
from ovs_checks.openflow.classifier import Table
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.hashing import table_order
from ovs_checks.openflow.notation import SPECIAL_PORTS, integer, or_zero
from ovs_checks.openflow.packet import MAX_VLANS

from .bonds import Bond

UNKNOWN = "unknown"

_TUNNELS = "vxlan geneve gre ip6gre stt lisp erspan ip6erspan gtpu bareudp srv6"
TUNNEL_TYPES = frozenset(_TUNNELS.split())
"""Interface types that encapsulate what is sent to them."""

_L3_TUNNELS = frozenset({"lisp", "gtpu", "bareudp", "srv6"})

DEFAULT_TUNNEL_PORT = {"vxlan": 4789, "geneve": 6081, "gtpu": 2152, "lisp": 4341, "stt": 7471}
"""Type of tunnel -> its UDP or TCP port without `options:dst_port` (Open vSwitch's defaults)."""

LOCAL = SPECIAL_PORTS["local"]


@dataclass(frozen=True, slots=True)
class Tunnel:
    """How a tunnel port encapsulates; the string `flow` means: as the packet's metadata say."""

    port: str
    kind: str
    local_ip: str
    """In the one way in which Open vSwitch writes it; empty where the host's routing chooses."""

    remote_ip: str
    """The same of the other end."""

    in_key: str
    out_key: str
    """`flow`, a number, or empty for no key."""

    dst_port: int
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        """Return one of the port's options as it is written in the database."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a bridge."""

    name: str
    ofport: int
    """OpenFlow port number; negative where Open vSwitch could not open it."""

    bridge: str
    type: str = ""
    options: tuple[tuple[str, str], ...] = ()
    external_ids: tuple[tuple[str, str], ...] = ()
    """Those of the interface, and of the port that it belongs to."""

    mac: str = ""
    state: str = ""
    """`up`, `down` or empty for unknown."""

    vlan: str = ""
    """How the port treats VLANs, as text, where it is not a plain trunk of all of them."""

    bond: str = ""
    """Name of the bond the interface belongs to, or empty."""

    datapath: int | None = None
    """Number in the datapath; None for a patch port, and where it is not known."""

    config: frozenset[str] = frozenset()
    """OpenFlow's settings: `PORT_DOWN`, `NO_RECV`, `NO_FLOOD`, `NO_FWD`, `NO_PACKET_IN`."""

    live: bool = True
    """Whether fast failover may choose it."""

    mtu: int = 0
    """Bytes; 0 for unknown."""

    tree: str = ""
    """State in the bridge's spanning tree, such as `forwarding`; empty: it has no part in one.
    `UNKNOWN` where that is not known."""

    queues: tuple[tuple[int, int], ...] = ()
    """(queue, DSCP that it marks packets with), of queues that mark."""

    @property
    def interface(self) -> Interface:
        """What OVSDB says of it, as far as it is kept here."""
        return Interface(
            self.name,
            self.type,
            self.ofport,
            dict(self.options),
            dict(self.external_ids),
            mac_in_use=self.mac or None,
            link_state=self.state or None,
            mtu=self.mtu or None,
        )

    @property
    def is_tunnel(self) -> bool:
        """Tell whether what is sent here gets encapsulated."""
        return self.type in TUNNEL_TYPES

    @property
    def layer(self) -> Literal["L2", "L3", "both"]:
        """Whether it takes frames, packets without an Ethernet header, or both."""
        if self.type == "patch":
            return "both"
        said = dict(self.options).get("packet_type", "") if self.is_tunnel else ""
        default: Literal["L2", "L3"] = "L3" if self.type in _L3_TUNNELS else "L2"
        known: dict[str, Literal["L2", "L3", "both"]]
        known = {"legacy_l2": "L2", "legacy_l3": "L3", "ptap": "both"}
        return known.get(said, default)

    @property
    def peer(self) -> str:
        """Name of the patch port at the other end; empty if this is no patch port."""
        return dict(self.options).get("peer", "") if self.type == "patch" else ""

    @property
    def tunnel(self) -> Tunnel | None:
        """The tunnel's settings, or None for a port that is none."""
        if not self.is_tunnel:
            return None
        options = dict(self.options)
        key = options.get("key", "")
        default = DEFAULT_TUNNEL_PORT.get(self.type, 0)
        return Tunnel(
            self.name,
            self.type,
            local_ip=canonical(options.get("local_ip", "")),
            remote_ip=canonical(options.get("remote_ip", "")),
            in_key=options.get("in_key", key),
            out_key=options.get("out_key", key),
            dst_port=or_zero(integer, options.get("dst_port", "")) or default,
            options=self.options,
        )


ALL_TAGS = frozenset(range(1, 4096))
"""VLANs that a tag can name; a packet without a tag is in VLAN 0."""

VlanMode = Literal["access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel"]


@dataclass(frozen=True, slots=True)
class Lane:
    """What NORMAL forwards between: one port, or the ports of a bond (`struct xbundle`)."""

    name: str
    ports: tuple[int, ...]
    """OpenFlow numbers."""

    mode: VlanMode = "trunk"
    tag: int = 0
    trunks: frozenset[int] | None = None
    """VLANs; None for all of them."""

    cvlans: frozenset[int] | None = None
    tag_type: int = 0x88A8
    """Ethernet type of the outer tag in mode `dot1q-tunnel`."""

    priority_tags: Literal["no", "always", "if-nonzero"] = "no"
    protected: bool = False
    bond: Bond | None = None
    """None for a lane that is no bond, and where it is not known how one stands."""

    def trunks_vlan(self, vlan: int) -> bool:
        """Tell whether tagged packets of a VLAN may pass."""
        return self.mode != "access" and (self.trunks is None or vlan in self.trunks)


@dataclass(frozen=True, slots=True)
class FdbEntry:
    """A learned Ethernet address of a bridge."""

    port: int
    vlan: int
    mac: int
    age_s: int
    """Seconds since it was last seen; 0 for a static entry."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A choice of a group."""

    id: int
    actions: tuple[Action, ...]
    weight: int = 0
    watch_port: int | None = None
    watch_group: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of the bridge."""

    id: int
    type: Literal["all", "select", "indirect", "ff"]
    buckets: tuple[Bucket, ...]
    method: str = ""
    """How a `select` group selects; empty: Open vSwitch decides."""

    parameter: int = 0
    fields: tuple[tuple[str, int], ...] = ()
    """(field, mask) that the method `hash` hashes, in the order of Open vSwitch's table of them."""

    text: str = ""
    """The line as dumped."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A copy of what passes some ports."""

    name: str
    sources: frozenset[str] = frozenset()
    destinations: frozenset[str] = frozenset()
    """Names of lanes."""

    vlans: frozenset[int] | None = None
    output: str = ""
    """Name of the lane that gets the copies; empty where a VLAN does."""

    output_vlan: int = 0
    snaplen: int = 0
    """Bytes; 0 for whole packets."""


@dataclass(frozen=True, slots=True)
class TunnelOption:
    """A Geneve option that the bridge maps to one of the `tun_metadata` fields."""

    option_class: int
    type: int
    length: int
    index: int


@dataclass(frozen=True)
class Bridge:
    """A bridge: its tables, its ports, the addresses it learned."""

    name: str
    flows: tuple[Flow, ...] = ()
    ports: tuple[Port, ...] = ()
    fdb: tuple[FdbEntry, ...] = ()
    groups: tuple[Group, ...] = ()
    meters: tuple[int, ...] = ()
    lanes: tuple[Lane, ...] = ()
    """Lanes in the order in which NORMAL floods; empty: one plain trunk for each port."""

    mirrors: tuple[Mirror, ...] = ()
    options: tuple[TunnelOption, ...] = ()
    datapath_type: str = ""
    forwards_bpdu: bool = False
    collects: bool = False
    """Whether IPFIX samples packets: all of the bridge, or those that flows choose."""

    is_driven: bool = False
    """Whether ovn-controller says that it is its own."""

    spanning_tree: Literal["", "STP", "RSTP"] = ""
    fragments: str = "normal"
    """How fragments match (`ovs-ofctl get-frags`)."""

    index: Mapping[int, Table] | None = field(default=None, compare=False, repr=False)
    """The tables, where they are indexed already."""

    unsupported: tuple[str, ...] = ()
    """Settings that change where packets go and are not understood; each a sentence."""

    @property
    def datapath(self) -> str:
        """Name of the datapath that the bridge is part of."""
        kind = self.datapath_type or "system"
        return f"{kind}@ovs-{kind}"

    @cached_property
    def tables(self) -> Mapping[int, Table]:
        """Flows by table, indexed."""
        if self.index is not None:
            return self.index
        flows: dict[int, list[Flow]] = {}
        for flow in self.flows:
            flows.setdefault(flow.table, []).append(flow)
        return _Tables(flows)

    @cached_property
    def by_number(self) -> Mapping[int, Port]:
        """Ports by OpenFlow number."""
        return {port.ofport: port for port in self.ports if port.ofport >= 0}

    @cached_property
    def by_name(self) -> Mapping[str, Port]:
        """Ports by name."""
        return {port.name: port for port in self.ports}

    @cached_property
    def by_group(self) -> Mapping[int, Group]:
        """Groups by number."""
        return {group.id: group for group in self.groups}

    @cached_property
    def by_lane(self) -> Mapping[int, Lane]:
        """Lanes by the OpenFlow number of each of their ports."""
        return {number: lane for lane in self.every_lane for number in lane.ports}

    @cached_property
    def every_lane(self) -> tuple[Lane, ...]:
        """The lanes, in the order in which NORMAL floods."""
        return self.lanes or tuple(Lane(port.name, (port.ofport,)) for port in self.ports)

    @cached_property
    def flood_order(self) -> tuple[int, ...]:
        """Ports in the order in which FLOOD and ALL send; taken to be made in that of numbers."""
        return tuple(table_order(sorted(self.by_number, key=lambda n: (n != LOCAL, n))))

    @cached_property
    def learned(self) -> Mapping[tuple[int, int], FdbEntry]:
        """Learned addresses by (VLAN, address)."""
        return {(entry.vlan, entry.mac): entry for entry in self.fdb}


class _Tables(Mapping[int, Table]):
    """Tables, each indexed when it is first asked for."""

    def __init__(self, flows: Mapping[int, list[Flow]]) -> None:
        self._flows = flows
        self._tables: dict[int, Table] = {}

    def __getitem__(self, number: int) -> Table:
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = Table(self._flows[number])
        return table

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self._flows)

    def __len__(self) -> int:
        return len(self._flows)


@dataclass(frozen=True, slots=True)
class Features:
    """What a datapath can do (`dpif/show-dp-features`); the defaults are those of today's."""

    masked_set: bool = True
    tunnel_push_pop: bool = False
    truncate: bool = True
    clone: bool = True
    sample_nesting: int = 10
    ct_eventmask: bool = True
    ct_clear: bool = True
    ct_timeout: bool = True
    max_hash_algorithm: int = 1
    check_packet_length: bool = True
    lb_output: bool = False
    recirculation: bool = True
    max_mpls: int = 3


@dataclass(frozen=True, slots=True)
class Route:
    """A route: where the host sends packets for a prefix (`ovs/route/show`)."""

    prefix: str
    device: str
    gateway: str = ""
    source: str = ""
    mark: int = 0
    priority: int = 0
    local: bool = False
    """Whether it leads to the host itself."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A host of the underlay and its Ethernet address (`tnl/neigh/show`)."""

    address: str
    mac: str
    bridge: str


@dataclass(frozen=True, slots=True)
class Listener:
    """An address at which the userspace datapath takes a tunnel's packets (`tnl/ports/show`)."""

    datapath: int
    kind: str
    address: str
    mac: str
    protocol: int
    port: int


@dataclass(frozen=True)
class Snapshot:
    """A host's virtual switch at one moment; it can answer any number of questions."""

    host: str
    bridges: tuple[Bridge, ...] = ()
    version: str = ""
    wall_ns: int = 0
    """Nanoseconds since the Unix epoch."""

    problems: tuple[str, ...] = ()
    """Lines of the dumps that could not be read; the answers may be wrong for lack of them."""

    features: Mapping[str, Features] = field(default_factory=dict)
    """Features by the type of datapath."""

    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    listeners: tuple[Listener, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)
    """Name of the timeout policy by connection tracking zone, for zones that have one."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the switch as a whole (`other_config`)."""

    @cached_property
    def by_name(self) -> Mapping[str, Bridge]:
        """Bridges by name."""
        return {bridge.name: bridge for bridge in self.bridges}

    @cached_property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, `(3, 5)`; empty, hence older than any, if it is not known."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else ()

    @property
    def max_tags(self) -> int:
        """Behind how many VLAN tags packets are read (`other_config:vlan-limit`)."""
        return or_zero(integer, self.config.get("vlan-limit", "1")) or MAX_VLANS

    @cached_property
    def _ports(self) -> Mapping[str, Port]:
        return {port.name: port for bridge in reversed(self.bridges) for port in bridge.ports}

    def port(self, name: str) -> Port | None:
        """Return the port called `name` of whichever bridge, or None."""
        return self._ports.get(name)
