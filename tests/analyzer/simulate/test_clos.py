# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from analyzer.simulate.clos import PORTS, Clos, Shape
from netagent.model.path import link, switch

SHAPES = [
    Shape(hosts=32, hosts_per_segment=8, spines=4),
    Shape(hosts=32, hosts_per_segment=4, spines=2, segments_per_pod=2, cores_per_group=3),
]


@pytest.fixture(params=SHAPES, ids=["two tiers", "three tiers"])
def clos(request):
    return Clos(request.param, seed=3)


def test_only_rnics_of_one_rail_on_different_hosts_are_pairs(clos):
    rails = clos.shape.rails
    assert (clos.source % rails == clos.target % rails).all()
    assert (clos.source // rails != clos.target // rails).all()
    # Seven replicas, and a neighbour in the stage before and after where there is one.
    assert set(clos.first_pair[1:] - clos.first_pair[:-1]) == {8, 9}


def test_routes_lead_from_leaf_to_leaf_and_replies_back(clos):
    for flow in range(0, clos.flows, 97):
        ends = [clos.leaf(int(each[flow // PORTS])) for each in (clos.source, clos.target)]
        there, back = (clos.routes[int(rows[flow])] for rows in (clos.there, clos.back))
        assert [there[0], there[-1]] == ends
        assert [back[0], back[-1]] == ends[::-1]
        assert len(there) == len(back)


def test_in_three_tiers_pods_meet_at_cores_and_neighbours_below():
    clos = Clos(SHAPES[1])
    lengths = {len(route) for route in clos.routes}
    assert lengths == {1, 3, 5}
    assert {route[2].split("-")[0] for route in clos.routes if len(route) == 5} == {"core"}


def test_every_way_of_equal_cost_is_taken(clos):
    flow = next(f for f in range(clos.flows) if len(clos.routes[int(clos.there[f])]) > 1)
    ways = clos.ways(flow, reply=False)
    assert {clos.routes[clos.route(flow, n, reply=False)] for n in range(len(ways))} == set(ways)


def test_what_is_dead_is_avoided_where_there_is_another_way(clos):
    flow = next(f for f in range(clos.flows) if len(clos.routes[int(clos.there[f])]) > 1)
    dead = clos.ways(flow, reply=False)[0][1]
    assert all(dead not in way for way in clos.ways(flow, reply=False, without=frozenset({dead})))
    leaf = clos.ways(flow, reply=False)[0][0]
    assert clos.ways(flow, reply=False, without=frozenset({leaf})) == clos.ways(flow, reply=False)


def test_crossings_are_those_of_every_route(clos):
    ends = clos.links[len(clos.links) // 2]
    for at in (switch(clos.switches[0]), link(*ends), ends, ends[::-1], clos.rnic(0)):
        for times, route in zip(clos.crossings(at).tolist(), clos.routes, strict=True):
            hops = [switch(hop) for hop in route]
            steps = [*pairwise(route), *(link(*step) for step in pairwise(route)), *hops]
            assert times == steps.count(at)


def test_a_link_that_is_avoided_leaves_the_other_ways(clos):
    flow = next(f for f in range(clos.flows) if len(clos.routes[int(clos.there[f])]) > 1)
    ways = clos.ways(flow, reply=False)
    dead = link(*ways[0][:2]).name
    kept = clos.ways(flow, reply=False, without=frozenset({dead}))
    assert kept == [way for way in ways if way[1] != ways[0][1]]


def test_flows_of_tasks_that_stay_keep_their_ways_when_others_come(clos):
    before = {clos.flow(n): (clos.there[n], clos.back[n]) for n in range(clos.flows)}
    old, task_of = clos.flows, clos.task_of.copy()
    task_of[task_of == 0] = -1
    task_of[np.flatnonzero(task_of < 0)[:6]] = 9
    assert 0 not in task_of
    was = clos.place(task_of)
    assert clos.tasks == [f"t{n}" for n in sorted({*task_of.tolist()}) if n >= 0]
    stays = [clos.flow(4 * n) in before for n in range(len(was))]
    assert [n >= 0 for n in was.tolist()] == stays
    assert clos.flows != old
    for flow in range(clos.flows):
        named = clos.flow(flow)
        if named in before:
            assert before[named] == (clos.there[flow], clos.back[flow])
        ends = [clos.leaf(int(each[flow // 4])) for each in (clos.source, clos.target)]
        route = clos.routes[int(clos.there[flow])]
        assert [route[0], route[-1]] == ends


def test_a_small_task_has_fewer_stages_rather_than_fewer_replicas():
    shape = Shape(hosts=8, hosts_per_segment=4, spines=2, least_replicas=4)
    peers = [
        len(set(Clos(s).target[Clos(s).source == 0]))
        for s in (shape, replace(shape, least_replicas=1))
    ]
    assert peers == [4, 2]
