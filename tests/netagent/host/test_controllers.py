# SPDX-License-Identifier: Apache-2.0
"""What controllers write: files of `external_ids`, each named after the source that writes it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.controllers import CONTROLLERS, ControllerPorts, Rule, Rules
from netagent.host.facts import Link, LinkView, Port, Uplink
from netagent.host.ports import ContainerPort
from netagent.host.sources import Found, Given
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import Why
from tests.netagent.host.small_host import plug, tunnel

FOLDER = Path(__file__).parent / "external_ids"
POD = "6e1b1a63-3d9c-4a8e-a3f7-0d6b8f3c1f52"
SANDBOX = "0f2cbc7d1a5e3b90d1a8a3d6e6c9c5b4f1a2e3d4c5b6a79880716253443526a7"
VM = "c0a8f2f6-61d7-4f0f-9ad5-4a53d0c5f9a1"
NETNS = "/var/run/netns/cni-5a9c"
TUNNELS = tuple(Port(each.name, (each,)) for each in (tunnel(0), tunnel(1)))


def written_by(source: str) -> tuple[Port, ...]:
    """Return the ports that a controller plugged in, beside the host's two tunnels."""
    rows = json.loads((FOLDER / f"{source}.json").read_text())
    ports = (
        Port(
            row["name"],
            (Interface(row["name"], row.get("type", ""), 9, external_ids=row["interface"]),),
            row.get("port", {}),
        )
        for row in rows
    )
    return (*TUNNELS, *ports)


def read(rules: Rules, ports: tuple[Port, ...], links: LinkView | None = None, **more) -> Found:
    """Return what the rules say something of."""
    found = ControllerPorts(rules).endpoints(Given(ports, links or LinkView(), **more))
    return replace(found, passed=())


def passed(rules: Rules, ports: tuple[Port, ...], links: LinkView | None = None) -> dict[str, Why]:
    """Return which ports belong to others, and why."""
    found = ControllerPorts(rules).endpoints(Given(ports, links or LinkView()))
    return {each.port: each.why for each in found.passed}


def with_key(rows: tuple[Port, ...], **ids: str | None) -> tuple[Port, ...]:
    """Return the last of the ports alone, with other external_ids; None removes one."""
    (interface,) = rows[-1].interfaces
    keys = {**interface.external_ids, **{k.replace("__", "-"): v for k, v in ids.items()}}
    kept = {key: value for key, value in keys.items() if value is not None}
    return (*TUNNELS, replace(rows[-1], interfaces=(replace(interface, external_ids=kept),)))


OVN_KUBERNETES = written_by("ovn-kubernetes_pkg_cni_helper_linux.go")
KUBE_OVN = written_by("kube-ovn_pkg_daemon_ovs_linux.go")
NEUTRON = written_by("os-vif_vif_plug_ovs_ovsdb_lib.py")
OVS_CNI = written_by("ovs-cni_pkg_ovsdb_ovsdb.go")
OVN = written_by("ovn_controller_binding.c")
ANTREA = written_by("antrea_pkg_agent_cniserver_pod_configuration.go")
NEUTRON_AGENTS = written_by("neutron_neutron_agent_linux_interface.py")


def test_ovn_kubernetes_says_the_namespace_and_by_which_vtep():
    assert read(CONTROLLERS["ovn-kubernetes"], OVN_KUBERNETES) == Found(
        (ContainerPort(EndpointId(SANDBOX, 1), "ml", "eth3", "10.200.0.5", "0a:58:0a:c8:00:05"),)
    )


def test_kube_ovn_says_the_namespace_and_no_hardware_address():
    assert read(CONTROLLERS["kube-ovn"], KUBE_OVN) == Found(
        (
            ContainerPort(
                EndpointId("ml.bert-worker-0", 1), "ml", "3d5c0e7a_net1_h", "10.200.0.7", "",
                netns=NETNS,
            ),
        )
    )  # fmt: skip


def test_ovs_cni_writes_into_the_row_of_the_port():
    rules = replace(CONTROLLERS["ovs-cni"], task=Rule("bert"))
    assert read(rules, OVS_CNI) == Found(
        (
            ContainerPort(
                EndpointId(POD, 1), "bert", "veth1f2e3d4c", "", "", netns=NETNS, netdev="net2"
            ),
        )
    )


def test_neutron_says_neither_address_nor_rail():
    rules = replace(CONTROLLERS["neutron"], task=Rule("all"), rail=Rule("0"))
    assert read(rules, NEUTRON) == Found(
        (ContainerPort(EndpointId(VM, 0), "all", "tap7d1e6a52-3c", "", "fa:16:3e:6b:1f:0a"),)
    )


def test_antrea_says_pod_namespace_and_addresses_and_no_rail():
    rules = replace(CONTROLLERS["antrea"], rail=Rule("0"))
    first, second = read(rules, ANTREA).ports
    assert first == ContainerPort(
        EndpointId("ml.bert-worker-0", 0), "ml", "bert-wor-5f3a1c", "10.10.1.7",
        "5a:11:7c:9b:20:4e", netns=NETNS,
    )  # fmt: skip
    assert (second.id.container, second.interface) == ("ml.bert-worker-1", "eth4")
    assert passed(rules, ANTREA) == {"antrea-gw0": Why.NO_TASK}
    assert read(CONTROLLERS["antrea"], ANTREA) == Found()
    by_device = passed(CONTROLLERS["antrea"], ANTREA)
    assert by_device["bert-wor-5f3a1c"] is by_device["eth4"] is Why.NO_RAIL


def test_what_neutrons_agents_plug_in_is_no_server_and_no_finding():
    """DHCP and metadata servers of a network, in namespaces that are no container's."""
    rules = replace(CONTROLLERS["neutron"], task=Rule("all"), rail=Rule("0"))
    bridge = (Port("br-int", (Interface("br-int", "internal"),)), Port("p0", (Interface("p0"),)))
    assert read(rules, (*NEUTRON_AGENTS, *bridge)) == Found()
    assert set(passed(rules, (*NEUTRON_AGENTS, *bridge)).values()) == {Why.NO_CONTAINER}


def test_a_pod_on_several_networks_has_an_endpoint_on_each_rail_and_none_on_the_default_one():
    """As ovn-kubernetes plugs it in: eth0 by a veth, each rail by a representor."""
    (eth0, net1) = (port.interfaces[0] for port in OVN_KUBERNETES[2:])
    more = {
        **net1.external_ids, "encap-ip": "172.30.0.10", "k8s.ovn.org/nad": "ml/rail0",
        "iface-id": "ml.rail0_ml_bert-worker-0", "attached_mac": "0a:58:0a:c8:00:06",
    }  # fmt: skip
    net0 = replace(net1, name="eth2", external_ids=more)
    rows = (*TUNNELS, *(Port(each.name, (each,)) for each in (eth0, net1, net0)))
    found = read(CONTROLLERS["ovn-kubernetes"], rows)
    assert [(str(p.id), p.task, p.interface) for p in found.ports] == [
        (f"{SANDBOX}/rail0", "ml", "eth2"), (f"{SANDBOX}/rail1", "ml", "eth3"),
    ]  # fmt: skip
    assert found.unusable == ()
    assert passed(CONTROLLERS["ovn-kubernetes"], rows) == {eth0.name: Why.NO_RAIL}


def test_a_pod_of_kube_ovn_has_an_endpoint_on_each_provider_that_names_a_vtep():
    found = read(CONTROLLERS["kube-ovn"], KUBE_OVN)
    assert [port.id.rail for port in found.ports] == [1]
    assert passed(CONTROLLERS["kube-ovn"], KUBE_OVN) == {"3d5c0e7a9b21_h": Why.NO_RAIL}


@pytest.mark.parametrize("netns", ["relative", "/a\x00b", "/a\nb"])
def test_a_path_that_nobody_could_open_is_no_path(netns):
    rules = replace(CONTROLLERS["kube-ovn"], rail=Rule("0"))
    (port,) = read(rules, with_key(KUBE_OVN, pod_netns=netns)).ports
    assert port.netns == ""


def test_ovn_itself_names_the_logical_port_alone():
    rules = replace(
        CONTROLLERS["ovn"],
        task=Rule("{iface-id}", r"(.+)-port\d+"),
        rail=Rule("{port}", r"vif(\d)"),
    )
    (port,) = read(rules, OVN).ports
    assert (port.id, port.task, port.address) == (EndpointId("sw0-port3", 3), "sw0", "")


@pytest.mark.parametrize("task", ["x" * 129, "a\nb"])
def test_a_task_that_nobody_could_show_is_said(task):
    rules = replace(CONTROLLERS["ovn-kubernetes"], task=Rule("{team}"))
    found = read(rules, with_key(OVN_KUBERNETES, team=task))
    assert found.ports == ()
    assert "cannot use task" in found.unusable[0].text


def test_an_encap_ip_is_an_address_however_it_is_written():
    six = Port("vxlan0", (tunnel(0, options={"local_ip": "FD00:30::10"}),))
    for more in ({}, {"uplinks": (Uplink(0, "rnic0", "fd00:30::10", "br-phy0", "vxlan0"),)}):
        ports = (six, with_key(OVN_KUBERNETES, encap__ip="fd00:30:0:0::10")[-1])
        (port,) = read(CONTROLLERS["ovn-kubernetes"], ports, **more).ports
        assert port.id.rail == 0


def test_the_first_address_is_one_of_ipv4_where_there_is_one():
    rules = replace(CONTROLLERS["kube-ovn"], rail=Rule("0"))
    (first, *_) = read(rules, KUBE_OVN[:3]).ports
    assert first.address == "10.16.0.7"
    (six,) = read(rules, with_key(KUBE_OVN[:3], ip="fd00:10:16:0::7/64")).ports
    assert six.address == "fd00:10:16::7"
    (six,) = read(rules, with_key(KUBE_OVN[:3], ip="fe80::1/64,fd00::1/64")).ports
    assert six.address == "fd00::1"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sandbox": None}, "external_ids say no container ({sandbox})"),
        ({"sandbox": "a b"}, "cannot use 'a b' as container"),
        ({"attached_mac": None}, "external_ids say no hardware address ({attached_mac})"),
        ({"attached_mac": "02:00"}, "cannot use '02:00' as hardware address"),
        ({"ip_addresses": "x"}, "cannot use the address 'x'"),
        ({"ip_addresses": "fe80::1/64"}, "cannot use the address 'fe80::1/64'"),
        ({"ip_addresses": "4000::1"}, "cannot use the address '4000::1'"),
        ({"encap__ip": "172.30.9.9"}, "its encap-ip '172.30.9.9' is the local_ip of no tunnel"),
    ],
)
def test_what_is_missing_or_odd_is_named_and_not_guessed(change, text):
    found = read(CONTROLLERS["ovn-kubernetes"], with_key(OVN_KUBERNETES, **change))
    assert found.ports == ()
    ((name, what),) = ((each.port, each.text) for each in found.unusable)
    assert name == "eth3"
    assert text in what


def test_an_address_that_the_controller_leaves_to_others_is_the_interfaces():
    """IPAM is optional on ovn-kubernetes's secondary networks."""
    (port,) = read(CONTROLLERS["ovn-kubernetes"], with_key(OVN_KUBERNETES, ip_addresses=None)).ports
    assert port.address == ""


@pytest.mark.parametrize(
    "task", [Rule("{iface-id}", "other_(.*)"), Rule("{team}"), Rule("{iface-id}", "()ml.*")]
)
def test_ports_that_the_rules_say_nothing_of_are_passed_over(task):
    rules = replace(CONTROLLERS["ovn-kubernetes"], task=task)
    assert read(rules, OVN_KUBERNETES) == Found()


def test_ports_with_external_ids_of_our_own_are_left_to_who_reads_those():
    ports = (*TUNNELS, Port("c0-r0", (plug(iface__id="ml_pod", encap__ip="172.30.0.10"),)))
    assert read(CONTROLLERS["ovn-kubernetes"], ports) == Found()


def test_a_rail_follows_from_a_regular_expression():
    rail = Rule("{k8s.ovn.org/nad}", r"ml/rail(\d+)")
    (port,) = read(replace(CONTROLLERS["ovn-kubernetes"], rail=rail), OVN_KUBERNETES).ports
    assert port.id.rail == 1


@pytest.mark.parametrize(
    ("rail", "text"),
    [
        (Rule("{k8s.ovn.org/nad}"), "'ml/rail1' is no rail"),
        (Rule("256"), "'256' is no rail"),
        (Rule("0", first=1), "'0' is no rail"),
    ],
)
def test_a_rail_that_is_none_is_named(rail, text):
    found = read(replace(CONTROLLERS["ovn-kubernetes"], rail=rail), with_key(OVN_KUBERNETES))
    assert (found.ports, [each.text for each in found.unusable]) == ((), [text])


# --- the rail of the uplink -----------------------------------------------------------------------

UPLINKS = (
    Uplink(0, "p0", "172.30.0.10", "p0", "vxlan0", ("p0",)),
    Uplink(1, "p1", "172.30.1.10", "bond1", "vxlan1", ("p1", "p2"), "bond1"),
)
PFS = {
    "p0": Link(1, "p0", parent="0000:08:00.0", switch_port="p0"),
    "p1": Link(2, "p1", parent="0000:09:00.0", switch_port="p0"),
    "p2": Link(3, "p2", parent="0000:09:00.1", switch_port="p1"),
}


def representor(**facts) -> LinkView:
    facts = {"parent": "0000:09:00.1", "switch_port": "pf1vf3", **facts}
    return LinkView({**PFS, "eth3": Link(9, "eth3", **facts)})


BY_DEVICE = with_key(OVN_KUBERNETES, encap__ip=None)


def test_a_representor_is_on_the_rail_of_its_rnic():
    (port,) = read(CONTROLLERS["ovn-kubernetes"], BY_DEVICE, representor(), uplinks=UPLINKS).ports
    assert port.id.rail == 1


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"parent": "0000:0a:00.0"}, "it stands for pf1vf3 of 0000:0a:00.0, which is no rail's"),
        ({"parent": ""}, "it stands for pf1vf3, which is no rail's RNIC"),
    ],
)
def test_a_representor_of_another_card_is_named(facts, text):
    found = read(CONTROLLERS["ovn-kubernetes"], BY_DEVICE, representor(**facts), uplinks=UPLINKS)
    assert found.ports == ()
    assert text in found.unusable[0].text


def test_an_encap_ip_is_on_the_rail_of_that_vtep_whatever_the_tunnels_say():
    vtep = with_key(OVN_KUBERNETES, encap__ip="172.30.1.10")
    (port,) = read(CONTROLLERS["ovn-kubernetes"], vtep[2:], uplinks=UPLINKS).ports
    assert port.id.rail == 1


def test_a_port_that_is_on_no_rnic_belongs_to_others():
    veth = representor(switch_port="", kind="veth", parent="")
    found = read(CONTROLLERS["ovn-kubernetes"], BY_DEVICE, veth, uplinks=UPLINKS)
    assert found == Found()


def test_a_rail_is_remembered_while_the_port_stays():
    """A driver that fails takes the representor with it: the endpoint failed, it did not leave."""
    source = ControllerPorts(CONTROLLERS["ovn-kubernetes"])
    source.endpoints(Given(BY_DEVICE, representor(), UPLINKS))
    (port,) = source.endpoints(Given(BY_DEVICE, LinkView(PFS), UPLINKS)).ports
    assert port.id.rail == 1
    assert source.endpoints(Given(TUNNELS, LinkView(PFS), UPLINKS)) == Found()
    assert source.endpoints(Given(BY_DEVICE, LinkView(PFS), UPLINKS)).ports == ()


def test_two_ports_of_one_endpoint_are_told_apart():
    (interface,) = OVN_KUBERNETES[-1].interfaces
    twin = Port("twin", (replace(interface, name="twin"),))
    found = read(CONTROLLERS["ovn-kubernetes"], (*OVN_KUBERNETES, twin))
    assert [port.interface for port in found.ports] == ["eth3"]
    assert [each.text for each in found.unusable] == [f"{SANDBOX}/rail1 is already on port eth3"]


def test_what_open_vswitch_cannot_use_is_told():
    (interface,) = OVN_KUBERNETES[-1].interfaces
    dead = (*TUNNELS, Port("eth3", (replace(interface, ofport=-1),)))
    (port,) = read(CONTROLLERS["ovn-kubernetes"], dead).ports
    assert port.error == "it could not be opened"
    dpdk = (*TUNNELS, Port("eth3", (replace(interface, type="dpdk"),)))
    (unusable,) = read(CONTROLLERS["ovn-kubernetes"], dpdk).unusable
    assert unusable.text == "cannot use type 'dpdk'"


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("{a}"), "one"),
        (Rule("{a}.{b-c}"), "one.two"),
        (Rule("{missing}"), ""),
        (Rule("{empty}"), ""),
        (Rule("fixed"), "fixed"),
        (Rule("{a}.{b-c}", r"o(n)e\.(.*)"), "n"),
        (Rule("{a}", "(on)"), ""),
        (Rule("{a}", "(on.)"), "one"),
        (Rule("{a}", "(x)?one"), ""),
    ],
)
def test_a_rule_reads_all_of_its_text(rule, expected):
    assert rule.of({"a": "one", "b-c": "two", "empty": ""}) == expected


@pytest.mark.parametrize("text", ["", "{", "{}", "a}", "{{a}}"])
def test_a_text_with_braces_that_enclose_no_key_is_none(text):
    with pytest.raises(ValueError, match="is no text"):
        Rule(text)


def test_a_regular_expression_that_is_none_is_named():
    with pytest.raises(ValueError, match="is no regular expression"):
        Rule("{a}", "(")
    with pytest.raises(ValueError, match="has no group"):
        Rule("{a}", "on.")


def test_a_pod_has_one_name_on_all_networks_where_a_rule_leaves_the_networks_out():
    rules = replace(
        CONTROLLERS["ovn-kubernetes"],
        container=Rule("{iface-id}", "(?:[^_]+_)?([^_]+_[^_]+)"),
        rail=Rule("0"),
    )
    for port in OVN_KUBERNETES[2:]:
        (found,) = read(rules, (*TUNNELS, port)).ports
        assert found.id.container == "ml_bert-worker-0"


KEYS = st.sampled_from(["iface-id", "sandbox", "attached_mac", "ip_addresses", "encap-ip", "ip"])
TEXTS = st.text(max_size=12) | st.sampled_from(["ml_pod", "02:00:00:00:00:01", "172.30.1.10"])


@given(st.sampled_from(sorted(CONTROLLERS)), st.dictionaries(KEYS, TEXTS), st.text(max_size=3))
def test_whatever_a_port_says_it_is_an_endpoint_or_named_or_of_others(name, ids, kind):
    rules = replace(CONTROLLERS[name], task=CONTROLLERS[name].task or Rule("{iface-id}"))
    ports = (*TUNNELS, Port("p", (Interface("p", type=kind, external_ids=ids),)))
    found = read(rules, ports)
    assert len(found.ports) + len(found.unusable) <= 1
