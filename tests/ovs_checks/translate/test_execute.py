# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from ovs_checks.switch.snapshot import Port, TunnelOption
from tests.ovs_checks.translate.contexts import (
    actions,
    bridge0,
    context,
    does,
    kinds,
    looked,
    run,
    told,
)

PATCH = Port("pa", 4, "br0", "patch", (("peer", "pb"),))
VXLAN = Port("vx", 9, "br0", "vxlan", (("remote_ip", "9.9.9.9"),))
LABELLED = "in_port=1,mpls,mpls_label=1,mpls_bos=1,mpls_ttl="


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("output:2,output:1,output:3", "p2,p3"),
        ("in_port", "p1"),
        ("output:NXM_NX_REG0[0..15]", "p2"),
        ("output:NXM_NX_REG0[]", "drop"),
        ("flood", "p2,p3"),
        ("output:2,exit,output:3", "p2"),
        ("resubmit(,1),output:3", "p2,p3"),
        ("goto_table:1", "p2"),
        ("drop", "drop"),
        ("note:01,output:2", "p2"),
        ("set_queue:5,output:2,pop_queue,output:3",
         "set(skb_priority(0x10006)),p2,set(skb_priority(0x1)),p3"),
        ("enqueue:2:5,output:3", "set(skb_priority(0x10006)),p2,set(skb_priority(0x1)),p3"),
        ("enqueue:1:5", "drop"),
        ("output(port=4,max_len=100)", "drop"),
        ("output(port=9,max_len=100)", "drop"),
        ("output(port=1,max_len=100)", "drop"),
        ("output(port=FLOOD,max_len=100)", "drop"),
        ("ct_clear,output:2", "p2"),
        ("meter:7,output:2", "meter(1),p2"),
        ("meter:8,output:2", "p2"),
        ("write_actions(output:2),output:3", "p3,p2"),
        ("write_actions(output:2),clear_actions,output:3", "p3"),
        ("write_actions(output:2),write_actions(output:3)", "p3"),
        ("debug_recirc,output:2", "recirc(0x1)"),
    ],
)  # fmt: skip
def test_what_actions_do(written, expected):
    at = bridge0(f"actions={written}\ntable=1 actions=output:2", ports=(PATCH,))
    packet = "in_port=1,udp,skb_priority=1,reg0=0x10002"
    assert does(run(replace(at, meters=(5, 7)), packet)) == expected


@pytest.mark.parametrize("part", ["reg1", "xreg1", "xxreg0"])
def test_a_stack_gives_back_what_was_put_on_it_last(part):
    written = f"push:{part}[0..15],push:{part}[16..31],pop:reg8[0..15],pop:reg8[16..31]"
    name = {"reg1": "reg1", "xreg1": "reg3", "xxreg0": "reg3"}[part]
    done = run(f"actions={written}", f"in_port=1,{name}=0x12345678")
    assert done.final.reg8 == 0x56781234


def test_an_empty_stack_is_told_and_does_no_harm():
    done = run("actions=pop:reg0[],output:2", "in_port=1,reg0=5")
    assert (done.final.reg0, does(done)) == (5, "p2")
    assert "stack underflow" in told(done)


@pytest.mark.parametrize(
    ("written", "packet", "name", "expected"),
    [
        ("write_metadata:0x5/0xf", "metadata=0xf3", "metadata", 0xF5),
        ("set_tunnel:7", "tun_id=1", "tun_id", 7),
        ("move:NXM_NX_REG0[0..7]->NXM_NX_REG1[8..15]", "reg0=0x12,reg1=0xffff", "reg1", 0x12FF),
        ("load:0x3->NXM_NX_REG0[4..5]", "reg0=0x100", "reg0", 0x130),
        ("mod_vlan_vid:5", "vlan_tci=0x7001", "vlan_tci", 0x7005),
        ("mod_vlan_vid:5", "", "vlan_tci", 0x1005),
        ("mod_vlan_pcp:2", "vlan_tci=0x7001", "vlan_tci", 0x5001),
        ("mod_tp_dst:5", "udp,udp_dst=1", "tp_dst", 5),
        ("mod_tp_dst:5", "udp,nw_frag=later", "tp_dst", 0),
        ("set_mpls_ttl(5)", "mpls,mpls_label=1,mpls_ttl=9", "mpls_lse", 0x1005),
        ("set_mpls_label(5)", "mpls,mpls_label=1,mpls_ttl=9", "mpls_lse", 0x5009),
        ("dec_mpls_ttl", "mpls,mpls_label=1,mpls_ttl=9", "mpls_lse", 0x1008),
        ("check_pkt_larger(9)->NXM_NX_REG0[0]", "reg0=1", "reg0", 1),
    ],
)
def test_what_the_packet_becomes(written, packet, name, expected):
    done = run(f"actions={written}", f"in_port=1,{packet}")
    assert getattr(done.final, name) == expected


def test_a_field_that_the_packet_has_not_is_not_set_and_that_is_told():
    done = run("actions=load:5->NXM_OF_TCP_DST[],output:2", "in_port=1,udp,udp_dst=1")
    assert done.final.tp_dst == 1
    assert "unmet prerequisites for tcp_dst, set_field ignored" in told(done)


@pytest.mark.parametrize(
    ("packet", "expected"), [("in_port=1,udp,nw_ttl=2", "p2"), ("in_port=1,udp,nw_ttl=1", "")]
)
def test_without_time_to_live_the_rest_is_not_done_and_controllers_are_told(packet, expected):
    done = run("actions=dec_ttl(3,4),output:2", packet)
    if expected:
        assert does(done).endswith(expected)
        return
    ids = [f"controller_id={n}," in step.text for n, step in zip((3, 4), done.steps, strict=True)]
    assert all(ids)
    assert kinds(done) == [("dropped", "its time to live ran out")]
    assert "IPv4 decrement TTL exception" in told(done)


def test_a_label_without_time_to_live_stops_the_packet():
    assert kinds(run("actions=dec_mpls_ttl,output:2", f"{LABELLED}1")) == [
        ("dropped", "its label's time to live ran out")
    ]
    assert kinds(run("actions=dec_mpls_ttl,output:2", f"{LABELLED}2")) == [("output", "p2")]


def test_a_fourth_label_drops_the_packet_and_every_copy():
    push = ",".join(["push_mpls:0x8847"] * 4)
    done = run(f"actions=output:2,{push},output:3")
    assert (done.error, does(done)) == ("Too many MPLS labels", "drop")


def test_where_a_group_ends_the_packet_its_port_is_not_the_target():
    unset = 0xFFF7
    for written, target in (
        ("output:2", 2),
        ("output:2,group:1", unset),
        ("group:1,output:2", unset),
    ):
        x = context(at=bridge0(groups="group_id=1,type=all"))
        x.go.execute(x, actions(f"write_actions({written})"), False)
        assert x.header.actset_output == target
    x.go.execute(x, actions("clear_actions,write_actions(output:3)"), False)
    assert x.header.actset_output == 3


def test_what_connection_tracking_said_is_forgotten_once():
    done = run("actions=ct(table=1)\ntable=1 actions=ct_clear,ct_clear,output:2")
    (again,) = done.recirculations
    back = again.flow._replace(ct_state=0x21)
    at = "actions=ct(table=1)\ntable=1 actions=ct_clear,ct_clear,output:2"
    assert does(run(at, back, state=again.state)) == "ct_clear,p2"


def test_what_is_left_after_freezing_goes_along_without_what_needs_no_doing():
    x = context(table=4)
    x.go.execute(x, actions("debug_recirc,note:01,resubmit(2,),goto_table:7,output:2"), True)
    assert [type(one).__name__ for one in x.frozen] == ["Resubmit", "Resubmit", "ToPort"]
    assert [getattr(one, "table", None) for one in x.frozen] == [4, 7, None]


def test_a_freeze_in_a_table_below_keeps_what_the_tables_above_were_to_do():
    flows = "actions=resubmit(,1),output:3\ntable=1 actions=debug_recirc,output:2"
    (again,) = run(flows).recirculations
    assert again.state.actions == actions("output:2,output:3")


@pytest.mark.parametrize(
    ("written", "frozen"),
    [
        ("output:2", False),
        ("load:1->NXM_NX_REG0[],output:2", False),
        ("mod_nw_dst:1.2.3.4,output:2", True),
        ("resubmit(,1)", True),
    ],
)
def test_only_what_needs_to_see_below_the_label_freezes(written, frozen):
    flows = f"mpls actions=pop_mpls:0x0800,{written}\ntable=1 actions=output:2"
    assert bool(run(flows, f"{LABELLED}9").recirculations) == frozen


def test_what_a_learnt_flow_would_be_made_of_is_looked_at_and_no_flow_is_made():
    learn = "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])"
    done = run(f"actions={learn},resubmit(,1)")
    assert looked(done, "eth_src") == (1 << 48) - 1
    assert [end.kind for end in done.ends] == ["missed"]
    assert "suppressing side effects, so learn action ignored" in told(done)


def test_what_is_not_understood_ends_the_answer_there():
    for written in ("output:2,frobnicate:3,output:3", "output:2,write_actions(frobnicate:3)"):
        done = run(f"actions={written}")
        assert [end.kind for end in done.ends] == ["output", "cannot_tell"]
        assert "frobnicate" in done.unknown


@pytest.mark.parametrize(
    ("probability", "collects", "expected"),
    [
        (65535, True, "userspace(pid=0,flow_sample(probability=65535,"),
        (32768, True, "sample(sample=50.0%,actions(userspace("),
        (32768, False, "p2"),
    ],
)
def test_samples_are_shown_to_a_collector_if_there_is_one(probability, collects, expected):
    at = bridge0(f"actions=sample(probability={probability},collector_set_id=1),output:2")
    assert does(run(replace(at, collects=collects))).startswith(expected)


def test_a_sample_of_what_leaves_by_a_port_that_is_not_there_is_not_taken():
    written = "actions=sample(probability=65535,sampling_port=77),output:2"
    done = run(replace(bridge0(written), collects=True))
    assert does(done) == "p2"
    assert "can't use unknown port 77 in flow sample action" in told(done)


def test_a_tunnel_option_is_forgotten_alone():
    at = bridge0("actions=delete_field:tun_metadata0,output:2")
    at = replace(at, options=(TunnelOption(0xFFFF, 0, 4, 0), TunnelOption(0xFFFF, 1, 4, 1)))
    done = run(at, "in_port=1,tun_metadata0=5,tun_metadata1=6,tun_dst=1.2.3.4")
    assert (done.final.tun_present, done.final.tun_metadata) == (2, 6 << 1024)


def test_a_packet_is_cut_only_for_a_port_of_the_datapath():
    port = Port("p5", 5, "br0", datapath=7)
    at = bridge0("actions=output(port=5,max_len=100),output:2", ports=(port,))
    assert does(run(at)) == "trunc(100),7,p2"


def test_an_empty_list_is_a_drop_that_is_told():
    x = context()
    x.go.execute(x, (), True)
    assert told(x) == ["drop"]
