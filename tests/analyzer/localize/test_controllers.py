# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.detect.flows import Flows
from analyzer.intent.differences.contract import Difference
from analyzer.localize.controllers import WAITING, Controllers
from analyzer.localize.sentences import sentences
from analyzer.simulate.fabric import Fabric
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer, controller, link
from netagent.model.verdict import Symptom

ONE = EndpointId("t0-c1", 0)
CONTAINER = Component(Kind.CONTAINER, "t0-c1")
HOST = {Component(Kind.CONTAINER, f"t{n}-c1"): 1.0 for n in (0, 1)}
COSTLY = [FindingKind.PORT_UNBOUND, FindingKind.PORT_MISPLACED, FindingKind.ADDRESS_REFUSED]


def difference(kind, part="port p1", **whom):
    finding = Finding(kind, controller(part), f"{part}: {kind}", 1, {"read": "this"})
    return Difference(finding, **whom)


def explained(*differences, loss, **shape):
    case = Fabric(seed=1, loss=loss, rails=1, **shape).case(differences=differences)
    with pytest.raises(StopIteration) as done:
        next(Controllers(None).explain(case))
    case.explain(done.value.value)
    return case, done.value.value


@pytest.mark.parametrize("kind", [*COSTLY, *sorted(WAITING)])
def test_an_endpoint_that_loses_all_is_explained_and_nobody_else_is(kind):
    case, (found,) = explained(difference(kind, endpoints=(ONE,)), loss={CONTAINER: 1.0})
    verdict = found.verdict
    assert (str(verdict.component), verdict.layer) == ("controller port p1", Layer.CONTROLLER)
    assert (verdict.symptom, verdict.summary) == (Symptom.UNCONNECTIVITY, f"port p1: {kind}")
    assert {p.source for p in verdict.failing} | {p.target for p in verdict.failing} >= {ONE}
    assert all(ONE in (v.flow.source, v.flow.target) for v in found.flows)
    assert not any(ONE in (v.flow.source, v.flow.target) for v in case.rest)
    assert len(case.rest) > 0
    said = sentences(verdict.evidence)
    assert "read: this" in said
    assert any("lost" in line for line in said)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("kind", COSTLY)
def test_an_endpoint_that_still_gets_answers_is_cut_off_by_something_else(kind, rate):
    case, found = explained(difference(kind, endpoints=(ONE,)), loss={CONTAINER: rate})
    assert found == []
    assert case.rest == case.flows


def seen(differences, views):
    """Return what is explained where `views` come of a case, one by one."""
    case = Fabric(seed=1, loss={CONTAINER: 1.0}, rails=1).case(differences=differences)
    case = replace(case, flows=Flows.of(map(views, case.flows)))
    with pytest.raises(StopIteration) as done:
        next(Controllers(None).explain(case))
    return done.value.value


@pytest.mark.parametrize(
    ("spared", "is_explained"),
    [
        ({"sent": 2}, True),  # its last probe was answered before it began
        ({"sent": 10}, True),
        ({"sent": 11}, False),  # more often than those that lost all since
        ({"sent": 20}, False),  # to the end: it crosses something else
        ({"sent": 2, "lost": 1}, False),  # an answer after a loss
    ],
)
def test_it_may_have_begun_within_the_window(spared, is_explained):
    marked = []

    def view(each):
        if ONE not in (each.flow.source, each.flow.target):
            return each
        marked.append(each)
        since = replace(each, sent=20, lost=10, run=10, run_ms=1900)
        before = replace(each, **{"lost": 0, "run": 0, "run_ms": 0, **spared})
        return before if len(marked) == 3 else since

    found = seen((difference(FindingKind.ADDRESS_REFUSED, endpoints=(ONE,)),), view)
    assert len(marked) > 5
    assert bool(found) == is_explained


@pytest.mark.parametrize(("rate", "most"), [(0.3, 1), (0.5, 5), (1.0, 300)])
def test_few_flows_that_lose_half_are_hardly_ever_all_unanswered_in_the_end_by_chance(rate, most):
    """Of 300 windows of four flows; without a look at what was answered later 18, and 95."""
    each = difference(FindingKind.PORT_UNBOUND, endpoints=(ONE,))
    found = 0
    for seed in range(300):
        fabric = Fabric(seed=seed, loss={CONTAINER: rate}, hosts=2, rails=1, ports=2, tasks=1)
        with pytest.raises(StopIteration) as done:
            next(Controllers(None).explain(fabric.case(differences=(each,))))
        found += bool(done.value.value)
    assert found <= most
    assert found == 300 or rate < 1.0


def test_one_dead_peer_does_not_make_an_endpoint_cut_off():
    other = Component(Kind.CONTAINER, "t0-c2")
    _, found = explained(difference(FindingKind.PORT_UNBOUND, endpoints=(ONE,)), loss={other: 1.0})
    assert found == []


def test_a_contested_port_loses_a_part_everywhere():
    each = difference(FindingKind.PORT_CONTESTED, endpoints=(ONE,))
    _, (found,) = explained(each, loss={CONTAINER: 0.5})
    assert found.verdict.symptom is Symptom.LOSS
    _, found = explained(each, loss={Component(Kind.CONTAINER, "t0-c2"): 1.0}, hosts=6)
    assert found == []
    _, found = explained(each, loss={})
    assert found == []


def test_a_host_that_nobody_reaches_keeps_what_its_containers_say_among_themselves():
    each = difference(FindingKind.TUNNEL_ADDRESS_WRONG, "tunnel h1", hosts=("h1",), is_whole=True)
    case, (found,) = explained(each, loss=HOST)
    ends = {end for view in found.flows for end in (view.flow.source, view.flow.target)}
    assert {case.endpoints[end].host for end in ends} == {"h0", "h1", "h2", "h3"}
    assert all(
        "h1" in {case.endpoints[v.flow.source].host, case.endpoints[v.flow.target].host}
        for v in found.flows
    )
    assert not any(view.lost for view in case.rest)


def test_of_a_host_only_the_rail_that_is_cut_off_is_explained():
    each = difference(FindingKind.TUNNEL_ADDRESS_WRONG, "tunnel h1", hosts=("h1",), is_whole=True)
    _, (found,) = explained(each, loss={CONTAINER: 1.0})
    assert {v.flow.source.container[:2] for v in found.flows} == {"t0"}


@pytest.mark.parametrize("kind", sorted(WAITING))
def test_what_costs_nothing_yet_is_masked_and_explains_nothing(kind):
    lossy = link("leaf-s0-r0", "spine-0")
    case, (found,) = explained(
        difference(kind, "h1", hosts=("h1",), endpoints=(ONE,), is_whole=True), loss={lossy: 0.5}
    )
    assert (found.verdict.symptom, found.flows) == (Symptom.MASKED, ())
    assert any(view.lost for view in case.rest)
    assert case.rest == case.flows


@pytest.mark.parametrize(
    "each",
    [
        difference(FindingKind.CONTROLLER_STALE, "h9", hosts=("h9",)),  # no task is there
        difference(FindingKind.GHOST_CHASSIS, "chassis x"),  # of no host
        difference(FindingKind.TUNNEL_ADDRESS_TAKEN, "tunnel h9", hosts=("h9", "h1")),
        difference(FindingKind.CONTROLLER_AWAY, "ovn"),
        difference(FindingKind.PORT_UNBOUND, endpoints=(EndpointId("gone", 0),)),
    ],
    ids=lambda each: each.finding.kind,
)
def test_what_concerns_no_task_is_a_finding_and_no_incident(each):
    assert explained(each, loss={})[1] == []


@pytest.mark.parametrize(("host", "times"), [("h1", 1), ("h9", 0)])
def test_a_translation_of_one_host_concerns_that_host_s_tasks(host, times):
    each = difference(FindingKind.TRANSLATION_STALE, f"northd {host}", hosts=(host,))
    assert len(explained(each, loss={})[1]) == times


def test_a_translation_that_stands_still_concerns_all():
    _, (found,) = explained(difference(FindingKind.TRANSLATION_STALE, "northd"), loss={})
    assert found.verdict.symptom is Symptom.MASKED
