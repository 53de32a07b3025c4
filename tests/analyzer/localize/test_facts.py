# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.facts import settle
from analyzer.localize.sentences import sentences
from analyzer.questions import Failed, Why
from analyzer.simulate.fabric import Fabric
from netagent.model.endpoint import RdmaAddress
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component
from netagent.model.verdict import Symptom

FABRIC = Fabric(seed=1)
TOPOLOGY = FABRIC.topology()


def settled(*findings, silent=None, loss=(), shared=False):
    fabric = Fabric(seed=1, loss=dict.fromkeys(map(Component.parse, loss), 1.0))
    case = fabric.case(findings=findings, silent=silent or {}, shared_silence=shared)
    return case, settle(case, TOPOLOGY)


def rest(case, explained):
    case.explain([explained])
    return case.rest


def finding(kind, component):
    return Finding(kind, Component.parse(component), "what was read", 1, {"operstate": "down"})


@pytest.mark.parametrize(
    ("kind", "component"),
    [
        (FindingKind.RNIC_DOWN, "rnic h1/rnic0"),
        (FindingKind.RNIC_FLAPPING, "rnic h1/rnic0"),
        (FindingKind.CONTAINER_CRASHED, "container t0-c1"),
        (FindingKind.VSWITCH_DOWN, "vswitch h1"),
    ],
)
def test_a_hosts_statement_settles_and_takes_its_flows_out_of_the_vote(kind, component):
    case, (explained,) = settled(finding(kind, component), loss=["rnic h1/rnic0"])
    assert str(explained.verdict.component) == component
    assert explained.verdict.confidence > 0.9
    assert "operstate: down" in sentences(explained.verdict.evidence)
    left = rest(case, explained)
    assert len(left) + len(explained.flows) == len(case.flows)
    if component != "container t0-c1":
        assert not any(view.lost for view in left)


def test_a_statement_that_no_probe_bears_out_is_less_sure():
    _, (explained,) = settled(finding(FindingKind.RNIC_DOWN, "rnic h1/rnic0"))
    assert explained.verdict.confidence == pytest.approx(0.7)


def test_a_gid_that_changed_is_an_incident_only_where_probes_are_lost():
    changed = finding(FindingKind.GID_CHANGED, "rnic h1/rnic0")
    _, explained = settled(changed)
    assert explained == []
    _, (explained,) = settled(changed, loss=["rnic h1/rnic0"])
    assert explained.verdict.symptom is Symptom.UNCONNECTIVITY
    down = finding(FindingKind.RNIC_DOWN, "rnic h1/rnic0")
    _, (both,) = settled(changed, replace(down, text="port down"), loss=["rnic h1/rnic0"])
    assert both.verdict.summary == "port down"


def flooded(whose, unanswered):
    found = finding(FindingKind.FLOODED, f"endpoint {whose}")
    return replace(found, evidence={"unanswered": unanswered})


def test_an_endpoint_that_is_flooded_is_named_for_what_is_lost_on_the_way_to_it():
    whose = next(iter(FABRIC.case().endpoints))
    assert settled(flooded(whose, "900"))[1] == []
    lossy = [f"container {whose.container}"]
    case, (explained,) = settled(flooded(whose, "900000"), loss=lossy)
    assert str(explained.verdict.component) == f"endpoint {whose}"
    assert explained.verdict.symptom is Symptom.LOSS
    assert {view.flow for view in explained.flows} == {
        view.flow for view in case.flows if view.flow.target == whose
    }
    left = rest(case, explained)
    assert any(view.lost and view.flow.source == whose for view in left)


@pytest.mark.parametrize("unanswered", ["1", "", "-5", "x", "9" * 5000])
def test_what_is_lost_beyond_what_an_endpoint_left_unanswered_is_put_to_the_vote(unanswered):
    whose = next(iter(FABRIC.case().endpoints))
    assert settled(flooded(whose, unanswered), loss=[f"container {whose.container}"])[1] == []


@pytest.mark.parametrize(
    ("users", "told"),
    [
        (["t0-c1"], {"container t0-c1"}),
        (["t0-c1", "t0-c2"], {"container t0-c1", "rnic h1/mlx5_0"}),
    ],
)
def test_a_container_that_crashes_takes_along_only_its_own_device(users, told):
    findings = [
        finding(FindingKind.CONTAINER_CRASHED, "container t0-c1"),
        finding(FindingKind.RNIC_DOWN, "rnic h1/mlx5_0"),
    ]
    case = FABRIC.case(findings=findings)
    rdma = RdmaAddress("mlx5_0", "::ffff:10.0.0.1", (17,), 1, 1024)
    ends = {
        key: replace(end, host="h1", rdma=rdma) if key.container in users else end
        for key, end in case.endpoints.items()
    }
    explained = settle(replace(case, endpoints=ends), TOPOLOGY)
    assert {str(each.verdict.component) for each in explained} == told


def test_flapping_says_more_than_down():
    findings = [
        finding(k, "rnic h1/rnic0") for k in (FindingKind.RNIC_DOWN, FindingKind.RNIC_FLAPPING)
    ]
    _, (explained,) = settled(*findings, loss=["rnic h1/rnic0"])
    assert explained.verdict.symptom is Symptom.LOSS


@pytest.mark.parametrize(
    ("how", "component", "sure"),
    [
        (Failed(Why.REFUSED, "refused"), "agent h2", 0.99),
        (Failed(Why.TIMEOUT, "timeout"), "agent h2", 0.9),
        (Failed(Why.UNREACHABLE, "connect timeout"), "host h2", 0.5),
        (Failed(Why.UNREACHABLE, "no route"), "host h2", 0.5),
    ],
)
def test_a_silent_host_is_its_agent_or_cannot_be_told(how, component, sure):
    case, (explained,) = settled(silent={"h2": how}, loss=["container t0-c2"])
    assert str(explained.verdict.component) == component
    assert explained.verdict.confidence == pytest.approx(sure)
    assert explained.verdict.symptom is Symptom.SILENCE
    assert bool(explained.verdict.missing) == (component == "host h2")
    assert not any(view.lost for view in rest(case, explained))


REFUSED = Failed(Why.REFUSED, "refused")
UNREACHABLE = Failed(Why.UNREACHABLE, "connect timeout")


@pytest.mark.parametrize("how", [UNREACHABLE, Failed(Why.TIMEOUT, "timeout"), None])
def test_most_hosts_that_are_not_heard_at_once_accuse_none_of_them(how):
    hosts = sorted({end.host for end in FABRIC.endpoints.values()})
    silent = dict.fromkeys(hosts[1:], how)
    case, (explained,) = settled(silent=silent, shared=True, loss=["container t0-c2"])
    assert explained.verdict.component is None
    assert f"{len(hosts) - 1} of {len(hosts)} hosts are not heard" in explained.verdict.summary
    assert explained.verdict.missing
    assert not any(view.lost for view in rest(case, explained))


def test_agents_that_do_not_run_are_named_however_many_they_are():
    hosts = sorted({end.host for end in FABRIC.endpoints.values()})
    _, explained = settled(silent=dict.fromkeys(hosts, REFUSED), shared=True)
    assert [str(each.verdict.component) for each in explained] == [f"agent {h}" for h in hosts]


def test_unknown_input_and_differences_accuse_nobody():
    _, explained = settled(
        finding(FindingKind.UNKNOWN_INPUT, "endpoint a/rail0"),
        finding(FindingKind.TOPOLOGY_DIFFERS, "link a -- b"),
    )
    assert explained == []


def test_a_spare_rnic_that_carries_no_probe_is_no_incident():
    _, explained = settled(finding(FindingKind.RNIC_DOWN, "rnic h1/rnic9"))
    assert explained == []


def test_an_endpoint_whose_interface_is_down_is_named_by_its_host():
    _, (explained,) = settled(finding(FindingKind.ENDPOINT_DOWN, "endpoint t0-c1/rail0"))
    assert str(explained.verdict.component) == "endpoint t0-c1/rail0"


def test_an_agent_that_answers_but_reports_nothing_is_named_too():
    _, (explained,) = settled(silent={"h2": None})
    assert str(explained.verdict.component) == "agent h2"
    assert explained.verdict.confidence < 0.9


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(-4.2, "4.2 s or more behind"), (90, "90.0 s or more ahead of")]
)
def test_a_wrong_clock_is_told_of_its_host_and_takes_no_loss_out_of_the_vote(ahead_s, words):
    fabric = Fabric(seed=1, loss={Component.parse("container t0-c2"): 1.0})
    case = fabric.case(silent={"h2": None}, clocks={"h2": round(ahead_s * 1e9)})
    (explained,) = settle(case, TOPOLOGY)
    assert str(explained.verdict.component) == "host h2"
    assert words in explained.verdict.summary
    assert rest(case, explained) == case.flows


def dark(*names, carrier="0"):
    return [
        Finding(FindingKind.RNIC_DOWN, Component.parse(name), "no carrier", 1, {"carrier": carrier})
        for name in names
    ]


AT_LEAF = ("rnic h0/rnic0", "rnic h1/rnic0")


def test_a_leaf_whose_rnics_all_lost_their_carrier_is_at_fault_and_not_they():
    _, (explained,) = settled(*dark(*AT_LEAF), loss=AT_LEAF)
    verdict = explained.verdict
    assert str(verdict.component) == "switch leaf-s0-r0"
    assert verdict.summary == "none of the 2 RNICs at leaf-s0-r0 has a carrier"
    assert {str(each.component) for each in verdict.alternatives} == set(AT_LEAF)
    assert verdict.confidence > 0.9


@pytest.mark.parametrize(
    "findings",
    [
        dark("rnic h0/rnic0"),
        dark("rnic h0/rnic0", "rnic h2/rnic0"),
        dark("rnic h0/rnic0", "rnic h0/rnic1"),
        [*dark("rnic h0/rnic0"), finding(FindingKind.RNIC_DOWN, "rnic h1/rnic0")],
        dark(*AT_LEAF, carrier="1"),
    ],
)
def test_rnics_that_are_not_a_whole_leaf_or_were_taken_down_are_themselves(findings):
    named = {str(each.component) for each in findings}
    _, explained = settled(*findings, loss=named)
    assert {str(each.verdict.component) for each in explained} == named
