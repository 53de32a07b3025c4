# SPDX-License-Identifier: Apache-2.0
from ovs_checks.openflow.actions import ToPort
from ovs_checks.openflow.flow import Flow, Match, Term
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.openflow.parse import parse_dump
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot, Tunnel


def test_tables_are_apart_and_keep_the_dump_s_order():
    text = "priority=1,ip actions=drop\ntable=7 actions=drop\npriority=9,arp actions=drop"
    tables = Bridge("b", parse_dump(text).flows).tables
    assert {n: [flow.line for flow in tables[n].flows] for n in tables} == {0: [1, 3], 7: [2]}


def test_actions_are_read_when_they_are_asked_for_and_once():
    asked = []
    flow = Flow(0, 1, Match(), lambda text: asked.append(text) or (ToPort(1),), "actions=output:1")
    assert not asked
    assert flow.actions is flow.actions
    assert flow.actions == (ToPort(1),)
    assert asked == ["actions=output:1"]


def test_tests_of_a_match_speak_of_slots():
    match = Match((Term("xreg0", 1 << 32 | 2, (1 << 64) - 1), Term("nw_ecn", 1, 3)))
    full = 0xFFFFFFFF
    slots = ((SLOTS["reg0"], 1, full), (SLOTS["reg1"], 2, full), (SLOTS["nw_tos"], 1, 3))
    assert match.tests == slots


def test_tunnels_read_their_options():
    options = (("key", "5"), ("out_key", "flow"), ("remote_ip", "1.2.3.4"), ("dst_port", "4790"))
    port = Port("v", 3, "b", "vxlan", options)
    assert port.tunnel == Tunnel("v", "vxlan", "", "1.2.3.4", "5", "flow", 4790, options)
    assert Port("p", 1, "b").tunnel is None
    assert Port("v", 3, "b", "geneve", (("dst_port", "x"),)).tunnel.dst_port == 6081


def test_ports_are_found_by_name_and_number():
    ports = (Port("p", 1, "b"), Port("broken", -1, "b"))
    snapshot = Snapshot("h", (Bridge("b", ports=ports),))
    assert snapshot.port("broken") == ports[1]
    assert snapshot.port("gone") is None
    assert snapshot.by_name["b"].by_number == {1: ports[0]}
