# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults: parameters, truth, and what they do to flows. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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


_SPECS = (
    Spec("link-loss", Kind.LINK, "a link drops packets at random", {"percent": 5}),
    Spec("link-down", Kind.LINK, "a link is cut; routing does not react"),
    Spec("spine-down", Kind.SPINE, "all interfaces of a spine go down"),
    Spec("slow-link", Kind.LINK, "a link shapes to a low rate and queues", {"kbit": 1000}),
    Spec("link-delay", Kind.LINK, "a link delays each packet, both ways", {"ms": 2}),
    Spec("mtu-blackhole", Kind.LINK, "a link drops large packets only", {"bytes": 1400}),
    Spec("rnic-down", Kind.RNIC, "an RNIC port is down"),
    Spec("rnic-flapping", Kind.RNIC, "an RNIC port goes down and up", {"period_s": 2}),
    Spec("rdma-port-down", Kind.ENDPOINT, "an RDMA port is down", rdma=True),
    Spec("gid-change", Kind.ENDPOINT, "an RDMA device gets another GID", rdma=True),
    Spec("flow-deleted", Kind.FLOW, "the tunnel flow is missing", table=Table.TUNNEL),
    Spec("flow-loop", Kind.FLOW, "the tunnel flow resubmits back", table=Table.TUNNEL),
    Spec("flow-drop", Kind.FLOW, "a drop of higher priority", table=Table.DESTINATION),
    Spec("rdma-drop", Kind.FLOW, "RoCE only is dropped", table=Table.DESTINATION, rdma=True),
    Spec("wrong-tunnel-remote", Kind.FLOW, "tunnelled to the wrong host", table=Table.TUNNEL),
    Spec("wrong-vni", Kind.FLOW, "tunnelled with the wrong VNI", table=Table.TUNNEL),
    # Flow tables say that all is well:
    Spec("tc-drop", Kind.RNIC, "tc drops tunnelled packets leaving an uplink"),
    Spec("encap-mtu", Kind.RNIC, "an uplink is too narrow for the tunnel", {"bytes": 1400}),
    Spec("far-vni", Kind.RNIC, "a host's tunnel accepts a wrong VNI only", {"vni": 1999}),
    Spec("tunnel-source-filtered", Kind.RNIC, "a host drops another's tunnel", {"source": 0}),
    Spec("upcall-flood", Kind.ENDPOINT, "new flows overflow the upcall queue", {"seconds": 60}),
    Spec("container-crash", Kind.CONTAINER, "a container vanishes, its ports stay configured"),
    Spec("agent-killed", Kind.HOST, "an agent dies (SIGKILL)"),
    Spec("agent-frozen", Kind.HOST, "an agent hangs (SIGSTOP)"),
    Spec("vswitchd-killed", Kind.HOST, "an ovs-vswitchd dies (SIGKILL)"),
)
CATALOGUE = {spec.name: spec for spec in _SPECS}

# Of each set, one at a time on the same target: they change the same thing.
_ALTERNATIVES = (
    {"rnic-down", "rnic-flapping"},
    {"slow-link", "link-delay"},
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


def _rnic_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("rnic", f"rnic h{found.host}/{rnic(found.rail)}")


def _tunnel_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("overlay", f"tunnel h{found.host}/{tunnel(found.rail)}")


def _flow_truth(spec: Spec, target: str, state: State) -> Truth:
    found = destination_of(target, state.shape)
    running(found.endpoint.container.id, state)
    return Truth("overlay", f"flow h{found.host}/{INTEGRATION_BRIDGE}/table={int(spec.table)}")


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
    Kind.RNIC: _rnic_truth,
    Kind.FLOW: _flow_truth,
    Kind.CONTAINER: _container_truth,
    Kind.ENDPOINT: _device_truth,
    Kind.HOST: _agent_truth,
}
_OWN_TRUTHS: dict[str, _Truth] = {
    "far-vni": _tunnel_truth,
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
        if CATALOGUE[fault.name].kind is Kind.FLOW:
            destination = destination_of(fault.target, shape)
            if destination.host == host:
                result = _disturb(result, fault.name, destination, shape)
    return result


def _disturb(
    flows: tuple[Flow, ...], name: str, destination: Destination, shape: Shape
) -> tuple[Flow, ...]:
    endpoint = destination.endpoint
    match = destination_match(endpoint)
    # Added flows carry no cookie, as by hand: nothing in them tells that the lab did it.
    if name == "flow-drop":
        return (*flows, Flow(Table.DESTINATION, 200, match, "drop", 0))
    if name == "rdma-drop":
        roce = f"{match},udp,tp_dst={RDMA_PORT}"
        return (*flows, Flow(Table.DESTINATION, 210, roce, "drop", 0))
    if name == "flow-loop":
        back = f"resubmit(,{int(Table.DESTINATION)})"
        return (*flows, Flow(Table.TUNNEL, 200, match, back, 0))
    right = tunnel_flow(endpoint)
    others = tuple(flow for flow in flows if flow != right)
    if name == "wrong-tunnel-remote":
        return (*others, tunnel_flow(endpoint, remote=_wrong_remote(destination, shape)))
    if name == "wrong-vni":
        return (*others, tunnel_flow(endpoint, vni=endpoint.container.vni + 500))
    return others


def _wrong_remote(destination: Destination, shape: Shape) -> str:
    """Return the tunnel endpoint of a third host, or of nobody if there is none."""
    endpoint = destination.endpoint
    involved = (destination.host, endpoint.container.host)
    third = [host for host in reversed(range(shape.hosts)) if host not in involved]
    return vtep(third[0] if third else 240, endpoint.rail)
