# SPDX-License-Identifier: Apache-2.0
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.rdma_facts import (
    Gid,
    RdmaDevice,
    RdmaPort,
    RdmaView,
    address_gid,
    device_of,
    mac_gid,
    roce_mtu_bytes,
)

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def device(name: str, mac: str, netdev: str = "eth0", address: str = "10.0.0.1") -> RdmaDevice:
    gids = (
        Gid(0, mac_gid(mac), "RoCE v2", netdev),
        Gid(1, address_gid(address), "IB/RoCE v1", netdev),
        Gid(2, address_gid(address), "RoCE v2", netdev),
    )
    return RdmaDevice(name, ports=(RdmaPort(name, 1, "ACTIVE", "Ethernet", gids=gids),))


def test_an_address_of_ipv6_is_its_own_gid():
    assert address_gid("fd00::10") == "fd00::10"
    assert address_gid("10.0.0.10") == "::ffff:10.0.0.10"


def test_the_default_gid_is_the_link_local_address():
    """As Linux 6.1 showed it for a veth with this address."""
    assert mac_gid("de:65:de:73:93:10") == "fe80::dc65:deff:fe73:9310"


@given(st.binary(min_size=6, max_size=6))
def test_a_default_gid_is_an_address_of_the_interface(octets):
    made = ipaddress.IPv6Address(mac_gid(octets.hex(":")))
    expected = bytes([0xFE, 0x80, *bytes(6), octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    assert made.packed == expected


@pytest.mark.parametrize(
    ("netdev", "active"),
    [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (1450, 1024), (600, 256), (300, 0)],
)
def test_the_active_mtu_is_what_the_headers_leave(netdev, active):
    assert roce_mtu_bytes(netdev) == active


def test_the_device_that_carries_an_address_is_found_by_its_roce_v2_gid():
    devices = [device("mlx5_0", A), device("mlx5_1", B, address="10.0.1.1")]
    found = device_of(devices, "eth0", "10.0.1.1")
    assert found is not None
    port, gid = found
    assert (port.device, gid.index) == ("mlx5_1", 2)
    assert device_of(devices, "eth1", "10.0.1.1") is None
    assert device_of(devices, "eth0", "10.0.2.1") is None


def test_two_tenants_with_one_address_are_told_apart_by_mac():
    devices = [device("mlx5_0", A), device("mlx5_1", B)]
    assert device_of(devices, "eth0", "10.0.0.1") is None
    found = device_of(devices, "eth0", "10.0.0.1", B)
    assert found is not None
    assert found[0].device == "mlx5_1"
    assert device_of(devices, "eth0", "10.0.0.1", "02:00:00:00:00:0c") is None


@pytest.mark.parametrize("mac", ["", "0a:00:00:01", ":".join(["0a"] * 20), "xyz"])
def test_what_is_no_mac_tells_no_tenants_apart(mac):
    devices = [device("mlx5_0", A), device("mlx5_1", B)]
    assert device_of(devices, "eth0", "10.0.0.1", mac) is None


def test_ports_are_found_by_number_and_devices_by_name():
    made = device("mlx5_0", A)
    assert made.port(1) is made.ports[0]
    assert made.port(2) is None
    assert RdmaView((made,)).by_name() == {"mlx5_0": made}
