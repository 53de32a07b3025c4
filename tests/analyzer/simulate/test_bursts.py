# SPDX-License-Identifier: Apache-2.0
import numpy as np

from analyzer.simulate.agents import Agents, Noise
from analyzer.simulate.bursts import DELAY_NS, Bursts
from analyzer.simulate.clos import Clos, Shape

SHAPE = Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2)
SECOND = 1_000_000_000


def added(clos, seed=1, seconds=80):
    flow = np.repeat(np.arange(clos.flows), seconds)
    at_ns = np.tile(np.arange(seconds) * SECOND, clos.flows)
    got = Bursts(clos, seed).added_ns(
        at_ns, clos.there[flow], clos.back[flow], np.random.default_rng(1)
    )
    return got.reshape(clos.flows, seconds)


def test_some_flows_wait_for_a_part_of_the_time_and_none_for_long():
    got = added(Clos(SHAPE, seed=1))
    waits = (got > 0).mean(axis=1)
    assert 0.1 < waits[waits > 0].mean() < 0.7
    assert (waits == 0).any()
    assert DELAY_NS[0] / 3 < np.median(got[got > 0]) < 4 * DELAY_NS[1]


def test_flows_of_one_way_wait_at_the_same_time():
    clos = Clos(SHAPE, seed=1)
    got = added(clos) > 0
    ways = np.stack([clos.there, clos.back])
    for flow in range(0, clos.flows, 17):
        alike = (ways == ways[:, flow : flow + 1]).all(axis=0)
        assert (got[alike] == got[flow]).all()


def test_two_routers_that_are_one_have_no_link_to_wait_on():
    clos = Clos(SHAPE, seed=1)
    near = [n for n in range(clos.flows) if len(clos.routes[clos.there[n]]) == 1]
    assert near
    assert not added(clos)[near].any()


def test_agents_measure_the_queues():
    quiet, busy = (
        [
            np.frombuffer(each.flows.mean_ln, "<f4").mean()
            for _ in range(6)
            for each in Agents(Clos(SHAPE, seed=1), 1, Noise(tail=0.0), bursts=bursts).window()
        ]
        for bursts in (False, True)
    )
    assert np.mean(busy) > np.mean(quiet) + 0.02
