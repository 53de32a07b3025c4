# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.packet import CS_TRK
from ovs_checks.translate.conntrack import spell_nat
from tests.ovs_checks.translate.contexts import actions, does, kinds, looked, run


def nat(text):
    """Return the translation in `ct(commit,nat(...))`."""
    (ct,) = actions(f"ct(commit,{text})")
    return ct.inner[0]


def test_without_a_table_the_packet_goes_on_untracked():
    flows = "actions=ct(commit),resubmit(,1)\ntable=1,ct_state=-trk,ip actions=output:2"
    done = run(flows, "in_port=1,udp,ct_state=0x22,ct_mark=5")
    assert (does(done), done.recirculations) == ("ct(commit),p2", ())
    assert (done.final.ct_state, done.final.ct_mark, done.final.ct_zone) == (0, 0, 0)


def test_with_a_table_a_copy_comes_back_there_and_the_packet_goes_on():
    done = run("actions=load:9->NXM_NX_REG0[],ct(table=3,zone=7),output:2")
    assert does(done) == "ct(zone=7),recirc(0x1),p2"
    (again,) = done.recirculations
    assert (again.kind, again.zone, again.nat) == ("conntrack", 7, None)
    assert (again.state.table, again.state.flow.reg0, again.state.conntracked) == (3, 9, True)
    assert again.state.actions == ()


def test_each_table_to_come_back_in_has_a_number_of_its_own():
    done = run("actions=ct(table=3),ct(table=4,zone=1)")
    assert does(done) == "ct,recirc(0x1),ct(zone=1),recirc(0x2)"
    assert [(one.id, one.state.table) for one in done.recirculations] == [(1, 3), (2, 4)]


def test_what_flows_made_of_the_packet_is_done_before_it_is_tracked():
    done = run("actions=mod_nw_dst:1.2.3.4,ct(commit),output:2")
    assert does(done) == "set(ipv4(dst=1.2.3.4)),ct(commit),p2"


def test_a_zone_may_be_in_a_register_which_then_matters():
    done = run("actions=load:0x705->NXM_NX_REG0[],ct(zone=NXM_NX_REG0[8..15],table=1)")
    assert does(done) == "ct(zone=7),recirc(0x1)"
    assert looked(done, "reg0") & 0xFF00 == 0xFF00


def test_a_register_of_a_packet_that_came_back_is_known_and_not_looked_at():
    first = run("actions=load:0x7->NXM_NX_REG0[],ct(table=1)")
    (again,) = first.recirculations
    flows = "table=1 actions=ct(zone=NXM_NX_REG0[0..15])"
    thawed = run(flows, again.flow._replace(ct_state=CS_TRK), state=again.state)
    assert (does(thawed), looked(thawed, "reg0")) == ("ct(zone=7)", 0)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("ct()", "ct"),
        ("ct(commit,force)", "ct(force_commit)"),
        ("ct(alg=ftp)", "ct(helper=ftp)"),
        ("ct(commit,exec(load:1->NXM_NX_CT_MARK[0..1]))", "ct(commit,mark=0x1/0x3)"),
        ("ct(commit,exec(set_field:5->ct_mark))", "ct(commit,mark=0x5/0xffffffff)"),
        ("ct(commit,exec(set_field:5->ct_label))", "ct(commit,label=0x5)"),
        ("ct(commit,exec(load:1->NXM_NX_CT_LABEL[3]))", "ct(commit,label=0x8/0x8)"),
        ("ct(nat)", "ct(nat)"),
    ],
)
def test_what_connection_tracking_is_told(action, expected):
    assert does(run(f"actions={action}")) == expected


def test_marks_are_written_to_the_connection_and_not_to_the_packet():
    done = run("actions=ct(commit,exec(set_field:5->ct_mark)),output:2", "in_port=1,udp,ct_mark=9")
    assert done.final.ct_mark == 0
    assert looked(done, "ct_mark") == 0


def test_marks_that_tables_looked_at_before_stay_looked_at_and_are_not_written():
    done = run("ct_mark=1/1,udp actions=ct(commit)", "in_port=1,udp,ct_mark=1")
    assert does(done) == "ct(commit)"
    assert looked(done, "ct_mark") == 1


def test_translation_is_of_one_action_only():
    done = run("actions=ct(commit,nat(dst=10.0.0.9),table=1),ct(table=2)")
    assert does(done) == "ct(commit,nat(dst=10.0.0.9)),recirc(0x1),ct,recirc(0x2)"
    assert [one.nat is None for one in done.recirculations] == [False, True]


def test_a_zone_s_timeouts_are_told_where_a_connection_is_made():
    host = {"zones": {"5": "ovs_tp_0_udp4"}}
    assert does(run("actions=ct(commit,zone=5)", host=host)) == (
        "ct(commit,zone=5,timeout=ovs_tp_0_udp4)"
    )
    for other in ("ct(zone=5)", "ct(commit,zone=6)"):
        assert "timeout" not in does(run(f"actions={other}", host=host))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nat", "nat"),
        ("nat(src)", "nat(src)"),
        ("nat(src=10.0.0.1)", "nat(src=10.0.0.1)"),
        ("nat(src=10.0.0.1-10.0.0.1)", "nat(src=10.0.0.1)"),
        ("nat(src=10.0.0.1-10.0.0.9:5-9,random)", "nat(src=10.0.0.1-10.0.0.9:5-9,random)"),
        ("nat(dst=10.0.0.1:80)", "nat(dst=10.0.0.1:80)"),
        ("nat(dst=10.0.0.1:80-80,persistent,hash)", "nat(dst=10.0.0.1:80,persistent,hash)"),
        ("nat(src=fe80::1-fe80::2)", "nat(src=fe80::1-fe80::2)"),
        ("nat(dst=[fe80::1]:80)", "nat(dst=[fe80::1]:80)"),
    ],
)
def test_translation_in_the_datapath_s_words(text, expected):
    assert spell_nat(nat(text)) == expected


def test_a_packet_that_only_comes_back_is_not_dropped():
    done = run("actions=ct(table=3)")
    assert kinds(done) == []
    assert kinds(run("actions=ct(commit)")) == [("dropped", "its actions send the packet nowhere")]
