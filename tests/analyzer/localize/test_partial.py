# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.flows import Flows, FlowView
from analyzer.localize.case import Case, Explained, pair_of, pairs_quoted
from analyzer.localize.partial import MOST_PORTS, divided, is_some, mask_of, told
from analyzer.localize.sentences import sentences
from analyzer.localize.topology import LearnedTopology
from analyzer.simulate.fabric import Fabric
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import switch
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Symptom, Verdict
from netagent.model.window import Window

SPINE = switch("spine-0")
RANDOM_PORTS = Random(7).sample(range(32768, 61000), 24)


def view(port, sent, lost, *, source="a", target="b", large=0):
    flow = FlowId(EndpointId(source, 0), EndpointId(target, 0), port)
    return FlowView(flow, sent, lost, 0, sent // 3, large, 0, 0)


def verdict(flows, component=SPINE, evidence=(), symptom=Symptom.LOSS):
    layer = component.layer if component else None
    failing = pairs_quoted(v for v in flows if v.lost)
    return Verdict(component, layer, symptom, 0.9, "loses", failing=failing, evidence=evidence)


def case_of(flows, mtu=1450, **fields):
    ends = {end for v in flows for end in pair_of(v.flow)}
    endpoints = {
        end: Endpoint(end, "t", f"h-{end.container}", "", "", "", "rnic0", "", "", mtu, **fields)
        for end in ends
    }
    return Case(Window(0, 5), endpoints, Flows.of(flows))


def said(flows, topology=None, case=None, **fields):
    topology = topology or LearnedTopology(DeclaredTopology())
    found = Explained(verdict(flows, **fields), tuple(v for v in flows if v.lost))
    return told(found, case or case_of(flows), topology).verdict.evidence


def only(evidence):
    (found,) = evidence
    assert found.kind is EvidenceKind.SOME_PORTS
    return found.values


def test_one_way_of_several_is_told_by_the_flows_that_cross_it():
    fabric = Fabric(seed=3, loss={SPINE: 0.7}, probes=12)
    topology, case = fabric.topology(), fabric.case()
    lossy = [v for v in case.flows if v.lost]
    found = told(Explained(verdict(lossy), tuple(lossy)), case, topology)
    values = only(found.verdict.evidence)
    assert values["component"] == "switch spine-0"
    (line,) = sentences(found.verdict.evidence)
    assert line.startswith("only some UDP source ports: ")
    assert line.endswith("; those that lose are just those that cross switch spine-0")


def test_a_leaf_that_loses_for_all_flows_of_a_pair_is_not_told_as_a_part():
    for seed in range(20):
        fabric = Fabric(seed=seed, loss={switch("leaf-s0-r0"): 0.1}, probes=12)
        case = fabric.case()
        lossy = [v for v in case.flows if v.lost]
        found = Explained(verdict(lossy, switch("leaf-s0-r0")), tuple(lossy))
        assert told(found, case, fabric.topology()).verdict.evidence == ()


def test_ports_that_a_mask_tells_are_told_by_it():
    ports = Random(8).sample(range(32768, 61000), 48)
    flows = [view(port, 12, 9 * (port & 3 == 1)) for port in ports]
    values = only(said(flows, component=None))
    assert (values["mask"], values["value"], values["component"]) == (3, 1, "")
    assert sentences(said(flows))[0].endswith("just the ports with port & 0x3 = 0x1")


def test_ports_that_nothing_tells_are_told_without_a_mask():
    random = Random(2)
    for _ in range(50):
        chosen = set(random.sample(RANDOM_PORTS, 6))
        flows = [view(port, 12, 9 * (port in chosen)) for port in RANDOM_PORTS]
        assert only(said(flows))["mask"] == 0


def test_so_few_ports_that_any_mask_fits_are_told_without_one():
    assert mask_of({40001, 40003}, {40000, 40002}) == (0, 0)
    assert mask_of({1}, {1, 2}) == mask_of(set(), {1}) == (0, 0)
    assert mask_of(set(range(0, MOST_PORTS, 2)), set(range(1, MOST_PORTS, 2))) == (1, 0)
    assert mask_of(set(range(0, MOST_PORTS + 2, 2)), set(range(1, MOST_PORTS, 2))) == (0, 0)


@given(st.randoms(use_true_random=False), st.floats(0.002, 0.9), st.integers(4, 40))
def test_losses_that_hit_all_flows_alike_are_no_part(random, rate, probes):
    flows = [
        view(port, probes, sum(random.random() < rate for _ in range(probes)))
        for port in RANDOM_PORTS
    ]
    assert not is_some(*divided(flows))


def test_a_part_needs_two_flows_of_each_kind_of_one_pair():
    assert said([view(1, 40, 40), *(view(n, 40, 0) for n in range(2, 30))]) == ()
    others = [view(n, 40, 0, target="c") for n in range(9)]
    assert said([*(view(n, 40, 30) for n in range(9)), *others]) == ()


def test_of_slowness_and_silence_no_part_is_told():
    flows = [view(port, 12, 9 * (port & 3 == 1)) for port in RANDOM_PORTS]
    for symptom in (Symptom.LATENCY, Symptom.SILENCE):
        assert said(flows, symptom=symptom) == ()


LARGE_ONLY = Evidence(EvidenceKind.LARGE_ONLY)


def test_what_only_the_largest_lose_is_told_with_its_size():
    flows = [view(n, 12, 4, large=4) for n in range(5)]
    (found,) = said(flows, evidence=(LARGE_ONLY,), case=case_of(flows, 8942))
    (line,) = sentences([found])
    assert line.startswith("from 8942 bytes on: 20 of 20 probes of that size are lost, none of 40")


@pytest.mark.parametrize("why", ["small", "rdma", "unknown"])
def test_a_size_that_is_not_known_or_not_borne_out_is_not_told(why):
    flows = [view(n, 12, 4, large=4 - (why == "small")) for n in range(5)]
    rdma = RdmaAddress("mlx5_0", "::1", (1,), 1, 4096) if why == "rdma" else None
    case = case_of(flows, rdma=rdma)
    if why == "unknown":
        case = replace(case, endpoints={})
    (found,) = said(flows, evidence=(LARGE_ONLY,), case=case)
    assert found == LARGE_ONLY
    assert sentences([found]) == [
        "smaller probes on the same paths are all answered: an MTU or a size filter"
    ]


flow_views = st.builds(
    lambda port, sent, lost, large, target: FlowView(
        FlowId(EndpointId("a", 0), EndpointId(target, 0), port),
        sent, min(lost, sent), 0, sent, min(large, lost, sent), 0, 0,
    ),
    st.integers(0, 63), st.integers(1, 20), st.sampled_from([0, 0, 0, 7, 20]), st.integers(0, 20),
    st.sampled_from("bc"),
)  # fmt: skip


@given(st.lists(flow_views, min_size=1, max_size=60, unique_by=lambda v: v.flow))
def test_no_evidence_contradicts_what_was_counted(flows):
    failing = {pair_of(v.flow) for v in flows if v.lost}
    for evidence in said(flows, evidence=(LARGE_ONLY,)):
        values = evidence.values
        if evidence.kind is EvidenceKind.LARGE_ONLY and values:
            lossy = [v for v in flows if v.lost]
            assert all(v.lost == v.lost_large for v in lossy)
            assert values["lost"] == sum(v.lost for v in lossy) <= values["sent"]
        if evidence.kind is not EvidenceKind.SOME_PORTS:
            continue
        mine = [v for v in flows if pair_of(v.flow) in failing]
        split = {pair_of(v.flow) for v in mine if not v.lost}
        lossy = [v for v in mine if v.lost and pair_of(v.flow) in split]
        clean = [v for v in mine if not v.lost]
        assert (values["flows"], values["clean"]) == (len(lossy), len(clean))
        assert values["pairs"] == len({pair_of(v.flow) for v in lossy})
        assert values["lost"] == sum(v.lost for v in lossy) <= values["sent"]
        assert values["clean_sent"] == sum(v.sent for v in clean)
        if values["mask"]:
            for v in (*lossy, *clean):
                is_told = v.flow.source_port & values["mask"] == values["value"]
                assert is_told is bool(v.lost)
