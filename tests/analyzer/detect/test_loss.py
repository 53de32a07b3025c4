# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.flows import Flows, FlowView
from analyzer.detect.loss import Loss
from analyzer.intake.windows import WindowState
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import switch
from netagent.model.verdict import Symptom
from netagent.model.window import Window
from tests.analyzer.asking import drive
from tests.analyzer.detect.seen import nothing

A, B, C = (EndpointId(name, 0) for name in "abc")


def flow(source, target, sent, lost, *, port=1, run=0):
    return FlowView(FlowId(source, target, port), sent, lost, 0, 0, 0, run, 100)


def seen(*flows, there=()):
    state, nobody = WindowState(Window(0, 5)), frozenset()
    return Seen(
        state, nothing(state)[0], Flows.of(flows), dict.fromkeys(there), nobody, nobody, nobody
    )


def detected(*flows):
    found = drive(Loss().detect(seen(*flows)), None)
    return [(one.subject, one.symptom, *one.evidence[0].values.values()) for one in found]


def test_what_loses_nothing_does_not_deviate():
    assert detected(flow(A, B, 10, 0), flow(B, A, 10, 0)) == []


def test_a_pair_is_one_whichever_way_it_loses_and_counts_both():
    flows = flow(B, A, 10, 2), flow(A, B, 10, 0), flow(A, B, 5, 1, port=2), flow(A, C, 10, 0)
    assert detected(*flows) == [((A, B), Symptom.LOSS, 3, 25)]


def test_a_pair_that_cannot_talk_in_one_direction_is_unconnected():
    dead = flow(B, A, 6, 6, run=6)
    assert detected(dead, flow(A, B, 6, 0)) == [((A, B), Symptom.UNCONNECTIVITY, 6, 12)]
    other_port = flow(B, A, 6, 0, port=2)
    assert detected(dead, other_port)[0][1] == Symptom.LOSS


def test_pairs_are_told_in_order():
    flows = [flow(B, C, 9, 1), flow(A, C, 9, 1), flow(B, A, 9, 1)]
    assert [subject for subject, *_ in detected(*flows)] == [(A, B), (A, C), (B, C)]


@pytest.mark.parametrize(("lost", "over"), [(0, True), (1, True), (2, False)])
def test_an_incident_is_over_when_its_pairs_lose_one_in_a_thousand_at_most(lost, over):
    now = seen(flow(A, B, 400, lost), flow(B, A, 600, 0), flow(A, C, 10, 10))
    assert Loss().over([(A, B), switch("s")], now) == over


def test_a_pair_that_is_probed_no_more_does_not_keep_an_incident_open():
    assert Loss().over([(A, B)], seen(flow(A, C, 10, 10)))


def test_a_pair_that_is_there_and_not_probed_in_a_window_is_not_over():
    assert not Loss().over([(A, B)], seen(flow(A, C, 10, 10), there=(A, B, C)))
    assert Loss().over([(A, B)], seen(flow(A, C, 10, 10), there=(A, C)))
    assert Loss().over([(A, B)], seen(flow(B, A, 10, 0), there=(A, B, C)))
    assert Loss().over([switch("s")], seen(there=(A, B)))  # no pair was ever hit
