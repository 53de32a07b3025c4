# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize.claims import MOST_FINDINGS, differences, own_findings
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind
from netagent.model.topology import DeclaredTopology, Uplink
from netagent.wire.messages import Summary


def stated(*components):
    findings = tuple(
        Finding(FindingKind.RNIC_DOWN, Component.parse(c), "text", 1) for c in components
    )
    return Summary(host="h0", instance="i", start_ns=0, width_ns=5, findings=findings)


def test_a_host_is_believed_about_its_own_parts_only():
    summary = stated(
        "rnic h0/rnic0", "rnic h1/rnic0", "vswitch h0", "vswitch h00", "host h1",
        "container mine", "container others", "endpoint mine/rail1", "endpoint others/rail1",
        "flow h0/br-int/table=3", "switch spine-0",
    )  # fmt: skip
    kept = [str(f.component) for f in own_findings(summary, {"mine"})]
    assert kept == [
        "rnic h0/rnic0", "vswitch h0", "container mine", "endpoint mine/rail1",
        "flow h0/br-int/table=3",
    ]  # fmt: skip


A, B = EndpointId("a", 0), EndpointId("b", 0)
ENDPOINTS = [
    Endpoint(key, "t", host, "", "", underlay, "rnic0", "br-int", "p")
    for key, host, underlay in ((A, "h0", "172.30.0.1"), (B, "h1", "172.30.0.2"))
]


def learned(declared):
    topology = LearnedTopology(declared)
    flow, underlay = FlowId(A, B, 1), {e.id: e.underlay for e in ENDPOINTS}
    rows = [PathRow(flow, False, 1, ("L0", "S0", "L1")), PathRow(flow, True, 1, ("L1", "S0", "L0"))]
    for _ in range(2):
        topology.learn(PathTable.of(rows), underlay.get)
    return topology


def test_a_fabric_as_declared_has_no_findings():
    declared = DeclaredTopology(
        {}, frozenset({("L0", "S0"), ("L1", "S0")}), (Uplink("h0", "rnic0", "L0"),)
    )
    assert differences(learned(declared), ENDPOINTS) == []
    assert learned(declared).unseen_links() == set()


def test_an_undeclared_link_and_a_port_on_another_leaf_are_told():
    declared = DeclaredTopology(
        {}, frozenset({("L0", "S0"), ("L9", "S0")}), (Uplink("h0", "rnic0", "L7"),)
    )
    found = {str(f.component): f.text for f in differences(learned(declared), ENDPOINTS)}
    assert set(found) == {"link L1 -- S0", "rnic h0/rnic0"}
    assert "cabled to L0" in found["rnic h0/rnic0"]
    assert learned(declared).unseen_links() == {("L9", "S0")}


@pytest.mark.parametrize(("kind", "name", "text", "evidence"), [
    (Kind.LINK, "h0/a -- spine-1", "flaps", {}),
    (Kind.RNIC, "h0/" + "r" * 200, "down", {}),
    (Kind.RNIC, "h0/\rspine-0", "down", {}),
    (Kind.RNIC, "h0/r0", "d" * 2_001, {}),
    (Kind.RNIC, "h0/r0", "\x1b[31mred", {}),
    (Kind.RNIC, "h0/r0", "down", {"read": "x" * 2_001}),
    (Kind.RNIC, "h0/r0", "down", {str(n): "x" for n in range(33)}),
], ids=range(7))  # fmt: skip
def test_what_no_host_has_to_say_is_dropped(kind, name, text, evidence):
    odd = Finding(FindingKind.RNIC_DOWN, Component(kind, name), text, 0, evidence)
    fine = Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h0/r0"), "two\nlines", 0)
    summary = Summary(host="h0", instance="i", start_ns=0, width_ns=1, findings=(odd, fine))
    assert own_findings(summary, ()) == (fine,)


def test_more_findings_than_a_host_has_parts_are_not_taken():
    many = tuple(
        Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, f"h0/r{n}"), "down", 0)
        for n in range(MOST_FINDINGS + 5)
    )
    summary = Summary(host="h0", instance="i", start_ns=0, width_ns=1, findings=many)
    assert own_findings(summary, ()) == many[:MOST_FINDINGS]
