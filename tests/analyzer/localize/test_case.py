# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from analyzer.detect.flows import FlowView
from analyzer.localize.case import MAX_PAIRS_QUOTED, pairs_quoted, way_of, ways_of
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import MOVED_NS, LearnedTopology
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import switch


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


@pytest.mark.parametrize("seed", range(6))
def test_ways_of_flows_together_are_those_of_each_by_itself(seed):
    """Some traces end early, some show another way, some are of the window itself."""
    rng = Random(seed)
    fabric = Fabric(seed=seed, loss={switch("spine-1"): 0.6}, spines=4)
    case = fabric.case()
    topology, start_ns = LearnedTopology(numbers=case.flows.numbers), case.window.start_ns
    whole = dict(fabric.routes)
    for wall_ns in (start_ns - MOVED_NS - 1, start_ns - 2, start_ns - 1, start_ns):
        for key, hops in whole.items():
            other = (hops[0], f"spine-{rng.randrange(4)}", *hops[2:]) if len(hops) > 2 else hops
            fabric.routes[key] = rng.choice([hops, hops, hops, hops[:1], hops[:2], other])
        topology.learn(fabric.paths(), fabric.underlay, wall_ns=wall_ns)
    views = list(case.flows)
    assert 0 < sum(view.lost > 0 for view in views) < len(views)
    found = list(ways_of(case.flows, case, topology))
    assert found == [way_of(view, case, topology) for view in views]
    there, back = topology.unmoved(
        case.flows.number, case.flows.numbers, case.flows.lost > 0, at_ns=start_ns
    )
    assert 0 < (there != NO_ROUTE).sum() == (back != NO_ROUTE).sum() < len(views)
