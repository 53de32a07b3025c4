# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.translate.action_set import ordered
from tests.ovs_checks.translate.contexts import actions

IN_ORDER = actions(
    "pop_vlan,pop_mpls:0x0800,push_mpls:0x8847,push_vlan:0x8100,dec_ttl,dec_mpls_ttl,"
    "load:1->NXM_NX_REG0[],set_queue:5,output:2"
)
MANY = actions(
    "pop_vlan,push_vlan:0x8100,push_vlan:0x88a8,dec_ttl,load:1->NXM_NX_REG0[],set_tunnel:7,"
    "mod_vlan_vid:5,set_queue:5,set_queue:6,output:2,output:3,group:1,resubmit(,4),ct(table=5),note:01"
)


@given(st.permutations(IN_ORDER))
def test_the_order_written_does_not_matter(written):
    assert ordered(written) == IN_ORDER


@given(st.lists(st.sampled_from(MANY)))
def test_ordering_what_is_in_order_changes_nothing(written):
    once = ordered(written)
    assert ordered(once) == once
    assert set(once) <= set(written)


@given(st.lists(st.sampled_from(MANY[:9])))
def test_without_a_place_to_go_nothing_is_done(written):
    assert ordered(written) == ()


def test_of_each_kind_the_last_counts():
    written = "push_vlan:0x8100,output:2,set_queue:1,push_vlan:0x88a8,set_queue:2"
    assert ordered(actions(written)) == actions("push_vlan:0x88a8,set_queue:2,output:2")


def test_fields_are_set_as_often_and_in_the_order_that_they_were():
    sets = "load:1->NXM_NX_REG0[],move:NXM_NX_REG0[]->NXM_NX_REG1[],load:2->NXM_NX_REG0[]"
    assert ordered(actions(f"output:2,{sets}")) == actions(f"{sets},output:2")


@given(st.permutations(("output:2", "resubmit(,4)", "ct(table=5)", "group:1")))
def test_a_group_is_before_tracking_before_a_table_before_a_port(finals):
    for best in ("group:1", "ct(table=5)", "resubmit(,4)", "output:2"):
        assert ordered(actions(",".join(finals))) == actions(best)
        finals = [one for one in finals if one != best]


def test_of_two_ports_it_is_the_last():
    assert ordered(actions("output:2,output:3")) == actions("output:3")
