# SPDX-License-Identifier: Apache-2.0
import pytest

from ovs_checks.openflow.packet import SLOTS
from ovs_checks.translate.freezing import (
    INVALID_TTL,
    finish_freezing,
    recirculate,
    run_action_set,
    to_controller,
    wind_up,
)
from tests.ovs_checks.translate.contexts import actions, context, does, kinds, run


def test_the_action_set_is_done_once():
    x = context(action_set=list(actions("output:2,load:1->NXM_NX_REG0[]")))
    run_action_set(x)
    run_action_set(x)
    assert (does(x), x.flow[SLOTS["reg0"]]) == ("p2", 1)
    assert (x.action_set, x.in_action_set) == ([], False)


def test_winding_up_does_the_action_set_or_freezes_and_not_both():
    x = context(action_set=list(actions("output:2")))
    wind_up(x)
    assert (does(x), x.recirculations) == ("p2", [])
    x = context(action_set=list(actions("output:2")))
    x.freeze()
    wind_up(x)
    assert does(x) == "recirc(0x1)"
    assert x.recirculations[0].state.action_set == actions("output:2")


def test_a_set_that_freezes_is_frozen_by_winding_up():
    x = context(action_set=list(actions("group:1")), was_mpls=True)
    x.action_set = list(actions("resubmit(,3)"))
    wind_up(x)
    assert does(x) == "recirc(0x1)"
    assert x.recirculations[0].state.actions == actions("resubmit(,3)")


def test_a_packet_is_made_what_the_flows_want_before_it_comes_back():
    x = context("in_port=1,udp,nw_ttl=9")
    x.flow[SLOTS["nw_ttl"]], x.looked[SLOTS["nw_ttl"]] = 8, 0xFF
    x.freeze()
    finish_freezing(x)
    assert does(x) == "set(ipv4(ttl=8)),recirc(0x1)"
    assert x.recirculations[0].state.flow.nw_ttl == 8


@pytest.mark.parametrize(
    ("hash_by", "kind", "expected"),
    [(None, "mpls", "recirc(0x1)"), ((1, 7), "hash", "hash(sym_l4(7)),recirc(0x1)")],
)
def test_the_datapath_hashes_first_where_a_group_asked_for_it(hash_by, kind, expected):
    x = context()
    x.freeze(hash_by=hash_by, group=3)
    finish_freezing(x)
    (again,) = x.recirculations
    assert (does(x), again.kind, again.group) == (expected, kind, 3)
    assert not x.freezing


def test_numbers_of_recirculations_count_up():
    x = context()
    assert [recirculate(x), recirculate(x)] == [1, 2]
    assert does(x) == "recirc(0x1),recirc(0x2)"


def test_a_packet_that_waits_for_a_controller_does_not_come_back_by_itself():
    (pause,) = actions("controller(pause,max_len=100)")
    x = context(pause=pause)
    x.freeze()
    finish_freezing(x)
    assert x.recirculations == []
    assert kinds(x) == [("controller", "waits for the controller")]
    assert "continuation=1" in does(x)
    assert "recirc(" not in does(x)


@pytest.mark.parametrize(("carried", "unsent"), [(True, 0), (False, 1)])
def test_headers_alone_are_not_sent_to_controllers(carried, unsent):
    done = run("actions=controller", carried=carried)
    assert f"dont_send={unsent}" in does(done)
    assert kinds(done) == [("controller", "sent to the controller")]


@pytest.mark.parametrize(
    ("flow", "reason"),
    [("priority=0", 6), ("priority=1", 1), ("priority=0,ip", 1)],
)
def test_a_table_s_default_flow_is_an_explicit_miss(flow, reason):
    assert f"(reason={reason}," in does(run(f"{flow} actions=controller"))


def test_what_a_meter_passes_is_metered_first():
    x = context()
    to_controller(x, 0xFFFF, 1, 0, meter_id=4)
    assert does(x).startswith("sample(sample=100.0%,actions(meter(4),userspace(")


def test_to_tell_of_a_time_to_live_does_not_take_the_packet_on():
    x = context()
    to_controller(x, 0xFFFF, INVALID_TTL, 0)
    assert (kinds(x), len(x.steps)) == ([], 1)


def test_the_controller_gets_the_packet_as_it_is_and_the_flow_s_cookie():
    done = run("cookie=0x1f actions=dec_ttl,controller")
    assert does(done).startswith("set(ipv4(ttl=63)),userspace(")
    assert "rule_cookie=0x1f," in does(done)
