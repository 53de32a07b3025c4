# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults: names, what they are aimed at, parameters. Pure."""

from dataclasses import dataclass, field

from tests.lab.pipeline import Table
from tests.lab.shape import Controller
from tests.lab.targets import Kind


@dataclass(frozen=True, slots=True)
class Spec:
    """One entry of the catalogue."""

    name: str
    kind: Kind
    summary: str
    parameters: dict[str, float] = field(default_factory=dict)
    table: Table = Table.CLASSIFY
    """For a fault in a flow: the table blamed."""
    rdma: bool = False
    """Whether it means something to RDMA devices only."""
    far: bool = False
    """For a fault in a flow: whether it is on the host that the way leads to."""
    blameless: bool = False
    """Whether it is no fault of any component, or intended: nobody may be named."""
    blind: bool = False
    """Whether nobody can know meanwhile what the network does: nothing may recover."""
    controller: Controller | None = None
    """The only one under which it can be; None: any, but for flows that the lab itself installs."""

    @property
    def is_own_flow(self) -> bool:
        """Whether it is in a flow that the lab itself installs."""
        return self.kind is Kind.FLOW and self.controller is None

    def is_possible(self, controller: Controller) -> bool:
        """Tell whether it can be where that drives the virtual switches."""
        only = Controller.NONE if self.is_own_flow else self.controller
        return only in {None, controller}


_PULSES = {"kbit": 1000.0, "duty": 0.25}
_SPECS = (
    Spec("link-loss", Kind.LINK, "a link drops packets at random", {"percent": 5}),
    Spec("link-down", Kind.LINK, "a link is cut; routing does not react"),
    Spec("one-way-loss", Kind.LINK, "a link drops packets to the leaf at random", {"percent": 5}),
    Spec("leaf-down", Kind.LEAF, "all interfaces of a leaf go down"),
    Spec("spine-down", Kind.SPINE, "all interfaces of a spine go down"),
    Spec("slow-link", Kind.LINK, "a link shapes to a low rate and queues", {"kbit": 1000}),
    Spec("link-pulses", Kind.LINK, "a link queues for a part of the time", _PULSES),
    Spec("link-delay", Kind.LINK, "a link delays each packet, both ways", {"ms": 2}),
    Spec("ecmp-member", Kind.LINK, "a link drops one of its ECMP members", {"of": 4}),
    Spec("spine-loss", Kind.SPINE, "a spine drops packets at random", {"percent": 5}),
    Spec("leaf-loss", Kind.LEAF, "a leaf drops packets at random", {"percent": 5}),
    Spec("mtu-blackhole", Kind.LINK, "a link drops large packets only", {"bytes": 1400}),
    Spec("rnic-down", Kind.RNIC, "an RNIC port is down"),
    Spec("rnic-flapping", Kind.RNIC, "an RNIC port goes down and up", {"period_s": 2}),
    Spec("rnic-loss", Kind.RNIC, "an RNIC's cable drops packets at random", {"percent": 5}),
    Spec("narrow-port", Kind.RNIC, "an RNIC's port at the leaf has a small MTU", {"bytes": 1000}),
    Spec("rdma-port-down", Kind.ENDPOINT, "an RDMA port is down", rdma=True),
    Spec("gid-change", Kind.ENDPOINT, "an RDMA device gets another GID", rdma=True),
    Spec("flow-deleted", Kind.FLOW, "the tunnel flow is missing", table=Table.TUNNEL),
    Spec("flow-loop", Kind.FLOW, "the tunnel flow resubmits back", table=Table.TUNNEL),
    Spec("flow-drop", Kind.FLOW, "a drop of higher priority", table=Table.DESTINATION),
    Spec("port-drop", Kind.FLOW, "some source ports are dropped", table=Table.DESTINATION),
    Spec("rdma-drop", Kind.FLOW, "RoCE only is dropped", table=Table.DESTINATION, rdma=True),
    Spec("wrong-tunnel-remote", Kind.FLOW, "tunnelled to the wrong host", table=Table.TUNNEL),
    Spec("wrong-vni", Kind.FLOW, "tunnelled with the wrong VNI", table=Table.TUNNEL),
    Spec("wrong-address", Kind.FLOW, "another destination is written", table=Table.TUNNEL),
    Spec("flow-shadowed", Kind.FLOW, "a wider flow hides the tunnel flow", table=Table.TUNNEL),
    Spec("group-dead", Kind.FLOW, "tunnelled by a group that is dead", table=Table.TUNNEL),
    Spec("wrong-output-port", Kind.FLOW, "delivered elsewhere", table=Table.DELIVERY, far=True),
    Spec("wrong-mac", Kind.FLOW, "delivered to a wrong MAC", table=Table.DELIVERY, far=True),
    Spec("wrong-reverse", Kind.FLOW, "the way back leads astray", table=Table.TUNNEL, far=True),
    # Flow tables say that all is well:
    Spec("tc-drop", Kind.RNIC, "tc drops tunnelled packets leaving an uplink"),
    Spec("encap-mtu", Kind.RNIC, "an uplink is too narrow for the tunnel", {"bytes": 1400}),
    Spec(
        "far-vni",
        Kind.RNIC,
        "a host's tunnel accepts a wrong VNI only",
        {"vni": 1999},
        controller=Controller.NONE,
    ),
    Spec(
        "tunnel-source-filtered",
        Kind.RNIC,
        "a host drops another's tunnel",
        {"source": 0},
        controller=Controller.NONE,
    ),
    Spec("upcall-flood", Kind.ENDPOINT, "new flows overflow the upcall queue", {"seconds": 60}),
    Spec("container-crash", Kind.CONTAINER, "a container vanishes, its ports stay configured"),
    Spec("agent-killed", Kind.HOST, "an agent dies (SIGKILL)"),
    Spec("agent-frozen", Kind.HOST, "an agent hangs (SIGSTOP)"),
    Spec("host-starved", Kind.HOST, "an agent gets no CPU, over and over", {"period_s": 0.22}),
    Spec("vswitchd-killed", Kind.HOST, "an ovs-vswitchd dies (SIGKILL)"),
    # No component is at fault:
    Spec(
        "background-loss", Kind.LAB, "every link drops a little", {"percent": 0.3}, blameless=True
    ),
    Spec("analyzer-disk-full", Kind.LAB, "the analyzer's disk is full", blameless=True, blind=True),
    Spec(
        "management-down",
        Kind.LAB,
        "the management network is down",
        blameless=True,
        blind=True,
    ),
)
_OVN = (
    ("controller-frozen", Kind.HOST, "ovn-controller hangs (SIGSTOP), and is asked"),
    ("controller-cut-off", Kind.HOST, "ovn-controller has no database, and is asked"),
    ("controller-gone", Kind.HOST, "ovn-controller ends and takes its host out"),
    ("port-unbound", Kind.ENDPOINT, "an interface has the iface-id of no port"),
    ("port-contested", Kind.ENDPOINT, "another host has an interface of that port"),
    ("port-misplaced", Kind.ENDPOINT, "a port is wanted on another host"),
    ("flow-lost", Kind.FLOW, "OVN's flow to a port is deleted behind it"),
    ("tunnel-address-wrong", Kind.RNIC, "a host offers a tunnel address of nobody"),
    ("tunnel-address-taken", Kind.RNIC, "a host offers another's tunnel address"),
    ("address-refused", Kind.ENDPOINT, "a MAC that port security does not know"),
    ("translation-stale", Kind.LAB, "northd is paused, and asked"),
    ("ghost-chassis", Kind.CHASSIS, "OVN has a host that is not there"),
)
_INTENDED = (
    ("policy-drop", Kind.ENDPOINT, "an ACL drops RoCE and probes: intended"),
    ("port-disabled", Kind.ENDPOINT, "a port is disabled: intended"),
)
_ON_OVN = (
    *(Spec(*each, controller=Controller.OVN) for each in _OVN),
    *(Spec(*each, controller=Controller.OVN, blameless=True) for each in _INTENDED),
)
CATALOGUE = {spec.name: spec for spec in (*_SPECS, *_ON_OVN)}
