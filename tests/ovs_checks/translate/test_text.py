# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.notation import ipv4
from ovs_checks.openflow.packet import CS_EST, CS_NEW, CS_TRK
from ovs_checks.openflow.parse import parse_header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate import text
from ovs_checks.translate.text import resumed, trace, translated
from tests.ovs_checks.translate.contexts import ORDINARY, actions, bridge0, run

TRACKED = (
    "priority=1,ct_state=-trk,ip actions=ct(table=0)\n"
    "priority=2,ct_state=+new,ip actions=output:2\npriority=2,ct_state=+est,ip actions=output:3"
)


def ask(flows, packet=ORDINARY, states=(), **more):
    return trace(Snapshot("h0", (bridge0(flows),)), "br0", parse_header(packet), states, **more)


def nat(written):
    (ct,) = actions(f"ct(commit,{written})")
    return ct.inner[0]


def test_a_packet_that_is_tracked_is_new_unless_it_is_said_otherwise():
    done = ask(TRACKED)
    assert [len(done.translations), done.datapath_actions] == [2, "p2"]
    assert "default ct_state=trk|new (use --ct-next to customize)" in done.text
    told = ask(TRACKED, states=(CS_TRK | CS_EST,))
    assert told.datapath_actions == "p3"
    assert "recirc(0x1) - resume conntrack with ct_state=est|trk" in told.text


def test_states_are_used_up_in_the_order_that_packets_come_back():
    flows = (
        "ip,ct_state=-trk actions=ct(table=1),ct(table=2)\n"
        "table=1,ct_state=+est,ip actions=output:2\ntable=2,ct_state=+new,ip actions=output:3"
    )
    done = ask(flows, states=(CS_TRK | CS_EST, CS_TRK | CS_NEW))
    assert [[end.port for end in one.ends] for one in done.translations] == [[], ["p2"], ["p3"]]


def test_what_comes_back_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(text, "MAX_RECIRCULATIONS", 3)
    done = ask("actions=ct(table=0)")
    assert len(done.translations) == 4
    assert "Queued but not processed: 1 recirculations." in done.text


def test_the_packet_comes_back_under_its_number_in_its_zone():
    (again,) = run("actions=ct(table=1,zone=7)").recirculations
    header = resumed(again, CS_TRK | CS_NEW)
    assert (header.recirc_id, header.ct_zone, header.ct_state) == (1, 7, CS_TRK | CS_NEW)


def test_translation_is_to_the_first_of_the_range_and_told():
    flows = "ct_state=-trk,ip actions=ct(commit,nat(dst=10.0.0.7-10.0.0.9:80-90),table=1)"
    done = ask(f"{flows}\ntable=1 actions=output:2", f"{ORDINARY},nw_dst=10.0.0.1,udp_dst=5")
    assert done.translations[1].initial.nw_dst == ipv4("10.0.0.7")
    assert " Initial flow: nw_src=0.0.0.0,tp_src=0,nw_dst=10.0.0.1,tp_dst=5" in done.text
    assert " Modified flow: nw_src=0.0.0.0,tp_src=0,nw_dst=10.0.0.7,tp_dst=80" in done.text


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("nat(src=10.0.0.7)", {"nw_src": 0x0A000007}),
        ("nat(src=10.0.0.7:9)", {"nw_src": 0x0A000007, "tp_src": 9}),
        ("nat(dst=fe80::7)", {"ipv6_dst": 0xFE80 << 112 | 7}),
        ("nat(dst)", {}),
        ("nat", {}),
    ],
)
def test_translation_changes_its_own_end_only(written, changed):
    packet = parse_header(f"{ORDINARY},udp_src=5,udp_dst=6")
    assert translated(packet, nat(written)) == packet._replace(**changed)


def test_the_last_lookup_s_actions_are_those_that_tools_read():
    lines = [line for line in ask(TRACKED).text.splitlines() if line.startswith("Datapath actions")]
    assert lines == ["Datapath actions: ct,recirc(0x1)", "Datapath actions: p2"]


def test_what_is_unknown_is_said_instead_of_actions():
    done = ask("actions=output:2,frobnicate")
    assert done.unknown
    assert f"Cannot tell: {done.unknown}" in done.text
    assert "Datapath actions" not in done.text


def test_a_final_flow_is_unchanged_or_described():
    assert "Final flow: unchanged" in ask("actions=output:2").text
    assert "nw_ttl=63" in next(
        line for line in ask("actions=dec_ttl").text.splitlines() if line.startswith("Final flow: ")
    )


def test_a_failed_translation_says_why():
    done = ask("actions=resubmit(,0)")
    assert "Translation failed (Recursion too deep), packet is dropped." in done.text
    assert done.datapath_actions == "drop"


def test_the_slow_path_is_told_with_its_reasons():
    done = ask("actions=mod_nw_src:1.2.3.4,output:2", "in_port=1,icmp")
    assert "slow path" not in done.text
    slow = ask("actions=load:3->NXM_OF_ICMP_TYPE[],output:2", "in_port=1,icmp")
    assert "  - Uses action(s) not supported by datapath." in slow.text.splitlines()


def test_the_tree_is_indented_by_what_led_to_what():
    flows = "priority=5 actions=resubmit(,1),output:2\ntable=1 actions=output:3"
    tree = ask(flows).text.partition("\nFinal flow")[0].splitlines()
    assert tree[1:] == [
        "",
        'bridge("br0")',
        "-------------",
        " 0. priority 5",
        "    resubmit(,1)",
        "     1. priority 32768",
        "            output:3",
        "    output:2",
    ]


def test_ports_go_by_their_names_where_asked():
    assert ask("actions=output:2").text.startswith("Flow: udp,in_port=1,")
    named = ask("actions=output:2", names=True).text
    assert named.startswith("Flow: udp,in_port=p1,")
    assert "in_port=1" not in named
    assert "in_port=br0" in ask("actions=output:2", "in_port=LOCAL,udp", names=True).text
