# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from analyzer.detect.flows import FlowView
from analyzer.localize.case import MAX_PAIRS_QUOTED, pairs_quoted
from netagent.model.ids import EndpointId, FlowId


def view(number, sent, lost, *, port=40000):
    """Return a flow of pair `number` that saw these probes."""
    ends = EndpointId(f"a{number:03}", 0), EndpointId("b", 0)
    return FlowView(FlowId(*ends, port), sent, lost, 0, 0, 0, 0, 0)


def quoted(flows):
    return [(str(pair.source), pair.lost, pair.sent) for pair in pairs_quoted(flows)]


@pytest.mark.parametrize("seed", range(5))
def test_the_pair_that_lost_most_is_quoted_first_and_one_of_one_is_not(seed):
    """Sorted by share, a pair that sent one probe and lost it would lead."""
    flows = [view(0, 1, 1), view(1, 40, 9), view(2, 40, 2), view(3, 20, 2), view(4, 12, 12)]
    Random(seed).shuffle(flows)
    assert quoted(flows) == [
        ("a004/rail0", 12, 12),
        ("a001/rail0", 9, 40),
        ("a003/rail0", 2, 20),  # of the same losses, the one that lost the larger share
        ("a002/rail0", 2, 40),
        ("a000/rail0", 1, 1),
    ]


def test_the_flows_of_a_pair_are_summed_before_pairs_are_ordered():
    flows = [view(0, 10, 3), view(1, 10, 2, port=1), view(1, 10, 2, port=2)]
    assert quoted(flows) == [("a001/rail0", 4, 20), ("a000/rail0", 3, 10)]


def test_what_is_not_quoted_lost_least():
    flows = [view(n, 100, n) for n in range(MAX_PAIRS_QUOTED + 6)]
    said = quoted(flows)
    assert len(said) == MAX_PAIRS_QUOTED
    assert (said[0][1], said[-1][1]) == (MAX_PAIRS_QUOTED + 5, 6)
