# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults: targets, parameters, truth, and what they do to flows. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from tests.lab.errors import LabError
from tests.lab.pipeline import Flow, Table, destination_match, tunnel_flow
from tests.lab.shape import (
    INTEGRATION_BRIDGE,
    Link,
    Shape,
    host_number,
    leaf_name,
    rnic,
    vtep,
)
from tests.lab.state import Fault, State, Truth
from tests.lab.workload import Container, Endpoint, container_of


class Kind(Enum):
    """What a fault is aimed at; the value shows how a target is written."""

    LINK = "leaf-s0-r0--spine-0"
    SPINE = "spine-0"
    RNIC = "h1/rnic0"
    FLOW = "h0/train-a-2/rail0"
    CONTAINER = "train-a-1"
    HOST = "h2"


@dataclass(frozen=True, slots=True)
class Spec:
    """One entry of the catalogue."""

    name: str
    kind: Kind
    summary: str
    parameters: dict[str, float] = field(default_factory=dict)
    table: Table = Table.CLASSIFY
    """For a fault in a flow: the table blamed."""


_SPECS = (
    Spec("link-loss", Kind.LINK, "a link drops packets at random", {"percent": 5}),
    Spec("link-down", Kind.LINK, "a link is cut; routing does not react"),
    Spec("spine-down", Kind.SPINE, "all interfaces of a spine go down"),
    Spec("slow-link", Kind.LINK, "a link shapes to a low rate and queues", {"kbit": 1000}),
    Spec("mtu-blackhole", Kind.LINK, "a link drops large packets only", {"bytes": 1400}),
    Spec("rnic-down", Kind.RNIC, "an RNIC port is down"),
    Spec("rnic-flapping", Kind.RNIC, "an RNIC port goes down and up", {"period_s": 2}),
    Spec("flow-deleted", Kind.FLOW, "the tunnel flow is missing", table=Table.TUNNEL),
    Spec("flow-loop", Kind.FLOW, "the tunnel flow resubmits back", table=Table.TUNNEL),
    Spec("flow-drop", Kind.FLOW, "a drop of higher priority", table=Table.DESTINATION),
    Spec("wrong-tunnel-remote", Kind.FLOW, "tunnelled to the wrong host", table=Table.TUNNEL),
    Spec("wrong-vni", Kind.FLOW, "tunnelled with the wrong VNI", table=Table.TUNNEL),
    Spec("container-crash", Kind.CONTAINER, "a container vanishes, its ports stay configured"),
    Spec("agent-killed", Kind.HOST, "an agent dies (SIGKILL)"),
    Spec("agent-frozen", Kind.HOST, "an agent hangs (SIGSTOP)"),
    Spec("vswitchd-killed", Kind.HOST, "an ovs-vswitchd dies (SIGKILL)"),
)
CATALOGUE = {spec.name: spec for spec in _SPECS}


@dataclass(frozen=True, slots=True)
class Rnic:
    """An RNIC of a host."""

    host: int
    rail: int


@dataclass(frozen=True, slots=True)
class Destination:
    """One endpoint as the flows of one other host see it."""

    host: int
    endpoint: Endpoint


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
    aim = target or _default_target(spec.kind, state)
    if spec.kind is Kind.LINK:
        aim = _spelled(link_of(aim, state.shape))
    truth = _TRUTHS[spec.kind](spec, aim, state)
    fault = Fault(name, aim, spec.parameters | parameters, truth)
    for other in state.faults:
        same_rnic = spec.kind is Kind.RNIC and CATALOGUE[other.name].kind is Kind.RNIC
        if other.target == aim and (other.name == name or same_rnic):
            raise LabError(f"{other.key} is injected already", f"run: heal {other.key}")
    return fault


# --- targets -----------------------------------------------------------------------------------


def link_of(target: str, shape: Shape) -> Link:
    """Return the link that ``leaf-s0-r0--spine-0``, in either order, names."""
    ends = {end.strip() for end in target.split("--")}
    for link in shape.links():
        if ends == {link.leaf, link.spine}:
            return link
    raise _bad_target(target, Kind.LINK)


def _spelled(link: Link) -> str:
    """Return the one spelling of a link by which it is remembered."""
    return f"{link.leaf}--{link.spine}"


def rnic_of(target: str, shape: Shape) -> Rnic:
    """Return the RNIC that ``h1/rnic0`` names."""
    host, _, interface = target.partition("/")
    for rail in range(shape.rails):
        if interface == rnic(rail):
            return Rnic(host_of(host, shape), rail)
    raise _bad_target(target, Kind.RNIC)


def host_of(target: str, shape: Shape) -> int:
    """Return the number of a host that the lab has."""
    host = host_number(target)
    if host >= shape.hosts:
        raise _bad_target(target, Kind.HOST)
    return host


def destination_of(target: str, shape: Shape) -> Destination:
    """Return what ``h0/train-a-2/rail0`` names: the way from h0 to that endpoint."""
    host, _, endpoint = target.partition("/")
    container, _, rail = endpoint.partition("/")
    number = rail.removeprefix("rail")
    if not number.isdigit() or int(number) >= shape.rails:
        raise _bad_target(target, Kind.FLOW)
    found = Destination(host_of(host, shape), container_of(container).endpoint(int(number)))
    if found.endpoint.container.host == found.host:
        raise LabError(f"{target} is local to {host}", "no tunnel leads there; take another host")
    return found


def running(target: str, state: State) -> Container:
    """Return a container that runs."""
    container = container_of(target)
    if container not in state.containers:
        raise LabError(f"{target} does not run", f"run: start-task {container.task}")
    return container


def _bad_target(target: str, kind: Kind) -> LabError:
    return LabError(f"{target!r} is no target of this lab", f"write it like {kind.value}")


def _default_target(kind: Kind, state: State) -> str:
    if kind is Kind.FLOW:
        return _default_flow(state)
    if kind is Kind.CONTAINER:
        if not state.containers:
            raise LabError("no container runs", "run: start-task train-a")
        return state.containers[min(1, len(state.containers) - 1)].id
    last = state.shape.hosts - 1
    return {
        Kind.LINK: f"{leaf_name(0, 0)}--spine-0",
        Kind.SPINE: "spine-0",
        Kind.RNIC: f"h{min(1, last)}/rnic0",
        Kind.HOST: f"h{min(2, last)}",
    }[kind]


def _default_flow(state: State) -> str:
    """Prefer, from h0, a container of the first task as far away as there is."""
    here = [container for container in state.containers if container.host == 0]
    for task in (container.task for container in here):
        away = [c for c in state.containers if c.task == task and c.host != 0]
        if away:
            return f"h0/{away[len(away) // 2].id}/rail0"
    raise LabError("no pair of containers to disturb", "run: start-task train-a")


# --- truth -------------------------------------------------------------------------------------


def _link_truth(_spec: Spec, target: str, state: State) -> Truth:
    if state.shape.segments == 1:
        raise LabError("one segment sends nothing over spines", "run: up --segments 2")
    return Truth("underlay", f"link {link_of(target, state.shape).name}")


def _spine_truth(_spec: Spec, target: str, state: State) -> Truth:
    if target not in state.shape.spine_names:
        raise _bad_target(target, Kind.SPINE)
    return Truth("underlay", f"switch {target}")


def _rnic_truth(_spec: Spec, target: str, state: State) -> Truth:
    found = rnic_of(target, state.shape)
    return Truth("rnic", f"rnic h{found.host}/{rnic(found.rail)}")


def _flow_truth(spec: Spec, target: str, state: State) -> Truth:
    found = destination_of(target, state.shape)
    running(found.endpoint.container.id, state)
    return Truth("overlay", f"flow h{found.host}/{INTEGRATION_BRIDGE}/table={int(spec.table)}")


def _container_truth(_spec: Spec, target: str, state: State) -> Truth:
    return Truth("container", f"container {running(target, state).id}")


def _host_truth(spec: Spec, target: str, state: State) -> Truth:
    name = f"h{host_of(target, state.shape)}"
    if spec.name == "vswitchd-killed":
        return Truth("overlay", f"vswitch {name}")
    if not state.agents:
        raise LabError("no agents run in this lab", "run: up without --no-agents")
    return Truth("agent", f"agent {name}")


_TRUTHS: dict[Kind, Callable[[Spec, str, State], Truth]] = {
    Kind.LINK: _link_truth,
    Kind.SPINE: _spine_truth,
    Kind.RNIC: _rnic_truth,
    Kind.FLOW: _flow_truth,
    Kind.CONTAINER: _container_truth,
    Kind.HOST: _host_truth,
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
