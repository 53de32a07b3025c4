# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.flows import Flows, FlowView, between, ends_of, unconnected_pairs, unobserved
from netagent.model.ids import EndpointId, FlowId

A, B = EndpointId("a", 0), EndpointId("b", 0)
FINE = FlowView(
    FlowId(A, B, 1), sent=6, lost=0, refused=0, sent_large=2, lost_large=0, run=0, run_ms=0
)
DEAD = replace(FINE, flow=FlowId(A, B, 2), lost=4, run=4, run_ms=1800)


def dead(*flows):
    return unconnected_pairs(Flows.of(flows))


def test_three_losses_in_a_row_within_four_seconds_are_unconnectivity():
    assert replace(FINE, run=3, run_ms=4000).unconnected
    assert not replace(FINE, run=2, run_ms=100).unconnected
    assert not replace(FINE, run=3, run_ms=4100).unconnected
    assert replace(FINE, run=30, run_ms=29_000).unconnected  # a long run at one a second


def test_a_pair_is_dead_only_if_no_flow_answers():
    assert dead(DEAD, replace(DEAD, flow=FlowId(A, B, 3), run=1)) == {(A, B)}
    assert dead(DEAD, FINE) == set()
    assert dead(replace(DEAD, run=1), replace(DEAD, run=1)) == set()


def test_with_many_targets_the_run_is_counted_over_all_source_ports():
    """Each port was visited once: two losses in a row on each."""
    twice = replace(DEAD, lost=2, run=2, run_ms=0)
    assert dead(twice) == set()
    assert dead(twice, replace(twice, flow=FlowId(A, B, 3))) == {(A, B)}


def test_losses_far_apart_are_no_unconnectivity():
    slow = replace(DEAD, lost=1, run=3, run_ms=120_000)
    assert dead(slow) == set()


ENDS = [EndpointId(name, rail) for name in "xyz" for rail in (0, 1)]
FLOWS = st.builds(FlowId, st.sampled_from(ENDS), st.sampled_from(ENDS), st.integers(1, 4))
VIEWS = st.lists(
    st.builds(
        FlowView,
        FLOWS,
        st.integers(1, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 5),
        st.integers(0, 9000),
    ),
    max_size=40,
    unique_by=lambda view: view.flow,
)
PAIRS = st.sets(st.tuples(st.sampled_from(ENDS), st.sampled_from([*ENDS, A])), max_size=6)


@given(VIEWS)
def test_columns_hold_what_the_flows_were(views):
    flows = Flows.of(views)
    assert list(flows) == views
    assert [flows[n] for n in range(len(views))] == views
    assert list(flows[1:3]) == views[1:3]
    assert list(reversed(flows)) == views[::-1]
    with pytest.raises(IndexError):
        flows[len(views)]
    assert flows.unconnected.tolist() == [view.unconnected for view in views]
    assert flows.where(flows.lost > 0) == [view for view in views if view.lost]


@given(VIEWS, PAIRS, st.sets(FLOWS, max_size=5), st.sets(st.sampled_from([*ENDS, A])))
def test_what_is_chosen_of_columns_is_what_a_loop_over_flows_chooses(views, pairs, some, ends):
    flows = Flows.of(views)
    either = {tuple(sorted(pair)) for pair in pairs}
    mine = [(ends_of(v.flow), v) for v in views if ends_of(v.flow) in either]
    assert list(between(either, flows)) == mine
    assert list(flows.outside(pairs)) == [v for v in views if ends_of(v.flow) not in either]
    there = [v for v in views if (v.flow.source, v.flow.target) in pairs]
    assert flows.where(flows.between(pairs, ordered=True)) == there
    assert list(flows.without(some)) == [v for v in views if v.flow not in some]
    touched = [v for v in views if {v.flow.source, v.flow.target} & ends]
    assert flows.where(flows.of_any(ends)) == touched
    assert unobserved(either, flows, ENDS) == (any(A not in pair for pair in either) and not mine)


@given(VIEWS)
def test_dead_pairs_are_those_that_a_loop_over_flows_finds(views):
    by_pair = defaultdict(list)
    for view in views:
        by_pair[view.flow.source, view.flow.target].append(view)
    assert dead(*views) == {
        pair
        for pair, mine in by_pair.items()
        if all(v.run for v in mine)
        and sum(v.run for v in mine) >= 3
        and any(v.run > 1 and v.close for v in mine)
    }


@given(VIEWS, st.data())
def test_flows_of_a_part_are_the_part_of_the_flows(views, data):
    flows = Flows.of(views)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(views), max_size=len(views))))
    part = flows.only(mask.astype(bool))
    assert list(part) == [view for view, mine in zip(views, mask, strict=True) if mine]
    assert part.pairs().tolist() == flows.pairs()[np.flatnonzero(mask)].tolist()
