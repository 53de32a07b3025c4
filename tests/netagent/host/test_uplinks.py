# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.facts import Bridge, Port, Uplink, VswitchView
from netagent.host.uplinks import Uplinks
from netagent.model.encapsulation import GENEVE, VXLAN, Encapsulation
from netagent.model.vswitch import Interface
from tests.netagent.host.small_host import Links, physical, tunnel, vswitch


def observe(view, interfaces, links, *, uplinks=None, rails=frozenset()):
    return (uplinks or Uplinks()).observe(view, interfaces, links.view, rails=rails)


def test_a_vtep_on_a_bridge_leads_to_the_bridge_s_physical_port():
    found, unusable = observe(vswitch(), [tunnel(1), tunnel(0)], Links())
    assert found == (
        Uplink(0, "rnic0", "172.30.0.10", "br-phy0", "vxlan0", ("rnic0",)),
        Uplink(1, "rnic1", "172.30.1.10", "br-phy1", "vxlan1", ("rnic1",)),
    )
    assert unusable == ()


def test_a_vtep_on_the_rnic_itself_is_its_own_uplink():
    links = Links(rails=0)
    links.add("ens1f0", addresses=("172.30.0.10",))
    (uplink,), _ = observe(vswitch(bridges=()), [tunnel()], links)
    assert (uplink.device, uplink.vtep, uplink.bond) == ("ens1f0", "ens1f0", None)


def test_a_vtep_may_be_of_ipv6_and_written_in_any_way():
    links = Links(rails=0)
    links.add("ens1f0", addresses=("fd00:30::10",))
    stated = tunnel(options={"local_ip": "FD00:0030:0::10"})
    (uplink,), unusable = observe(vswitch(bridges=()), [stated], links)
    assert (uplink.address, uplink.device, unusable) == ("fd00:30::10", "ens1f0", ())


def test_a_port_of_several_interfaces_is_a_bond():
    bridges = (physical(0, "rnic0", "rnic9"),)
    (uplink,), _ = observe(vswitch(bridges=bridges), [tunnel()], Links())
    assert (uplink.bond, uplink.device, uplink.members) == ("bond", "rnic0", ("rnic0", "rnic9"))


@pytest.mark.parametrize(
    ("kind", "port", "wrapped"),
    [
        ("vxlan", None, VXLAN),
        ("geneve", None, GENEVE),
        ("geneve", "7000", Encapsulation("geneve", 7000)),
        ("vxlan", "8472", Encapsulation("vxlan", 8472)),
        ("vxlan", "flow", VXLAN),
        ("vxlan", "70000", VXLAN),
    ],
)
def test_the_tunnel_says_how_packets_are_wrapped(kind, port, wrapped):
    options = {**tunnel().options, **({"dst_port": port} if port else {})}
    (uplink,), unusable = observe(vswitch(), [tunnel(type=kind, options=options)], Links())
    assert uplink.encapsulation == wrapped
    assert unusable == ()


def test_a_tunnel_whose_outer_headers_are_not_read_says_so():
    (uplink,), (why,) = observe(vswitch(), [tunnel(type="gre")], Links())
    assert (uplink.encapsulation.kind, why.port) == ("gre", "vxlan0")
    assert why.text == "outer headers of gre are not read: no path over it is traced"


@pytest.mark.parametrize("on_bridge", [True, False])
def test_a_kernel_bond_shows_its_members(on_bridge):
    links = Links(rails=0)
    bond = links.add("bond0", kind="bond")
    for name in ("ens1f1", "ens1f0"):
        links.add(name, master=bond.index)
    if on_bridge:
        links.add("br-phy0", addresses=("172.30.0.10",))
        view = vswitch(bridges=(physical(0, "bond0"),))
    else:
        links.change("bond0", addresses=("172.30.0.10",))
        view = vswitch(bridges=())
    (uplink,), _ = observe(view, [tunnel()], links)
    assert (uplink.bond, uplink.members) == ("bond0", ("ens1f0", "ens1f1"))


def test_a_physical_port_without_a_device_is_still_the_rnic():
    links = Links()
    del links.host["rnic0"]
    (uplink,), _ = observe(vswitch(), [tunnel()], links)
    assert uplink.members == ("rnic0",)


def test_patch_ports_are_no_way_out():
    patch = Port("patch0", (Interface("patch0", "patch"),))
    own = Port("br-phy0", (Interface("br-phy0", "internal"),))
    found, (unusable,) = observe(
        vswitch(bridges=(Bridge("br-phy0", "netdev", (own, patch)),)), [tunnel()], Links()
    )
    assert found == ()
    assert unusable.text == "br-phy0 has no RNIC"


def test_the_host_s_only_encapsulation_address_serves_all_tunnels():
    view = replace(vswitch(), external_ids={"ovn-encap-ip": "172.30.0.10"})
    (uplink,), _ = observe(view, [tunnel(options={})], Links())
    assert uplink.address == "172.30.0.10"


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (tunnel(external_ids={"rail": "x"}), "external_ids:rail 'x' is no rail"),
        (tunnel(options={"local_ip": "flow"}), "options:local_ip 'flow' is no address of a host"),
        (
            tunnel(options={"local_ip": "fe80::1"}),
            "options:local_ip 'fe80::1' is no address of a host",
        ),
        (tunnel(options={"local_ip": "172.30.9.9"}), "no device holds 172.30.9.9"),
    ],
)
def test_what_is_odd_about_a_tunnel_is_named(odd, text):
    found, (unusable,) = observe(vswitch(), [odd], Links())
    assert found == ()
    assert (unusable.port, unusable.text) == ("vxlan0", text)


def test_tunnels_without_a_rail_are_others():
    assert observe(vswitch(), [tunnel(external_ids={})], Links()) == ((), ())


def test_a_second_tunnel_of_a_rail_is_not_used():
    found, (unusable,) = observe(vswitch(), [tunnel(), tunnel(name="vxlan7")], Links())
    assert [each.tunnel for each in found] == ["vxlan0"]
    assert unusable.text == "rail 0 already has vxlan0"


def test_what_was_known_outlives_the_device_but_not_a_new_address():
    uplinks, links = Uplinks(), Links()
    (before,), _ = observe(vswitch(), [tunnel()], links, uplinks=uplinks)
    del links.host["br-phy0"]
    assert observe(vswitch(), [tunnel()], links, uplinks=uplinks) == ((before,), ())
    moved = tunnel(options={"local_ip": "172.30.0.99"})
    found, (unusable,) = observe(vswitch(), [moved], links, uplinks=uplinks)
    assert found == ()
    assert unusable.text == "no device holds 172.30.0.99"


def test_a_rail_that_still_has_endpoints_keeps_its_uplink_without_a_tunnel():
    uplinks, links = Uplinks(), Links()
    observe(vswitch(), [tunnel()], links, uplinks=uplinks)
    found, (unusable,) = observe(VswitchView(), [], links, uplinks=uplinks, rails={0})
    assert [each.rail for each in found] == [0]
    assert unusable.text == "the tunnel of rail 0 is gone"
    assert observe(VswitchView(), [], links, uplinks=uplinks) == ((), ())


# --- tunnels that name no rail --------------------------------------------------------------------


def ovn(number, local="", **more):
    """Return a tunnel as ovn-controller makes it, to the chassis of that number."""
    options = {"remote_ip": f"172.30.0.{number}", "key": "flow", "csum": "true"}
    options |= {"local_ip": local} if local else {}
    return tunnel(name=f"ovn-h{number}-0", type="geneve", options=options, external_ids={}, **more)


BOTH = [
    Uplink(0, "rnic0", "172.30.0.10", "br-phy0", "ovn-h2-0", ("rnic0",), None, GENEVE),
    Uplink(1, "rnic1", "172.30.1.10", "br-phy1", "ovn-h3-0", ("rnic1",), None, GENEVE),
]


def test_tunnels_of_ovn_are_on_the_rail_of_the_rnic_that_carries_their_address():
    mesh = [ovn(9, "172.30.1.10"), ovn(3, "172.30.1.10"), ovn(2, "172.30.0.10")]
    uplinks = Uplinks(("rnic0", "rnic1"))
    assert observe(vswitch(), mesh, Links(), uplinks=uplinks) == (tuple(BOTH), ())
    assert observe(vswitch(), mesh, Links()) == ((), ()), "without rails they are others'"


def test_where_ovns_tunnels_have_no_local_address_all_of_the_host_s_count():
    view = replace(vswitch(), external_ids={"ovn-encap-ip": "172.30.0.10, 172.30.1.10"})
    found, unusable = observe(view, [ovn(2)], Links(), uplinks=Uplinks(("rnic0", "rnic1")))
    assert [(each.rail, each.address) for each in found] == [
        (0, "172.30.0.10"), (1, "172.30.1.10"),
    ]  # fmt: skip
    assert unusable == ()


def test_a_rail_may_be_known_by_its_bond_or_by_what_holds_its_address():
    bridges = (physical(0, "rnic0", "rnic9"),)
    for name in ("bond", "rnic9", "br-phy0"):
        (uplink,), _ = observe(
            vswitch(bridges=bridges), [ovn(2, "172.30.0.10")], Links(), uplinks=Uplinks((name,))
        )
        assert (uplink.rail, uplink.bond, uplink.members) == (0, "bond", ("rnic0", "rnic9"))


@pytest.mark.parametrize("address", ["172.30.9.9", "172.30.1.10", "", "no address"])
def test_a_tunnel_by_no_rails_rnic_is_said_once_for_its_address(address):
    mesh = [ovn(2, address), ovn(3, address)]
    found, (why,) = observe(vswitch(), mesh, Links(), uplinks=Uplinks(("rnic0",)))
    assert found == ()
    assert (why.port, repr(address) in why.text) == ("ovn-h2-0", True)


@pytest.mark.parametrize("view", [
    vswitch(), replace(vswitch(), external_ids={"ovn-encap-ip": "FD00:30:0::10"}),
])  # fmt: skip
def test_however_an_address_is_written_it_is_the_rnics(view):
    links = Links()
    links.change("br-phy0", addresses=("fd00:30::10",))
    local = "" if view.external_ids else "fd00:30:0:0::10"
    (uplink,), why = observe(view, [ovn(2, local)], links, uplinks=Uplinks(("rnic0",)))
    assert (uplink.rail, uplink.address, why) == (0, "fd00:30::10", ())


def test_what_a_tunnel_says_of_its_rail_comes_first_and_what_was_known_stays():
    uplinks, links = Uplinks(("rnic1", "rnic0")), Links()
    both = [tunnel(0), ovn(2, "172.30.1.10")]
    found, _ = observe(vswitch(), both, links, uplinks=uplinks)
    assert [(each.rail, each.tunnel) for each in found] == [(0, "vxlan0")]
    uplinks = Uplinks(("rnic0",))
    (before,), _ = observe(vswitch(), [ovn(2, "172.30.0.10")], links, uplinks=uplinks)
    del links.host["br-phy0"]
    kept, _ = observe(vswitch(), [ovn(2, "172.30.0.10")], links, uplinks=uplinks, rails={0})
    assert kept == (before,)


@pytest.mark.parametrize(
    ("addresses", "found"),
    [(("10.9.0.1",), "10.9.0.1"), (("10.9.0.1", "fd00::1"), "10.9.0.1"), (("fd00::1",), "fd00::1")],
)
def test_a_tunnel_that_names_no_address_leaves_by_that_of_the_only_rail(addresses, found):
    """As Antrea's, which goes to all hosts (pkg/agent/agent.go, setupDefaultTunnelInterface)."""
    links = Links(rails=0)
    links.add("ens1f0", addresses=addresses)
    flow = Interface("antrea-tun0", "geneve", 1, {"remote_ip": "flow", "key": "flow"})
    (uplink,), unusable = observe(vswitch(bridges=()), [flow], links, uplinks=Uplinks(["ens1f0"]))
    assert (uplink.rail, uplink.address, uplink.tunnel) == (0, found, "antrea-tun0")
    assert (uplink.encapsulation, unusable) == (GENEVE, ())


@pytest.mark.parametrize("rnics", [["ens1f0"], ["ens1f0", "ens2f0"]])
def test_where_it_may_be_one_of_several_addresses_none_is_guessed(rnics):
    links = Links(rails=0)
    links.add("ens1f0", addresses=("10.9.0.1", "10.9.0.2"))
    links.add("ens2f0", addresses=("10.9.1.1",))
    flow = Interface("antrea-tun0", "geneve", 1, {"remote_ip": "flow", "key": "flow"})
    found, unusable = observe(vswitch(bridges=()), [flow], links, uplinks=Uplinks(rnics))
    assert (found, [each.port for each in unusable]) == ((), ["antrea-tun0"])
