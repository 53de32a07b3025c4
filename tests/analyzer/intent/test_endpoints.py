# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.intent.endpoints import Ends
from analyzer.intent.model import Port
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, PluggedPort

MAC, OTHER = "0a:00:00:00:00:01", "0a:00:00:00:00:02"
PORT = Port("p", "net", macs=(MAC.upper(),), addresses=("10.0.0.1",))


def endpoint(container="c", mac=MAC, address="10.0.0.1", host="h0", port="veth0", bridge="br-int"):
    return Endpoint(
        EndpointId(container, 0), "t", host, address, mac, "192.0.2.1", "rnic0", bridge, port
    )


def state(*ports):
    return ControllerState(source="ovn", ports=tuple(ports))


def plug(name="p", interface="veth0", mac=""):
    return PluggedPort(name=name, interface=interface, mac=mac)


def ends(*endpoints, ports=(PORT,), **states):
    return Ends({each.name: each for each in ports}, states, endpoints)


def test_an_interface_says_it_whatever_else_looks_alike():
    here, there = endpoint("c", OTHER), endpoint("d", MAC, host="h1")
    assert ends(here, there, h0=state(plug())).of("p") == [here]
    assert ends(there, h0=state(plug())).of("p") == [there]  # not registered; the address is alone


@pytest.mark.parametrize(
    ("port", "found"),
    [
        (replace(PORT, container="c", macs=()), True),
        (replace(PORT, container="c"), True),
        (replace(PORT, container="c", macs=(OTHER,), addresses=()), False),
        (replace(PORT, container="x"), True),
        (replace(PORT, macs=()), True),
        (replace(PORT, macs=(OTHER,)), False),  # an address alone may be another network's
        (replace(PORT, pod="ns/name", macs=(), addresses=()), False),
        (Port("q"), False),
    ],
)
def test_a_container_or_an_address_says_it_where_no_interface_does(port, found):
    assert ends(endpoint(), ports=(port,)).of(port.name) == ([endpoint()] if found else [])


@pytest.mark.parametrize("container", ["ns.name", "ns/name"])
def test_a_pod_says_it_where_containers_are_called_after_it(container):
    pod = endpoint(container)
    assert ends(pod, ports=(Port("p", pod="ns/name"),)).of("p") == [pod]


def test_an_address_that_two_have_says_nothing():
    twice = (PORT, replace(PORT, name="q", network="other"))
    assert ends(endpoint(), ports=twice).of("p") == []
    assert ends(endpoint(), endpoint("d", host="h1")).of("p") == []
    assert ends(endpoint()).of("unknown") == []


@pytest.mark.parametrize("mac", [MAC, ""])
def test_a_container_of_another_name_is_seen_by_its_address(mac):
    """The host may have read it inside the container, or registered it with the endpoint."""
    found = ends(endpoint(), h0=state(plug("wrong", mac=mac))).elsewhere(PORT)
    assert found is not None
    assert (found[0], found[1].interface, found[1].name) == ("h0", "veth0", "wrong")


def test_without_any_name_only_the_endpoint_says_it():
    found = ends(endpoint(), h0=state()).elsewhere(PORT)
    assert found is not None
    assert (found[0], found[1].name) == ("h0", "")
    assert ends(endpoint(bridge=""), h0=state()).elsewhere(PORT) is None  # no switch carries it
    assert ends(endpoint(mac=""), h0=state()).elsewhere(replace(PORT, macs=())) is None


def test_of_several_interfaces_of_a_container_only_an_address_tells_which():
    first, second = endpoint(), endpoint(mac=OTHER, port="veth1")
    unknown = replace(PORT, container="c", macs=())
    known = replace(PORT, container="c", macs=(OTHER,))
    assert ends(first, second, ports=(unknown,), h0=state()).elsewhere(unknown) is None
    assert ends(first, ports=(unknown,), h0=state()).elsewhere(unknown) is not None
    assert ends(first, second, ports=(known,), h0=state()).elsewhere(known)[1].interface == "veth1"


def test_a_container_that_is_plugged_in_for_a_port_of_its_own_is_not_elsewhere():
    own = Port("own", "other", macs=(MAC,))
    assert (
        ends(endpoint(), ports=(PORT, own), h0=state(plug("own", mac=MAC))).elsewhere(PORT) is None
    )
    any_mac = Port("own", "other")
    assert ends(endpoint(), ports=(PORT, any_mac), h0=state(plug("own"))).elsewhere(PORT) is None
