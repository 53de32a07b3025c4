# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.actions import ToController
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.openflow.parse import parse_flow
from ovs_checks.switch.snapshot import Features
from ovs_checks.translate import context as limits
from ovs_checks.translate.context import Numbers, UnknownMet
from ovs_checks.translate.datapath import Step
from tests.ovs_checks.translate.contexts import actions, context, told

FLOW = parse_flow("table=4, priority=9,ip actions=drop")


@pytest.mark.parametrize(
    ("state", "said", "error"),
    [
        ({"depth": 63}, "", ""),
        ({"depth": 64}, "64 lookups deep", "Recursion too deep"),
        ({"resubmits": 4095}, "", ""),
        ({"resubmits": 4096}, "4096 lookups", "Too many resubmits"),
        ({"steps": [Step("x", 65535)]}, "", ""),
        ({"steps": [Step("x", 65535), Step("y", 1)]}, "64 kB of actions", ""),
        ({"stack": [(0, 8)] * 32767}, "", ""),
        ({"stack": [(0, 8)] * 32768}, "64 kB of stack", "Stack too deep"),
        ({"stack": [(0, 9)] * 21846}, "64 kB of stack", "Stack too deep"),
    ],
)
def test_open_vswitch_s_limits_are_ours(state, said, error):
    x = context(**state)
    assert (x.exceeded(), x.error) == (said, error)
    assert bool(x.trace) == bool(said)


def test_too_many_actions_stop_the_packet_without_dropping_it():
    x = context(steps=[Step("x", 65536)])
    x.exceeded()
    assert (x.exit, x.error) == (True, "")


def test_one_of_one_needs_no_hash():
    x = context()
    assert (x.choose(["a"]), x.choices) == (0, [])


def test_which_of_several_a_hash_selects_is_not_guessed():
    x = context(rule=FLOW, table=4)
    with pytest.raises(UnknownMet) as met:
        x.choose(["a", "b"])
    assert met.value.end.reason == "which is selected by a hash: a, b"
    assert (met.value.end.kind, met.value.end.flow.text) == ("cannot_tell", FLOW.text)


@given(st.lists(st.integers(0, 2), max_size=4), st.integers(0, 6))
def test_picks_are_taken_in_order_and_beyond_them_the_first(picks, count):
    x = context(picks=tuple(picks))
    made = [x.choose(["a", "b", "c"]) for _ in range(count)]
    assert made == [*picks, *[0] * count][:count]
    assert x.choices == [(("a", "b", "c"), pick) for pick in made]


def test_copies_over_the_limit_are_one_end_and_loops_are_never_lost(monkeypatch):
    monkeypatch.setattr(limits, "MAX_COPIES", 2)
    x = context()
    for _ in range(5):
        x.finish(x.end("output", "out", "p2"))
    x.finish(x.end("loop", "round and round"))
    assert [end.kind for end in x.ends] == ["output", "output", "cannot_tell", "loop"]


def test_what_is_told_below_a_line_is_below_it_even_if_that_fails():
    x = context()
    node = x.tell("table", "outer")
    with suppress(KeyError), x.below(node):
        x.tell("detail", "inner")
        raise KeyError
    x.tell("table", "after")
    assert [line.text for line in x.trace] == ["outer", "after"]
    assert [line.text for line in node.inner] == ["inner"]
    assert told(x) == ["outer", "inner", "after"]


@pytest.mark.parametrize(
    ("kind", "terminal"), [("table", False), ("bridge", False), ("thaw", False), ("action", True)]
)
def test_places_are_no_terminal_lines(kind, terminal):
    assert context().tell(kind, "x").terminal == terminal


def test_an_end_says_where_by_which_flow_and_what_the_packet_was():
    x = context("in_port=1,udp,nw_ttl=9", rule=FLOW, table=4)
    end = x.end("output", "out", "p2", tun_id=7)
    assert (end.bridge, end.table, end.port, end.tun_id) == ("br0", 4, "p2", 7)
    assert (end.header.nw_ttl, end.flow.text) == (9, FLOW.text)
    x.flow[SLOTS["nw_ttl"]] = 1
    assert end.header.nw_ttl == 9
    assert context().end("output", "out").flow is None


def test_giving_up_quotes_the_flow_in_doubt_before_the_one_being_executed():
    other = parse_flow("table=5,priority=1 actions=drop")
    x = context(rule=FLOW)
    assert x.give_up("why").end.flow.text == FLOW.text
    assert x.give_up("why", other).end.flow.table == 5


def test_what_a_packet_takes_along_does_not_change_with_what_is_done_to_it():
    x = context(stack=[(1, 8)], frozen=list(actions("output:2")), conntracked=True)
    state = x.state(7)
    x.stack.append((2, 8))
    x.frozen.clear()
    x.flow[SLOTS["reg0"]] = 9
    assert (state.bridge, state.table, state.stack) == ("br0", 7, ((1, 8),))
    assert (state.actions, state.flow.reg0) == (actions("output:2"), 0)
    assert state.conntracked


def test_freezing_stops_here_and_is_forgotten_whole():
    x = context()
    x.freeze(hash_by=(1, 7), group=3)
    x.pause, x.frozen = ToController(), list(actions("output:2"))
    assert (x.exit, x.freezing, x.hash, x.hash_group) == (True, True, (1, 7), 3)
    x.cancel_freeze()
    assert (x.freezing, x.hash, x.pause, x.frozen) == (False, None, None, [])


def test_numbers_are_taken_once():
    numbers = Numbers()
    assert [numbers.take() for _ in range(3)] == [1, 2, 3]


def test_features_are_those_of_the_bridge_s_datapath():
    assert context(features=Features(clone=False)).features.clone is False
    assert context().features.clone is True
