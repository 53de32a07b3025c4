# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.action_text import (
    NotUnderstoodError,
    StrayError,
    parse_actions,
    port_number,
)
from ovs_checks.openflow.actions import (
    CheckPacketLarger,
    Clone,
    Conjunction,
    Ct,
    DecTtl,
    DeleteField,
    Enqueue,
    Goto,
    Learn,
    LearnSpec,
    Members,
    Meter,
    Move,
    Multipath,
    Nat,
    Plain,
    Pop,
    PopMpls,
    Push,
    PushMpls,
    PushVlan,
    Resubmit,
    Sample,
    SetQueue,
    SetTunnel,
    Subfield,
    ToController,
    ToField,
    ToGroup,
    ToPort,
    ToPortTruncated,
    Unknown,
    Write,
    WriteActions,
    WriteMetadata,
    WriteMpls,
    WritePort,
    WriteTag,
)

PORTS = {"p1": 1, 'od"d': 2, "7": 3}
MAC_SRC, MAC_DST = Subfield("eth_src", 0, 48), Subfield("eth_dst", 0, 48)
NAT = Nat("src", 0x01010101, 0x01010102, port_low=3, port_high=4, flags=("random",))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("output:1", ToPort(1)),
        ("output:p1", ToPort(1)),
        ('output:"od\\"d"', ToPort(2)),
        ('output:"7"', ToPort(3)),
        ("p1", ToPort(1)),
        ("IN_PORT", ToPort(0xFFF8)),
        ("NORMAL", ToPort(0xFFFA)),
        ("LOCAL", ToPort(0xFFFE)),
        ("CONTROLLER:65535", ToPort(0xFFFD, 65535)),
        ("controller(reason=no_match,max_len=100,id=3)", ToController(100, 0, 3)),
        ("controller(userdata=01.02,pause)", ToController(pause=True, userdata=b"\1\2")),
        ("output(port=1,max_len=100)", ToPortTruncated(1, 100)),
        ("enqueue:1:3", Enqueue(1, 3)),
        ("group:7", ToGroup(7)),
        ("output:NXM_NX_REG0[0..15]", ToField(Subfield("reg0", 0, 16))),
        ("output:reg3", ToField(Subfield("reg3", 0, 32))),
        ("resubmit(,30)", Resubmit(None, 30)),
        ("resubmit(2,30)", Resubmit(2, 30)),
        ("resubmit(2,)", Resubmit(2, None)),
        ("resubmit:2", Resubmit(2, None)),
        ("resubmit(IN_PORT,4)", Resubmit(None, 4)),
        ("resubmit(,5,ct)", Resubmit(None, 5, conntrack=True)),
        ("goto_table:5", Goto(5)),
        ("load:0x5->NXM_NX_REG1[3..8]", Write("reg1", 0x28, 0x1F8)),
        ("load:0->NXM_OF_IN_PORT[]", Write("in_port", 0, 0xFFFF)),
        ("set_field:0x28/0x1f8->reg1", Write("reg1", 0x28, 0x1F8)),
        ("set_field:172.30.0.10->tun_dst", Write("tun_dst", 0xAC1E000A, 0xFFFFFFFF)),
        ("set_field:p1->in_port", Write("in_port", 1, 0xFFFF)),
        ("set_tunnel:0x5", SetTunnel(5)),
        ("write_metadata:0x5/0x7", WriteMetadata(5, 7)),
        ("mod_dl_dst:00:00:00:00:00:01", Write("eth_dst", 1, (1 << 48) - 1)),
        ("mod_nw_tos:32", Write("nw_tos", 32, 0xFC)),
        ("mod_vlan_vid:5", WriteTag("vid", 5, make=True)),
        ("mod_vlan_pcp:3", WriteTag("pcp", 3, make=True)),
        ("set_vlan_vid:5", WriteTag("vid", 5, make=False)),
        ("mod_tp_dst:80", WritePort("tp_dst", 80)),
        (
            "move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG0[0..47]",
            Move(Subfield("eth_src", 0, 48), Subfield("xxreg0", 0, 48)),
        ),
        ("dec_ttl", DecTtl()),
        ("dec_ttl(1,2)", DecTtl((1, 2))),
        ("push_vlan:0x8100", PushVlan(0x8100)),
        ("push_mpls:0x8847", PushMpls(0x8847)),
        ("pop_mpls:0x0800", PopMpls(0x800)),
        ("set_mpls_ttl(9)", WriteMpls("ttl", 9)),
        ("push:NXM_NX_REG0[0..3]", Push(Subfield("reg0", 0, 4))),
        ("pop:NXM_NX_REG0[]", Pop(Subfield("reg0", 0, 32))),
        ("set_queue:3", SetQueue(3)),
        ("meter:4", Meter(4)),
        ("delete_field:tun_metadata3", DeleteField("tun_metadata3")),
        ("conjunction(7,2/3)", Conjunction(7, 1, 3)),
        ("clone(output:1,drop)", Clone((ToPort(1), Plain("drop")))),
        ("write_actions(group:1)", WriteActions((ToGroup(1),))),
        ("check_pkt_larger(99)->reg0[1]", CheckPacketLarger(99, Subfield("reg0", 1, 1))),
        (
            "multipath(eth_src,50,modulo_n,4,0,reg0[0..3])",
            Multipath("eth_src", 50, "modulo_n", 4, 0, Subfield("reg0", 0, 4)),
        ),
        ("bundle(nw_src,6,hrw,ofport,slaves:1,2)", Members("nw_src", 6, "hrw", (1, 2))),
        (
            "bundle_load(nw_src,6,hrw,ofport,reg0[],members:1)",
            Members("nw_src", 6, "hrw", (1,), Subfield("reg0", 0, 32)),
        ),
        (
            "learn(table=1,priority=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0x5->reg1[0..3])",
            Learn(
                (
                    LearnSpec(MAC_SRC, 0, "match", MAC_DST),
                    LearnSpec(None, 5, "load", Subfield("reg1", 0, 4)),
                )
            ),
        ),
        ("ct(commit,force,zone=5,table=3)", Ct(5, commit=True, force=True, table=3)),
        ("ct(zone=reg0[0..15])", Ct(Subfield("reg0", 0, 16))),
        (
            "ct(commit,exec(set_field:0x1->ct_mark),nat(src=1.1.1.1-1.1.1.2:3-4,random))",
            Ct(commit=True, inner=(Write("ct_mark", 1, 0xFFFFFFFF), NAT)),
        ),
        ("nat(dst=[fe80::1]:80)", Nat("dst", 0xFE80 << 112 | 1, v6=True, port_low=80)),
        ("strip_vlan", Plain("pop_vlan")),
        ("note:00.01", Plain("note")),
        ("sample(probability=1,collector_set_id=2)", Sample(1, 2)),
    ],
)
def test_actions_as_open_vswitch_prints_them(text, action):
    assert parse_actions(text, PORTS) == (action,)


@pytest.mark.parametrize(
    "text",
    [
        *("ct(frob)", "ct(exec(frob(1)))", "group:x", "learn(a)", "nat(src=x)", "encap(nsh)"),
        *(
            "drop(x)",
            "drop:1",
            "resubmit()",
            "resubmit(1,2,x)",
            "bundle(a)",
            "bundle(a,b)",
            "multipath(1)",
        ),
        *("load:0x10->NXM_NX_REG0[0..3]", "load:1->NXM_NX_REG0[4..3]", "load:1->NOPE[]"),
        *("load:1->NXM_OF_IP_PROTO[]", "set_field:6->ip_proto", "set_field:1->nope"),
        *("move:NXM_NX_REG0[0..3]->NXM_NX_REG1[]", "mod_vlan_vid:4096", "nobody", "[", "frob:1"),
        *("dec_ttl(x)", "goto_table:256", "resubmit(,3)x", "set_field:1", "reg0[40]"),
        *("output(port=1)", "output(max_len=9)", "output(port=1,max_len=)"),
    ],
)
def test_what_is_not_understood_is_never_taken_for_something_else(text):
    assert parse_actions(f"drop,{text}", PORTS)[1:] == (Unknown(text=text, column=6),)


def test_what_is_not_understood_within_an_action_keeps_its_column():
    text = "output:1,clone(output:1,frob(2)),drop"
    clone = parse_actions(text, PORTS)[1]
    assert clone.inner[1] == Unknown(text="frob(2)", column=text.index("frob") + 1)


@pytest.mark.parametrize("text", ["(", ")", "ct(commit", 'output:"', "clone(drop))"])
def test_a_stray_parenthesis_is_told_of(text):
    with pytest.raises(StrayError):
        parse_actions(text, PORTS)


@given(st.text(max_size=60))
def test_arbitrary_text_raises_nothing_else(text):
    for read in (parse_actions, port_number):
        try:
            read(text, PORTS)
        except (NotUnderstoodError, ValueError):
            continue
