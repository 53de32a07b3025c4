# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.model.endpoint import Endpoint, RdmaAddress, may_answer, oddity
from netagent.model.ids import EndpointId

RDMA = RdmaAddress("mlx5_0", "::ffff:10.0.0.10", (17, 18), 1, 1024)
UDP = Endpoint(EndpointId("a", 0), "t", "h0", "10.0.0.10", "", "", "", "", "")


def test_what_makes_sense_is_not_odd():
    assert oddity(UDP) == oddity(replace(UDP, rdma=RDMA)) == ""


@pytest.mark.parametrize("address", ["fd00:10::10", "2001:db8::1"])
def test_an_address_may_be_of_ipv6(address):
    assert oddity(replace(UDP, address=address, underlay="fd00:30::10")) == ""


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0", "10.0.0.256", "10.0.0.1/24", "fe80::1", "::", "::ffff:10.0.0.1", "ff02::1",
     "fd00::1%eth0", "fd00:0::1", "FD00::1", "[fd00::1]"],
)  # fmt: skip
def test_an_address_that_is_none_or_written_in_another_way_is_odd(address):
    assert "no address of an endpoint" in oddity(replace(UDP, address=address))
    assert not address or "end" in oddity(replace(UDP, underlay=address))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gid": "10.0.0.10"}, "no GID"),
        ({"gid": ""}, "no GID"),
        ({"qpns": ()}, "queue pair"),
        ({"qpns": tuple(range(1, 66))}, "queue pair"),
        ({"qpns": tuple(range(1, 65))}, ""),
        ({"qpns": (0,)}, "queue pair"),
        ({"qpns": (1 << 24,)}, "queue pair"),
        ({"qpns": ((1 << 24) - 1,)}, ""),
        ({"qkey": -1}, "QKEY"),
        ({"qkey": 1 << 32}, "QKEY"),
        ({"qkey": (1 << 32) - 1}, ""),
        ({"mtu": 1500}, "MTU of 1500"),
        ({"mtu": 4096}, ""),
    ],
)
def test_an_rdma_address_is_held_against_what_hardware_has(change, said):
    told = oddity(replace(UDP, rdma=replace(RDMA, **change)))
    assert (said in told) if said else not told


@pytest.mark.parametrize(("change", "told"), [
    ({"mac": "zz"}, "no MAC address"), ({"mac": "02:00:00:00:00:0g"}, "no MAC address"),
    ({"underlay": "leaf-evil"}, "no address of a tunnel's end"),
    ({"id": EndpointId("a", 1024)}, "no rail 1024"), ({"id": EndpointId("a", -1)}, "no rail -1"),
    *(({name: "n" * 256}, "256 characters") for name in ("task", "rnic", "bridge", "port", "bond")),
    ({"rdma": replace(RDMA, device="n" * 256)}, "256 characters"),
    ({"rdma": replace(RDMA, gid="n" * 256)}, "256 characters"),
    ({"mtu": 1 << 16}, "MTU of 65536"), ({"mtu": -1}, "MTU of -1"),
])  # fmt: skip
def test_other_addresses_that_are_none_are_odd(change, told):
    assert told in oddity(replace(UDP, **change))
    assert oddity(replace(UDP, mac="02:00:00:00:00:0A", underlay="fd00::1")) == ""


def test_who_may_answer_is_of_one_transport_and_one_version_of_ip():
    six, other = replace(UDP, address="fd00::1"), replace(UDP, address="10.0.0.11")
    ends = [UDP, six, replace(UDP, rdma=RDMA), replace(six, rdma=RDMA)]
    assert [[may_answer(a, b) for b in ends] for a in ends] == [
        [a is b for b in ends] for a in ends
    ]
    assert may_answer(UDP, other)
