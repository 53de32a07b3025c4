# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.carrier import FLAP_HOLD_NS
from netagent.host.discovery import (
    GRACE_NS,
    SETTLED_NS,
    UNFOUND_NS,
    Discovery,
)
from netagent.host.facts import HostView, LinkView, Namespace, VswitchView
from netagent.host.inside import unwired_macs
from netagent.host.ports import ContainerPort, Unusable
from netagent.host.sources import Found
from netagent.model.endpoint import EndpointState
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from tests.netagent.host.small_host import C0, Links, S, found_in, plug, tunnel, vswitch

WALL_NS = 1_700_000_000 * S


class Host:
    """A Discovery with a clock that a test turns."""

    def __init__(self) -> None:
        self.discovery = Discovery(host="h0", bridge="br-int")
        self.links = Links()
        self.now_ns = 0

    def look(self, *interfaces, after_ns=0, **more) -> HostView:
        self.now_ns += after_ns
        view = vswitch(tunnel(0), tunnel(1), *interfaces)
        return self.observe(view, **more)

    def observe(self, view: VswitchView, **more) -> HostView:
        now = {"now_ns": self.now_ns, "wall_ns": WALL_NS + self.now_ns}
        found = found_in(view, self.links.view)
        return self.discovery.observe(view, self.links.view, found, **now, **more)

    def started(self) -> HostView:
        self.links.start(plug(), 3)
        return self.look(plug())


@pytest.fixture
def host() -> Host:
    return Host()


def found(view: HostView) -> list[tuple[FindingKind, str]]:
    return [(each.kind, str(each.component)) for each in view.findings]


def test_an_endpoint_has_the_facts_of_all_its_sources(host):
    view = host.started()
    (endpoint,) = view.endpoints
    assert endpoint.id == C0
    assert (endpoint.task, endpoint.host, endpoint.state) == ("train", "h0", EndpointState.UP)
    assert (endpoint.address, endpoint.mac) == ("10.0.0.10", "02:00:00:00:00:0a")
    assert (endpoint.underlay, endpoint.rnic, endpoint.bond) == ("172.30.0.10", "rnic0", None)
    assert (endpoint.bridge, endpoint.port, endpoint.mtu) == ("br-int", "c0-r0", 1400)
    assert view.namespaces == {C0: host.links.namespaces[3]}
    assert [each.rail for each in view.uplinks] == [0, 1]
    assert view.findings == ()
    assert view.complete


def test_what_a_port_leads_to_is_known_whatever_it_has_while_it_can_be_read(host):
    host.started()
    host.links.change_inside(3, mac="02:00:00:00:00:99", addresses=("10.0.0.99",))
    host.look(plug(), after_ns=S)
    ((port, device),) = host.discovery.inside().items()
    assert port == "c0-r0"
    assert (device.mac, device.addresses) == ("02:00:00:00:00:99", ("10.0.0.99",))
    host.links.end(plug(), 3)
    host.look(plug(), after_ns=S)
    assert host.discovery.inside() == {}


@pytest.mark.parametrize(
    "unready",
    [{"up": False}, {"addresses": ()}, {"addresses": ("10.0.0.99",)}],
)
def test_a_starting_container_is_announced_only_once_it_can_answer(host, unready):
    host.links.start(plug(), 3, **unready)
    view = host.look(plug())
    assert view.endpoints == ()
    assert view.findings == ()
    host.links.start(plug(), 3)
    assert [each.id for each in host.look(plug(), after_ns=S).endpoints] == [C0]


def test_a_container_that_never_becomes_ready_is_said_after_a_while(host):
    host.links.start(plug(), 3, addresses=())
    host.look(plug())
    assert host.discovery.deadline_ns() == UNFOUND_NS
    (finding,) = host.look(plug(), after_ns=UNFOUND_NS).findings
    assert finding.kind is FindingKind.UNKNOWN_INPUT
    assert finding.text == "port c0-r0: eth0 does not carry 10.0.0.10"


def test_a_port_whose_namespace_cannot_be_found_is_said_after_a_while(host):
    host.links.add("c0-r0", netnsid=8)
    host.look(plug())
    (finding,) = host.look(plug(), after_ns=UNFOUND_NS).findings
    assert "no namespace found" in finding.text


def test_a_namespace_that_cannot_be_read_is_trusted_as_configured(host):
    host.links.start(plug(), 3)
    del host.links.inside[3]
    (endpoint,) = host.look(plug()).endpoints
    assert (endpoint.address, endpoint.mtu) == ("10.0.0.10", 1450)
    host.links.change("c0-r0", carrier=False)
    (finding,) = (host.look(plug()), host.look(plug(), after_ns=GRACE_NS))[1].findings
    assert "no carrier" in finding.text


def test_a_removed_port_is_a_stop_and_no_alarm(host):
    host.started()
    view = host.look()
    assert view.endpoints == ()
    assert view.findings == ()
    assert view.namespaces == {}


def test_a_namespace_gone_for_less_than_the_grace_alarms_nobody(host):
    host.started()
    host.links.end(plug(), 3)
    view = host.look(plug())
    assert [each.state for each in view.endpoints] == [EndpointState.UP]
    assert view.namespaces == {}, "nobody may hold on to it"
    assert host.discovery.deadline_ns() == GRACE_NS
    view = host.look(after_ns=GRACE_NS - 1)
    assert (view.endpoints, view.findings) == ((), ())


def test_a_namespace_gone_for_the_grace_is_a_crash_until_the_port_goes(host):
    host.started()
    host.links.end(plug(), 3)
    host.look(plug())
    view = host.look(plug(), after_ns=GRACE_NS)
    assert [each.state for each in view.endpoints] == [EndpointState.CRASHED]
    assert found(view) == [(FindingKind.CONTAINER_CRASHED, "container c0")]
    assert view.findings[0].wall_ns == WALL_NS + GRACE_NS
    assert "c0-r0" in view.findings[0].text
    again = host.look(plug(), after_ns=S)
    assert again == view, "what holds on is no news"
    assert host.look(after_ns=S).findings == ()


def test_two_rails_of_a_crashed_container_make_one_finding(host):
    for rail in (0, 1):
        host.links.start(plug(rail=rail), 3)
    host.look(plug(rail=0), plug(rail=1))
    host.links.host.pop("c0-r0")
    host.links.host.pop("c0-r1")
    host.links.namespaces.clear()
    host.look(plug(rail=0), plug(rail=1))
    view = host.look(plug(rail=0), plug(rail=1), after_ns=GRACE_NS)
    assert found(view) == [(FindingKind.CONTAINER_CRASHED, "container c0")]
    assert "c0-r0, c0-r1" in view.findings[0].text


def test_a_crash_hidden_by_a_socket_that_keeps_the_veth_is_seen(host):
    host.started()
    host.links.namespaces.clear()  # its path leads nowhere, yet its devices are still there
    host.look(plug())
    view = host.look(plug(), after_ns=GRACE_NS)
    assert [each.state for each in view.endpoints] == [EndpointState.CRASHED]


def test_a_crashed_container_that_comes_back_is_up(host):
    host.started()
    host.links.end(plug(), 3)
    host.look(plug())
    host.look(plug(), after_ns=GRACE_NS)
    host.links.start(plug(), 4)
    view = host.look(plug(), after_ns=S)
    assert [each.state for each in view.endpoints] == [EndpointState.UP]
    assert view.findings == ()


def test_a_port_found_without_any_device_counts_as_crashed_after_the_grace(host):
    assert host.look(plug()).endpoints == ()
    view = host.look(plug(), after_ns=GRACE_NS)
    assert [each.state for each in view.endpoints] == [EndpointState.CRASHED]


def test_of_what_cannot_be_read_over_ipv6_the_outer_header_leaves_less(host):
    host.links.start(plug(), 3)
    del host.links.inside[3]
    host.links.change("br-phy0", addresses=("fd00:30::10",))
    over_six = tunnel(options={"local_ip": "fd00:30::10"})
    (endpoint,) = host.observe(vswitch(over_six, plug())).endpoints
    assert (endpoint.underlay, endpoint.mtu) == ("fd00:30::10", 1430)


def test_an_address_that_another_device_has_is_said_to_be(host):
    port = plug(ip_addresses="fd00:10::10/64")
    host.links.start(port, 3, addresses=(), duplicates=("fd00:10::10",))
    host.look(port)
    (finding,) = host.look(port, after_ns=UNFOUND_NS).findings
    text = "port c0-r0: eth0 may not use fd00:10::10: another device answered for it"
    assert finding.text == text
    host.links.change_inside(3, addresses=("fd00:10::10",), duplicates=())
    (endpoint,) = host.look(port).endpoints
    assert endpoint.address == "fd00:10::10"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (lambda links: links.change("c0-r0", up=False), "c0-r0 is down on the host"),
        (lambda links: links.change_inside(3, up=False), "eth0 is down in the container"),
        (lambda links: links.change_inside(3, addresses=()), "eth0 does not carry 10.0.0.10"),
        (lambda links: links.inside[3].clear(), "its interface left the container's namespace"),
        (lambda links: links.host.pop("c0-r0"), "its device does not exist"),
    ],
)
def test_a_container_that_lives_without_its_interface_is_an_endpoint_down(host, fault, text):
    host.started()
    fault(host.links)
    view = host.look(plug())
    assert view.findings == ()
    view = host.look(plug(), after_ns=GRACE_NS)
    assert found(view) == [(FindingKind.ENDPOINT_DOWN, "endpoint c0/rail0")]
    assert text in view.findings[0].text
    assert [each.state for each in view.endpoints] == [EndpointState.UP], "it goes on being probed"


def test_what_open_vswitch_cannot_use_is_quoted(host):
    host.started()
    broken = replace(plug(), error="could not open network device")
    host.look(broken)
    (finding,) = host.look(broken, after_ns=GRACE_NS).findings
    assert "Open vSwitch cannot use it: could not open network device" in finding.text


def test_another_mac_than_the_configured_one_is_said(host):
    host.links.start(plug(), 3, mac="02:ff:00:00:00:01")
    (finding,) = host.look(plug()).findings
    assert finding.kind is FindingKind.UNKNOWN_INPUT
    assert "attached_mac is 02:00:00:00:00:0a, but eth0 has 02:ff:00:00:00:01" in finding.text


def test_a_rail_without_a_tunnel_leaves_its_port_unused(host):
    far = plug(rail=5)
    host.links.start(far, 3)
    view = host.look(far)
    assert view.endpoints == ()
    assert "no tunnel for rail 5" in view.findings[0].text


def test_a_deleted_tunnel_hides_no_endpoint(host):
    host.started()
    view = host.observe(vswitch(plug()))
    assert [each.underlay for each in view.endpoints] == ["172.30.0.10"]
    assert [each.text for each in view.findings] == ["port vxlan0: the tunnel of rail 0 is gone"]


def test_two_things_that_are_odd_about_one_tunnel_are_two_findings_since_their_own_time(host):
    host.discovery = Discovery(host="h0", bridge="br-int", rnics=("rnic0",))
    options = {"remote_ip": "172.30.0.11"}
    view = vswitch(tunnel(0, options=options, external_ids={}))
    view = replace(view, external_ids={"ovn-encap-ip": "172.30.9.9"})
    host.observe(view)
    host.now_ns += S
    host.observe(replace(view, external_ids={"ovn-encap-ip": "172.30.9.9,172.30.9.8"}))
    seen = host.observe(replace(view, external_ids={"ovn-encap-ip": "172.30.9.9,172.30.9.8"}))
    assert len({each.key for each in seen.findings}) == 2
    since = {each.text.split("'")[1]: each.wall_ns - WALL_NS for each in seen.findings}
    assert since == {"172.30.9.9": 0, "172.30.9.8": S}


def test_a_tunnel_that_lost_its_rail_and_its_address_has_a_finding_for_each(host):
    host.started()
    lost = tunnel(0, options={"local_ip": "172.30.9.9"})
    seen = host.observe(vswitch(lost, tunnel(1), plug()))
    assert [each.text for each in seen.findings] == [
        "port vxlan0: no device holds 172.30.9.9",
        "port vxlan0: the tunnel of rail 0 is gone",
    ]
    assert len({each.key for each in seen.findings}) == 2


def test_a_dead_vswitchd_changes_nothing_but_the_finding(host):
    before = host.started()
    for rail in (0, 1):  # its internal ports die with it
        del host.links.host[f"br-phy{rail}"]
    view = host.look(plug(), vswitch_down="its process is gone")
    assert (view.endpoints, view.uplinks) == (before.endpoints, before.uplinks)
    assert found(view) == [(FindingKind.VSWITCH_DOWN, "vswitch h0")]
    assert view.findings[0].text == "ovs-vswitchd: its process is gone"


def test_rnics_are_watched_and_time_alone_ends_flapping(host):
    host.look()
    for number in range(4):
        host.links.change("rnic0", carrier=bool(number % 2))
        view = host.look(after_ns=S)
    assert found(view) == [(FindingKind.RNIC_FLAPPING, "rnic h0/rnic0")]
    assert host.discovery.deadline_ns() == host.now_ns + FLAP_HOLD_NS
    assert host.look(after_ns=FLAP_HOLD_NS).findings == ()
    assert host.discovery.deadline_ns() is None


def test_odd_ports_are_said_and_harm_no_other(host):
    view = host.started()
    odd = plug("odd", rail=1, attached_mac="xyz")
    seen = host.look(plug(), odd)
    assert seen.endpoints == view.endpoints
    assert [each.evidence for each in seen.findings] == [{"port": "odd-r1"}]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3 * S),
        st.sampled_from(["start", "end", "plug", "unplug", "down", "up", "bare", "blind"]),
    ),
    max_size=25,
)


@given(STEPS)
def test_whatever_happens_crashes_need_a_port_and_endpoints_carry_their_port(script):
    """Steps start and end the namespace, plug and unplug the port, break and heal the interface."""
    host, plugged, alive = Host(), False, False
    for after_ns, step in script:
        if step == "start" and not alive:
            host.links.start(plug(), 3)
            alive = True
        elif step == "end" and alive:
            host.links.host.pop("c0-r0", None)
            host.links.inside.pop(3, None)
            host.links.namespaces.pop(3, None)
            alive = False
        elif step in {"plug", "unplug"}:
            plugged = step == "plug"
        elif alive and step in {"down", "up"} and 3 in host.links.inside:
            host.links.change_inside(3, up=step == "up")
        elif alive and step == "blind":
            host.links.inside.pop(3, None)
        view = host.look(*([plug()] if plugged else []), after_ns=after_ns)
        states = [each.state for each in view.endpoints]
        assert len(states) <= plugged
        if alive:
            assert EndpointState.CRASHED not in states or not host.links.inside.get(3)
        assert set(view.namespaces) <= {each.id for each in view.endpoints}
        assert set(view.namespaces.values()) <= set(host.links.namespaces.values())
        assert all(each.wall_ns <= WALL_NS + host.now_ns for each in view.findings)


TEXT = st.text(max_size=6) | st.sampled_from(["0", "7", "10.0.0.1", "02:00:00:00:00:01", "a b"])
KEY = st.sampled_from(["sandbox", "task", "rail", "attached_mac", "ip_addresses", "iface-id"])


@given(st.lists(st.dictionaries(KEY, TEXT), max_size=4), TEXT, TEXT)
def test_no_content_of_ovsdb_raises(ids, rail, local_ip):
    interfaces = [replace(plug(f"c{n}"), external_ids=each) for n, each in enumerate(ids)]
    odd_tunnel = tunnel(0, external_ids={"rail": rail}, options={"local_ip": local_ip})
    view = vswitch(odd_tunnel, *interfaces)
    discovery = Discovery(host="h0", bridge="br-int")
    seen = discovery.observe(view, LinkView(), found_in(view), now_ns=0, wall_ns=0)
    assert all(isinstance(each.id, EndpointId) for each in seen.endpoints)


# --- ports that stand for functions of the NIC ----------------------------------------------------


def test_a_container_behind_a_representor_is_found_by_its_hardware_address(host):
    host.links.give(plug(), 3)
    view = host.look(plug())
    (endpoint,) = view.endpoints
    assert (endpoint.id, endpoint.state, endpoint.mtu) == (C0, EndpointState.UP, 1400)
    assert view.namespaces == {C0: host.links.namespaces[3]}
    assert view.netdevs == {C0: "eth0"}
    assert view.findings == ()


@pytest.mark.parametrize("port", ["pf0vf3", "pf1vf3", "pf0sf88", "c1pf0vf3"])
def test_what_kind_of_function_it_is_makes_no_difference(host, port):
    """Of the first and the second PF, a sub-function, one of a SmartNIC's host.

    Named as `devlink_port_phys_port_name_get` of the kernel's net/devlink/port.c names them.
    """
    host.links.give(plug(), 3)
    host.links.change("c0-r0", switch_port=port)
    (endpoint,) = host.look(plug()).endpoints
    assert (endpoint.id, endpoint.state) == (C0, EndpointState.UP)


def test_a_representor_beside_a_bond_of_both_functions_leaves_by_the_bond(host):
    """VF-LAG: the NIC bonds its ports, and functions of either stand behind one switch."""
    bond = host.links.add("bond0", kind="bond", addresses=("172.30.0.10",))
    for name in ("p0", "p1"):
        host.links.add(name, master=bond.index)
    host.links.change("br-phy0", addresses=())
    host.links.give(plug(), 3)
    host.links.change("c0-r0", switch_port="pf1vf3")
    (endpoint,) = host.look(plug()).endpoints
    assert (endpoint.bond, endpoint.rnic) == ("bond0", "p0")


def test_a_device_on_top_of_the_one_that_was_given_is_not_taken_for_it(host):
    """A macvlan or ipvlan that the container made has the address now: probes would bypass it."""
    host.links.start(plug(), 3, addresses=())
    host.links.inside[3][8] = replace(
        host.links.inside[3][7], index=8, name="mv0", kind="macvlan", addresses=("10.0.0.10",)
    )
    host.look(plug())
    assert host.look(plug(), after_ns=UNFOUND_NS).endpoints == ()
    (finding,) = host.look(plug()).findings
    assert "eth0 does not carry 10.0.0.10" in finding.text


def test_a_function_that_no_container_has_is_told_with_its_port(host):
    host.links.give(plug(), 3, mac="02:00:00:00:00:99")
    assert host.look(plug()).endpoints == ()
    (finding,) = host.look(plug(), after_ns=UNFOUND_NS).findings
    assert "no container has an interface with 02:00:00:00:00:0a" in finding.text
    assert "c0-r0 stands for pf0vf3" in finding.text


def test_of_two_interfaces_with_the_hardware_address_the_one_with_the_other_address_is_it(host):
    host.links.give(plug(), 3)
    host.links.start(plug("other", octet=20), 4, mac="02:00:00:00:00:0a")
    assert [each.id for each in host.look(plug()).endpoints] == [C0]
    host.links.change_inside(4, addresses=("10.0.0.10",))
    host.look(plug())
    (finding,) = host.look(plug(), after_ns=GRACE_NS).findings
    assert finding.kind is FindingKind.ENDPOINT_DOWN
    assert "2 interfaces of containers have 02:00:00:00:00:0a" in finding.text


def test_a_function_whose_container_died_is_a_crash(host):
    host.links.give(plug(), 3)
    host.look(plug())
    del host.links.inside[3], host.links.namespaces[3]
    host.links.add("eth0", mac="02:00:00:00:00:0a")  # back in the host's namespace
    host.look(plug(), after_ns=1)
    view = host.look(plug(), after_ns=GRACE_NS)
    assert [each.state for each in view.endpoints] == [EndpointState.CRASHED]
    assert (FindingKind.CONTAINER_CRASHED, "container c0") in found(view)


@pytest.mark.parametrize(
    ("facts", "text"),
    [({"up": False}, "eth0 is down"), ({"addresses": ()}, "eth0 does not carry 10.0.0.10")],
)
def test_a_function_that_fails_is_an_endpoint_that_is_down(host, facts, text):
    host.links.give(plug(), 3)
    host.look(plug())
    host.links.change_inside(3, **facts)
    host.look(plug(), after_ns=1)
    (finding,) = host.look(plug(), after_ns=GRACE_NS).findings
    assert finding.kind is FindingKind.ENDPOINT_DOWN
    assert text in finding.text


def test_a_representor_that_is_down_is_told(host):
    host.links.give(plug(), 3)
    host.look(plug())
    host.links.change("c0-r0", up=False)
    host.look(plug(), after_ns=1)
    (finding,) = host.look(plug(), after_ns=GRACE_NS).findings
    assert "c0-r0 is down on the host" in finding.text


def test_a_device_that_a_container_made_itself_does_not_stand_in_for_a_function(host):
    thief = plug("thief", octet=20)
    made = {"mac": "02:00:00:00:00:0a", "kind": "macvlan", "addresses": ("10.0.0.10",)}
    host.links.start(thief, 4, **made)
    host.links.give(plug(), 3)
    view = host.look(plug())
    assert view.namespaces == {C0: host.links.namespaces[3]}


# --- what nobody says of a port -------------------------------------------------------------------

TOLD = ContainerPort(C0, "train", "c0-r0", "", "")
"""The container's port, of which neither address nor hardware address is said."""


def told(host: Host, port: ContainerPort, *, after_ns: int = 0) -> HostView:
    host.now_ns += after_ns
    view, links = vswitch(tunnel(0), tunnel(1), plug()), host.links.view
    placed = {space.path: nsid for nsid, space in links.namespaces.items()}
    now = {"now_ns": host.now_ns, "wall_ns": WALL_NS}
    return host.discovery.observe(view, replace(links, by_path=placed), Found(ports=(port,)), **now)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("10.0.0.10",), "10.0.0.10"),
        (("10.0.0.10", "169.254.1.1", "fd00::10", "fe80::1"), "10.0.0.10"),
        (("fd00::10", "fe80::1"), "fd00::10"),
        (("4000::1", "64:ff9b::1", "::2", "::ffff:10.0.0.1", "fd00::10"), "fd00::10"),
    ],
)
def test_addresses_that_nobody_says_are_those_of_the_interface(host, addresses, expected):
    host.links.start(plug(), 3, addresses=addresses)
    (endpoint,) = told(host, TOLD).endpoints
    assert (endpoint.address, endpoint.mac) == (expected, "02:00:00:00:00:0a")
    host.links.end(plug(), 3)
    (crashed,) = told(host, TOLD, after_ns=GRACE_NS).endpoints
    (crashed,) = told(host, TOLD, after_ns=GRACE_NS).endpoints
    assert crashed.state is EndpointState.CRASHED
    assert (crashed.address, crashed.mac) == (expected, "02:00:00:00:00:0a")


@pytest.mark.parametrize(
    ("addresses", "text"),
    [
        ((), "eth0 has no address, and nobody says which is the endpoint's"),
        (("10.0.0.10", "10.0.0.11"), "eth0 has the addresses 10.0.0.10, 10.0.0.11, and nobody"),
        (("4000::1",), "eth0 has the addresses 4000::1, and nobody"),
        (
            tuple(f"10.0.0.{n}" for n in range(10, 60)),
            "eth0 has the addresses 10.0.0.10, 10.0.0.11, 10.0.0.12 and 47 more, and nobody",
        ),
    ],
)
def test_which_of_several_addresses_is_meant_is_not_guessed(host, addresses, text):
    host.links.start(plug(), 3, addresses=addresses)
    assert told(host, TOLD).endpoints == ()
    view = told(host, TOLD, after_ns=UNFOUND_NS)
    assert view.endpoints == ()
    assert text in view.findings[0].text


def test_a_second_address_leaves_the_announced_one_the_endpoints(host):
    host.links.start(plug(), 3)
    before = told(host, TOLD)
    host.links.change_inside(3, addresses=("10.0.0.1", "10.0.0.10"))
    for _ in range(2):
        view = told(host, TOLD, after_ns=GRACE_NS)
        assert (view.endpoints, view.findings) == (before.endpoints, ())
    host.links.change_inside(3, addresses=("10.0.0.1", "10.0.0.2"))
    told(host, TOLD)
    (finding,) = told(host, TOLD, after_ns=GRACE_NS).findings
    assert finding.kind is FindingKind.ENDPOINT_DOWN
    assert "nobody says which" in finding.text


def test_another_address_in_place_of_the_announced_one_is_taken_once_it_lasts(host):
    host.links.start(plug(), 3)
    told(host, TOLD)
    host.links.change_inside(3, addresses=("10.0.0.11",))
    (endpoint,) = told(host, TOLD, after_ns=S).endpoints
    assert endpoint.address == "10.0.0.10"
    assert host.discovery.deadline_ns() == host.now_ns + SETTLED_NS
    view = told(host, TOLD, after_ns=SETTLED_NS)
    assert [each.address for each in view.endpoints] == ["10.0.0.11"]
    assert view.findings == ()


def test_an_address_that_changes_all_the_time_is_an_endpoint_that_is_down(host):
    host.links.start(plug(), 3)
    told(host, TOLD)
    for n in range(11, 15):
        host.links.change_inside(3, addresses=(f"10.0.0.{n}",))
        view = told(host, TOLD, after_ns=S)
        assert [each.address for each in view.endpoints] == ["10.0.0.10"]
    assert found(view) == [(FindingKind.ENDPOINT_DOWN, "endpoint c0/rail0")]
    assert "eth0 has 10.0.0.14 in place of 10.0.0.10" in view.findings[0].text


MAC_OR_MTU = pytest.mark.parametrize(
    ("fact", "before", "others"),
    [
        ("mac", "02:00:00:00:00:0a", [f"02:00:00:00:01:{n:02x}" for n in range(6)]),
        ("mtu", 1400, [9000, 1300, 1301, 1302, 9000, 1303]),
    ],
)


@MAC_OR_MTU
def test_another_hardware_address_or_mtu_is_taken_once_it_lasts(host, fact, before, others):
    host.links.start(plug(), 3)
    told(host, TOLD)
    host.links.change_inside(3, **{fact: others[0]})
    (endpoint,) = told(host, TOLD, after_ns=S).endpoints
    assert getattr(endpoint, fact) == before
    assert host.discovery.deadline_ns() == host.now_ns + SETTLED_NS
    view = told(host, TOLD, after_ns=SETTLED_NS)
    assert [getattr(each, fact) for each in view.endpoints] == others[:1]
    assert view.findings == ()
    assert host.discovery.deadline_ns() is None


@MAC_OR_MTU
def test_what_changes_without_end_is_announced_as_it_was(host, fact, before, others):
    host.links.start(plug(), 3)
    announced = told(host, TOLD).endpoints
    for other in others:
        for value in (other, before, other):
            host.links.change_inside(3, **{fact: value})
            assert told(host, TOLD, after_ns=S).endpoints == announced
    assert told(host, TOLD, after_ns=SETTLED_NS).endpoints != announced


def test_what_changes_without_end_keeps_nothing_else_from_being_taken(host):
    host.links.start(plug(), 3)
    told(host, TOLD)
    host.links.change_inside(3, addresses=("10.0.0.11",), mac="02:00:00:00:00:0b")
    for mtu in (1300, 1301, 1302):
        host.links.change_inside(3, mtu=mtu)
        (endpoint,) = told(host, TOLD, after_ns=S).endpoints
    taken = (endpoint.address, endpoint.mac, endpoint.mtu)
    assert taken == ("10.0.0.11", "02:00:00:00:00:0b", 1400)


def test_a_hardware_address_that_is_stated_is_taken_at_once(host):
    host.links.start(plug(), 3)
    told(host, TOLD)
    (endpoint,) = told(host, replace(TOLD, mac="02:00:00:00:00:0c")).endpoints
    assert endpoint.mac == "02:00:00:00:00:0c"


@pytest.mark.parametrize(
    "known", [{"netdev": "eth0"}, {"address": "10.0.0.10"}, {"mac": "02:00:00:00:00:0a"}]
)
def test_behind_a_representor_a_namespace_that_is_said_is_enough(host, known):
    host.links.give(plug(), 3)
    port = replace(TOLD, netns="/run/netns/3", **known)
    assert unwired_macs([port], host.links.view) == frozenset()
    view = told(host, port)
    (endpoint,) = view.endpoints
    assert (endpoint.address, endpoint.mac) == ("10.0.0.10", "02:00:00:00:00:0a")
    assert view.namespaces == {C0: host.links.namespaces[3]}


def test_a_namespace_that_is_said_and_not_there_is_named(host):
    host.links.give(plug(), 3)
    port = replace(TOLD, netns="/run/netns/x", netdev="eth0")
    told(host, port)
    (finding,) = told(host, port, after_ns=UNFOUND_NS).findings
    assert "there is no network namespace /run/netns/x" in finding.text
    port = replace(TOLD, netns="/run/netns/3", netdev="eth9")
    (finding,) = told(host, port).findings
    assert "no interfaces in /run/netns/3 are eth9" in finding.text


def test_behind_a_representor_something_has_to_be_said(host):
    host.links.give(plug(), 3)
    assert unwired_macs([TOLD], host.links.view) == frozenset()
    told(host, TOLD)
    (finding,) = told(host, TOLD, after_ns=UNFOUND_NS).findings
    assert "nobody says what c0-r0 stands for" in finding.text


# --- endpoints that no port stands for ------------------------------------------------------------

MACVLAN = ContainerPort(
    C0, "train", "net1", "", "", netns="/run/netns/3", netdev="net1", bridged=False
)
OWN_NSID = 9


class Bare(Host):
    """A host whose container has a macvlan on an RNIC, and no port of the vSwitch."""

    def __init__(self) -> None:
        super().__init__()
        self.links.add("rnic9")
        self.files = Found((MACVLAN,))
        self.start()

    def start(self, **facts) -> None:
        self.links.start(plug(), 3)
        del self.links.host["c0-r0"]
        lower = self.links.host["rnic9"].index
        self.links.change_inside(
            3, name="net1", kind="macvlan", peer=lower, netnsid=OWN_NSID, **facts
        )

    def end(self) -> None:
        del self.links.inside[3], self.links.namespaces[3]

    def look(self, *_, after_ns: int = 0, **more) -> HostView:
        self.now_ns += after_ns
        links = self.links.view
        placed = {space.path: nsid for nsid, space in links.namespaces.items()}
        return self.discovery.observe(
            vswitch(tunnel(0), tunnel(1)),
            replace(links, by_path=placed, own=OWN_NSID),
            self.files,
            now_ns=self.now_ns,
            wall_ns=WALL_NS + self.now_ns,
            **more,
        )


@pytest.fixture
def bare() -> Bare:
    return Bare()


def test_an_endpoint_without_a_port_has_no_bridge_and_is_its_own_tunnels_end(bare):
    view = bare.look()
    (endpoint,) = view.endpoints
    assert (endpoint.id, endpoint.task, endpoint.state) == (C0, "train", EndpointState.UP)
    assert (endpoint.address, endpoint.mac) == ("10.0.0.10", "02:00:00:00:00:0a")
    assert (endpoint.bridge, endpoint.port, endpoint.mtu) == ("", "net1", 1400)
    assert (endpoint.underlay, endpoint.rnic, endpoint.bond) == ("10.0.0.10", "rnic9", None)
    assert view.namespaces == {C0: bare.links.namespaces[3]}
    assert view.netdevs == {C0: "net1"}
    assert view.findings == ()


def test_a_rail_without_a_tunnel_is_no_matter_where_no_tunnel_carries_it(bare):
    far = replace(MACVLAN, id=EndpointId("c0", 7))
    bare.files = Found((far,))
    view = bare.look()
    assert [each.id.rail for each in view.endpoints] == [7]
    assert view.findings == ()


def test_an_rnic_that_carries_endpoints_is_watched_like_an_uplinks(bare):
    assert bare.look().rnics == ("rnic0", "rnic1", "rnic9")
    bare.links.change("rnic9", carrier=False)
    bare.links.change_inside(3, carrier=False)
    view = bare.look(after_ns=GRACE_NS)
    view = bare.look(after_ns=GRACE_NS)
    assert found(view) == [(FindingKind.RNIC_DOWN, "rnic h0/rnic9")]
    assert len(view.endpoints) == 1


def test_an_rnic_is_watched_from_the_look_that_finds_its_endpoint(bare):
    bare.links.change("rnic9", carrier=False)
    assert found(bare.look()) == [(FindingKind.RNIC_DOWN, "rnic h0/rnic9")]


def test_a_whole_rnic_in_a_container_says_by_itself_that_it_has_no_carrier(bare):
    bare.links.change_inside(3, kind=None, peer=None, netnsid=None)
    (endpoint,) = bare.look().endpoints
    assert endpoint.rnic == "c0:net1"
    bare.links.change_inside(3, carrier=False)
    bare.look()
    (finding,) = bare.look(after_ns=GRACE_NS).findings
    assert finding.kind is FindingKind.ENDPOINT_DOWN
    assert finding.text == "c0/rail0 on interface net1: net1 has no carrier"


def test_a_declaration_that_goes_is_a_stop_and_a_namespace_that_goes_is_a_crash(bare):
    bare.look()
    bare.files = Found()
    assert bare.look().endpoints == ()
    bare.files = Found((MACVLAN,))
    bare.look()
    bare.end()
    assert bare.look().findings == ()
    view = bare.look(after_ns=GRACE_NS)
    (endpoint,) = view.endpoints
    assert (endpoint.state, endpoint.address) == (EndpointState.CRASHED, "10.0.0.10")
    assert (endpoint.rnic, endpoint.underlay) == ("rnic9", "10.0.0.10")
    (finding,) = view.findings
    assert finding.kind is FindingKind.CONTAINER_CRASHED
    assert finding.text == (
        "the network namespace of c0 is gone, but it is still declared with net1"
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"name": "eth5"}, "interface net1 of c0: there is no net1 in /run/netns/3"),
        ({"up": False}, "interface net1 of c0: net1 is down in the container"),
        ({"addresses": ()}, "interface net1 of c0: net1 has no address"),
    ],
)
def test_what_a_declared_interface_lacks_is_of_the_host_and_not_of_its_switch(bare, facts, text):
    bare.links.change_inside(3, **facts)
    assert bare.look().endpoints == ()
    view = bare.look(after_ns=UNFOUND_NS)
    assert view.endpoints == ()
    assert found(view) == [(FindingKind.UNKNOWN_INPUT, "host h0")]
    assert text in view.findings[0].text


def test_a_namespace_that_never_was_is_named_and_one_without_an_address_never_announced(bare):
    bare.files = Found((replace(MACVLAN, netns="/run/netns/x"),))
    bare.look()
    (finding,) = bare.look(after_ns=UNFOUND_NS).findings
    assert "there is no network namespace /run/netns/x" in finding.text
    bare.files = Found((MACVLAN,))
    bare.links.change_inside(3, addresses=())
    bare.look()
    bare.end()
    bare.look()
    assert bare.look(after_ns=GRACE_NS).endpoints == ()


def test_a_file_that_is_odd_is_named_by_its_file(bare):
    bare.files = Found((), (Unusable("a.json", "a key is there twice", "file"),))
    (finding,) = bare.look().findings
    assert (str(finding.component), finding.text) == (
        "host h0",
        "file a.json: a key is there twice",
    )


def test_a_container_may_be_in_the_hosts_own_namespace(bare):
    """Schedulers such as Slurm start jobs there."""
    bare.links.namespaces[OWN_NSID] = Namespace("/proc/1/ns/net", 1)
    bare.links.change("rnic9", addresses=("192.0.2.7",), mac="02:00:00:00:00:99")
    mine = replace(MACVLAN, interface="rnic9", netdev="rnic9", netns="/proc/1/ns/net")
    bare.files = Found((mine,))
    (endpoint,) = bare.look().endpoints
    assert (endpoint.address, endpoint.rnic) == ("192.0.2.7", "rnic9")


def test_one_container_may_have_ports_and_interfaces_without(bare):
    bare.links.start(plug("c0", 1), 4)
    both = found_in(vswitch(plug("c0", 1)))
    bare.files = Found((MACVLAN, *both.ports))
    first, second = bare.look().endpoints
    assert (first.bridge, second.bridge) == ("", "br-int")
    bare.end()
    bare.links.end(plug("c0", 1), 4)
    bare.look()
    (finding,) = bare.look(after_ns=GRACE_NS).findings
    assert finding.text == (
        "the network namespace of c0 is gone, but br-int still has c0-r1 and it is still declared "
        "with net1"
    )
