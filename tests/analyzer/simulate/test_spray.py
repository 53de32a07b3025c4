# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.spray import Spray

SHAPES = [
    Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2),
    Shape(hosts=32, hosts_per_segment=4, spines=2, segments_per_pod=2, cores_per_group=3),
]


@pytest.fixture(params=SHAPES, ids=["two tiers", "three tiers"])
def clos(request):
    return Clos(request.param, seed=3)


def routes(clos, spray, flow, count=400):
    there, back = spray.drawn(np.full(count, flow), np.random.default_rng(1))
    return [{clos.routes[row] for row in rows.tolist()} for rows in (there, back)]


def test_packets_of_a_flow_take_every_way_between_its_leaves(clos):
    spray = Spray(clos, 1)
    for flow in range(0, clos.flows, 397):
        there, back = routes(clos, spray, flow)
        assert there == set(clos.ways(flow, reply=False))
        assert back == set(clos.ways(flow, reply=True))


def test_what_routers_avoid_is_not_drawn(clos):
    spray, flow = (
        Spray(clos, 1),
        next(f for f in range(clos.flows) if len(clos.ways(f, reply=False)) > 1),
    )
    dead = clos.ways(flow, reply=False)[0][1]
    spray.lay(frozenset({dead}))
    assert not any(dead in route for ways in routes(clos, spray, flow) for route in ways)


def test_a_trace_begins_and_ends_right_and_shows_hops_of_several_ways(clos):
    spray, flows = Spray(clos, 1), np.arange(0, clos.flows, 7)
    mixed = 0
    for flow, trace in zip(flows.tolist(), spray.traces(flows, reply=False), strict=True):
        ways = clos.ways(flow, reply=False)
        assert (trace[0], trace[-1]) == (ways[0][0], ways[0][-1])
        assert all(hop in {way[n] for way in ways} for n, hop in enumerate(trace))
        mixed += trace not in ways
    assert bool(mixed) is bool(clos.shape.segments_per_pod)


def test_traces_change_from_time_to_time(clos):
    spray, flows = Spray(clos, 1), np.arange(clos.flows)
    before = spray.traces(flows, reply=True)
    assert spray.traces(flows, reply=True) != before or spray.turn() is None
    spray.turn()
    after = spray.traces(flows, reply=True)
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    assert 0 < changed < clos.flows / 4
