# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import SECOND, Effect, Failure, Family
from analyzer.simulate.routing import Routing
from netagent.model.path import link, switch

SHAPES = [
    Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2),
    Shape(hosts=32, hosts_per_segment=4, spines=2, segments_per_pod=2, cores_per_group=3),
]


@pytest.fixture(params=SHAPES, ids=["two tiers", "three tiers"])
def routing(request):
    return Routing(Clos(request.param, seed=3))


def turn(routing, at, now_ns, **effect):
    failure = Failure(1, at, Family.LINK, (Effect(at, 1.0, **effect),), start_ns=SECOND)
    routing.turn([failure], 0, now_ns, np.random.default_rng(1))


def upper(routing):
    return next(end for end in routing.clos.switches if not end.startswith("leaf"))


def used(routing):
    rows = {*routing.clos.there.tolist(), *routing.clos.back.tolist()}
    return [routing.clos.routes[row] for row in rows]


def places(routing):
    return [switch(upper(routing)), link(*routing.clos.links[0])]


@pytest.mark.parametrize("which", [0, 1])
def test_routers_turn_away_after_a_time(routing, which):
    at = places(routing)[which]
    names = frozenset({at.name})
    turn(routing, at, 2 * SECOND, reroute_ns=3 * SECOND)
    assert any(routing.clos.crosses(route, names) for route in used(routing))
    before = routing.version
    turn(routing, at, 4 * SECOND, reroute_ns=3 * SECOND)
    assert not any(routing.clos.crosses(route, names) for route in used(routing))
    assert routing.version > before
    clos = routing.clos
    assert not routing.crossings(at, clos.there, clos.back).any()


def test_flows_that_met_nothing_dead_keep_their_ways(routing):
    clos, at = routing.clos, places(routing)[1]
    gone = np.asarray([clos.crosses(route, frozenset({at.name})) for route in clos.routes])
    there = clos.there.copy()
    turn(routing, at, 9 * SECOND, reroute_ns=SECOND)
    assert (clos.there == there).tolist() == (~gone[there]).tolist()


@pytest.mark.parametrize("which", [0, 1])
def test_traces_end_before_what_is_dead(routing, which):
    at = places(routing)[which]
    names, route = (
        frozenset({at.name}),
        next(r for r in routing.clos.routes if routing.clos.crosses(r, frozenset({at.name}))),
    )
    turn(routing, at, 0)
    assert routing.shown(route) == route
    turn(routing, at, 2 * SECOND)
    shown = routing.shown(route)
    assert shown == route[: len(shown)] != route
    assert not routing.clos.crosses(shown, names)
    assert routing.clos.crosses(route[: len(shown) + 1], names)


def test_what_comes_and_goes_cuts_no_trace(routing):
    at, before = places(routing)[1], routing.version
    turn(routing, at, 2 * SECOND, period_ns=SECOND)
    assert routing.version == before


def test_traces_are_whole_again_when_it_is_over(routing):
    at = places(routing)[0]
    turn(routing, at, 2 * SECOND)
    routing.turn([], 0, 3 * SECOND, np.random.default_rng(1))
    assert all(routing.shown(route) == route for route in routing.clos.routes)
