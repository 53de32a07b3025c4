# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.packet import NO_TARGET, SLOTS
from ovs_checks.openflow.parse import parse_flow, parse_header
from ovs_checks.switch.snapshot import Port, Snapshot
from ovs_checks.translate.origins import trace_origins
from ovs_checks.translate.translation import translate
from tests.ovs_checks.hosts import bridge, plain_ports


def after(packet, actions):
    """Return the packet after the actions of a flow that matches everything."""
    host = Snapshot("h0", (bridge("br0", f"actions={actions}"),))
    final = translate(host, "br0", parse_header(packet)).final
    assert final.actset_output == NO_TARGET
    return final._replace(actset_output=0)


@pytest.mark.parametrize(
    ("packet", "actions", "expected"),
    [
        ("reg0=0xff", "load:0x5->NXM_NX_REG0[4..7]", "reg0=0x5f"),
        ("reg0=0xff", "set_field:0/0xf->reg0", "reg0=0xf0"),
        ("reg0=5", "move:NXM_NX_REG0[0..3]->NXM_NX_REG1[8..11]", "reg0=5,reg1=0x500"),
        ("udp,udp_dst=5", "mod_tp_dst:6,mod_nw_src:1.2.3.4", "udp,udp_dst=6,nw_src=1.2.3.4"),
        ("udp,nw_tos=4,nw_ecn=1", "mod_nw_tos:32,mod_nw_ecn:2", "udp,nw_tos=32,nw_ecn=2"),
        ("udp,nw_ttl=64", "dec_ttl", "udp,nw_ttl=63"),
        ("in_port=3", "mod_vlan_vid:5,mod_vlan_pcp:3", "in_port=3,vlan_tci=0x7005"),
        (
            "vlan_tci=0x7005",
            "push_vlan:0x8100",
            "vlan_tci=0x1000,vlan_tci1=0x7005,vlan_tpid1=0x8100",
        ),
        ("vlan_tci=0x7005,vlan_tci1=0x1006,vlan_tpid1=0x8100", "pop_vlan", "vlan_tci=0x1006"),
        ("vlan_tci=0x7005", "set_field:4102->vlan_vid", "vlan_tci=0x7006"),
        ("arp,arp_op=1,arp_spa=1.2.3.4", "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]", None),
    ],
)
def test_rewrites(packet, actions, expected):
    expected = expected or "arp,arp_op=1,arp_spa=1.2.3.4,arp_tpa=1.2.3.4"
    assert after(packet, actions) == parse_header(expected)


@pytest.mark.parametrize(
    "actions",
    [
        *("mod_nw_src:1.2.3.4", "set_field:5->tcp_dst", "set_field:3->vlan_pcp", "dec_ttl"),
        "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]",
        "move:NXM_NX_REG0[]->NXM_OF_IP_SRC[]",
    ],
)
def test_what_a_packet_does_not_have_is_not_written(actions):
    assert after("arp,arp_op=1,reg0=9,arp_spa=1.2.3.5", actions) == parse_header(
        "arp,arp_op=1,reg0=9,arp_spa=1.2.3.5"
    )


def test_only_ip_runs_out_of_time_to_live():
    assert after("udp,nw_ttl=1", "dec_ttl") == parse_header("udp,nw_ttl=1")
    assert after("udp,nw_ttl=2", "dec_ttl") == parse_header("udp,nw_ttl=1")
    assert after("arp", "dec_ttl,load:1->NXM_NX_REG0[]").reg0 == 1


def test_a_moved_value_keeps_its_origin():
    first = parse_flow("priority=1 actions=load:5->NXM_NX_REG0[]")
    second = parse_flow("priority=2 actions=move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],output:1")
    third = parse_flow("priority=3 actions=move:NXM_NX_REG5[]->NXM_NX_REG6[]")
    origins = {}
    for flow in (first, second, third):
        for action in flow.actions:
            origins = trace_origins(origins, flow, action)
    assert origins == {SLOTS["reg0"]: first, SLOTS["tun_id"]: first, SLOTS["reg6"]: third}


def test_a_patch_port_strips_metadata_and_gives_it_back():
    options = {"pa": (("peer", "pb"),), "pb": (("peer", "pa"),)}
    ends = [Port(name, 4, f"br{n}", "patch", options[name]) for n, name in enumerate(options)]
    inside = (
        "reg3=1 actions=drop\npriority=1,reg3=0,metadata=0,tun_id=0,pkt_mark=9 actions=output:1"
    )
    host = Snapshot(
        "h0",
        (
            bridge("br0", "actions=output:4", ports=[ends[0]]),
            bridge("br1", inside, ports=[ends[1], *plain_ports("br1", 1)]),
        ),
    )
    packet = parse_header("udp,in_port=1,reg3=1,metadata=2,tun_id=3,tun_dst=1.2.3.4,pkt_mark=9")
    done = translate(host, "br0", packet)
    assert [end.kind for end in done.ends] == ["output"]
    assert done.final._replace(actset_output=0) == packet
