# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.actions import NotUnderstoodError, parse_action, port_number
from ovs_checks.flow import Move, Plain, Resubmit, Subfield, ToField, ToPort, Write

PORTS = {"p1": 1, 'od"d': 2, "7": 3}


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
        ("CONTROLLER:65535", Plain("controller")),
        ("controller(reason=action,max_len=100)", Plain("controller")),
        ("output:NXM_NX_REG0[0..15]", ToField(Subfield("reg0", 0, 16))),
        ("output:reg3", ToField(Subfield("reg3", 0, 32))),
        ("resubmit(,30)", Resubmit(None, 30)),
        ("resubmit(2,30)", Resubmit(2, 30)),
        ("resubmit(2,)", Resubmit(2, None)),
        ("resubmit:2", Resubmit(2, None)),
        ("resubmit(IN_PORT,4)", Resubmit(None, 4)),
        ("goto_table:5", Resubmit(None, 5)),
        ("load:0x5->NXM_NX_REG1[3..8]", Write("reg1", 0x28, 0x1F8)),
        ("load:0->NXM_OF_IN_PORT[]", Write("in_port", 0, 0xFFFF)),
        ("set_field:0x28/0x1f8->reg1", Write("reg1", 0x28, 0x1F8)),
        ("set_field:172.30.0.10->tun_dst", Write("tun_dst", 0xAC1E000A, 0xFFFFFFFF)),
        ("set_field:p1->in_port", Write("in_port", 1, 0xFFFF)),
        ("set_tunnel:0x5", Write("tun_id", 5, (1 << 64) - 1)),
        ("write_metadata:0x5/0x7", Write("metadata", 5, 7)),
        ("mod_dl_dst:00:00:00:00:00:01", Write("eth_dst", 1, (1 << 48) - 1)),
        ("mod_nw_tos:32", Write("nw_tos", 32, 0xFC)),
        ("mod_vlan_vid:5", Write("vlan_tci", 0x1005, 0x1FFF)),
        ("mod_vlan_pcp:3", Write("vlan_tci", 0x7000, 0xF000)),
        ("set_vlan_vid:5", Write("vlan_vid", 0x1005, 0x1FFF)),
        (
            "move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG0[0..47]",
            Move(Subfield("dl_src", 0, 48), Subfield("xxreg0", 0, 48)),
        ),
        ("dec_ttl", Plain("dec_ttl")),
        ("dec_ttl(1,2)", Plain("dec_ttl")),
        ("push_vlan:0x8100", Plain("push_vlan")),
        ("strip_vlan", Plain("pop_vlan")),
        ("note:00.01", Plain("none")),
        ("sample(probability=1,collector_set_id=2)", Plain("none")),
    ],
)
def test_actions_as_open_vswitch_prints_them(text, action):
    assert parse_action(text, PORTS) == [action]


@pytest.mark.parametrize(
    "text",
    [
        *("ct(commit)", "group:1", "clone(output:1)", "learn(a)", "meter:1", "write_actions(drop)"),
        *("output(port=1,max_len=100)", "drop(x)", "drop:1", "resubmit()", "resubmit(1,2,ct)"),
        *("load:0x10->NXM_NX_REG0[0..3]", "load:1->NXM_NX_REG0[4..3]", "load:1->NOPE[]"),
        *("load:1->NXM_OF_IP_PROTO[]", "set_field:6->ip_proto", "set_field:1->nope"),
        *("move:NXM_NX_REG0[0..3]->NXM_NX_REG1[]", "mod_vlan_vid:4096", "nobody", "(", "[", ""),
        *("dec_ttl(x)", "goto_table:256", "resubmit(,3)x", "set_field:1", "reg0[40]"),
    ],
)
def test_what_is_not_understood_is_never_taken_for_something_else(text):
    with pytest.raises((NotUnderstoodError, ValueError)):
        parse_action(text, PORTS)


@given(st.text(max_size=60))
def test_arbitrary_text_raises_nothing_else(text):
    for read in (parse_action, port_number):
        try:
            read(text, PORTS)
        except (NotUnderstoodError, ValueError):
            continue
