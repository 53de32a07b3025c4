# SPDX-License-Identifier: Apache-2.0
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.routing import Hop, host_routes, router_routes
from tests.lab.shape import ADDRESS_LENGTH, Shape, Versions, namespace
from tests.lab.test_shape import shapes


class Walker:
    """Follows routes on paper, by the longest match, over all equal-cost next hops at once."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.tables = {
            namespace(router): {
                ip_network(route.destination): [hop.device for hop in route.hops]
                for route in router_routes(shape, router)
            }
            for router in shape.router_names
        }
        self.far_end = {}
        for wire in shape.wires():
            self.far_end[wire.left, wire.left_interface] = wire.right
            self.far_end[wire.right, wire.right_interface] = wire.left

    def step(self, at: str, destination: str) -> set[str]:
        table = self.tables.get(at)
        if table is None:
            return {at}  # a host: arrived, rightly or wrongly
        matching = [net for net in table if ip_address(destination) in net]
        devices = table[max(matching, key=lambda net: net.prefixlen)]
        return {self.far_end[at, device] for device in devices}


@settings(max_examples=30)
@given(shapes(), st.data())
def test_every_way_between_tunnel_endpoints_of_a_rail_arrives(
    shape: Shape, data: st.DataObject
) -> None:
    walker, host = Walker(shape), st.integers(0, shape.hosts - 1)
    source, target = data.draw(host), data.draw(host)
    for rail in range(shape.rails):
        at = {namespace(shape.leaf_of(source, rail))}
        for _ in range(3):  # leaf, spine, leaf at most
            at = {further for here in at for further in walker.step(here, shape.vtep(target, rail))}
        assert at == {namespace(f"h{target}")}


def test_another_segment_is_reached_over_all_spines_at_equal_cost() -> None:
    routes = {route.destination: route.hops for route in router_routes(Shape(), "leaf-s0-r0")}
    assert routes["172.30.0.12/32"] == (
        Hop("to-spine-0", "10.254.1.1"),
        Hop("to-spine-1", "10.254.1.2"),
    )
    assert routes["172.30.0.11/32"] == (Hop("to-h1"),)


def test_by_ipv6_next_hops_hold_on_the_link_alone() -> None:
    shape = Shape(ip=Versions(underlay=6))
    routes = {route.destination: route.hops for route in router_routes(shape, "leaf-s0-r0")}
    assert routes["fd00:30::12/128"] == (
        Hop("to-spine-0", "fe80::2:1"),
        Hop("to-spine-1", "fe80::2:2"),
    )
    assert routes["fd00:30::11/128"] == (Hop("to-h1"),)
    assert routes["fd00:254:1::2/128"] == (Hop("to-spine-1", "fe80::2:2"),)
    gateways = {shape.gateway(router) for router in shape.router_names}
    assert len(gateways) == len(shape.router_names)
    assert all(ip_address(gateway).is_link_local for gateway in gateways)


@pytest.mark.parametrize(("version", "rail"), [(4, "172.30.1."), (6, "fd00:30:1:")])
def test_rails_are_separate_networks(version: int, rail: str) -> None:
    shape = Shape(ip=Versions(underlay=version))
    destinations = {route.destination for route in router_routes(shape, "leaf-s0-r0")}
    assert not [name for name in destinations if name.startswith(rail)]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("host", [0, 3])
def test_a_host_sends_each_rail_to_its_own_leaf(host: int, version: int) -> None:
    shape = Shape(ip=Versions(underlay=version))
    routes = {route.destination: route for route in host_routes(shape, host)}
    for rail in range(shape.rails):
        leaf = shape.leaf_of(host, rail)
        (route,) = (
            r
            for r in routes.values()
            if ip_network(r.destination).num_addresses > 1 and r.source == shape.vtep(host, rail)
        )
        assert ip_address(shape.vtep(0, rail)) in ip_network(route.destination)
        assert route.hops[0].via == shape.gateway(leaf)
        length = ADDRESS_LENGTH[version]
        assert routes[f"{shape.router_address(leaf)}/{length}"].source == route.source
