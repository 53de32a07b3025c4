# SPDX-License-Identifier: Apache-2.0
import dataclasses

from msgspec.structs import replace

from analyzer.controllers import difference as room
from analyzer.controllers.difference import differences
from analyzer.controllers.messages import AskDifference
from analyzer.intent.earlier import SETTLED_S, Earlier
from tests.analyzer.intent.recorded import selected, told

PORT = next(each for each in selected().bindings if each.port == "p1-0")
KINDS = {each.port: "10" for each in selected().bindings if each.chassis == "h1"}


def flow_of(stage, match):
    return next(f for f in selected().flows if f.stage == stage and match in f.match)


def asked(*more, without=()):
    flows = [
        (table, cookie, metadata)
        for cookie, table, metadata in told()["hosts"]["h1"]
        if cookie not in without and (cookie, table) not in without
    ]
    return AskDifference(
        query=7, chassis="h1", installed=(*flows, *more), kinds=KINDS, moving=("p9-0",)
    )


def told_of(rows, question, earlier=None, now_s=0.0):
    return differences(rows, question, earlier or Earlier(), now_s)


def test_a_healthy_host_differs_in_nothing():
    found = told_of(selected(), asked())
    assert (found.query, found.missing, found.ports, found.stale, found.unclear) == (
        7, (), (), (), (),
    )  # fmt: skip
    assert found.compared > 300
    assert (found.compared_ports > 10, found.several > 10, found.alone > 0, found.more) == (
        True, True, True, 0,
    )  # fmt: skip


def test_a_missing_flow_is_told_with_its_table_and_what_it_was_made_for():
    gone = flow_of("ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:03")
    (missing,) = told_of(selected(), asked(without=(gone.cookie,))).missing
    assert (missing.cookie, missing.stage, missing.match) == (gone.cookie, gone.stage, gone.match)
    assert (missing.table, missing.owner, missing.networks) == (33, "port p3-0", ("rail0",))


def test_what_is_made_for_no_object_is_its_networks():
    gone = next(f for f in selected().flows if not f.hint and f.datapaths == {"lr0"})
    (missing,) = told_of(selected(), asked(without=(gone.cookie,))).missing
    assert missing.owner == "logical router lr0"


def test_a_port_and_flows_of_no_row_are_told():
    found = told_of(selected(), asked((8, 0xDEAD, 1), (9, 0xDEAD, 2), without=((PORT.cookie, 65),)))
    (port,) = found.ports
    assert (port.port, port.tables, port.is_here) == ("p1-0", (65,), True)
    (stale,) = found.stale
    assert (stale.cookie, stale.tables, stale.flows) == (0xDEAD, (8, 9), 2)


def test_a_match_that_nobody_can_read_is_told_as_such():
    odd = flow_of("ls_in_l2_lkup", "eth.dst == 02:00:00:00:00:03")
    flows = tuple(
        dataclasses.replace(each, match="ip4 &&") if each is odd else each
        for each in selected().flows
    )
    rows = dataclasses.replace(selected(), flows=flows)
    found = told_of(rows, asked(without=(odd.cookie,)))
    assert [(each.cookie, each.match) for each in found.unclear] == [(odd.cookie, "ip4 &&")]
    assert found.missing == ()


def test_more_than_anybody_reads_is_counted(monkeypatch):
    monkeypatch.setattr(room, "MOST_DIFFERENT", 3)
    every = {each.cookie for each in selected().flows}
    found = told_of(selected(), asked((8, 1, 1), without=every))
    assert (len(found.missing), len(found.stale)) == (3, 1)
    assert found.more > 300


def test_fewer_flows_than_before_are_told_where_the_rows_are_the_same():
    whole, earlier = asked(), Earlier()
    keyed = replace(whole, keys=tuple(range(1, len(whole.installed) + 1)))
    for now_s in (0.0, SETTLED_S):
        found = told_of(selected(), keyed, earlier, now_s)
        assert (found.fewer, found.is_remembered) == ((), now_s == SETTLED_S)
    several = flow_of("ls_in_acl", "reg0[8] == 1 && (ip4.src == $as1)").cookie
    at = [n for n, (_, cookie, _) in enumerate(keyed.installed) if cookie == several]
    less = replace(
        keyed,
        installed=keyed.installed[: at[0]] + keyed.installed[at[0] + 1 :],
        keys=keyed.keys[: at[0]] + keyed.keys[at[0] + 1 :],
    )
    found = told_of(selected(), less, earlier, SETTLED_S)
    (fewer,) = found.fewer
    assert (fewer.cookie, fewer.had, fewer.has) == (several, len(at), len(at) - 1)
    assert (fewer.owner, found.missing) == ("ACL fromset", ())
    others = dataclasses.replace(selected(), addresses={"as": frozenset({"10.0.0.1"})})
    assert told_of(others, less, earlier, SETTLED_S).fewer == ()
