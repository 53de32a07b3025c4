# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.simulate.agents import Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Effect, Failure, Family
from netagent.model.path import Component, Kind, link
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Summary
from tests.campaign.baselines import METHODS, Baselines

CLOS = Clos(Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2), seed=1)


def blamed(*effects, windows=3):
    agents = Agents(CLOS, seed=1)
    failure = Failure(1, link("a", "b"), Family.LINK, effects)
    agents.fail([failure], now_ns=agents.start_ns)
    beside = Baselines()
    beside.know(CLOS.endpoints)
    for _ in range(windows):
        beside.window([decode(encode(each), Summary) for each in agents.window()])
    return beside, beside.blamed()


@pytest.mark.parametrize("effect", [{"loss": 0.5}, {"delay_ns": 300_000.0}])
def test_a_link_that_loses_or_delays_much_is_blamed_first_by_each(effect):
    ends = CLOS.links[3]
    _, found = blamed(Effect(link(*ends), **effect))
    assert {name: each[0] for name, each in found.items()} == dict.fromkeys(
        METHODS, str(link(*ends))
    )


def test_an_rnic_and_a_host_are_told_apart():
    for component in (CLOS.rnic(5), Component(Kind.HOST, "h3")):
        beside, found = blamed(Effect(component, 1.0))
        assert {each[0] for each in found.values()} == {str(component)}
        assert beside.alarms == 3


def test_in_health_nobody_is_blamed():
    beside, found = blamed()
    assert (beside.alarms, found) == (0, dict.fromkeys(METHODS, ()))
