# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.facts import LinkView
from netagent.host.inside import condition_of, container_nsids, named_paths, unwired_macs
from netagent.host.ports import ContainerPort
from tests.netagent.host.small_host import C0, Links, found_in, plug, tunnel, vswitch

(STATED,) = found_in(vswitch(plug())).ports
"""A port of which external_ids say all."""
TOLD = ContainerPort(C0, "train", "c0-r0", "", "")
"""One of which they say neither address nor hardware address."""
DECLARED = ContainerPort(C0, "train", "eth0", "", "", "/run/netns/3", "eth0", bridged=False)
INODE = 4_000_000_003
"""Of the namespace 3 of a small host."""


def seen(links: Links) -> LinkView:
    placed = {space.path: nsid for nsid, space in links.namespaces.items()}
    return replace(links.view, by_path=placed, own=1)


@pytest.fixture(params=["veth", "representor"])
def links(request) -> Links:
    """Return a host with one container, behind a port of either kind."""
    made = Links()
    (made.start if request.param == "veth" else made.give)(plug(), 3)
    return made


@pytest.fixture
def behind() -> Links:
    made = Links()
    made.give(plug(), 3)
    return made


# --- where to look --------------------------------------------------------------------------------


def test_only_namespaces_of_container_ports_are_looked_into():
    links = Links()
    links.start(plug(), 3)
    links.add("other", netnsid=9)
    view = vswitch(tunnel(0), plug(), plug("gone"))
    assert container_nsids(found_in(view).ports, links.view) == {3}
    assert container_nsids([DECLARED], links.view) == container_nsids((), links.view) == set()


def test_hardware_addresses_are_looked_for_of_ports_that_are_wired_to_nothing(behind):
    behind.start(plug("c1", octet=11), 4)
    view = vswitch(tunnel(0), plug(), plug("c1", octet=11), plug("gone", octet=12))
    assert unwired_macs(found_in(view).ports, behind.view) == {"02:00:00:00:00:0a"}
    for nobody in ([], [TOLD], [replace(STATED, netns="/x")], [replace(STATED, bridged=False)]):
        assert unwired_macs(nobody, behind.view) == set()


def test_only_where_nothing_else_leads_a_namespace_is_opened_by_its_path():
    links = Links()
    links.start(plug(), 3)
    links.give(plug("c1"), 4)
    ports = [
        replace(TOLD, netns="/veth"),
        replace(TOLD, interface="c1-r0", netns="/representor"),
        replace(TOLD, interface="gone", netns="/gone"),
        replace(TOLD, interface="net1", netns="/declared", bridged=False),
        replace(TOLD, interface="c1-r0"),
    ]
    assert named_paths(ports, links.view) == {"/representor", "/declared"}


# --- what is there --------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [STATED, DECLARED])
def test_an_interface_that_is_as_it_should_be_is_ready(links, port):
    found = condition_of(port, seen(links), None)
    assert (found.ready, found.gone, found.text) == (True, False, "")
    assert (found.device, found.namespace) == (links.inside[3][7], links.namespaces[3])


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"up": False}, "eth0 is down in the container"),
        ({"addresses": ()}, "eth0 does not carry 10.0.0.10"),
        (
            {"duplicates": ("10.0.0.10",)},
            "eth0 may not use 10.0.0.10: another device answered for it",
        ),
    ],
)
def test_what_an_interface_lacks_is_said_wherever_its_port_leads_to_it(links, facts, text):
    links.change_inside(3, **facts)
    found = condition_of(STATED, seen(links), INODE)
    assert (found.ready, found.gone, found.text) == (False, False, text)
    assert found.namespace == links.namespaces[3], "it goes on being probed"


def test_what_the_host_does_to_a_port_is_said_before_what_its_container_does(links):
    links.change_inside(3, up=False)
    assert condition_of(replace(STATED, error="no"), seen(links), INODE).text == (
        "Open vSwitch cannot use it: no"
    )
    links.change("c0-r0", up=False)
    assert condition_of(STATED, seen(links), INODE).text == "c0-r0 is down on the host"


def test_a_device_that_does_not_exist_is_a_crash_where_its_namespace_is_gone(links):
    del links.host["c0-r0"]
    assert not condition_of(STATED, seen(links), INODE).gone
    found = condition_of(STATED, seen(links), 5)
    assert (found.ready, found.gone, found.text) == (False, True, "its device does not exist")


def test_a_veth_whose_namespace_is_not_found_is_no_crash_until_it_was():
    links = Links()
    links.start(plug(), 3)
    del links.namespaces[3]
    for inode in (None, INODE):
        found = condition_of(STATED, seen(links), inode)
        assert (found.ready, found.gone) == (False, inode is not None)
        assert "no namespace found for the other end" in found.text


def test_a_veth_whose_namespace_cannot_be_read_counts_by_its_carrier():
    links = Links()
    links.start(plug(), 3)
    links.inside[3].clear()
    assert "left the container's namespace" in condition_of(STATED, seen(links), INODE).text
    del links.inside[3]
    assert condition_of(STATED, seen(links), INODE).ready
    links.change("c0-r0", carrier=False)
    assert condition_of(STATED, seen(links), INODE).text == "c0-r0 has no carrier"


def test_what_a_representor_stands_for_is_hardware_with_its_address(behind):
    made = replace(behind.inside[3][7], index=8, name="mv0", kind="macvlan")
    behind.inside[3][8] = made
    assert condition_of(STATED, seen(behind), None).device == behind.inside[3][7]
    behind.inside[3][8] = replace(made, kind=None, addresses=())
    assert condition_of(STATED, seen(behind), None).device == behind.inside[3][7]
    behind.inside[3][8] = replace(made, kind=None)
    assert condition_of(STATED, seen(behind), None).text == (
        "2 interfaces of containers have 02:00:00:00:00:0a"
    )


def test_a_representor_whose_function_nobody_has_is_named_with_its_port(behind):
    assert "it has no attached_mac" in condition_of(TOLD, seen(behind), None).text
    text = "no container has an interface with 02:00:00:00:00:0a (c0-r0 stands for pf0vf3)"
    behind.change_inside(3, mac="02:00:00:00:00:99")
    for inode, gone in ((None, False), (INODE, False), (5, True)):
        found = condition_of(STATED, seen(behind), inode)
        assert (found.gone, found.text) == (gone, text)
    behind.change("c0-r0", switch_port="")
    assert condition_of(STATED, seen(behind), None).text.endswith("(c0-r0)")


@pytest.mark.parametrize(
    "known", [{"netdev": "eth0"}, {"address": "10.0.0.10"}, {"mac": "02:00:00:00:00:0a"}]
)
def test_behind_a_representor_a_path_and_one_thing_more_are_enough(behind, known):
    port = replace(TOLD, netns="/run/netns/3", **known)
    assert condition_of(port, seen(behind), None).device == behind.inside[3][7]


def test_behind_a_representor_a_path_that_leads_nowhere_is_named(behind):
    port = replace(TOLD, netns="/x", netdev="eth0")
    for inode, gone in ((None, False), (INODE, False), (5, True)):
        found = condition_of(port, seen(behind), inode)
        assert (found.gone, found.text) == (gone, "there is no network namespace /x")
    found = condition_of(replace(port, netns="/run/netns/3", netdev="eth9"), seen(behind), None)
    assert found.text == "no interfaces in /run/netns/3 are eth9"
    behind.inside[3][8] = replace(behind.inside[3][7], index=8)
    found = condition_of(replace(port, netns="/run/netns/3"), seen(behind), None)
    assert found.text == "2 interfaces in /run/netns/3 are eth0"


def test_what_no_port_stands_for_is_found_by_path_and_name(links):
    for inode in (None, INODE):
        found = condition_of(replace(DECLARED, netns="/x"), seen(links), inode)
        assert (found.gone, found.text) == (inode is not None, "there is no network namespace /x")
    found = condition_of(replace(DECLARED, netdev="net1"), seen(links), None)
    assert (found.gone, found.text) == (False, "there is no net1 in /run/netns/3")
    links.change_inside(3, up=False)
    assert condition_of(DECLARED, seen(links), None).text == "eth0 is down in the container"


def test_a_carrier_is_missed_only_where_no_rnic_of_the_host_says_so(links):
    links.change_inside(3, carrier=False)
    assert condition_of(DECLARED, seen(links), None).text == "eth0 has no carrier"
    below = links.host["rnic0"].index
    links.change_inside(3, kind="macvlan", peer=below, netnsid=1)
    assert condition_of(DECLARED, seen(links), None).ready


def test_a_container_in_the_hosts_own_namespace_is_looked_for_there(links):
    links.namespaces[1] = replace(links.namespaces[3], path="/proc/1/ns/net", inode=1)
    mine = replace(DECLARED, netdev="rnic0", netns="/proc/1/ns/net")
    found = condition_of(mine, seen(links), None)
    assert (found.ready, found.device) == (True, links.host["rnic0"])
