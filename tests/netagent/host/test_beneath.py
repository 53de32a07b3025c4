# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from netagent.host.beneath import Beneath, rnic_beneath
from netagent.host.facts import Link, LinkView

OWN, INSIDE = 7, 3
PF, VF, SF = "0000:08:00.0", "0000:08:00.2", "mlx5_core.sf.4"
PF0 = Link(1, "ens1f0", parent=PF, switch_port="p0")
REP = Link(2, "ens1f0_2", parent=PF, switch_port="pf0vf2")
SF_REP = Link(3, "ens1f0_sf", parent=PF, switch_port="c1pf0sf88")
OTHER = Link(4, "ens2f0", parent="0000:09:00.0")


def view(*devices: Link, host: tuple[Link, ...] = (PF0, REP, SF_REP, OTHER), **more: Any):
    known = {VF: PF, SF: PF, PF: PF, "0000:09:00.0": "0000:09:00.0"}
    return LinkView(
        host={each.name: each for each in host},
        inside={INSIDE: {each.index: each for each in devices}},
        **{"own": OWN, "functions": known, **more},
    )


def beneath(device: Link, *more: Link, **views: Any) -> Beneath:
    return rnic_beneath(device, INSIDE, view(device, *more, **views), "c0")


@pytest.mark.parametrize("parent", [VF, SF])
def test_a_function_of_a_card_is_on_its_physical_functions_netdev(parent):
    assert beneath(Link(9, "net1", parent=parent)) == Beneath("ens1f0", ("ens1f0",))


def test_a_whole_card_that_was_moved_is_known_by_its_address():
    moved = Link(1, "net1", parent=PF)
    assert beneath(moved, host=(OTHER,)) == Beneath(PF)
    assert beneath(Link(9, "net1", parent=VF), host=(OTHER,)) == Beneath(PF), "its VFs, too"


def test_two_ports_of_one_function_are_not_told_apart():
    twin = Link(5, "ens1f1", parent=PF, switch_port="p1")
    assert beneath(Link(9, "net1", parent=VF), host=(PF0, twin)) == Beneath(PF)


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan", "macvtap"])
def test_what_sends_by_a_netdev_of_the_host_is_on_that(kind):
    device = Link(9, "net1", kind=kind, peer=4, netnsid=OWN)
    assert beneath(device) == Beneath("ens2f0", ("ens2f0",))


def test_devices_on_top_of_each_other_are_followed():
    vlan = Link(9, "net1.5", kind="vlan", peer=10)
    macvlan = Link(10, "net1", kind="macvlan", peer=11, netnsid=OWN)
    below = Link(11, "ens1f0.7", kind="vlan", peer=1)
    assert beneath(vlan, macvlan, host=(PF0, below)) == Beneath("ens1f0", ("ens1f0",))


def test_a_bond_has_all_its_members():
    bond = Link(20, "bond0", kind="bond")
    members = (Link(21, "p0", master=20, parent=PF), Link(22, "p1", master=20))
    expected = Beneath("p0", ("p0", "p1"), "bond0")
    on_bond = Link(9, "net1", kind="macvlan", peer=20, netnsid=OWN)
    assert beneath(on_bond, host=(bond, *members)) == expected
    vf_lag = Link(9, "net1", parent=VF)
    assert beneath(vf_lag, host=(bond, *members)) == expected
    assert beneath(on_bond, host=(bond,)) == Beneath("bond0", (), "bond0")


@pytest.mark.parametrize(
    "device",
    [
        Link(9, "net1", kind="veth", peer=4, netnsid=5),
        Link(9, "net1", kind="macvlan", peer=4, netnsid=5),
        Link(9, "net1", kind="macvlan", peer=99, netnsid=OWN),
        Link(9, "net1", kind="vlan", peer=9),
        Link(9, "net1", parent="virtio3"),
    ],
)
def test_what_cannot_be_told_is_no_other_interfaces_rnic(device):
    assert beneath(device) == Beneath("c0:net1")


def test_a_device_of_the_hosts_own_namespace_is_itself():
    assert rnic_beneath(OTHER, OWN, view(), "c0") == Beneath("ens2f0", ("ens2f0",))
    veth = Link(30, "rnic0", kind="veth")
    assert rnic_beneath(veth, OWN, view(host=(veth,)), "c0") == Beneath("rnic0", ("rnic0",))
