# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.detect.flows import ends_of
from analyzer.detect.held import JobVerdict
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.localize.case import Explained, pairs_quoted, way_of
from analyzer.localize.contract import Context
from analyzer.localize.jobs import MOST_CULPRITS, MOST_PAIRS, Jobs, _pairs
from analyzer.localize.sentences import sentences
from analyzer.localize.tracing.doubts import Doubts
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Layer
from netagent.model.verdict import Symptom
from netagent.model.verdict import Verdict as Found

FABRIC = Fabric(seed=1)
RAIL0 = [end.id for end in FABRIC.endpoints.values() if end.rnic == "rnic0" and end.task == "t0"]
PLACES = {rank: (key,) for rank, key in enumerate(RAIL0)}


def job(culprit, holdup=Holdup.SLOW_RANK, *, innocent=True):
    told = Verdict(holdup, "t0 is slow", (culprit,), innocent=innocent, evidence=("12 iterations",))
    return JobVerdict("t0", told, 9, PLACES)


def explained(case, *jobs):
    case = replace(case, jobs=jobs)
    case.explained = list(case.explained)
    context = Context(Registry(), FABRIC.topology(), Doubts(18515), 18515)
    with pytest.raises(StopIteration) as done:
        next(Jobs(context).explain(case))
    return case, [each.verdict for each in done.value.value]


def found(case, component, symptom=Symptom.LOSS, failing=()):
    part = Component.parse(component)
    given = Explained(Found(part, part.layer, symptom, 0.9, "lossy", failing), ())
    case.explain([given])
    return case


SLOW = Culprit(Who.RANK, (1,), 0.93, "computes 1.8 times longer than its peers", "h1")
EDGE = Culprit(Who.EDGE, (0, 1), 0.8, "4.2 times the median", None, network=True)


def test_a_slow_rank_on_a_well_network_is_named_and_the_network_acquitted():
    _, (verdict,) = explained(FABRIC.case(), job(SLOW))
    assert (str(verdict.component), verdict.layer) == ("rank t0/1", Layer.JOB)
    assert (verdict.symptom, verdict.confidence) == (Symptom.HELD_UP, 0.93)
    assert "on h1: computes 1.8 times longer than its peers" in verdict.summary
    assert "the network is innocent: " in verdict.summary
    assert " probes lost, RTT as always" in verdict.summary
    lines = sentences(verdict.evidence)
    assert lines[:3] == ["operators of t0:", "  t0 is slow", f"  {SLOW.why}"]
    assert lines[-1].startswith("probes of t0: ")


def test_a_network_that_loses_is_not_acquitted():
    case = Fabric(seed=1, loss={Component.parse("rnic h3/rnic0"): 0.3}).case()
    _, (verdict,) = explained(case, job(SLOW))
    assert "innocent" not in verdict.summary


def test_a_rank_whose_rnic_has_a_verdict_is_that_ones_evidence():
    case, verdicts = explained(found(FABRIC.case(), "rnic h1/rnic0"), job(SLOW))
    assert verdicts == []
    (given,) = case.explained
    assert sentences(given.verdict.evidence)[0] == "operators of t0:"


def test_what_is_masked_explains_no_slow_rank():
    masked = found(FABRIC.case(), "rnic h1/rnic0", Symptom.MASKED)
    assert len(explained(masked, job(SLOW))[1]) == 1


def test_a_slow_edge_over_a_link_with_a_verdict_is_one_incident():
    case = FABRIC.case()
    pair = {RAIL0[0], RAIL0[1]}
    flows = [v for v in case.flows if {v.flow.source, v.flow.target} == pair]
    failing = pairs_quoted(flows)
    case, verdicts = explained(found(case, "link leaf-x -- spine-x", failing=failing), job(EDGE))
    assert verdicts == []
    assert EDGE.why in " ".join(sentences(case.explained[0].verdict.evidence))


def test_a_slow_edge_that_no_probe_sees_is_a_disagreement():
    _, (verdict,) = explained(FABRIC.case(), job(EDGE, Holdup.SLOW_COMMUNICATION, innocent=False))
    assert str(verdict.component) == "task t0"
    assert "sources disagree: t0 is slow at edge 0, 1, and" in verdict.summary
    assert verdict.confidence < 0.6
    assert verdict.missing


def test_a_group_that_stands_still_where_no_probe_sees_why_is_told_so():
    ring = Culprit(Who.GROUP, (0, 1), 0.8, "all came, and it does not end", network=True)
    stuck = job(ring, Holdup.HANG_COMMUNICATION, innocent=False)
    _, (verdict,) = explained(FABRIC.case(), stuck)
    assert "sources disagree: t0 stands still at group 0, 1, and" in verdict.summary


def test_while_an_incident_stands_on_its_way_a_slow_edge_is_no_disagreement():
    case = replace(FABRIC.case(), standing=frozenset({Component.parse("rnic h1/rnic0")}))
    assert explained(case, job(EDGE))[1] == []


def test_of_ranks_whose_endpoints_are_not_known_the_rank_is_named_all_the_same():
    unknown = replace(job(SLOW), endpoints={})
    _, (verdict,) = explained(found(FABRIC.case(), "rnic h1/rnic0"), unknown)
    assert str(verdict.component) == "rank t0/1"


def test_of_a_group_that_is_slow_together_each_pair_counts():
    ring = Culprit(Who.GROUP, (0, 1, 2), 0.8, "slow", network=True)
    case, verdicts = explained(found(FABRIC.case(), "rnic h2/rnic0"), job(ring))
    assert verdicts == []
    assert ring.why in " ".join(sentences(case.explained[0].verdict.evidence))


def test_a_rank_whose_transfers_are_slow_is_no_rank_that_computes_slowly():
    nic = Culprit(Who.RANK, (1,), 0.8, "slow", network=True)
    _, (verdict,) = explained(FABRIC.case(), job(nic, Holdup.SLOW_COMMUNICATION, innocent=False))
    assert str(verdict.component) == "task t0"
    assert "sources disagree" in verdict.summary


def _uplink_of_1():
    nic = Culprit(Who.RANK, (1,), 0.8, "stalls at times", network=True)
    return job(nic, Holdup.SLOW_COMMUNICATION, innocent=False)


def test_a_rank_whose_transfers_stall_over_a_link_with_a_verdict_is_one_incident():
    case = FABRIC.case()
    failing = pairs_quoted([view for view in case.flows if RAIL0[1] in ends_of(view.flow)])
    case, verdicts = explained(found(case, "link a -- b", failing=failing), _uplink_of_1())
    assert verdicts == []
    assert "stalls at times" in " ".join(sentences(case.explained[0].verdict.evidence))


def test_a_link_of_others_does_not_explain_a_rank_whose_transfers_stall():
    case = FABRIC.case()
    failing = pairs_quoted([view for view in case.flows if RAIL0[1] not in ends_of(view.flow)])
    _, (verdict,) = explained(found(case, "link a -- b", failing=failing), _uplink_of_1())
    assert "sources disagree" in verdict.summary


def test_what_stands_and_is_crossed_by_a_ranks_transfers_explains_them():
    case = FABRIC.case()
    (view, *_) = [view for view in case.flows if RAIL0[1] in ends_of(view.flow)]
    own = {part for end in RAIL0[1:2] for part in case.own_parts(end)}
    crossed = way_of(view, case, FABRIC.topology()).certain - own
    case = replace(case, standing=frozenset({min(crossed, key=str)}))
    assert explained(case, _uplink_of_1())[1] == []


def test_of_ranks_with_very_many_endpoints_some_pairs_are_looked_at():
    """A host may say that; the pairs of a few such ranks would keep the judge for minutes."""
    many = {rank: tuple(EndpointId(f"c{rank}", rail) for rail in range(99)) for rank in range(64)}
    ring = Culprit(Who.GROUP, tuple(range(64)), 0.8, "slow", network=True)
    assert len(_pairs(ring, replace(job(ring), endpoints=many))) == MOST_PAIRS


def test_of_very_many_slow_edges_the_first_are_held_against_probes():
    edges = tuple(Culprit(Who.EDGE, (0, 1), 0.8, f"slow {n}", network=True) for n in range(99))
    told = Verdict(Holdup.SLOW_COMMUNICATION, "t0 is slow", edges, innocent=False)
    case, verdicts = explained(
        found(FABRIC.case(), "rnic h1/rnic0"), JobVerdict("t0", told, 9, PLACES)
    )
    assert len(case.explained[0].verdict.evidence) == MOST_CULPRITS
    assert [each.component.name for each in verdicts] == ["t0"]
