# SPDX-License-Identifier: Apache-2.0
import pytest
from msgspec import structs

from analyzer.simulate.agents import WIDTH_NS, Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from analyzer.simulate.routing import DEAD
from netagent.model.path import Component, link, switch
from netagent.wire.messages import PathRequest

SHAPE = Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2)


def agents(**options):
    return Agents(Clos(SHAPE, seed=1), seed=1, **options)


def fail(made, *effects):
    at = effects[0].at
    truth = at if isinstance(at, Component) else link(*at)
    made.fail(
        [Failure(1, truth, Family.LINK, effects)],
        now_ns=made.start_ns + made.window_number * WIDTH_NS,
    )


def request_of(made, flow, count):
    named = made.clos.flow(flow)
    return PathRequest(
        source=named.source, target=named.target, source_port=named.source_port, count=count
    )


@pytest.mark.parametrize("loss", [0.2, 1.0])
def test_packets_are_counted_up_to_what_loses_them(loss):
    made = agents()
    flow = next(f for f in range(made.clos.flows) if len(made.clos.routes[made.clos.there[f]]) == 3)
    route = made.clos.routes[int(made.clos.there[flow])]
    fail(made, Effect(switch(route[1]), loss))
    made.window()
    answer = made.reply("h0", request_of(made, flow, 100)).paths[0]
    assert answer.hops == route
    assert answer.answered[0] == 100
    # A router that loses a part of what it forwards answers all that ends at it.
    assert (answer.answered[1] == 0) is (loss >= DEAD)
    assert answer.answered[2] < 100


def test_a_host_finds_ways_and_counts_on_each_though_nothing_is_traced():
    made = agents(traced=False)
    pair = next(n for n in range(made.clos.flows) if len(made.clos.routes[made.clos.there[n]]) == 3)
    request = structs.replace(request_of(made, pair, 50), source_port=0, ways=16)
    lossy, dead = "spine-1", "spine-2"
    fail(made, Effect(switch(lossy), 0.5), Effect(switch(dead), 1.0))
    made.window()
    answers = made.reply("h0", request).paths
    assert {each.hops[1] for each in answers} <= {"spine-0", lossy}
    for each in answers:
        assert each.answered[0] == each.sent == 50
        assert (each.answered[-1] < 50) is (lossy in each.hops)
    assert made.reply("h0", structs.replace(request, ways=1)).paths


def test_what_hits_one_direction_hits_what_goes_and_comes_by_it():
    made = agents()
    flow = next(f for f in range(made.clos.flows) if len(made.clos.routes[made.clos.there[f]]) == 3)
    route = made.clos.routes[int(made.clos.there[flow])]
    for ends in (route[:2], route[1::-1]):
        fail(made, Effect(ends, 0.5))
        answer = made.reply("h0", request_of(made, flow, 400)).paths[0]
        assert answer.answered[0] == 400
        assert 140 < answer.answered[1] < 260


def test_a_late_link_makes_the_routers_behind_it_late():
    made = agents()
    flow = next(f for f in range(made.clos.flows) if len(made.clos.routes[made.clos.there[f]]) == 3)
    route = made.clos.routes[int(made.clos.there[flow])]
    fail(made, Effect(link(*route[:2]), delay_ns=500_000.0))
    rtt_ns = made.reply("h0", request_of(made, flow, 10)).paths[0].rtt_ns
    assert rtt_ns[0] < 100_000 < min(rtt_ns[1:])


def test_a_dead_rnic_counts_nothing():
    made = agents()
    flow = next(f for f in range(made.clos.flows) if len(made.clos.routes[made.clos.there[f]]) == 3)
    fail(made, Effect(made.clos.rnic(int(made.clos.source[flow // 4])), 1.0))
    assert set(made.reply("h0", request_of(made, flow, 10)).paths[0].answered) == {0}
