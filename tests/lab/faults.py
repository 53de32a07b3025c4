# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults: parameters, truth, and what they do to flows. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tests.lab.errors import LabError
from tests.lab.pipeline import Flow, Table, destination_match, tunnel_flow
from tests.lab.shape import INTEGRATION_BRIDGE, Shape, Transport, rnic, tunnel, vtep
from tests.lab.state import Fault, State, Truth
from tests.lab.targets import (
    Destination,
    Kind,
    bad_target,
    default_target,
    destination_of,
    endpoint_of,
    host_of,
    link_of,
    rnic_of,
    running,
    spelled,
)
from tests.lab.workload import Endpoint

NO_PORT = 65_000
"""OpenFlow number of no port."""

NO_MAC = "02:00:00:00:00:99"
_DROPPED_PORTS = ("0x0/0x2", "0x2/0x3")
"""Three quarters of all source ports; not the one that replies come from."""

RDMA_PORT = 4791
"""UDP destination port of RoCE v2."""


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
    Spec("mtu-blackhole", Kind.LINK, "a link drops large packets only", {"bytes": 1400}),
    Spec("rnic-down", Kind.RNIC, "an RNIC port is down"),
    Spec("rnic-flapping", Kind.RNIC, "an RNIC port goes down and up", {"period_s": 2}),
    Spec("rnic-loss", Kind.RNIC, "an RNIC's cable drops packets at random", {"percent": 5}),
    Spec("rdma-port-down", Kind.ENDPOINT, "an RDMA port is down", rdma=True),
    Spec("gid-change", Kind.ENDPOINT, "an RDMA device gets another GID", rdma=True),
    Spec("flow-deleted", Kind.FLOW, "the tunnel flow is missing", table=Table.TUNNEL),
    Spec("flow-loop", Kind.FLOW, "the tunnel flow resubmits back", table=Table.TUNNEL),
    Spec("flow-drop", Kind.FLOW, "a drop of higher priority", table=Table.DESTINATION),
    Spec("port-drop", Kind.FLOW, "some source ports are dropped", table=Table.DESTINATION),
    Spec("rdma-drop", Kind.FLOW, "RoCE only is dropped", table=Table.DESTINATION, rdma=True),
    Spec("wrong-tunnel-remote", Kind.FLOW, "tunnelled to the wrong host", table=Table.TUNNEL),
    Spec("wrong-vni", Kind.FLOW, "tunnelled with the wrong VNI", table=Table.TUNNEL),
    Spec("flow-shadowed", Kind.FLOW, "a wider flow hides the tunnel flow", table=Table.TUNNEL),
    Spec("group-dead", Kind.FLOW, "tunnelled by a group that is dead", table=Table.TUNNEL),
    Spec("wrong-output-port", Kind.FLOW, "delivered elsewhere", table=Table.DELIVERY, far=True),
    Spec("wrong-mac", Kind.FLOW, "delivered to a wrong MAC", table=Table.DELIVERY, far=True),
    Spec("wrong-reverse", Kind.FLOW, "the way back leads astray", table=Table.TUNNEL, far=True),
    # Flow tables say that all is well:
    Spec("tc-drop", Kind.RNIC, "tc drops tunnelled packets leaving an uplink"),
    Spec("encap-mtu", Kind.RNIC, "an uplink is too narrow for the tunnel", {"bytes": 1400}),
    Spec("far-vni", Kind.RNIC, "a host's tunnel accepts a wrong VNI only", {"vni": 1999}),
    Spec("tunnel-source-filtered", Kind.RNIC, "a host drops another's tunnel", {"source": 0}),
    Spec("upcall-flood", Kind.ENDPOINT, "new flows overflow the upcall queue", {"seconds": 60}),
    Spec("container-crash", Kind.CONTAINER, "a container vanishes, its ports stay configured"),
    Spec("agent-killed", Kind.HOST, "an agent dies (SIGKILL)"),
    Spec("agent-frozen", Kind.HOST, "an agent hangs (SIGSTOP)"),
    Spec("host-starved", Kind.HOST, "an agent gets no CPU, over and over", {"period_s": 0.22}),
    Spec("vswitchd-killed", Kind.HOST, "an ovs-vswitchd dies (SIGKILL)"),
)
CATALOGUE = {spec.name: spec for spec in _SPECS}

# Of each set, one at a time on the same target: they change the same thing.
_ALTERNATIVES = (
    {"rnic-down", "rnic-flapping"},
    {"slow-link", "link-delay", "link-pulses"},
    {"agent-killed", "agent-frozen", "host-starved"},
    {"rdma-port-down", "gid-change"},
)


def plan(name: str, target: str | None, parameters: dict[str, float], state: State) -> Fault:
    """Return the fault that `name` means in a lab, with its truth.

    `target` is written as in `Kind`; None takes a sensible one. Raises `LabError` for an unknown
    fault, parameter or target, for one that the lab has no use for, and for a repeated injection.
    """
    spec = CATALOGUE.get(name)
    if spec is None:
        raise LabError(f"no fault is called {name!r}", "run: inject --list")
    unknown = parameters.keys() - spec.parameters.keys()
    if unknown:
        raise LabError(f"{name} takes no {', '.join(sorted(unknown))}", "run: inject --list")
    if spec.rdma and state.shape.transport is not Transport.RDMA:
        raise LabError(f"{name} needs RDMA devices", "run: up --transport rdma")
    aim = target or default_target(spec.kind, state)
    if spec.kind is Kind.LINK:
        aim = spelled(link_of(aim, state.shape))
    truth = (_OWN_TRUTHS.get(name) or _TRUTHS[spec.kind])(spec, aim, state)
    fault = Fault(name, aim, spec.parameters | parameters, truth)
    if name == "tunnel-source-filtered":
        source_of(fault, state.shape)
    for other in state.faults:
        if _exclude(fault, other):
            raise LabError(f"{other.key} is injected already", f"run: heal {other.key}")
    return fault


def of_container(fault: Fault, container_id: str) -> bool:
    """Tell whether a fault is aimed at a container or at one of its endpoints."""
    kinds = (Kind.CONTAINER, Kind.ENDPOINT)
    aimed = CATALOGUE[fault.name].kind in kinds
    return aimed and fault.target.partition("/")[0] == container_id


def source_of(fault: Fault, shape: Shape) -> int:
    """Return the number of the host whose packets a fault concerns."""
    here, number = rnic_of(fault.target, shape).host, fault.parameters["source"]
    if number != int(number) or not 0 <= number < shape.hosts or number == here:
        raise LabError(f"{number:g} is no other host of this lab", "give --source its number")
    return int(number)


def _exclude(one: Fault, other: Fault) -> bool:
    names = {one.name, other.name}
    if one.target == other.target:
        return len(names) == 1 or any(names <= group for group in _ALTERNATIVES)
    # A crashed container has no endpoints to disturb.
    container = one.target.partition("/")[0]
    return "container-crash" in names and all(of_container(f, container) for f in (one, other))


# --- truth -------------------------------------------------------------------------------------


def _link_truth(_spec: Spec, target: str, state: State) -> Truth:
    if state.shape.segments == 1:
        raise LabError("one segment sends nothing over spines", "run: up --segments 2")
    return Truth("underlay", f"link {link_of(target, state.shape).name}")


def _spine_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target not in state.shape.spine_names:
        raise bad_target(target, Kind.SPINE)
    return Truth("underlay", f"switch {target}")


def _leaf_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target not in state.shape.leaf_names:
        raise bad_target(target, Kind.LEAF)
    return Truth("underlay", f"switch {target}")


def _host_truth(_spec: Spec, target: str, state: State) -> Truth:
    host = host_of(target, state.shape)
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return Truth("host", f"host h{host}")


def _rnic_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("rnic", f"rnic h{found.host}/{rnic(found.rail)}")


def _tunnel_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("overlay", f"tunnel h{found.host}/{tunnel(found.rail)}")


def _flow_truth(spec: Spec, target: str, state: State) -> Truth:
    found = destination_of(target, state.shape)
    container = running(found.endpoint.container.id, state)
    host = container.host if spec.far else found.host
    return Truth("overlay", f"flow h{host}/{INTEGRATION_BRIDGE}/table={int(spec.table)}")


def _container_truth(_spec: Spec, target: str, state: State) -> Truth:
    return Truth("container", f"container {running(target, state).id}")


def _device_truth(_spec: Spec, target: str, state: State) -> Truth:
    endpoint = endpoint_of(target, state.shape)
    host = running(endpoint.container.id, state).host
    return Truth("rnic", f"rnic h{host}/{endpoint.rdma_device}")


def _flooded_truth(_spec: Spec, target: str, state: State) -> Truth:
    container = running(endpoint_of(target, state.shape).container.id, state)
    return Truth("overlay", f"vswitch h{container.host}")


def _vswitch_truth(_spec: Spec, target: str, state: State) -> Truth:
    return Truth("overlay", f"vswitch h{host_of(target, state.shape)}")


def _agent_truth(_spec: Spec, target: str, state: State) -> Truth:
    host = host_of(target, state.shape)
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return Truth("agent", f"agent h{host}")


_Truth = Callable[[Spec, str, State], Truth]
_TRUTHS: dict[Kind, _Truth] = {
    Kind.LINK: _link_truth,
    Kind.SPINE: _spine_truth,
    Kind.LEAF: _leaf_truth,
    Kind.RNIC: _rnic_truth,
    Kind.FLOW: _flow_truth,
    Kind.CONTAINER: _container_truth,
    Kind.ENDPOINT: _device_truth,
    Kind.HOST: _agent_truth,
}
_OWN_TRUTHS: dict[str, _Truth] = {
    "far-vni": _tunnel_truth,
    "host-starved": _host_truth,
    "tunnel-source-filtered": _tunnel_truth,
    "upcall-flood": _flooded_truth,
    "vswitchd-killed": _vswitch_truth,
}


# --- links ---------------------------------------------------------------------------------------


def cut_interfaces(spine: str, faults: Iterable[Fault], shape: Shape) -> set[str]:
    """Return the interfaces of a spine that the faults keep down.

    A cut link is down at the spine's end. Were it the leaf's, the kernel would take the next hop
    out of the leaf's routes, and nothing would be lost.
    """
    cut: set[str] = set()
    for fault in faults:
        if fault.name == "spine-down" and fault.target == spine:
            cut |= {f"to-{leaf}" for leaf in shape.leaf_names}
        elif fault.name == "link-down":
            link = link_of(fault.target, shape)
            cut |= {f"to-{link.leaf}"} if link.spine == spine else set()
    return cut


# --- flows -------------------------------------------------------------------------------------


def disturbed(
    flows: Iterable[Flow], faults: Iterable[Fault], shape: Shape, host: int
) -> tuple[Flow, ...]:
    """Return a host's flows as the injected faults leave them."""
    result = tuple(flows)
    for fault in faults:
        if CATALOGUE[fault.name].kind is Kind.FLOW and disturbed_host(fault, shape) == host:
            result = _disturb(result, fault.name, destination_of(fault.target, shape), shape)
    return result


def disturbed_host(fault: Fault, shape: Shape) -> int:
    """Return the host in whose flows a fault is."""
    destination = destination_of(fault.target, shape)
    far = CATALOGUE[fault.name].far
    return destination.endpoint.container.host if far else destination.host


def groups(injected: Iterable[Fault], shape: Shape, host: int) -> tuple[str, ...]:
    """Return the groups that the faults need on a host, as `ovs-ofctl add-group` takes them.

    Their one bucket watches a port that does not exist.
    """
    found = []
    for fault in injected:
        if fault.name == "group-dead" and disturbed_host(fault, shape) == host:
            endpoint = destination_of(fault.target, shape).endpoint
            bucket = f"bucket=watch_port:{NO_PORT},{tunnel_flow(endpoint).actions}"
            found.append(f"group_id={endpoint.ofport},type=ff,{bucket}")
    return tuple(found)


def _disturb(
    flows: tuple[Flow, ...], name: str, destination: Destination, shape: Shape
) -> tuple[Flow, ...]:
    endpoint = destination.endpoint
    if name == "wrong-output-port":
        return _misdelivered(flows, endpoint.ofport)
    if name == "wrong-mac":
        return _misaddressed(flows, endpoint.ofport)
    if name == "wrong-reverse":
        back = Destination(endpoint.container.host, _counterpart(destination))
        return _disturb(flows, "wrong-tunnel-remote", back, shape)
    added = _added(name, destination, shape)
    if added:
        return (*flows, *added)
    right = tunnel_flow(endpoint)
    others = tuple(flow for flow in flows if flow != right)
    wrong = _wrong(name, destination, shape)
    return (*others, wrong) if wrong else others


def _added(name: str, destination: Destination, shape: Shape) -> tuple[Flow, ...]:
    """Return the flows that a fault adds, if it adds any.

    They carry no cookie, as if added by hand: nothing in them tells that the lab did it.
    """
    endpoint = destination.endpoint
    match = destination_match(endpoint)
    if name == "flow-drop":
        return (Flow(Table.DESTINATION, 200, match, "drop", 0),)
    if name == "port-drop":
        return tuple(
            Flow(Table.DESTINATION, 210, f"{match},udp,tp_src={ports}", "drop", 0)
            for ports in _DROPPED_PORTS
        )
    if name == "rdma-drop":
        return (Flow(Table.DESTINATION, 210, f"{match},udp,tp_dst={RDMA_PORT}", "drop", 0),)
    if name == "flow-loop":
        return (Flow(Table.TUNNEL, 200, match, f"resubmit(,{int(Table.DESTINATION)})", 0),)
    if name == "flow-shadowed":
        wider = match.replace(f"reg1={endpoint.rail:#x},", "")
        astray = tunnel_flow(endpoint, remote=_wrong_remote(destination, shape))
        return (Flow(Table.TUNNEL, 200, wider, astray.actions, 0),)
    return ()


def _wrong(name: str, destination: Destination, shape: Shape) -> Flow | None:
    """Return what a fault puts in place of the tunnel flow; None for nothing."""
    endpoint = destination.endpoint
    if name == "wrong-tunnel-remote":
        return tunnel_flow(endpoint, remote=_wrong_remote(destination, shape))
    if name == "wrong-vni":
        return tunnel_flow(endpoint, vni=endpoint.container.vni + 500)
    if name == "group-dead":
        return replace(tunnel_flow(endpoint), actions=f"group:{endpoint.ofport}")
    if name == "flow-deleted":
        return None
    raise LabError(f"nobody says what {name} does to a flow table", "see: _added and _wrong")


def _misdelivered(flows: tuple[Flow, ...], port: int) -> tuple[Flow, ...]:
    """Deliver what is for one port to another that the host has, or to one that it has not."""
    right = f"output:{port}"
    delivering = [flow.actions for flow in flows if flow.table is Table.DELIVERY]
    wrong = next((out for out in delivering if out != right), f"output:{NO_PORT}")
    return tuple(
        replace(flow, actions=wrong)
        if flow.table is Table.DELIVERY and flow.actions == right
        else flow
        for flow in flows
    )


def _misaddressed(flows: tuple[Flow, ...], port: int) -> tuple[Flow, ...]:
    """Deliver what is for one port under a hardware address that nobody has."""
    right = f"output:{port}"
    return tuple(
        replace(flow, actions=f"set_field:{NO_MAC}->eth_dst,{right}")
        if flow.table is Table.DELIVERY and flow.actions == right
        else flow
        for flow in flows
    )


def _counterpart(destination: Destination) -> Endpoint:
    """Return the endpoint of the same task and rail on the host that the way begins at."""
    there = destination.endpoint
    return replace(there.container, host=destination.host).endpoint(there.rail)


def _wrong_remote(destination: Destination, shape: Shape) -> str:
    """Return the tunnel endpoint of a third host, or of nobody if there is none."""
    endpoint = destination.endpoint
    involved = (destination.host, endpoint.container.host)
    third = [host for host in reversed(range(shape.hosts)) if host not in involved]
    return vtep(third[0] if third else 240, endpoint.rail)
