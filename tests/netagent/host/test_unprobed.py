# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from netagent.host.controllers import CONTROLLERS, ControllerPorts, Rule
from netagent.host.discovery import Discovery
from netagent.host.facts import Bridge, HostView, Link, Namespace, Port, VswitchView
from netagent.host.ports import Unusable
from netagent.host.sources import Found, Given, OwnPorts, found_by
from netagent.host.unprobed import looks_like, unprobed
from netagent.model.vswitch import Interface
from netagent.wire.codec import decode, encode
from netagent.wire.unprobed import MOST_PORTS, MOST_TEXT, Unprobed, UnprobedPort, Why
from tests.netagent.host.small_host import Links, plug, tunnel, vswitch

POD = {"sandbox": "s0", "iface-id": "ml_bert-0", "attached_mac": "0a:58:0a:f4:00:05"}
OVN_KUBERNETES = CONTROLLERS["ovn-kubernetes"]


def look(view: VswitchView, links: Links | None = None, rules=None) -> Unprobed:
    """Return what a host says that has this virtual switch."""
    return both(view, links, rules)[1]


def both(view: VswitchView, links: Links | None, rules) -> tuple[HostView, Unprobed]:
    """Return what a host finds, and what of it is no endpoint."""
    seen = (links or Links()).view
    sources = [OwnPorts(), *([ControllerPorts(rules)] if rules else [])]
    discovery = Discovery(host="h0", bridge="br-int")
    bridge = view.bridge("br-int")
    found = found_by(sources, Given(bridge.ports if bridge else (), seen))
    host = discovery.observe(view, seen, found, now_ns=0, wall_ns=0)
    waiting = discovery.waiting()
    said = unprobed(view, "br-int", found, waiting, host, seen.host, has_rules=bool(rules))
    return host, said


def whys(said: Unprobed) -> dict[str, Why]:
    assert said.count == len(said.ports)
    return {each.port: each.why for each in said.ports}


def test_what_connects_the_host_itself_is_not_said():
    links = Links()
    links.add("p0", switch_port="p0")
    links.add("eth9")
    own = (Interface("gw", "internal"), Interface("patch-a", "patch"), Interface("p0"))
    view = vswitch(tunnel(0), tunnel(1, type="geneve", name="ovn-h2-0"), *own, Interface("eth9"))
    assert look(view, links) == Unprobed()


def test_an_endpoint_is_not_said_and_what_keeps_others_from_being_one_is():
    links = Links()
    up, down, odd, lost = (plug(f"c{n}", octet=n) for n in (1, 2, 3, 4))
    far = plug("c5", rail=7)
    odd.external_ids["attached_mac"] = "02:00"
    links.start(up, 1)
    links.start(down, 2, up=False)
    links.start(far, 5)
    away = plug("c6", octet=6)
    links.start(away, 6, addresses=("10.0.0.99",))
    view = vswitch(tunnel(0), up, down, odd, lost, far, away)
    said = look(view, links)
    assert whys(said) == {
        "c2-r0": Why.DOWN, "c3-r0": Why.ODD, "c4-r0": Why.NO_CONTAINER, "c5-r7": Why.NO_UPLINK,
        "c6-r0": Why.NO_ADDRESS,
    }  # fmt: skip
    texts = {each.port: each.text for each in said.ports}
    assert "02:00" in texts["c3-r0"]
    assert texts["c4-r0"] == "its device does not exist"
    first = next(each for each in said.ports if each.port == "c2-r0")
    assert (first.task, first.container, first.bridge) == ("train", "c2", "br-int")
    assert first.name == "a_c2_rail0"


def test_a_port_that_no_rule_is_read_for_names_the_controller_that_it_is_like():
    view = vswitch(
        tunnel(0), Interface("a", external_ids=POD), Interface("b", external_ids={"x": ""})
    )
    a, b = look(view).ports
    assert (a.why, a.name, b.why) == (Why.NO_TASK, "ml_bert-0", Why.NO_TASK)
    assert "ovn-kubernetes: see controller of [endpoints]" in a.text
    assert "like" not in b.text


def test_what_a_controllers_rules_pass_over_is_said_with_what_they_read():
    keys = {"a": POD, "b": {**POD, "iface-id": "odd"}, "c": {"iface-id": "k8s-h0"}}
    view = vswitch(tunnel(0), *(Interface(name, external_ids=of) for name, of in keys.items()))
    said = look(view, rules=OVN_KUBERNETES)
    assert whys(said) == {"a": Why.NO_RAIL, "b": Why.NO_TASK, "c": Why.NO_TASK}
    assert (said.ports[0].task, said.ports[0].container) == ("ml", "s0")
    assert said.ports[1].text == "the rule for task does not match 'odd'"


def test_a_representor_and_a_device_without_keys_are_told_apart():
    links = Links()
    links.add("pf0vf3", switch_port="pf0vf3")
    links.add("veth9", kind="veth", netnsid=3)
    view = vswitch(tunnel(0), Interface("pf0vf3"), Interface("veth9"))
    assert whys(look(view, links)) == {"pf0vf3": Why.NO_TASK, "veth9": Why.NO_TASK}


def test_a_container_on_another_bridge_is_said():
    keys = {"contPodUid": "u", "contNetns": "/n", "contIface": "net1"}
    rail = Bridge(
        "br-rail0", ports=(Port("v", (Interface("v"),), keys), Port("p0", (Interface("p0"),)))
    )
    (one,) = look(vswitch(tunnel(0), bridges=(rail,)), rules=OVN_KUBERNETES).ports
    assert (one.port, one.bridge, one.why) == ("v", "br-rail0", Why.OTHER_BRIDGE)
    assert "only ports of br-int" in one.text


def test_a_declared_interface_and_a_file_are_no_ports_and_are_said():
    odd = (
        Unusable("a.json", "'x' is no rail", "file"),
        Unusable("net1 of c0", "there is no net1", "interface", why=Why.NO_CONTAINER, task="t"),
    )
    said = unprobed(VswitchView(), "", Found((), odd), (), HostView(), {}, has_rules=False)
    assert [(each.port, each.bridge) for each in said.ports] == [
        ("interface net1 of c0", ""), ("file a.json", ""),
    ]  # fmt: skip


def test_of_very_many_those_of_a_task_are_named_and_all_are_counted():
    ports = [Interface(f"v{n:03}", external_ids={"iface-id": "x"}) for n in range(MOST_PORTS + 5)]
    mine = Interface("z", external_ids=POD)
    said = look(vswitch(tunnel(0), *ports, mine), rules=OVN_KUBERNETES)
    assert (len(said.ports), said.count) == (MOST_PORTS, MOST_PORTS + 6)
    assert said.ports[0] == UnprobedPort(
        port="z", why=Why.NO_RAIL, bridge="br-int", name="ml_bert-0", container="s0", task="ml",
        text="it has no encap-ip, and stands for no function of an RNIC",
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_each_controller_is_known_by_the_keys_that_its_rules_read(name):
    rules = CONTROLLERS[name]
    texts = [r.text for r in (rules.container, rules.mac, rules.rail) if r]
    keys = {key.strip("{}") for text in texts for key in text.split(".")} | {"iface-id"}
    keys |= {"container-id"} if name == "antrea" else set()
    assert looks_like(keys) == name
    assert looks_like({"x"}) == ""


WILD = st.text(max_size=9) | st.sampled_from(
    [
        "ml_pod",
        "02:00:00:00:00:01",
        "172.30.0.10",
        "10.0.0.9/24",
        "x" * 5000,
        "\x00",
        "\ud800",
        "ml",
        "0",
    ]
)
KEYS = st.sampled_from(
    sorted({
        "iface-id", "sandbox", "attached_mac", "ip_addresses", "encap-ip", "ip", "pod_name", "task",
        "pod_namespace", "pod_netns", "pod-name", "pod-namespace", "attached-mac", "ip-address",
        "rail", "net-ns", "container-id", "contPodUid", "contNetns", "contIface", "vm-uuid",
    })
)  # fmt: skip
TABLES = st.dictionaries(KEYS | WILD, WILD, max_size=6)
ROWS = st.lists(
    st.builds(
        Interface,
        name=WILD.filter(bool),
        type=st.sampled_from(["", "system", "internal", "patch", "dpdk", "geneve", "\x00"]),
        ofport=st.none() | st.integers(-1, 9),
        external_ids=TABLES,
        error=st.none() | WILD,
    ),
    max_size=5,
    unique_by=lambda each: each.name,
)


@given(ROWS, TABLES, st.none() | st.sampled_from(sorted(CONTROLLERS)))
def test_whatever_external_ids_say_each_port_is_an_endpoint_or_said_or_the_hosts(
    rows, shared, name
):
    """Nothing raises, and no port of a container is left out in silence."""
    links = Links()
    for number, row in enumerate(rows):
        links.add(row.name, kind="veth", netnsid=number, peer=7)
    device = Link(7, "eth0", addresses=("10.0.0.9",), mac="02:00:00:00:00:01")
    links.inside = {number: {7: device} for number in range(len(rows))}
    links.namespaces = {number: Namespace("/n", number) for number in range(len(rows))}
    rules = CONTROLLERS[name] if name else None
    if rules and rules.task is None:
        rules = replace(rules, task=Rule("all"), rail=Rule("0"))
    ports = tuple(Port(row.name, (row,), shared) for row in rows)
    view = VswitchView(True, (Bridge("br-int", ports=(Port("t", (tunnel(0),)), *ports)),))
    host, said = both(view, links, rules)
    assert decode(encode(said), Unprobed) == said
    announced = {each.port for each in host.endpoints}
    event(f"{len(announced)} endpoints")
    spoken = {each.port for each in said.ports}
    for row in rows:
        if row.type in {"internal", "patch", "geneve"} or row.name in announced:
            continue
        plain = "".join(c if c.isprintable() else "?" for c in row.name)
        assert (plain if len(plain) <= MOST_TEXT else f"{plain[: MOST_TEXT - 3]}...") in spoken
    for each in said.ports:
        for text in (each.port, each.text, each.name, each.container, each.task, each.bridge):
            assert len(text) <= MOST_TEXT
            assert not text or text.isprintable()
