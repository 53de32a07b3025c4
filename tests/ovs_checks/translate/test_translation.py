# SPDX-License-Identifier: Apache-2.0
import sys
from dataclasses import replace

import pytest
from hypothesis import given

from ovs_checks.openflow.packet import NO_TARGET, SLOTS, TUNNEL
from ovs_checks.openflow.parse import parse_header
from ovs_checks.switch.snapshot import Lane, Mirror, Port, Snapshot
from ovs_checks.translate.translation import clear_looked, translate
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import ORDINARY, bridge0, does, kinds, looked, run


@given(packets)
def test_a_packet_that_is_only_sent_on_is_left_alone(packet):
    done = run("actions=output:2,output:3", packet)
    assert done.final == done.initial == parse_header(packet)._replace(actset_output=NO_TARGET)
    assert (done.error, done.unknown, done.choices, done.slow) == ("", "", (), frozenset())


@given(packets)
def test_asking_twice_gives_the_same_answer(packet):
    flows = "udp actions=dec_ttl,output:2\nactions=ct(table=1),normal"
    assert run(flows, packet) == run(flows, packet)


def test_a_bridge_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        translate(Snapshot("h0", (bridge0(),)), "br9", parse_header(ORDINARY))


def test_deep_lookups_leave_python_s_limit_as_it_was():
    limit = sys.getrecursionlimit()
    run("actions=resubmit(,0)")
    assert sys.getrecursionlimit() == limit


def test_what_is_always_looked_at():
    done = run("actions=output:2")
    always = {name for name, slot in SLOTS.items() if done.looked[slot]}
    assert always == {"packet_type", "recirc_id", "in_port", "eth_type", "nw_frag"}
    assert not looked(run("actions=output:2", "in_port=1,arp"), "nw_frag")


def test_of_a_packet_from_a_tunnel_its_addresses_and_key_matter():
    done = run("actions=output:2", f"{ORDINARY},tun_id=5,tun_src=1.2.3.4,tun_dst=5.6.7.8")
    seen = {name for name, slot in SLOTS.items() if done.looked[slot] and slot in TUNNEL}
    assert seen == {"tun_id", "tun_src", "tun_dst", "tun_flags", "tun_tos"}
    done = run("actions=output:2", f"{ORDINARY},tun_ipv6_dst=fe80::1")
    assert looked(done, "tun_ipv6_dst") == (1 << 128) - 1


@pytest.mark.parametrize(
    ("outer", "inner", "left"),
    [(3, 1, 3), (3, 2, 3), (3, 0, None), (1, 0, 0), (2, 1, 1)],
)
def test_congestion_met_by_a_tunnel_is_told_to_the_packet_or_the_packet_is_lost(outer, inner, left):
    packet = f"{ORDINARY},nw_ecn={inner},tun_dst=1.2.3.4"
    header = parse_header(packet)._replace(tun_tos=outer)
    done = run("actions=output:2", header)
    if left is None:
        reason = "its tunnel met congestion, and it is not ECN capable"
        assert kinds(done) == [("dropped", reason)]
    else:
        assert (kinds(done), done.final.nw_tos & 3) == ([("output", "p2")], left)


def test_a_loop_outweighs_every_copy_and_leaves_no_action():
    done = run("actions=output:2,resubmit(,1)\ntable=1 actions=resubmit(,1)")
    assert ([end.kind for end in done.ends], does(done)) == (["loop"], "drop")


def test_a_clone_at_the_end_is_no_clone():
    assert does(run("actions=output:3,clone(ct(commit),output:2)")) == "p3,ct(commit),p2"
    assert does(run("actions=clone(ct(commit),output:2),load:1->NXM_NX_REG0[]")) == "ct(commit),p2"


def test_what_arrives_by_a_mirror_s_port_is_not_forwarded():
    lanes = tuple(Lane(f"p{n}", (n,)) for n in (1, 2, 3))
    at = replace(bridge0("actions=output:2"), lanes=lanes, mirrors=(Mirror("m", output="p1"),))
    assert kinds(run(at)) == [("dropped", "p1 is reserved for a mirror")]
    assert does(run(at, "in_port=3,udp")) == "p2"


@pytest.mark.parametrize(
    ("config", "packet", "received"),
    [
        ((), ORDINARY, True),
        (("NO_RECV",), ORDINARY, False),
        (("NO_RECV",), f"{ORDINARY},dl_dst=01:80:c2:00:00:00", True),
        (("NO_RECV_STP",), ORDINARY, True),
        (("NO_RECV_STP",), f"{ORDINARY},dl_dst=01:80:c2:00:00:00", False),
    ],
)
def test_a_port_that_does_not_receive_drops(config, packet, received):
    at = bridge0("actions=output:2")
    ports = (replace(at.ports[0], config=frozenset(config)), *at.ports[1:])
    done = run(replace(at, ports=ports), packet)
    assert kinds(done) == [("output", "p2") if received else ("dropped", "p1")]


def test_a_packet_without_an_ethernet_header_is_seen_as_a_frame_by_tables():
    tunnel = Port("l3", 9, "br0", "gre", (("packet_type", "legacy_l3"),))
    at = bridge0("dl_dst=00:00:00:00:00:00,ip actions=output:2", ports=(tunnel,))
    header = parse_header("in_port=9,ip,nw_ttl=9")._replace(packet_type=0x10800)
    done = run(at, header)
    assert kinds(done) == [("output", "p2")]
    assert does(done).startswith("push_eth(")


def test_a_packet_goes_on_where_it_was_frozen():
    before, after = "load:7->NXM_NX_REG0[],push:NXM_NX_REG0[]", "output:2,pop:NXM_NX_REG1[]"
    flows = f"actions={before},debug_recirc,{after}"
    (again,) = run(flows).recirculations
    done = run(flows, again.flow, state=again.state)
    assert (does(done), done.final.reg1) == ("p2", 7)
    assert "thaw" in [node.kind for node in done.tree[0].inner]


def test_what_connection_tracking_said_counts_after_it_only():
    flows = "table=1,ct_state=+trk,ip actions=output:2\ntable=1,priority=1 actions=output:3"
    (tracked,) = run("actions=ct(table=1)").recirculations
    back = tracked.flow._replace(ct_state=0x21)
    assert does(run(flows, back, state=tracked.state)) == "p2"
    state = replace(tracked.state, conntracked=False)
    assert does(run(flows, back, state=state)) == "p3"


def cleared(flows, packet):
    done = run(flows, packet)
    mask = clear_looked(done)
    return {name for name, slot in SLOTS.items() if mask[slot]}


def test_a_megaflow_knows_no_registers():
    flows = "reg0=0,metadata=0,pkt_mark=0 actions=output:2"
    assert "pkt_mark" in cleared(flows, ORDINARY)
    assert not {"reg0", "metadata"} & cleared(flows, ORDINARY)
    assert looked(run(flows), "reg0")


@pytest.mark.parametrize(
    ("packet", "present"),
    [("in_port=1", False), ("in_port=1,vlan_tci=0x1005", True)],
)
def test_a_tag_is_in_the_megaflow_of_a_packet_that_has_one(packet, present):
    done = run("vlan_tci=0x0000/0x0001 actions=output:2\npriority=1 actions=output:3", packet)
    assert (clear_looked(done)[SLOTS["vlan_tci"]] == 0x1001) == present


def test_ports_are_not_in_the_megaflow_of_a_fragment_without_them():
    flows = "udp,udp_dst=5 actions=output:2\npriority=1 actions=output:3"
    assert "tp_dst" in cleared(flows, "in_port=1,udp,udp_dst=5")
    assert "tp_dst" not in cleared(flows, "in_port=1,udp,nw_frag=later")


def test_a_type_of_icmp_has_eight_bits():
    done = run("icmp,icmp_type=8 actions=output:2", "in_port=1,icmp,icmp_type=8")
    assert clear_looked(done)[SLOTS["tp_src"]] == 0xFF


def test_a_tunnel_is_in_the_megaflow_of_what_came_by_one():
    flows = "tun_id=5 actions=output:2\npriority=1 actions=output:3"
    assert "tun_id" in cleared(flows, "in_port=1,tun_id=5,tun_dst=1.2.3.4")
    assert "tun_id" not in cleared(flows, "in_port=1,tun_id=5")
