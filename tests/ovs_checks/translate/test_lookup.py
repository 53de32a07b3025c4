# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from ovs_checks.openflow.parse import parse_flow
from ovs_checks.switch.snapshot import Features
from ovs_checks.translate.lookup import spell
from tests.ovs_checks.translate.contexts import bridge0, does, kinds, run, told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cookie=0x7, duration=3s, table=4, priority=9,ip actions=drop",
         "ip, priority 9, cookie 0x7"),
        ("priority=0 actions=output:2", "priority 0"),
        ("n_packets=5, n_bytes=60, udp,tp_dst=5 actions=drop",
         "udp,tp_dst=5, priority 32768, n_packets 5, n_bytes 60"),
        ("table=1, n_packets=0, priority=1 actions=drop", "priority 1, n_packets 0"),
    ],
)  # fmt: skip
def test_a_flow_in_the_tree_is_match_priority_and_counters(text, expected):
    assert spell(parse_flow(text)) == expected


def test_a_lookup_by_another_port_does_not_change_the_packet():
    flows = "priority=1,in_port=1 actions=resubmit(2,),output:2\nin_port=2 actions=output:3"
    done = run(flows)
    assert does(done) == "p3,p2"
    assert {end.header.in_port for end in done.ends} == {1}


def test_what_a_table_below_made_of_the_packet_stays_and_the_table_is_the_old_one():
    flows = "actions=resubmit(,1),output:2,resubmit(,9)\ntable=1 actions=dec_ttl"
    done = run(flows, "in_port=1,udp,nw_ttl=9")
    out = next(end for end in done.ends if end.kind == "output")
    assert (out.header.nw_ttl, out.table) == (8, 0)


def test_a_miss_below_is_told_and_what_follows_is_done():
    done = run("actions=resubmit(,1),output:2\ntable=1,arp actions=drop")
    assert [(end.kind, end.table) for end in done.ends] == [("missed", 1), ("output", 0)]
    assert " 1. No match." in told(done)


TRACKED = "in_port=1,udp,nw_dst=10.0.0.1,ct_state=0x22,ct_nw_proto=17,ct_nw_dst=10.0.0.9"
BY_ORIGIN = (
    "actions=resubmit(,1,ct)\ntable=1,udp,nw_dst=10.0.0.9 actions=output:2\n"
    "table=1,priority=1 actions=output:3"
)


def test_a_table_may_be_asked_for_the_connection_s_first_packet():
    done = run(BY_ORIGIN, TRACKED)
    assert does(done) == "p2"
    assert done.final.nw_dst == 0x0A000001
    assert does(run(BY_ORIGIN.replace(",ct)", ")"), TRACKED)) == "p3"


def test_a_packet_that_is_not_tracked_has_no_first_packet():
    for packet in ("in_port=1,udp,nw_dst=10.0.0.9", "in_port=1,arp,ct_nw_proto=17"):
        done = run(BY_ORIGIN, packet)
        assert kinds(done) == [("dropped", "resubmit(ct) of a packet that is not tracked")]


@pytest.mark.parametrize(
    ("setting", "expected"), [("normal", "p3"), ("nx-match", "p2"), ("drop", "drop")]
)
def test_ports_of_fragments_are_seen_as_the_bridge_is_set(setting, expected):
    flows = "udp,udp_dst=5 actions=output:2\npriority=1 actions=output:3"
    at = replace(bridge0(flows), fragments=setting)
    done = run(at, "in_port=1,udp,nw_frag=first,udp_dst=5")
    assert does(done) == expected
    assert done.final.tp_dst == 5
    assert does(run(at, "in_port=1,udp,udp_dst=5")) == "p2"


def test_a_drop_says_what_the_actions_ran_into():
    assert kinds(run("actions=output:9")) == [("dropped", "port 9 does not exist")]
    assert kinds(run("actions=drop")) == [("dropped", "drop")]
    assert kinds(run("actions=dec_ttl")) == [("dropped", "its actions send the packet nowhere")]


def test_an_excuse_is_of_one_flow_only():
    flows = "actions=resubmit(,1),resubmit(,2)\ntable=1 actions=output:9\ntable=2 actions=dec_ttl"
    assert [reason for _, reason in kinds(run(flows))] == [
        "port 9 does not exist",
        "its actions send the packet nowhere",
    ]


def test_the_cycle_of_a_loop_begins_where_the_packet_first_met_it():
    flows = (
        "actions=resubmit(,1)\ntable=1 actions=resubmit(,2)\n"
        "table=2 actions=resubmit(,3)\ntable=3 actions=resubmit(,1)"
    )
    (end,) = run(flows).ends
    assert (end.kind, end.reason) == ("loop", "the packet comes back as it was")
    assert [quote.table for quote in end.cycle] == [1, 2, 3]


def test_a_label_that_hides_the_next_table_s_fields_sends_the_packet_round():
    flows = "mpls actions=pop_mpls:0x0800,resubmit(,1)\ntable=1,ip actions=output:2"
    done = run(flows, "in_port=1,mpls,mpls_label=1,mpls_bos=1,mpls_ttl=9")
    assert does(done) == "pop_mpls(eth_type=0x800),recirc(0x1)"
    assert [one.kind for one in done.recirculations] == ["mpls"]


# --- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (Features(), "clone(ct(commit),p2),p3"),
        (Features(clone=False), "sample(sample=100.0%,actions(ct(commit),p2)),p3"),
        (Features(clone=False, sample_nesting=3), "p3"),
    ],
)
def test_what_cannot_be_undone_is_done_to_a_copy_as_the_datapath_can(features, expected):
    done = run("actions=clone(ct(commit),output:2),output:3", features=features)
    assert does(done) == expected


def test_what_can_be_undone_needs_no_copy():
    done = run("actions=clone(dec_ttl,output:2),output:3", "in_port=1,udp,nw_ttl=9")
    assert does(done) == "set(ipv4(ttl=8)),p2,set(ipv4(ttl=9)),p3"


def test_a_copy_s_packet_stack_and_action_set_are_its_own():
    inside = "push:NXM_NX_REG1[],load:5->NXM_NX_REG0[],write_actions(output:2)"
    flows = f"actions=clone({inside}),pop:NXM_NX_REG2[],output:3"
    done = run(flows, "in_port=1,udp,reg1=7")
    assert (done.final.reg0, done.final.reg2) == (0, 0)
    assert "stack underflow" in told(done)
    assert does(done) == "p2,p3"


def test_leaving_a_copy_early_leaves_all():
    assert does(run("actions=clone(output:2,exit,output:1),output:3")) == "p2"


LONGER = "actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)\n"


def test_either_length_goes_its_own_way():
    done = run(
        LONGER + "table=1,reg0=1 actions=dec_ttl,output:2\ntable=1,reg0=0 actions=output:3",
        "in_port=1,udp,nw_ttl=9",
    )
    assert does(done) == "check_pkt_len(size=100,gt(set(ipv4(ttl=8)),p2),le(p3))"
    assert [(end.port, end.case, end.header.nw_ttl) for end in done.ends] == [
        ("p2", "over 100 bytes", 8),
        ("p3", "up to 100 bytes", 9),
    ]
    assert (done.final.reg0, done.final.nw_ttl) == (0, 9)


def test_packets_that_come_back_of_either_length_say_so():
    done = run(LONGER + "table=1 actions=ct(table=2)")
    assert [one.case for one in done.recirculations] == ["over 100 bytes", "up to 100 bytes"]


def test_lengths_within_lengths_are_both_told():
    flows = LONGER + (
        "table=1,reg0=1/1 actions=check_pkt_larger(500)->NXM_NX_REG1[0],output:2\n"
        "table=1,reg0=0/1 actions=output:3"
    )
    assert [end.case for end in run(flows).ends] == [
        "over 100 bytes, over 500 bytes",
        "over 100 bytes, up to 500 bytes",
        "up to 100 bytes",
    ]
