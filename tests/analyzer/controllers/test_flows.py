# SPDX-License-Identifier: Apache-2.0
"""Logical flows on demand, of a southbound database that is one."""

import pytest

from analyzer.controllers import flows, selecting
from analyzer.controllers.flows import find, read_flows
from analyzer.controllers.messages import MOST_FLOWS, AskFlows
from netagent.model.errors import Unreachable
from tests.analyzer.controllers.central import OVSDB, SB, Central, insert, named
from tests.conftest import require


def flow(number, **row):
    return insert(
        "Logical_Flow", pipeline="ingress", table_id=number, priority=50,
        match=f'inport == "p{number}" && {{x}}', actions="next;",
        external_ids={"stage-name": "ls_in_l2_lkup", "stage-hint": "af7ee434"}, **row,
    )  # fmt: skip


@pytest.fixture
def central(tmp_path):
    """Two networks with a flow of their own each, and one that they share."""
    require(OVSDB)
    made = Central(tmp_path)
    made.start()
    made.transact(
        SB,
        insert("Datapath_Binding", "a", tunnel_key=1),
        insert("Datapath_Binding", "b", tunnel_key=2),
        insert("Logical_DP_Group", "both", datapaths=(named("a"), named("b"))),
        flow(1, logical_datapath=named("a")),
        flow(2, logical_datapath=named("b")),
        flow(3, logical_dp_group=named("both")),
    )
    yield made
    made.kill()


def tables(answer):
    return [each.table for each in answer.flows]


def test_a_datapaths_flows_are_its_own_and_those_that_it_shares(central):
    remotes = [central.remote]
    assert sorted(tables(read_flows(remotes, AskFlows(query=1, datapath=2)))) == [2, 3]
    assert tables(read_flows(remotes, AskFlows(query=1, datapath=7))) == []
    every = read_flows(remotes, AskFlows(query=9))
    assert (sorted(tables(every)), every.more, every.query) == ([1, 2, 3], 0, 9)
    assert {(each.stage, each.hint) for each in every.flows} == {("ls_in_l2_lkup", "af7ee434")}


def test_a_flow_is_found_by_the_first_digits_of_its_uuid(central):
    remotes = [central.remote]
    known = read_flows(remotes, AskFlows(query=1)).flows
    wanted = known[1]
    asked = AskFlows(query=1, prefixes=(wanted.uuid[:8].upper(), "no such"))
    assert read_flows(remotes, asked).flows == (wanted,)
    for number in (1, 2):
        found = read_flows(remotes, AskFlows(query=1, prefixes=asked.prefixes, datapath=number))
        assert found.flows == ((wanted,) if wanted.table in {number, 3} else ())


def test_an_answer_is_bounded_and_says_how_many_more_there_are(central, monkeypatch):
    found = read_flows([central.remote], AskFlows(query=1, most=2))
    assert (len(found.flows), found.more) == (2, 1)
    monkeypatch.setattr(flows, "MOST_TEXT", len('inport == "p1" && {x}next;') + 1)
    found = read_flows([central.remote], AskFlows(query=1))
    assert (len(found.flows), found.more) == (1, 2)
    monkeypatch.setattr(selecting, "MOST_BYTES", 10)
    with pytest.raises(Unreachable, match="too much"):
        read_flows([central.remote], AskFlows(query=1))


def test_more_flows_than_are_told_at_once_are_not_asked_for():
    asked = []

    def select(*operations):
        asked.extend(operations)
        one = operations[0]["columns"] == ["_uuid"]
        many = [{"_uuid": ["uuid", f"{number:08d}"]} for number in range(MOST_FLOWS + 5)]
        return [many] if one else [[] for _ in operations]

    answer = find(select, AskFlows(query=1, most=1 << 40))
    assert len(asked) == 1 + MOST_FLOWS
    assert answer.flows == ()  # all of them went meanwhile
    assert all(each["op"] == "select" for each in asked)


def test_the_next_member_is_asked_where_one_does_not_answer(central, tmp_path):
    remotes = [f"unix:{tmp_path / 'nobody'}", central.remote]
    assert len(read_flows(remotes, AskFlows(query=1)).flows) == 3
    with pytest.raises(Unreachable):
        read_flows(remotes[:1], AskFlows(query=1))
