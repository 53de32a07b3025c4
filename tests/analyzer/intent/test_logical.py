# SPDX-License-Identifier: Apache-2.0
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.logical import Bound, Host, LogicalFlow, cookie_of, difference, host_of
from analyzer.intent.matches import Can, Local, can_hold
from netagent.model.errors import RemoteProtocolError
from tests.analyzer.intent.recorded import HOSTS, installed, selected, tables


def compared(host, flows):
    every = selected()
    return difference(every.flows, every.host(host), flows, every.others)


@pytest.mark.parametrize("host", HOSTS)
def test_a_healthy_host_has_all_that_belongs_there_and_nothing_else(host):
    found = compared(host, installed(host))
    assert (found.missing, found.stale, found.unclear) == ((), (), ())
    assert found.compared > 300


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_said_not_to_belong_on_a_host_is_not_there(host):
    here, flows = selected().host(host), {cookie for cookie, _ in installed(host)}
    absent = [
        flow
        for flow in selected().flows
        if not flow.datapaths & here.datapaths.keys()
        or can_hold(flow.match, flow.pipeline, here.local) is Can.NEVER
    ]
    assert absent
    assert [flow for flow in absent if flow.cookie in flows] == []


@pytest.mark.parametrize("host", HOSTS)
def test_each_flow_that_is_gone_is_named(host):
    flows, datapaths = installed(host), selected().host(host).datapaths
    names = {key: name for name, key in datapaths.items()}
    logical = {flow.cookie for flow in selected().flows}
    stages = set()
    for gone in flows:
        if gone[0] not in logical:
            continue
        found = compared(host, {c: n for c, n in flows.items() if c != gone})
        assert [(each.cookie, *each.datapaths) for each in found.missing] == [
            (gone[0], names[gone[1]])
        ]
        stages.add(found.missing[0].stage)
    assert len(stages) > 40


@given(st.sets(st.integers(1, 2**32 - 1), min_size=1, max_size=3))
def test_flows_of_no_row_are_stale(cookies):
    every = selected()
    strange = cookies - {flow.cookie for flow in every.flows} - every.others
    found = compared("h1", installed("h1") + Counter((cookie, 1) for cookie in strange))
    assert set(found.stale) == strange
    assert found.missing == ()


NETWORKS = {"a": 1, "b": 2, "c": 3}
HERE = Host(Local(ports=frozenset({"p", "q"}), resident=frozenset({"p"})), {"a": 1, "b": 2})
MATCHES = {
    "ip4": True,
    'inport == "p" && ip4': True,
    'inport == "x"': False,
    'inport == {"x", "q"}': True,
    'is_chassis_resident("p") && arp': True,
    '!is_chassis_resident("p")': False,
    '1 && !is_chassis_resident("x")': True,
    'outport == "x"': True,
}
"""Matches in the ingress pipeline, and whether they can hold on `HERE`."""
rows = st.builds(
    lambda number, match, datapaths: LogicalFlow(
        f"{number:08x}-1", "ingress", 1, 0, match, "next;", frozenset(datapaths)
    ),
    st.integers(1, 12),
    st.sampled_from(sorted(MATCHES)),
    st.sets(st.sampled_from(sorted(NETWORKS)), min_size=1),
)


@given(
    st.lists(rows, max_size=12, unique_by=lambda row: row.uuid),
    st.sets(st.tuples(st.integers(0, 15), st.integers(1, 2))),
    st.sets(st.integers(10, 15)),
)
def test_the_difference_is_what_naive_sets_say(flows, there, others):
    asked_for = {(f.cookie, NETWORKS[d]) for f in flows for d in f.datapaths if d != "c"}
    barred = {f.cookie for f in flows if not MATCHES[f.match]}
    known = {f.cookie for f in flows} | others | {0}
    found = difference(flows, HERE, Counter(there), others)
    missing = {(f.cookie, NETWORKS[d]) for f in found.missing for d in f.datapaths}
    assert missing == {(c, n) for c, n in asked_for - there if c not in barred}
    assert set(found.stale) == {cookie for cookie, _ in there} - known


def test_a_match_that_nobody_can_read_accuses_nobody():
    here = selected().host("h1")
    odd = LogicalFlow(
        "12345678-0", "ingress", 1, 0, "ip4 &&", "next;", datapaths=frozenset(here.datapaths)
    )
    found = difference([odd], here, {})
    assert (found.missing, found.unclear, found.compared) == ((), (odd,), 0)


def test_a_host_has_what_its_ports_reach_through_routers():
    bindings = [
        Bound("a", "rail0", chassis="h1"),
        Bound("rail0-lr", "rail0", "patch", peer="lr-rail0"),
        Bound("lr-rail0", "lr", "patch", peer="rail0-lr"),
        Bound("b", "alone", chassis="h2"),
        Bound("ln", "alone", "localnet"),
    ]
    keys = {"rail0": 1, "lr": 2, "alone": 3}
    here = host_of("h1", bindings, keys=keys, groups={"7_g": frozenset({"a"})}, empty=frozenset())
    assert here.datapaths == {"rail0": 1, "lr": 2}
    assert here.local.ports == {"a", "rail0-lr", "lr-rail0"}
    assert here.local.groups == {"g": {"a"}}
    there = host_of("h2", bindings, keys=keys, groups={}, empty=frozenset())
    assert (there.datapaths, there.local.ports) == ({"alone": 3}, {"b", "ln"})
    nowhere = host_of("", bindings, keys=keys, groups={}, empty=frozenset())
    assert nowhere.datapaths == {}


def test_what_a_cookie_stands_for_is_said():
    explainer = selected().explainer()
    blocked = next(f for f in selected().flows if f.stage == "ls_out_acl" and "4790" in f.match)
    assert "for ACL quarantine" in explainer.explain(blocked.cookie)
    port = next(c for c, text in explainer.rows.items() if text == "port p1-0")
    assert explainer.explain(port) == "made for port p1-0"
    assert explainer.explain(0) == "fixed part of the pipeline"
    assert explainer.explain(0xDEAD) == "no row stands for it"


@pytest.mark.parametrize("host", HOSTS)
def test_each_table_holds_the_flows_of_one_logical_table(host):
    explainer = selected().explainer()
    places = {
        table: {explainer.place_of([cookie]) for cookie in cookies} - {None}
        for table, cookies in tables(host).items()
    }
    found = [next(iter(of)) for of in places.values() if of]
    assert all(len(of) <= 1 for of in places.values())
    assert len(set(found)) == len(found) > 30
    assert explainer.place_of([0]) is None


def test_what_is_no_identity_is_refused():
    with pytest.raises(RemoteProtocolError):
        cookie_of("nothing")


@pytest.mark.parametrize(
    ("stage", "actions", "hint", "refuses"),
    [
        ("ls_out_acl", "/* drop */", "4790", True),
        ("ls_in_acl", "reg0 = 0; reject { outport <-> inport; next(table=5); };", "4790", True),
        ("ls_out_acl", 'reg0[1] = 1; log(name="x", verdict=allow); next;', "4790", False),
        ("ls_out_acl", "/* drop */", "", False),
        ("ls_in_l2_lkup", "drop;", "4790", False),
    ],
)
def test_an_acl_refuses_what_it_does_not_let_on(stage, actions, hint, refuses):
    flow = LogicalFlow("0", "egress", 4, 1, "ip4", actions, stage=stage, hint=hint)
    assert flow.refuses is refuses
