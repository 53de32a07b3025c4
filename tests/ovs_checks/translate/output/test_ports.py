# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.packet import NO_TYPE
from ovs_checks.openflow.parse import parse_header
from ovs_checks.switch.bonds import Bond, Member
from ovs_checks.switch.snapshot import UNKNOWN, Lane, Port
from ovs_checks.translate.output.ports import clear_conntrack, forwards, queue_priority
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import ORDINARY, bridge0, context, does, kinds, run, told

BPDU = "in_port=1,dl_dst=01:80:c2:00:00:00"


def changed(at, name, **more):
    """Return the bridge with something about one of its ports changed."""
    ports = [replace(port, **more) if port.name == name else port for port in at.ports]
    return replace(at, ports=tuple(ports))


@given(packets, st.sets(st.integers(1, 3)))
def test_all_is_all_but_the_way_in_and_flood_leaves_out_those_set_not_to(packet, quiet):
    for word, left_out in (("all", set()), ("flood", quiet)):
        at = bridge0(f"actions={word}")
        for number in quiet:
            at = changed(at, f"p{number}", config=frozenset({"NO_FLOOD"}))
        done = run(at, packet)
        sent = {end.port for end in done.ends if end.kind == "output"}
        assert sent == {f"p{n}" for n in {1, 2, 3} - left_out - {done.initial.in_port}}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"config": frozenset({"NO_FWD"})}, "p2 is set not to forward"),
        ({"config": frozenset({"NO_RECV"})}, ""),
        ({"tree": "blocked"}, "STP does not let p2 forward: it is blocked"),
        ({"tree": "forwarding"}, ""),
    ],
)
def test_a_port_that_refuses_says_why(more, reason):
    at = replace(changed(bridge0("actions=output:2"), "p2", **more), spanning_tree="STP")
    done = run(at)
    assert does(done) == ("drop" if reason else "p2")
    assert [end.reason for end in done.ends] == [reason or "out by p2"]


@pytest.mark.parametrize(
    ("tree", "expected"), [("", True), ("forwarding", True), ("learning", False)]
)
def test_a_port_forwards_unless_its_tree_forbids_it(tree, expected):
    x = context()
    assert forwards(x, Port("p2", 2, "br0", tree=tree)) == expected


def test_a_tree_s_unknown_state_is_not_guessed():
    at = replace(changed(bridge0("actions=output:2"), "p2", tree=UNKNOWN), spanning_tree="RSTP")
    assert run(at).unknown == "whether RSTP lets p2 forward"


@pytest.mark.parametrize("protected", [(1, 2), (1,), (2,), ()])
def test_protected_ports_reach_each_other_only_by_others(protected):
    lanes = tuple(Lane(f"p{n}", (n,), protected=n in protected) for n in (1, 2, 3))
    done = run(replace(bridge0("actions=output:2,output:3"), lanes=lanes))
    assert does(done) == ("p3" if protected == (1, 2) else "p2,p3")


def test_a_packet_without_an_ethernet_header_does_not_leave_by_a_port_of_frames():
    x = context("in_port=1,ip")
    x.flow[:] = parse_header("in_port=1,ip")._replace(packet_type=0x10800)
    x.go.output(x, 2, last=True)
    assert x.why_not == ("p2 takes Ethernet frames only", "p2")


def test_what_only_one_port_is_to_see_is_taken_back_after_it():
    l3 = Port("l3", 9, "br0", "gre", (("packet_type", "legacy_l3"), ("remote_ip", "1.2.3.4")))
    done = run(bridge0("actions=output:9,output:2", ports=(l3,)))
    assert does(done).startswith("set(tunnel(")
    assert does(done).endswith(
        "pop_eth,l3,push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),p2"
    )
    assert done.final.packet_type == 0


# --- queues --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "expected"), [("", 0x10005), ("netdev", 4)])
def test_the_kernel_s_queues_begin_at_one(kind, expected):
    assert queue_priority(context(at=replace(bridge0(), datapath_type=kind)), 4) == expected


def test_a_queue_s_dscp_is_set_for_that_port_only_and_congestion_is_kept():
    at = changed(bridge0("actions=set_queue:4,output:2,output:3"), "p2", queues=((4, 10), (5, 11)))
    done = run(at, f"{ORDINARY},nw_tos=0,nw_ecn=1")
    assert does(done) == (
        "set(ipv4(tos=0x28/0xfc)),set(skb_priority(0x10005)),p2,set(ipv4(tos=0/0xfc)),p3"
    )


# --- through patch ports -------------------------------------------------------------------------

PA = Port("pa", 4, "br0", "patch", (("peer", "pb"),))
PB = Port("pb", 5, "br1", "patch", (("peer", "pa"),))


def behind(flows, **more):
    at = replace(bridge0(flows), name="br1", **more)
    return replace(at, ports=(replace(PB), Port("q7", 7, "br1")))


@given(packets)
def test_what_is_done_behind_a_patch_port_is_undone_in_front_of_it(packet):
    there = behind(
        "actions=load:9->NXM_NX_REG1[],load:9->OXM_OF_METADATA[],mod_dl_dst:00:00:00:00:00:09,"
        "ct_clear,push:NXM_NX_REG1[],write_actions(output:7)"
    )
    done = run(bridge0("actions=output:4,output:2", ports=(PA,)), packet, others=(there,))
    assert done.final == done.initial


def test_behind_a_patch_port_only_the_packet_is_known():
    flows = "reg0=0,metadata=0,tun_id=0,ct_state=0,in_port=5,udp actions=output:7"
    packet = f"{ORDINARY},reg0=1,metadata=2,tun_id=3,ct_state=0x21,pkt_mark=4"
    here = bridge0("actions=output:4", ports=(PA,))
    done = run(here, packet, others=(behind(flows),))
    assert [(end.port, end.header.pkt_mark) for end in done.ends] == [("q7", 4)]


def test_an_action_set_behind_a_patch_port_is_done_there():
    there = behind("actions=write_actions(output:7)")
    assert does(run(bridge0("actions=output:4,output:2", ports=(PA,)), others=(there,))) == "q7,p2"


def test_an_error_behind_a_patch_port_ends_there():
    there = behind("actions=output:7,resubmit(,0)")
    done = run(bridge0("actions=output:4,output:2", ports=(PA,)), others=(there,))
    assert (done.error, does(done).endswith("p2")) == ("", True)


def test_a_patch_port_without_a_peer_sends_nowhere():
    assert kinds(run(bridge0("actions=output:4", ports=(PA,)))) == [("dropped", "pa")]


def test_a_port_that_does_not_receive_takes_nothing_from_a_patch_either():
    there = behind("actions=output:7")
    there = changed(there, "pb", config=frozenset({"NO_RECV"}))
    done = run(bridge0("actions=output:4", ports=(PA,)), others=(there,))
    assert kinds(done) == [("dropped", "pb")]


def test_tables_see_what_a_tree_does_not_let_through_but_nothing_comes_of_it():
    there = changed(behind("udp actions=dec_ttl,output:7"), "pb", tree="learning")
    there = replace(there, spanning_tree="STP")
    done = run(bridge0("actions=output:4,output:2", ports=(PA,)), others=(there,))
    assert does(done) == "p2"
    reason = "STP does not let pb forward: it is learning"
    assert [end.reason for end in done.ends] == [reason, "out by p2"]
    assert any("udp, priority" in line for line in told(done))


# --- what is for Open vSwitch itself -------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "kind", "taken"),
    [("STP", NO_TYPE, True), ("", NO_TYPE, False), ("STP", 0x0800, False)],
)
def test_a_spanning_tree_s_frames_are_taken_where_there_is_one(tree, kind, taken):
    at = replace(bridge0("actions=output:2"), spanning_tree=tree)
    done = run(at, parse_header(BPDU)._replace(eth_type=kind))
    assert (done.slow == frozenset({"stp"})) == taken
    assert kinds(done) == [
        ("dropped", "taken by Open vSwitch for its STP") if taken else ("output", "p2")
    ]


@pytest.mark.parametrize(
    ("lacp", "taken"), [("negotiated", True), ("configured", True), ("off", False)]
)
def test_a_bond_s_frames_are_taken_where_it_speaks_lacp(lacp, taken):
    bond = Bond("active-backup", (Member("p1"), Member("p2")), "p1", lacp=lacp)
    lanes = (Lane("bond0", (1, 2), bond=bond), Lane("p3", (3,)))
    done = run(replace(bridge0("actions=output:3"), lanes=lanes), "in_port=1,dl_type=0x8809")
    assert (done.slow == frozenset({"lacp"})) == taken
    assert does(done) == ("drop" if taken else "p3")


def test_all_that_connection_tracking_said_is_forgotten_and_nothing_else():
    packet = parse_header(
        f"{ORDINARY},ct_state=0x21,ct_zone=1,ct_mark=2,ct_label=3,ct_nw_src=4.4.4.4"
    )
    flow = list(packet)
    clear_conntrack(flow)
    assert flow == list(parse_header(ORDINARY))
