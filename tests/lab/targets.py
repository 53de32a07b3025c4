# SPDX-License-Identifier: Apache-2.0
"""What faults are aimed at, how a target is written, and which one is taken unasked. Pure."""

from dataclasses import dataclass
from enum import Enum

from tests.lab.errors import LabError
from tests.lab.shape import Link, Shape, host_number, leaf_name, rnic
from tests.lab.state import State
from tests.lab.workload import Container, Endpoint, container_of


class Kind(Enum):
    """What a fault is aimed at; the value shows how a target is written."""

    LINK = "leaf-s0-r0--spine-0"
    SPINE = "spine-0"
    LEAF = "leaf-s0-r0"
    RNIC = "h1/rnic0"
    FLOW = "h0/train-a-2/rail0"
    CONTAINER = "train-a-1"
    ENDPOINT = "train-a-1/rail0"
    HOST = "h2"
    CHASSIS = "ghost"
    LAB = "all"


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


def link_of(target: str, shape: Shape) -> Link:
    """Return the link that ``leaf-s0-r0--spine-0``, in either order, names."""
    ends = {end.strip() for end in target.split("--")}
    for link in shape.links():
        if ends == {link.leaf, link.spine}:
            return link
    raise bad_target(target, Kind.LINK)


def spelled(link: Link) -> str:
    """Return the one spelling of a link by which it is remembered."""
    return f"{link.leaf}--{link.spine}"


def rnic_of(target: str, shape: Shape) -> Rnic:
    """Return the RNIC that ``h1/rnic0`` names."""
    host, _, interface = target.partition("/")
    for rail in range(shape.rails):
        if interface == rnic(rail):
            return Rnic(host_of(host, shape), rail)
    raise bad_target(target, Kind.RNIC)


def host_of(target: str, shape: Shape) -> int:
    """Return the number of a host that the lab has."""
    host = host_number(target)
    if host >= shape.hosts:
        raise bad_target(target, Kind.HOST)
    return host


def endpoint_of(target: str, shape: Shape) -> Endpoint:
    """Return the endpoint that ``train-a-1/rail0`` names."""
    container, _, rail = target.partition("/")
    number = rail.removeprefix("rail")
    if not number.isdigit() or int(number) >= shape.rails:
        raise bad_target(target, Kind.ENDPOINT)
    return container_of(container, shape.transport, shape.ip).endpoint(int(number))


def destination_of(target: str, shape: Shape) -> Destination:
    """Return what ``h0/train-a-2/rail0`` names: the way from h0 to that endpoint."""
    host, _, endpoint = target.partition("/")
    if "/" not in endpoint:
        raise bad_target(target, Kind.FLOW)
    found = Destination(host_of(host, shape), endpoint_of(endpoint, shape))
    if found.endpoint.container.host == found.host:
        raise LabError(f"{target} is local to {host}", "no tunnel leads there; take another host")
    return found


def running(target: str, state: State) -> Container:
    """Return a container that runs."""
    container = container_of(target, state.shape.transport, state.shape.ip)
    if container not in state.containers:
        raise LabError(f"{target} does not run", f"run: start-task {container.task}")
    return container


def bad_target(target: str, kind: Kind) -> LabError:
    """Return the error for a target that the lab does not have."""
    return LabError(f"{target!r} is no target of this lab", f"write it like {kind.value}")


def default_target(kind: Kind, state: State) -> str:
    """Return a sensible target of a kind."""
    if kind is Kind.FLOW:
        return _default_flow(state)
    if kind is Kind.CONTAINER:
        return _default_container(state)
    if kind is Kind.ENDPOINT:
        return f"{_default_container(state)}/rail0"
    last = state.shape.hosts - 1
    return {
        Kind.LINK: f"{leaf_name(0, 0)}--spine-0",
        Kind.SPINE: "spine-0",
        Kind.LEAF: leaf_name(0, 0),
        Kind.RNIC: f"h{min(1, last)}/rnic0",
        Kind.HOST: f"h{min(2, last)}",
        Kind.CHASSIS: Kind.CHASSIS.value,
        Kind.LAB: Kind.LAB.value,
    }[kind]


def _default_container(state: State) -> str:
    if not state.containers:
        raise LabError("no container runs", "run: start-task train-a")
    return state.containers[min(1, len(state.containers) - 1)].id


def _default_flow(state: State) -> str:
    """Prefer, from h0, a container of the first task as far away as there is."""
    here = [container for container in state.containers if container.host == 0]
    for task in (container.task for container in here):
        away = [c for c in state.containers if c.task == task and c.host != 0]
        if away:
            return f"h0/{away[len(away) // 2].id}/rail0"
    raise LabError("no pair of containers to disturb", "run: start-task train-a")
