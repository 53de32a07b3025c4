# SPDX-License-Identifier: Apache-2.0
"""Which pairs are walked, and what follows; whole walks are in `test_walks`."""

from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.overlay import (
    MAX_PAIRS,
    PAIRS_PER_GROUP,
    SIBLINGS,
    UNTOLD,
    UNTOLD_CONFIDENCE,
    choose,
    explain,
    siblings,
)
from netagent.model.ids import FlowId
from netagent.model.path import controller, flow_table, tunnel
from ovs_checks.walk.reach import Reach
from tests.analyzer.cluster import endpoint

HOSTS = tuple(f"h{n}" for n in range(9))
MADE = [endpoint(host, f"{host}c{n}", rail) for host in HOSTS for n in (0, 1) for rail in (0, 1)]
ENDPOINTS = {one.id: one for one in MADE}
IDS = sorted(ENDPOINTS)
pairs = st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)).filter(lambda p: p[0] != p[1])


def view(source, target, lost, port=1, run=0):
    return FlowView(FlowId(source, target, port), 9, lost, 0, 0, 0, run, 0)


def group(a, b):
    return frozenset((ENDPOINTS[a].host, ENDPOINTS[b].host)), a.rail


@given(st.sets(pairs, max_size=60))
def test_both_ways_of_a_few_pairs_of_each_pair_of_hosts_are_walked(failing):
    chosen = choose(failing, ENDPOINTS)
    assert len(chosen) == len(set(chosen)) <= 2 * MAX_PAIRS
    assert {(b, a) for a, b in chosen} == set(chosen)
    assert set(chosen) <= failing | {(b, a) for a, b in failing}
    walked = [group(*pair) for pair in chosen[::2]]
    assert all(walked.count(one) <= PAIRS_PER_GROUP for one in walked)
    if len(chosen) < 2 * MAX_PAIRS:
        assert set(walked) == {group(min(pair), max(pair)) for pair in failing}


FEW = st.builds(view, st.sampled_from(IDS[:3]), st.sampled_from(IDS[:9]), st.integers(0, 1))


@given(st.lists(FEW, max_size=40))
def test_siblings_are_healthy_ways_of_the_same_sources_and_few(flows):
    sources = set(IDS[:2])
    found = siblings([(source, IDS[-1]) for source in sources], Flows.of(flows))
    healthy = {(v.flow.source, v.flow.target) for v in flows if not v.lost}
    assert len(found) == len(set(found))
    assert set(found) <= healthy
    for source in sources:
        mine = [pair for pair in found if pair[0] == source]
        assert len(mine) == min(SIBLINGS, len({p for p in healthy if p[0] == source}))


A, B, C = IDS[0:9:4]
TABLE = flow_table("h0", "br-int", 40)


def test_pairs_stopped_by_one_entry_are_one_verdict_with_all_flows_of_their_hosts():
    reaches = {(A, B): Reach("missed", TABLE, "no flow"), (B, A): Reach("delivered", None, "ok")}
    failing = [view(A, B, 9), view(B, A, 9, port=2), view(A, C, 9)]
    (explained,), missing = explain(reaches, failing, ENDPOINTS)
    assert explained.verdict.component == TABLE
    assert explained.verdict.summary == "missed: no flow"
    assert list(explained.flows) == failing[:2]
    assert missing == []


def test_an_entry_that_a_controller_may_want_is_no_fact():
    reaches = {(A, B): Reach("dropped", TABLE, "drop"), (B, A): Reach("delivered", None, "ok")}
    (explained,), _ = explain(reaches, [view(A, B, 9)], ENDPOINTS, {(A, B)})
    assert (explained.verdict.component, explained.verdict.confidence) == (TABLE, UNTOLD_CONFIDENCE)
    assert explained.verdict.missing == (UNTOLD,)
    port = controller("port p")
    (explained,), _ = explain({(A, B): Reach("dropped", port, "no flow")}, [], ENDPOINTS, {(A, B)})
    assert (explained.verdict.confidence, explained.verdict.missing) == (0.99, ())


def test_a_tunnel_explains_all_flows_of_its_rnic_that_are_dying():
    """It broke as the window ended: some of the pairs that it carries are not dead yet."""
    here = [e for e in IDS if ENDPOINTS[e].host == ENDPOINTS[A].host]
    (beside,) = (e for e in here if e.rail == A.rail and e != A)
    other_rail = next(e for e in here if e.rail != A.rail)
    far = [e for e in IDS if ENDPOINTS[e].host == ENDPOINTS[C].host]
    dying = [view(beside, C, 2, run=2), view(C, A, 1, run=1)]
    others = [
        view(beside, C, 2, port=2),
        view(other_rail, next(e for e in far if e.rail == other_rail.rail), 2, run=2),
        view(C, B, 1, run=1),
    ]
    end = tunnel(ENDPOINTS[A].host, "vxlan0")
    reaches = {(A, B): Reach("delivered", None, "ok"), (B, A): Reach("missed", end, "no port")}
    (explained,), _ = explain(reaches, [view(A, B, 9), *dying, *others], ENDPOINTS)
    assert list(explained.flows) == [view(A, B, 9), *dying]


def test_a_host_without_a_record_explains_all_its_flows_that_are_dying():
    end = controller(ENDPOINTS[A].host)
    here = [e for e in IDS if ENDPOINTS[e].host == ENDPOINTS[A].host]
    dying = [view(each, C, 2, run=2) for each in here]
    others = [view(here[0], C, 2, port=2), view(C, B, 1, run=1)]
    reaches = {(A, B): Reach("dropped", end, "no record")}
    (explained,), _ = explain(reaches, [view(A, B, 9), *dying, *others], ENDPOINTS)
    assert list(explained.flows) == [view(A, B, 9), *dying]


def test_what_a_walk_cannot_tell_is_missing_and_blames_nobody():
    explained, missing = explain({(A, B): Reach("cannot_tell", TABLE, "a hash")}, [], ENDPOINTS)
    assert explained == []
    assert missing == [f"overlay walk {A} -> {B}: a hash"]
