# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from analyzer.detect.flows import FlowView, unconnected_pairs
from netagent.model.ids import EndpointId, FlowId

A, B = EndpointId("a", 0), EndpointId("b", 0)
FINE = FlowView(
    FlowId(A, B, 1), sent=6, lost=0, refused=0, sent_large=2, lost_large=0, run=0, run_ms=0
)
DEAD = replace(FINE, flow=FlowId(A, B, 2), lost=4, run=4, run_ms=1800)


def test_three_losses_in_a_row_within_four_seconds_are_unconnectivity():
    assert replace(FINE, run=3, run_ms=4000).unconnected
    assert not replace(FINE, run=2, run_ms=100).unconnected
    assert not replace(FINE, run=3, run_ms=4100).unconnected
    assert replace(FINE, run=30, run_ms=29_000).unconnected  # a long run at one a second


def test_a_pair_is_dead_only_if_no_flow_answers():
    assert unconnected_pairs([DEAD, replace(DEAD, flow=FlowId(A, B, 3), run=1)]) == {(A, B)}
    assert unconnected_pairs([DEAD, FINE]) == set()
    assert unconnected_pairs([replace(DEAD, run=1), replace(DEAD, run=1)]) == set()


def test_with_many_targets_the_run_is_counted_over_all_source_ports():
    """Each port was visited once: two losses in a row on each."""
    twice = replace(DEAD, lost=2, run=2, run_ms=0)
    assert unconnected_pairs([twice]) == set()
    assert unconnected_pairs([twice, replace(twice, flow=FlowId(A, B, 3))]) == {(A, B)}


def test_losses_far_apart_are_no_unconnectivity():
    slow = replace(DEAD, lost=1, run=3, run_ms=120_000)
    assert unconnected_pairs([slow]) == set()
