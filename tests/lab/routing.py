# SPDX-License-Identifier: Apache-2.0
"""The routes of every router and host. Pure.

Links are unnumbered: a next hop is the neighbour's loopback address, declared on-link.
"""

from dataclasses import dataclass

from tests.lab.shape import Shape, namespace, underlay_bridge, vtep


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
    for rail in range(shape.rails):
        gateway = shape.router_address(shape.leaf_of(host, rail))
        hop = Hop(underlay_bridge(rail), gateway)
        source = vtep(host, rail)
        routes.append(Route(f"{gateway}/32", (Hop(underlay_bridge(rail)),), source))
        routes.append(Route(f"172.30.{rail}.0/24", (hop,), source))
    return tuple(routes)


def _spine_routes(shape: Shape) -> tuple[Route, ...]:
    routes = []
    for leaf in shape.leaf_names:
        hop = Hop(f"to-{leaf}", shape.router_address(leaf))
        routes.append(Route(f"{hop.via}/32", (hop,)))
        routes += [Route(f"{address}/32", (hop,)) for address in _vteps_behind(shape, leaf)]
    return tuple(routes)


def _leaf_routes(shape: Shape, leaf: str) -> tuple[Route, ...]:
    spines = tuple(Hop(f"to-{spine}", shape.router_address(spine)) for spine in shape.spine_names)
    routes = [Route(f"{hop.via}/32", (hop,)) for hop in spines]
    rail = leaf.rpartition("-r")[2]
    for other in shape.leaf_names:
        if other == leaf or other.rpartition("-r")[2] != rail:
            continue  # rails are separate networks: a leaf knows no other rail
        routes.append(Route(f"{shape.router_address(other)}/32", spines))
        routes += [Route(f"{address}/32", spines) for address in _vteps_behind(shape, other)]
    for wire in shape.wires():
        if wire.right == namespace(leaf):
            address = vtep(int(wire.left.removeprefix("na-h")), int(rail))
            routes.append(Route(f"{address}/32", (Hop(wire.right_interface),)))
    return tuple(routes)


def _vteps_behind(shape: Shape, leaf: str) -> list[str]:
    return [
        vtep(host, rail)
        for host in range(shape.hosts)
        for rail in range(shape.rails)
        if shape.leaf_of(host, rail) == leaf
    ]
