# SPDX-License-Identifier: Apache-2.0
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.errors import LabError
from tests.lab.shape import (
    Controller,
    Link,
    Shape,
    Transport,
    Tunnel,
    Versions,
    host_number,
    namespace,
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    hosts = draw(st.integers(1, 6))
    segments = draw(st.integers(1, hosts))
    versions = Versions(underlay=draw(st.sampled_from([4, 6])))
    return Shape(hosts, draw(st.integers(1, 3)), segments, draw(st.integers(1, 3)), ip=versions)


def test_the_default_has_two_hosts_in_each_segment() -> None:
    shape = Shape()
    assert [shape.segment(host) for host in range(4)] == [0, 0, 1, 1]
    assert shape.leaf_of(2, 1) == "leaf-s1-r1"
    assert shape.router_address("leaf-s0-r0") == "10.254.0.1"


@given(shapes())
def test_no_interface_is_cabled_twice_and_all_names_fit_the_kernel(shape: Shape) -> None:
    ends = [
        end
        for wire in shape.wires()
        for end in ((wire.left, wire.left_interface), (wire.right, wire.right_interface))
    ]
    assert len(set(ends)) == len(ends)
    assert all(len(interface) < 16 for _, interface in ends)


@given(shapes())
def test_every_router_has_its_own_address_and_every_segment_a_host(shape: Shape) -> None:
    addresses = {shape.router_address(router) for router in shape.router_names}
    assert len(addresses) == len(shape.router_names)
    assert {shape.segment(host) for host in range(shape.hosts)} == set(range(shape.segments))


@given(shapes())
def test_a_cable_joins_namespaces_of_the_lab(shape: Shape) -> None:
    known = {namespace(name) for name in shape.router_names + shape.host_names}
    assert set(chain.from_iterable((w.left, w.right) for w in shape.wires())) == known


@pytest.mark.parametrize("sizes", [{"hosts": 0}, {"rails": 9}, {"segments": 5}, {"spines": 17}])
def test_impossible_sizes_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(LabError, match="give a number from 1 to"):
        Shape(**sizes)


def test_soft_roce_is_of_ipv4_only() -> None:
    with pytest.raises(LabError, match="IPv4"):
        Shape(transport=Transport.RDMA, ip=Versions(overlay=6))


@pytest.mark.parametrize(
    "other", [{"transport": Transport.RDMA}, {"ip": Versions(overlay=6)}], ids=["rdma", "ipv6"]
)
def test_what_ovn_does_not_have_here_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(LabError, match="on OVN"):
        Shape(controller=Controller.OVN, **other)


def test_ovn_writes_an_option_into_geneve_headers_alone() -> None:
    both = [Shape(controller=Controller.OVN, encapsulation=tunnel) for tunnel in Tunnel]
    assert [shape.option_bytes for shape in both] == [0, 8]
    assert Shape(encapsulation=Tunnel.GENEVE).option_bytes == 0


def test_a_link_is_named_as_verdicts_name_it() -> None:
    assert Link("leaf-s0-r0", "spine-0").name == "leaf-s0-r0 -- spine-0"


def test_a_host_is_a_letter_and_a_number() -> None:
    assert host_number("h12") == 12
    with pytest.raises(LabError, match="names no host"):
        host_number("leaf-s0-r0")
