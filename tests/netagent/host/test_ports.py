# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.ports import container_ports, is_tunnel, parse_rail
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface
from tests.netagent.host.small_host import C0, plug, tunnel


def test_a_container_port_is_what_its_external_ids_say():
    (port,), unusable = container_ports([plug(), tunnel(), Interface("br-int", "internal")])
    assert (port.id, port.task, port.interface) == (C0, "train", "c0-r0")
    assert (port.address, port.mac, port.error) == ("10.0.0.10", "02:00:00:00:00:0a", "")
    assert unusable == ()


def test_ports_of_others_are_passed_over():
    other = Interface("pod", external_ids={"iface-id": "ns_pod", "sandbox": "abc"})
    assert container_ports([other]) == ((), ())


@pytest.mark.parametrize(
    ("interface", "text"),
    [
        (plug(sandbox=None), "external_ids lack sandbox"),
        (plug(task="", attached_mac=None), "external_ids lack task, attached_mac"),
        (plug(ip_addresses="fe80::1/64"), "cannot use ip_addresses"),
        (replace(plug(), external_ids={**plug().external_ids, "rail": "x"}), "cannot use rail 'x'"),
        (plug(attached_mac="02:00"), "cannot use attached_mac '02:00'"),
        (plug(sandbox="a b"), "cannot use sandbox 'a b'"),
        # The analyzer refuses all of a host for a name that is none.
        (plug(sandbox="a\n"), "cannot use sandbox 'a\\n'"),
        (plug(task="a\nb"), "cannot use task 'a\\nb'"),
        (plug(task="x" * 129), "cannot use task 'xxx"),
        (replace(plug(), type="patch"), "cannot use type 'patch'"),
    ],
)
def test_what_is_missing_or_odd_is_named(interface, text):
    ports, (unusable,) = container_ports([interface])
    assert ports == ()
    assert unusable.port == "c0-r0"
    assert text in unusable.text


def test_two_ports_of_one_endpoint_are_told_apart():
    twin = replace(plug(), name="twin")
    (port,), (unusable,) = container_ports([twin, plug()])
    assert port.interface == "c0-r0"
    assert unusable.text == "c0/rail0 is already on port c0-r0"


@pytest.mark.parametrize("text", ["fd00::1/64, 10.0.0.10/24", "10.0.0.10", " 10.0.0.10/24,x"])
def test_the_first_ipv4_address_is_taken(text):
    (port,), _ = container_ports([plug(ip_addresses=text)])
    assert port.address == "10.0.0.10"


@pytest.mark.parametrize("text", ["fe80::1/64, fd00:0::10/64 fd00::11", "::, x,FD00::10/64"])
def test_without_one_the_first_ipv6_address_that_serves_is_taken(text):
    (port,), _ = container_ports([plug(ip_addresses=text)])
    assert port.address == "fd00::10"


def test_a_device_that_could_not_be_opened_is_an_error_of_its_port():
    (port,), _ = container_ports([replace(plug(), ofport=-1)])
    assert port.error == "it could not be opened"


@pytest.mark.parametrize(
    ("text", "rail"),
    [("0", 0), ("255", 255), ("256", None), ("-1", None), ("²", None), (None, None)],
)
def test_a_rail_is_a_small_number(text, rail):
    assert parse_rail(text) == rail


def test_tunnels_are_told_by_their_type():
    assert is_tunnel(tunnel())
    assert not is_tunnel(plug())


@given(st.lists(st.sampled_from([plug(), plug("c1"), plug("c1", 1), replace(plug(), name="x")])))
def test_every_endpoint_has_one_port_in_order(interfaces):
    ports, _ = container_ports(interfaces)
    ids = [port.id for port in ports]
    assert ids == sorted(set(ids))
    assert set(ids) <= {EndpointId("c0", 0), EndpointId("c1", 0), EndpointId("c1", 1)}
