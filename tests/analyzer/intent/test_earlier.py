# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.earlier import MOST_HOSTS, SETTLED_S, Earlier, state_of
from tests.analyzer.intent.recorded import selected

FLOWS = {1: 0xA, 2: 0xA, 3: 0xB}
LESS = {1: 0xA, 3: 0xB}


def settled(flows=FLOWS, host="h1"):
    made = Earlier()
    for now_s in (0.0, SETTLED_S):
        assert made.gone(host, "rows", flows, now_s) == {}
    return made


def test_what_is_gone_since_is_told_as_long_as_it_is_gone():
    made = settled()
    for _ in range(2):
        assert made.gone("h1", "rows", LESS, 99.0) == {0xA: (2, 1)}
    assert made.gone("h1", "rows", FLOWS, 99.0) == {}
    assert made.gone("h1", "rows", {1: 0xA, 2: 0xA}, 99.0) == {0xB: (1, 0)}


def test_it_is_said_whether_anything_would_be_told():
    assert settled().remembers("h1")
    assert not settled().remembers("h2")


@pytest.mark.parametrize(
    ("state", "flows"),
    [("others", LESS), ("rows", LESS | {4: 0xA}), ("rows", {1: 0xA, 2: 0xB, 3: 0xB})],
    ids=["other rows", "new ones as well", "of another cookie"],
)
def test_what_has_another_reason_is_not_missing(state, flows):
    assert settled().gone("h1", state, flows, 99.0) == {}


def test_what_was_seen_for_less_than_half_a_minute_may_have_been_on_its_way():
    made = Earlier()
    for now_s in (0.0, SETTLED_S - 1):
        made.gone("h1", "rows", FLOWS, now_s)
    assert made.gone("h1", "rows", LESS, SETTLED_S) == {}


def test_those_looked_at_last_are_remembered():
    made = settled()
    for number in range(MOST_HOSTS):
        made.gone(f"g{number}", "rows", FLOWS, 0.0)
    assert made.gone("h1", "rows", LESS, 99.0) == {}


@given(st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9)))
def test_only_where_nothing_is_new_something_is_gone(before, after):
    made = settled(dict.fromkeys(before, 7))
    found = made.gone("h1", "rows", dict.fromkeys(after, 7), 99.0)
    assert found == ({7: (len(before), len(after))} if after < before else {})


def test_rows_that_change_are_another_state():
    every, host = selected(), selected().host("h1")
    state = state_of(every, host)
    assert state_of(dataclasses.replace(every, flows=every.flows[::-1]), host) == state
    for changed in (
        {"flows": every.flows[1:]},
        {"addresses": {"as": frozenset({"10.0.0.1"})}},
        {"groups": {}},
        {"bindings": tuple(dataclasses.replace(b, chassis="h3") for b in every.bindings)},
    ):
        assert state_of(dataclasses.replace(every, **changed), host) != state
