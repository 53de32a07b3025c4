# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.controller import check_controller
from netagent.host.driven import MOST_INSIDE, MOST_ODD, driven, driven_by, is_driven
from netagent.host.facts import Bridge, Link, Port, VswitchView
from netagent.model.vswitch import Interface
from netagent.wire.codec import decode, encode
from netagent.wire.controller import (
    MOST_ADDRESSES,
    MOST_PORTS,
    MOST_TEXT,
    ControllerState,
    PluggedPort,
    Working,
)

SET = {
    "system-id": "h1",
    "ovn-remote": "tcp:10.98.0.1:6642",
    "ovn-encap-type": "geneve,vxlan",
    "ovn-encap-ip": "10.99.0.1, 10.99.1.1",
}
"""What `up.sh` of a lab of OVN 23.03 sets, with two rails."""
INSTALLED = {"iface-id": "p1-0", "ovn-installed": "true", "ovn-installed-ts": "1795752000000"}
HOST = {
    "lo": Link(1, "lo", addresses=("127.0.0.1", "::1", "10.7.7.7")),
    "br-phy0": Link(2, "br-phy0", addresses=("10.99.0.1", "169.254.3.3", "fd00::1")),
}
INSIDE = {"veth0": Link(3, "eth0", mac="0A:58:0a:00:00:01", addresses=("10.0.0.1", "fd00:1::1"))}


def plug(name: str, **ids: str) -> Interface:
    return Interface(name, external_ids={key.replace("_", "-"): ids[key] for key in ids})


VETH0 = Interface("veth0", external_ids=INSTALLED)


def bridge(*interfaces: Interface, name: str = "br-int", **ids: str) -> Bridge:
    ports = tuple(Port(each.name, (each,)) for each in (Interface(name, "internal"), *interfaces))
    return Bridge(name, "netdev", ports, {key.replace("_", "-"): ids[key] for key in ids})


def view(*bridges: Bridge, **ids: str) -> VswitchView:
    return VswitchView(True, bridges, ids)


def said(*interfaces: Interface, marks: dict[str, str] | None = None, ids=SET, **more):
    """Return what is told, and what is odd."""
    row = replace(bridge(*interfaces), external_ids={"ovn-nb-cfg": "7"} if marks is None else marks)
    given_links = {"host": HOST, "inside": INSIDE, **more}
    found = driven(VswitchView(True, (row,), ids), "br-int", **given_links)
    assert found is not None
    return found.state, found.odd


def test_all_that_a_host_has_of_its_controller_is_told():
    state, odd = said(VETH0, plug("veth1", iface_id="p2-0"), working=Working.CUT_OFF)
    assert state == ControllerState(
        source="ovn",
        chassis="h1",
        central="tcp:10.98.0.1:6642",
        kinds=("geneve", "vxlan"),
        encapsulations=("10.99.0.1", "10.99.1.1"),
        addresses=("10.99.0.1", "10.7.7.7", "fd00::1"),  # that of a tunnel first
        working=Working.CUT_OFF,
        generation=7,
        ports=(
            PluggedPort(
                name="p1-0", interface="veth0", is_installed=True, mac="0a:58:0a:00:00:01",
                addresses=("10.0.0.1", "fd00:1::1"),
            ),
            PluggedPort(name="p2-0", interface="veth1"),
        ),
    )  # fmt: skip
    assert odd == ()


@pytest.mark.parametrize(
    ("seen", "is_so"),
    [
        (VswitchView(), False),
        (view(bridge()), False),
        (view(bridge(VETH0), **SET), True),  # not started yet
        (view(**SET), True),
        (view(bridge(name="br-ovn"), bridge(), **SET | {"ovn-bridge": "br-ovn"}), False),
        (view(bridge(ovn_nb_cfg="0")), True),
        (view(bridge(**{"ct-zone-p1-0": "3"})), True),
        (view(bridge(name="br-ex", ovn_nb_cfg="0"), bridge()), False),
        (view(bridge(), **{"ovn-remote-h1": "tcp:10.98.0.1:6642", "system-id": "h1"}), True),
        (view(bridge(), **{"ovn-remote-h2": "tcp:10.98.0.1:6642", "system-id": "h1"}), False),
    ],
)
def test_a_switch_is_driven_that_a_controller_marked_or_is_set_to_drive(seen, is_so):
    assert is_driven(seen, "br-int") == is_so
    assert (driven(seen, "br-int", host={}, inside={}) is not None) == is_so
    assert not is_driven(replace(seen, bridges=()), "")


def test_what_is_set_for_a_chassis_by_name_has_precedence():
    state, _ = said(ids=SET | {"ovn-encap-ip-h1": "10.99.0.11", "ovn-remote-h2": "tcp:1.1.1.1:1"})
    assert state.encapsulations == ("10.99.0.11",)
    assert state.central == SET["ovn-remote"]


def test_a_tunnel_address_that_is_none_is_told_as_it_is():
    """The controller goes by it, and nobody else says that it is wrong."""
    state, odd = said(ids=SET | {"ovn-encap-ip": "10.99.0,FD00::0001,10.99.0,"})
    assert state.encapsulations == ("10.99.0", "fd00::1")
    assert odd == ()


@pytest.mark.parametrize("text", ["", "-1", "1.5", "seven", "\u0667", "9" * 19, "9" * 5000])
def test_a_generation_that_is_none_is_not_told(text):
    state, odd = said(marks={"ovn-nb-cfg": text})
    assert state.generation is None
    assert odd == (f"cannot use ovn-nb-cfg {text[:80]!r}",)
    assert said(marks={"ct-zone-a": "1"})[0].generation is None


def test_a_host_says_whether_it_has_the_databases():
    row = bridge(VETH0, **{"ovn-nb-cfg": "1"})
    for has in (False, True):
        found = driven(VswitchView(True, (row,), SET), "br-int", host={}, inside={}, databases=has)
        assert found.state.databases is has


def test_two_interfaces_that_claim_one_port_are_both_told():
    state, _ = said(VETH0, plug("veth1", iface_id="p1-0"))
    assert [(each.name, each.interface) for each in state.ports] == [
        ("p1-0", "veth0"), ("p1-0", "veth1"),
    ]  # fmt: skip


def test_a_long_name_is_left_out_and_told_and_no_other_with_it():
    long = "p" * (MOST_TEXT + 1)
    state, odd = said(plug("veth1", iface_id=long), VETH0, ids=SET | {"system-id": "h\n1"})
    assert state.chassis == ""
    assert [each.interface for each in state.ports] == ["veth0"]
    assert odd == (
        r"cannot use system-id 'h\n1'",
        f"cannot use iface-id of 'veth1': {long[:80]!r}",
    )
    many = [plug(f"veth{n}", iface_id=f"\t{n}") for n in range(2 * MOST_ODD)]
    assert len(said(*many)[1]) == MOST_ODD


def test_of_very_many_those_that_count_are_told():
    services = tuple(f"10.1.{n // 200}.{n % 200 + 1}" for n in range(1000))
    host = HOST | {"kube-ipvs0": Link(9, "kube-ipvs0", addresses=services)}
    inside = {"veth0": Link(3, "eth0", addresses=services)}
    ports = [plug(f"v{n:05d}", iface_id=f"p{n}") for n in range(MOST_PORTS)]
    ids = SET | {"ovn-encap-ip": "10.99.0.1," + ",".join(services)}
    state, odd = said(VETH0, *ports, host=host, inside=inside, ids=ids)
    assert (state.addresses[0], len(state.addresses)) == (services[0], MOST_ADDRESSES)
    assert (state.encapsulations[0], len(state.encapsulations)) == ("10.99.0.1", MOST_ADDRESSES)
    assert len(state.ports) == MOST_PORTS
    assert odd == ("ovn-encap-ip has 1001: 64 are told", "4097 ports: 4096 are told")
    (told,) = said(VETH0, inside=inside)[0].ports
    assert len(told.addresses) == MOST_INSIDE
    few = said(host=host)[0]
    assert few.addresses[0] == "10.99.0.1"


TEXTS = st.text(max_size=12) | st.text(min_size=MOST_TEXT, max_size=MOST_TEXT + 2)
KEYS = st.sampled_from(
    [
        "system-id", "ovn-remote", "ovn-bridge", "ovn-encap-type", "ovn-encap-ip", "ovn-nb-cfg",
        "ct-zone-a", "iface-id", "ovn-installed", "ovn-encap-ip-h1",
    ]
)  # fmt: skip
VALUES = TEXTS | st.sampled_from(["h1", "br-int", "true", "7", "10.99.0.1,10.99.1.1", "fe80::1"])
IDS = st.dictionaries(KEYS, VALUES, max_size=8)
LINKS = st.builds(
    Link,
    index=st.just(1),
    name=st.just("eth0"),
    mac=st.sampled_from(["", "02:00:00:00:00:01"]),
    addresses=st.lists(st.ip_addresses().map(str), max_size=80).map(tuple),
)


@given(IDS, IDS, st.lists(st.tuples(TEXTS, IDS), max_size=5), st.dictionaries(TEXTS, LINKS))
def test_whatever_a_host_has_its_analyzer_takes_what_it_tells(ids, marks, interfaces, links):
    ports = [Interface(name, external_ids=keys) for name, keys in interfaces]
    seen = VswitchView(True, (replace(bridge(*ports), external_ids=marks),), ids)
    found = driven(seen, "br-int", host=links, inside=links)
    assert (found is not None) == is_driven(seen, "br-int")
    if found is not None:
        check_controller(found.state)
        assert decode(encode(found.state), ControllerState) == found.state
        plugged = {each.name: each.external_ids.get("iface-id") for each in ports}
        assert all(plugged[each.interface] == each.name for each in found.state.ports)


VXLAN = Interface("vxlan0", "vxlan", options={"local_ip": "10.99.0.1", "remote_ip": "flow"})
FLOW = Interface("vxlan1", "vxlan", options={"local_ip": "flow"})


def pushed(*connected: bool, is_there: bool = True):
    rows = (replace(bridge(VETH0), connected=connected), bridge(VXLAN, FLOW, name="br-tun"))
    links = {"host": HOST, "inside": INSIDE}
    seen = VswitchView(is_there, rows, {"system-id": "a uuid"})
    return driven_by("acme", seen, "br-int", chassis="gpu-0417", **links)


def test_of_another_controller_what_open_vswitch_knows_is_told():
    state = pushed(True).state
    assert (state.source, state.chassis, state.central) == ("acme", "gpu-0417", "")
    assert (state.kinds, state.encapsulations) == (("vxlan",), ("10.99.0.1",))
    assert state.addresses == ("10.99.0.1", "10.7.7.7", "fd00::1")
    assert [(each.name, each.interface, each.mac) for each in state.ports] == [
        ("p1-0", "veth0", "0a:58:0a:00:00:01")
    ]
    check_controller(decode(encode(state), ControllerState))


@pytest.mark.parametrize(
    ("connected", "is_there", "working"),
    [
        ((), True, Working.UNKNOWN),
        ((False,), True, Working.CUT_OFF),
        ((False, True), True, Working.CONNECTED),
        ((True,), False, Working.UNKNOWN),
    ],
)
def test_another_controller_works_where_open_vswitch_is_connected_to_it(
    connected, is_there, working
):
    assert pushed(*connected, is_there=is_there).state.working is working


def test_a_bridge_that_is_not_there_is_driven_by_nobody():
    links = {"host": HOST, "inside": INSIDE}
    assert driven_by("acme", view(bridge()), "br-ex", chassis="h", **links) is None
