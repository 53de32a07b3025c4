# SPDX-License-Identifier: Apache-2.0
"""The routes of every router and host. Pure.

Links are unnumbered: a next hop is the neighbour's loopback address, declared on-link, or by IPv6
one that holds on the link alone.
"""

from dataclasses import dataclass
from ipaddress import ip_interface

from tests.lab.shape import ADDRESS_LENGTH, VTEP_PREFIX_LENGTH, Shape, namespace, underlay_bridge


@dataclass(frozen=True, slots=True)
class Hop:
    """One next hop; `via` is None where the destination itself is the neighbour."""

    device: str
    via: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A destination prefix and its equal-cost next hops."""

    destination: str
    hops: tuple[Hop, ...]
    source: str | None = None


def router_routes(shape: Shape, router: str) -> tuple[Route, ...]:
    """Return all routes of a leaf or spine, by its short name."""
    if router in shape.spine_names:
        return _spine_routes(shape)
    return _leaf_routes(shape, router)


def host_routes(shape: Shape, host: int) -> tuple[Route, ...]:
    """Return a host's routes to the other tunnel endpoints of each of its rails."""
    routes = []
    length = VTEP_PREFIX_LENGTH[shape.ip.underlay]
    for rail in range(shape.rails):
        leaf, device = shape.leaf_of(host, rail), underlay_bridge(rail)
        address, gateway = shape.router_address(leaf), shape.gateway(leaf)
        source, hop = shape.vtep(host, rail), Hop(device, gateway)
        to_leaf = Hop(device) if address == gateway else hop
        routes.append(Route(_only(shape, address), (to_leaf,), source))
        routes.append(Route(str(ip_interface(f"{source}/{length}").network), (hop,), source))
    return tuple(routes)


def _only(shape: Shape, address: str) -> str:
    return f"{address}/{ADDRESS_LENGTH[shape.ip.underlay]}"


def _to(shape: Shape, router: str) -> Hop:
    return Hop(f"to-{router}", shape.gateway(router))


def _spine_routes(shape: Shape) -> tuple[Route, ...]:
    routes = []
    for leaf in shape.leaf_names:
        hop = _to(shape, leaf)
        behind = (shape.router_address(leaf), *_vteps_behind(shape, leaf))
        routes += [Route(_only(shape, address), (hop,)) for address in behind]
    return tuple(routes)


def _leaf_routes(shape: Shape, leaf: str) -> tuple[Route, ...]:
    spines = tuple(_to(shape, spine) for spine in shape.spine_names)
    routes = [
        Route(_only(shape, shape.router_address(spine)), (hop,))
        for spine, hop in zip(shape.spine_names, spines, strict=True)
    ]
    rail = leaf.rpartition("-r")[2]
    for other in shape.leaf_names:
        if other == leaf or other.rpartition("-r")[2] != rail:
            continue  # rails are separate networks: a leaf knows no other rail
        behind = (shape.router_address(other), *_vteps_behind(shape, other))
        routes += [Route(_only(shape, address), spines) for address in behind]
    for wire in shape.wires():
        if wire.right == namespace(leaf):
            address = shape.vtep(int(wire.left.removeprefix("na-h")), int(rail))
            routes.append(Route(_only(shape, address), (Hop(wire.right_interface),)))
    return tuple(routes)


def _vteps_behind(shape: Shape, leaf: str) -> list[str]:
    return [
        shape.vtep(host, rail)
        for host in range(shape.hosts)
        for rail in range(shape.rails)
        if shape.leaf_of(host, rail) == leaf
    ]
