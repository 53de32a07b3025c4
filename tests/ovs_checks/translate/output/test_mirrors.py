# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.switch.snapshot import Lane, Mirror, Port
from tests.ovs_checks.hosts import plain_ports
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import bridge0, does, kinds, looked, run

NAMES = ("p1", "p2", "p3")
names = st.frozensets(st.sampled_from(NAMES))


def watched(flows, *mirrors, lanes=None):
    """Return a bridge that has mirrors, and p4 and p5 to send copies to."""
    at = bridge0(flows, ports=plain_ports("br0", 4, 5))
    lanes = lanes or tuple(Lane(f"p{n}", (n,)) for n in range(1, 6))
    return replace(at, mirrors=mirrors, lanes=lanes)


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        (Mirror("m", frozenset({"p1"}), output="p4"), "p4,p2"),
        (Mirror("m", destinations=frozenset({"p2"}), output="p4"), "p2,p4"),
        (Mirror("m", destinations=frozenset({"p1"}), output="p4"), "p2"),
        (Mirror("m", frozenset({"p2"}), output="p4"), "p2"),
        (Mirror("m", frozenset({"p1"}), output="gone"), "p2"),
    ],
)
def test_what_comes_in_or_goes_out_is_copied_where_that_is_watched(mirror, expected):
    assert does(run(watched("actions=output:2", mirror))) == expected


@given(packets, names, names, st.lists(st.sampled_from((2, 3)), max_size=4))
def test_a_mirror_gets_one_copy_however_often_it_watches(packet, sources, targets, out):
    sent = ",".join(f"output:{n}" for n in out) or "drop"
    done = run(watched(f"actions={sent}", Mirror("m", sources, targets, output="p5")), packet)
    words = does(done).split(",")
    arrives = f"p{done.initial.in_port}" in sources
    leaves = {end.port for end in done.ends if end.kind == "output"} & targets
    assert words.count("p5") == bool(arrives or leaves)


@given(packets, names, names)
def test_mirrors_to_one_place_send_one_copy_between_them(packet, sources, targets):
    twice = (Mirror("a", sources, output="p5"), Mirror("b", NAMES, targets, output="p5"))
    words = does(run(watched("actions=output:2,output:3", *twice), packet)).split(",")
    assert words.count("p5") <= 1


def test_mirrors_to_two_places_send_two():
    both = (
        Mirror("a", frozenset({"p1"}), output="p4"),
        Mirror("b", frozenset({"p1"}), output="p5"),
    )
    assert does(run(watched("actions=output:2", *both))) == "p4,p5,p2"


def test_a_copy_is_no_end_of_the_packet_s_way():
    done = run(watched("actions=output:2", Mirror("m", frozenset({"p1"}), output="p4")))
    assert kinds(done) == [("output", "p2")]


def test_a_copy_shows_the_packet_as_it_was_then():
    mirrors = (
        Mirror("in", frozenset({"p1"}), output="p4"),
        Mirror("out", destinations=frozenset({"p2"}), output="p5"),
    )
    done = run(watched("actions=dec_ttl,output:2", *mirrors), "in_port=1,udp,nw_ttl=9")
    assert does(done) == "p4,set(ipv4(ttl=8)),p2,p5"


@pytest.mark.parametrize(("vid", "copied"), [(5, True), (6, False)])
def test_a_mirror_of_some_vlans_copies_those(vid, copied):
    mirror = Mirror("m", frozenset({"p1"}), vlans=frozenset({5}), output="p4")
    done = run(watched("actions=output:2", mirror), f"in_port=1,vlan_tci={0x1000 | vid:#x}")
    assert does(done) == ("p4,p2" if copied else "p2")
    assert looked(done, "vlan_tci") == 0x1FFF


def test_a_mirror_that_takes_all_vlans_looks_at_none():
    mirror = Mirror("m", frozenset({"p1"}), output="p4")
    assert looked(run(watched("actions=output:2", mirror)), "vlan_tci") == 0


def test_a_vlan_that_a_port_does_not_take_is_not_copied():
    lanes = (Lane("p1", (1,), "access", 5), Lane("p2", (2,)), Lane("p4", (4,)))
    mirror = Mirror("m", frozenset({"p1"}), output="p4")
    at = watched("actions=output:2", mirror, lanes=lanes)
    assert does(run(at, "in_port=1")) == "push_vlan(vid=5,pcp=0),p4,pop_vlan,p2"
    assert does(run(at, "in_port=1,vlan_tci=0x1005")) == "p2"


def test_copies_are_cut_where_the_mirror_says_so_and_the_packet_is_not():
    mirror = Mirror("m", frozenset({"p1"}), output="p4", snaplen=100)
    assert does(run(watched("actions=output:2", mirror))) == "trunc(100),p4,p2"


# --- into a VLAN ---------------------------------------------------------------------------------

INTO_VLAN = Mirror("m", frozenset({"p1"}), output_vlan=7)
OF_VLAN = (
    Lane("p1", (1,)),
    Lane("p2", (2,), trunks=frozenset({0})),
    Lane("p3", (3,), "access", 7),
    Lane("p4", (4,), trunks=frozenset({7})),
)


def test_a_vlan_of_copies_is_flooded_to_the_ports_in_it():
    done = run(watched("actions=output:2", INTO_VLAN, lanes=OF_VLAN))
    assert (
        does(done) == "push_vlan(vid=7,pcp=0),p1,pop_vlan,p3,push_vlan(vid=7,pcp=0),p4,pop_vlan,p2"
    )


@pytest.mark.parametrize("packet", ["vlan_tci=0x1007", "dl_dst=01:80:c2:00:00:0e"])
def test_what_is_in_that_vlan_already_and_link_local_groups_are_not_copied(packet):
    done = run(watched("actions=output:2", INTO_VLAN, lanes=OF_VLAN), f"in_port=1,{packet}")
    assert does(done) == "p2"


def test_a_bridge_behind_a_patch_port_has_mirrors_of_its_own():
    pa, pb = (
        Port(name, 6, at, "patch", (("peer", peer),))
        for name, at, peer in (("pa", "br0", "pb"), ("pb", "br1", "pa"))
    )
    mirror = Mirror("m", frozenset({"p1"}), output="p4")
    here = replace(watched("actions=output:6"), ports=(*watched("").ports, pa), lanes=())
    here = replace(here, mirrors=(mirror,))
    there = bridge0("actions=output:8")
    ports = (pb, Port("q8", 8, "br1"), Port("q9", 9, "br1"))
    behind = Mirror("m", destinations=frozenset({"q8"}), output="q9")
    there = replace(there, name="br1", ports=ports, mirrors=(behind,))
    assert does(run(here, others=(there,))) == "p4,q8,q9"
