# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict

import pytest

from analyzer.intent.bindings import FEWEST, Lacking, held
from analyzer.intent.logical import Bound, Host
from analyzer.intent.matches import Local
from tests.analyzer.intent.recorded import HOSTS, selected, told

HERE = Host(Local(), {"net": 1})


def tables_of(host, without=None):
    found = defaultdict(set)
    for cookie, table, _ in told()["hosts"][host]:
        if (cookie, table) != without:
            found[cookie].add(table)
    return found


def recorded(host, without=None):
    kinds = {each.port: "10" for each in selected().bindings if each.chassis == host}
    every = selected()
    return held(every.bindings, every.host(host), host, tables_of(host, without), kinds)


def ports(count, *, chassis="h1", kind="", datapath="net"):
    return [Bound(f"p{n}", datapath, kind, chassis, cookie=n + 1) for n in range(count)]


@pytest.mark.parametrize("host", HOSTS)
def test_ports_of_a_healthy_host_lack_nothing(host):
    found = recorded(host)
    assert found.lacking == ()
    assert found.compared > 10


@pytest.mark.parametrize("host", HOSTS)
def test_whose_flows_are_gone_from_a_table_is_named(host):
    alone, named = recorded(host).alone, 0
    for each in selected().bindings:
        for table in tables_of(host)[each.cookie]:
            found = recorded(host, without=(each.cookie, table)).lacking
            said = [(one.port, one.tables) for one in found]
            assert said == ([] if each.port in alone else [(each.port, (table,))])
            named += bool(said)
    assert named > 30


@pytest.mark.parametrize("count", [FEWEST - 1, FEWEST])
def test_of_two_nobody_knows_which_is_odd(count):
    there = {each.cookie: {65} for each in ports(count)[1:]}
    found = held(ports(count), HERE, "h9", there, {})
    lacking = (Lacking("p0", 1, (65,), is_here=False),)
    assert found.lacking == (() if count < FEWEST else lacking)
    assert len(found.alone) == (count if count < FEWEST else 0)


def test_what_most_have_not_is_nothing_that_anybody_lacks():
    found = held(
        ports(4),
        HERE,
        "h1",
        {1: {5, 6}, 2: {5, 6}, 3: {5}},
        dict.fromkeys(["p0", "p1", "p2", "p3"], ""),
    )
    assert [(each.port, each.tables, each.is_here) for each in found.lacking] == [
        ("p3", (5,), True)
    ]


@pytest.mark.parametrize(
    ("bindings", "known"),
    [
        (ports(4), {"kinds": {}}),
        (ports(4, kind="localnet"), {}),
        (ports(4), {"moving": {"p0", "p1"}}),
        (ports(4, chassis=""), {}),
        (ports(4, datapath="elsewhere"), {}),
    ],
    ids=["of other kinds, who knows", "of a rare kind", "moving", "nowhere", "not on the host"],
)
def test_of_what_nothing_is_known_nobody_is_accused(bindings, known):
    there = {each.cookie: {65} for each in bindings[1:]}
    kinds = {each.port: "" for each in bindings}
    assert held(bindings, HERE, "h1", there, **({"kinds": kinds} | known)).lacking == ()


def test_ports_with_and_without_port_security_are_not_held_against_each_other():
    there = {n: {0, 73} if n < 4 else {0} for n in range(1, 7)}
    kinds = {f"p{n}": "10" if n < 3 else "" for n in range(6)}
    found = held(ports(6), HERE, "h1", there, kinds)
    assert (found.lacking, found.compared) == ((), 6)
