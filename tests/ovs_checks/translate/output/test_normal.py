# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.packet import SLOTS
from ovs_checks.switch.shows import parse_fdb
from ovs_checks.switch.snapshot import Lane, Mirror, Port
from ovs_checks.translate.output.normal import Tag, admits, includes, inside, outside
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import bridge0, context, does, kinds, looked, run

MODES = ("access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel")
NO_TAG = Tag()
vids = st.integers(0, 4095)
pcps = st.integers(0, 7).map(lambda pcp: pcp << 13)
q_tags = st.builds(Tag, st.just(0x8100), vids.filter(bool), pcps)
lanes = st.builds(
    Lane,
    st.just("p2"),
    st.just((2,)),
    st.sampled_from(MODES),
    st.integers(1, 4095),
    st.none() | st.frozensets(vids),
)


def with_lanes(*made, **more):
    return replace(bridge0("actions=NORMAL"), lanes=made, **more)


def trunks(*numbers):
    return tuple(Lane(f"p{n}", (n,)) for n in numbers)


@given(packets)
def test_an_unknown_address_goes_to_all_but_where_it_came_from(packet):
    done = run("actions=NORMAL", packet)
    sent = sorted(end.port for end in done.ends if end.kind == "output")
    came = f"p{done.initial.in_port}"
    known = came in {"p1", "p2", "p3"}
    assert sent == (sorted({"p1", "p2", "p3"} - {came}) if known else [])


@given(packets, st.integers(1, 3))
def test_a_known_address_goes_to_one_port_and_never_back(packet, port):
    at = bridge0("actions=NORMAL")
    macs = ("00:00:00:00:00:01", "00:00:00:00:00:02", "01:00:00:00:00:03", "ff:ff:ff:ff:ff:ff")
    fdb = "\n".join(f"{port} {vid} {mac} 1" for mac in macs for vid in (0, 5, 6))
    done = run(replace(at, fdb=parse_fdb(fdb)), packet)
    sent = [end.port for end in done.ends if end.kind == "output"]
    elsewhere = done.initial.in_port in {1, 2, 3} and done.initial.in_port != port
    assert sent == ([f"p{port}"] if elsewhere else [])


@given(lanes, q_tags)
def test_what_a_lane_takes_in_it_lets_out_as_it_came(lane, tag):
    """By way of the bridge; one that marks its own VLAN does so whether it was marked or not."""
    for outer in (NO_TAG, tag):
        own = lane.mode.startswith("native") and outer.vid in {0, lane.tag}
        if not admits(context(), lane, outer.vid):
            continue
        within = inside(lane, (outer, NO_TAG))
        out = outside(lane, within)[0].vid
        assert out == ({"native-tagged": lane.tag}.get(lane.mode, 0) if own else outer.vid)
        if lane.trunks is None:
            assert includes(lane, within)


@pytest.mark.parametrize(
    ("mode", "came", "within"),
    [
        ("access", NO_TAG, (Tag(0x8100, 5), NO_TAG)),
        ("trunk", Tag(0x8100, 7), (Tag(0x8100, 7), NO_TAG)),
        ("trunk", NO_TAG, (NO_TAG, NO_TAG)),
        ("native-tagged", NO_TAG, (Tag(0x8100, 5), NO_TAG)),
        ("native-untagged", NO_TAG, (Tag(0x8100, 5), NO_TAG)),
        ("native-untagged", Tag(0x8100, 7), (Tag(0x8100, 7), NO_TAG)),
        ("dot1q-tunnel", Tag(0x8100, 7), (Tag(0x88A8, 5), Tag(0x8100, 7))),
    ],
)
def test_the_vlan_within_the_bridge(mode, came, within):
    assert inside(Lane("p1", (1,), mode, 5), (came, NO_TAG)) == within


@pytest.mark.parametrize(
    ("lane", "vid", "taken"),
    [
        (Lane("p", (1,), "access", 5), 0, True),
        (Lane("p", (1,), "access", 5), 5, False),
        (Lane("p", (1,), "trunk", trunks=frozenset({7})), 7, True),
        (Lane("p", (1,), "trunk", trunks=frozenset({7})), 0, False),
        (Lane("p", (1,), "native-tagged", 5, trunks=frozenset({7})), 0, True),
        (Lane("p", (1,), "native-tagged", 5, trunks=frozenset({7})), 8, False),
        (Lane("p", (1,), "dot1q-tunnel", 5, cvlans=frozenset({7})), 7, True),
        (Lane("p", (1,), "dot1q-tunnel", 5, cvlans=frozenset({7})), 8, False),
    ],
)
def test_a_lane_admits_its_vlans_and_tells_of_others(lane, vid, taken):
    x = context()
    assert admits(x, lane, vid) == taken
    assert [node.kind for node in x.trace] == ([] if taken else ["error"])


def test_an_access_port_takes_the_tag_off_and_another_vlan_gets_nothing():
    at = with_lanes(Lane("p1", (1,)), Lane("p2", (2,), "access", 5), Lane("p3", (3,), "access", 6))
    assert does(run(at, "in_port=1,vlan_tci=0x1005")) == "pop_vlan,p2"
    assert does(run(at, "in_port=2")) == "push_vlan(vid=5,pcp=0),p1"
    assert does(run(at, "in_port=1")) == "drop"


@pytest.mark.parametrize(
    ("tags", "came", "expected"),
    [
        ("no", "vlan_tci=0x1000", "pop_vlan,p2"),
        ("if-nonzero", "vlan_tci=0x1000", "pop_vlan,p2"),
        ("always", "vlan_tci=0x1000", "p2"),
        ("always", "", "p2"),
        ("if-nonzero", "vlan_tci=0x7000", "p2"),
    ],
)
def test_a_tag_that_only_tells_a_priority_leaves_where_the_port_wants_that(tags, came, expected):
    at = with_lanes(Lane("p1", (1,)), Lane("p2", (2,), priority_tags=tags))
    assert does(run(at, f"in_port=1,{came}")) == expected


@pytest.mark.parametrize(("tags", "expected"), [("no", "pop_vlan,p2"), ("if-nonzero", "p2")])
def test_a_priority_outlives_the_tag_of_an_access_port(tags, expected):
    at = with_lanes(
        Lane("p1", (1,), "native-untagged", 5), Lane("p2", (2,), "access", 5, priority_tags=tags)
    )
    assert does(run(at, "in_port=1,vlan_tci=0x7000")) == expected


def test_a_copy_s_tags_are_its_own():
    at = with_lanes(Lane("p1", (1,), "access", 5), Lane("p2", (2,)), Lane("p3", (3,), "access", 5))
    done = run(at)
    assert does(done) == "push_vlan(vid=5,pcp=0),p2,pop_vlan,p3"
    assert done.final.vlan_tci == 0


def test_what_is_learned_in_one_vlan_is_not_known_in_another():
    at = replace(bridge0("actions=NORMAL"), fdb=parse_fdb("2 5 00:00:00:00:00:09 1"))
    to = "in_port=1,dl_dst=00:00:00:00:00:09"
    assert does(run(at, f"{to},vlan_tci=0x1005")) == "p2"
    assert does(run(at, to)) == "p2,p3"


def test_floods_leave_out_ports_set_not_to_and_those_that_take_no_frames():
    at = bridge0("actions=NORMAL", ports=(Port("l3", 9, "br0", "lisp"),))
    ports = [
        replace(port, config=frozenset({"NO_FLOOD"} if port.ofport == 2 else ()))
        for port in at.ports
    ]
    at = replace(at, ports=tuple(ports))
    assert kinds(run(at)) == [("output", "p3")]
    known = replace(at, fdb=parse_fdb("2 0 00:00:00:00:00:00 1"))
    assert kinds(run(known)) == [("output", "p2")]


@pytest.mark.parametrize(
    ("packet", "more", "reason"),
    [
        ("in_port=77", {}, "NORMAL refuses a packet from port 77, which is not there"),
        ("in_port=1,dl_dst=01:80:c2:00:00:0f", {}, "NORMAL does not forward link-local groups"),
        ("in_port=1,dl_dst=01:80:c2:00:00:10", {}, ""),
        ("in_port=1,dl_dst=01:80:c2:00:00:0f", {"forwards_bpdu": True}, ""),
        ("in_port=1,dl_type=0x8100", {}, "NORMAL: its VLAN tag is cut off"),
        ("in_port=1,dl_dst=00:00:00:00:00:09", {"fdb": parse_fdb("8 0 00:00:00:00:00:09 1")},
         "NORMAL: 00:00:00:00:00:09 is learned at a port that is not there"),
        ("in_port=1,dl_dst=00:00:00:00:00:09", {"fdb": parse_fdb("1 0 00:00:00:00:00:09 1")},
         "NORMAL: 00:00:00:00:00:09 is learned at the port that it came in by"),
        ("in_port=1,dl_dst=00:00:00:00:00:09",
         {"fdb": parse_fdb("3 0 00:00:00:00:00:09 1"), "mirrors": (Mirror("m", output="p3"),)},
         "NORMAL: 00:00:00:00:00:09 is learned at p3, which is a mirror's"),
    ],
)  # fmt: skip
def test_what_normal_does_not_forward(packet, more, reason):
    done = run(with_lanes(*trunks(1, 2, 3), **more), packet)
    assert (kinds(done) == [("dropped", reason)]) == bool(reason)


def test_settings_that_are_not_understood_are_not_guessed():
    done = run(replace(bridge0("actions=NORMAL"), unsupported=("a setting",)))
    assert done.unknown == "NORMAL: a setting"


@pytest.mark.parametrize(
    ("packet", "announces"),
    [
        ("arp,arp_op=1,dl_dst=ff:ff:ff:ff:ff:ff", True),
        ("arp,arp_op=2,dl_dst=ff:ff:ff:ff:ff:ff", False),
        ("arp,arp_op=1,dl_dst=00:00:00:00:00:01", False),
    ],
)
def test_addresses_of_a_question_to_all_tell_whether_it_announces_its_sender(packet, announces):
    assert bool(looked(run("actions=NORMAL", f"in_port=1,{packet}"), "nw_src")) == announces


def test_addresses_and_vlan_decide():
    done = run("actions=NORMAL")
    assert (looked(done, "eth_src"), looked(done, "eth_dst")) == ((1 << 48) - 1,) * 2
    assert done.looked[SLOTS["vlan_tci"]] == 0x1FFF
