# SPDX-License-Identifier: Apache-2.0
"""Which fault is meant, and what it does to links and flow tables. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from netagent.model.address import is_six
from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.errors import LabError
from tests.lab.pipeline import Flow, Table, destination_match, tunnel_flow
from tests.lab.shape import Controller, Shape, Transport
from tests.lab.state import Fault, State
from tests.lab.targets import (
    Destination,
    Kind,
    default_target,
    destination_of,
    link_of,
    rnic_of,
    spelled,
)
from tests.lab.truths import truth_of
from tests.lab.workload import Endpoint

NO_PORT = 65_000
"""OpenFlow number of no port."""

NO_MAC = "02:00:00:00:00:99"
NO_ADDRESS = 250
"""Last part of an overlay address that no container has."""
_DROPPED_PORTS = ("0x0/0x2", "0x2/0x3")
"""Three quarters of all source ports; not the one that replies come from."""

RDMA_PORT = 4791
"""UDP destination port of RoCE v2."""

PROBE_PORT = 18515
"""UDP destination port of agents' probes, unless they are told another."""

# Of each set, one at a time on the same target: they change the same thing.
_ALTERNATIVES = (
    {"rnic-down", "rnic-flapping"},
    {"slow-link", "link-delay", "link-pulses"},
    {"agent-killed", "agent-frozen", "host-starved"},
    {"rdma-port-down", "gid-change"},
    {"controller-frozen", "controller-cut-off", "controller-gone"},
    {"tunnel-address-wrong", "tunnel-address-taken"},
)

LISTED = "run: .venv/bin/python -m tests.lab inject --list"
"""How to see which faults there are, and what they take."""


def plan(name: str, target: str | None, parameters: dict[str, float], state: State) -> Fault:
    """Return the fault that `name` means in a lab, with its truth.

    `target` is written as in `Kind`; None takes a sensible one. Raises `LabError` for an unknown
    fault, parameter or target, for one that the lab has no use for, and for a repeated injection.
    """
    spec = CATALOGUE.get(name)
    if spec is None:
        raise LabError(f"no fault is called {name!r}", LISTED)
    unknown = parameters.keys() - spec.parameters.keys()
    if unknown:
        raise LabError(f"{name} takes no {', '.join(sorted(unknown))}", LISTED)
    if not spec.is_possible(state.shape.controller):
        raise _impossible(spec)
    if spec.rdma and state.shape.transport is not Transport.RDMA:
        raise LabError(f"{name} needs RDMA devices", "run: up --transport rdma")
    aim = target or default_target(spec.kind, state)
    if spec.kind is Kind.LINK:
        aim = spelled(link_of(aim, state.shape))
    truth = truth_of(spec, aim, state)
    fault = Fault(name, aim, spec.parameters | parameters, truth)
    if name == "tunnel-source-filtered":
        source_of(fault, state.shape)
    for other in state.faults:
        if _exclude(fault, other):
            raise LabError(f"{other.key} is injected already", f"run: heal {other.key}")
    return fault


def _impossible(spec: Spec) -> LabError:
    if spec.controller is Controller.OVN:
        return LabError(f"{spec.name} is a fault of OVN", "run: up --controller ovn")
    problem = f"{spec.name} is in what the lab itself gives switches, and OVN does that here"
    return LabError(problem, "run: up without --controller")


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
        if CATALOGUE[fault.name].is_own_flow and disturbed_host(fault, shape) == host:
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
    udp = "udp6" if is_six(endpoint.address) else "udp"
    if name == "flow-drop":
        return (Flow(Table.DESTINATION, 200, match, "drop", 0),)
    if name == "port-drop":
        return tuple(
            Flow(Table.DESTINATION, 210, f"{match},{udp},tp_src={ports}", "drop", 0)
            for ports in _DROPPED_PORTS
        )
    if name == "rdma-drop":
        return (Flow(Table.DESTINATION, 210, f"{match},{udp},tp_dst={RDMA_PORT}", "drop", 0),)
    if name in _INSTEAD:
        return (_instead(name, destination, shape),)
    return ()


_INSTEAD = {"flow-loop", "wrong-address", "flow-shadowed"}


def _instead(name: str, destination: Destination, shape: Shape) -> Flow:
    """Return the flow that packets meet instead of the tunnel flow."""
    endpoint = destination.endpoint
    match, actions = destination_match(endpoint), tunnel_flow(endpoint).actions
    if name == "flow-loop":
        actions = f"resubmit(,{int(Table.DESTINATION)})"
    elif name == "wrong-address":
        six = is_six(endpoint.address)
        network, between, _ = endpoint.address.rpartition(":" if six else ".")
        kind, field = ("ipv6", "ipv6_dst") if six else ("ip", "ip_dst")
        set_field = f"set_field:{network}{between}{NO_ADDRESS}->{field}"
        match, actions = f"{kind},{match}", f"{set_field},{actions}"
    else:
        match = match.replace(f"reg1={endpoint.rail:#x},", "")
        actions = tunnel_flow(endpoint, remote=_wrong_remote(destination, shape)).actions
    return Flow(Table.TUNNEL, 200, match, actions, 0)


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
    return shape.vtep(third[0] if third else 240, endpoint.rail)
