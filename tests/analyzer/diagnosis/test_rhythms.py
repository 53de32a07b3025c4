# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.flows import Flows, FlowView
from analyzer.diagnosis import rhythms as module
from analyzer.diagnosis.rhythms import FORGET_WINDOWS, MAX_SERIES, Rhythms, carried
from analyzer.localize.sentences import sentences
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link
from netagent.model.verdict import Pair, Symptom, Verdict
from netagent.model.window import Window

LINK = link("leaf-0", "spine-0")
WINDOW = Window(0, 5 * 10**9)
A, B = EndpointId("a", 0), EndpointId("b", 0)


def accuse(component=LINK, pairs=((A, B),), symptom=Symptom.LOSS):
    failing = tuple(Pair(*pair, 10, 5) for pair in pairs)
    return Verdict(component, None, symptom, 0.9, "loses", failing=failing)


def flows(lost):
    other = FlowId(A, EndpointId("c", 0), 1)
    return [
        FlowView(FlowId(B, A, 1), 40, lost, 0, 0, 0, 0, 0),
        FlowView(other, 9, 9, 0, 0, 0, 0, 0),
    ]


def live(rhythms, script):
    """Let windows pass; return what the verdict on the link is told with in the last one."""
    found = ()
    for lost in script:
        verdicts = [accuse()] if lost else []
        rhythms.note(verdicts, Flows.of(flows(lost)))
        found = rhythms.told(accuse(), WINDOW).evidence
    return found


def test_what_comes_and_goes_is_told_over_the_incidents_that_it_makes():
    (evidence,) = live(Rhythms(), [20, 20, 0, 0, 0, 0] * 7 + [20])
    assert evidence.kind is EvidenceKind.RHYTHM
    assert sentences([evidence]) == [
        "comes and goes every 30 s, for about 10 s: 6 times in a row, 12 of 36 windows lost probes"
    ]


def test_what_loses_all_the_time_or_now_and_then_is_not():
    assert live(Rhythms(), [20] * 60) == ()
    assert live(Rhythms(), [20, 0, 0, 20, 0, 0, 0, 0, 0, 20, 20, 0, 20, 0, 0, 0, 0, 20] * 3) == ()


@pytest.mark.parametrize("verdict", [accuse(None), accuse(symptom=Symptom.LATENCY)])
def test_only_losses_of_a_component_have_a_series(verdict):
    rhythms = Rhythms()
    rhythms.note([verdict], Flows.of(flows(1)))
    assert rhythms._series == {}
    live(rhythms, [20, 20, 0, 0, 0, 0] * 8)
    assert rhythms.told(verdict, WINDOW) == verdict


def test_series_are_bounded_and_forgotten(monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", 16)
    monkeypatch.setattr(module, "KEPT_WINDOWS", 20)
    rhythms = Rhythms()
    pairs = [(EndpointId(f"c{n}", 0), B) for n in range(16 + 9)]
    parts = [Component(Kind.HOST, f"h{n}") for n in range(MAX_SERIES + 9)]
    for _ in range(20 + 9):
        rhythms.note([accuse(part, pairs) for part in parts], Flows.of(()))
    assert len(rhythms._series) == MAX_SERIES
    for series in rhythms._series.values():
        assert (len(series.pairs), len(series.sent), len(series.lost)) == (16, 20, 20)
    for _ in range(FORGET_WINDOWS):
        assert rhythms._series
        rhythms.note([], Flows.of(()))
    assert rhythms._series == {}


def test_the_newest_period_goes_with_the_evidence_that_stays():
    old, new = (Evidence(EvidenceKind.RHYTHM, {"period_s": s}) for s in (1, 2))
    tally = Evidence(EvidenceKind.TALLY, {})
    assert carried([old, "said", tally], [tally, new]) == ("said", tally, new)
    assert carried([tally, old], []) == (tally,)
