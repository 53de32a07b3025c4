# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.simulate.agents import Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import (
    KILLED,
    RESTARTED,
    STARVED,
    STEPPED,
    TABLE,
    TYPES,
    Effect,
    Failure,
    Family,
    draw,
    rehashed,
)
from netagent.model.path import Kind, link
from tests.oracles.rows import items

CLOS = Clos(Shape(hosts=16, hosts_per_segment=4, spines=3, replicas=4, stages=2), seed=1)
KINDS = {
    Family.LINK: Kind.LINK,
    Family.SWITCH: Kind.SWITCH,
    Family.RNIC: Kind.RNIC,
    Family.HOST: Kind.HOST,
    Family.CONTAINER: Kind.CONTAINER,
    Family.AGENT: Kind.AGENT,
}


def test_there_are_the_nineteen_of_the_table():
    assert list(TABLE) == list(range(1, 20))
    assert {*TYPES} == {*TABLE, STARVED, KILLED, STEPPED, RESTARTED}


@pytest.mark.parametrize("number", TYPES)
def test_a_failure_is_somewhere_in_the_fabric_and_does_something(number):
    rng = np.random.default_rng(number)
    for _ in range(20):
        failure = draw(number, CLOS, rng)
        assert failure.number == number
        assert failure.truth.kind is KINDS[failure.family]
        assert (failure.truth in failure.also) is (number == STEPPED)
        assert failure.effects or failure.kills or failure.steps
        assert failure.harmless is (number in (STEPPED, RESTARTED))
        assert all(e.loss > 0 or e.delay_ns > 0 or e.kept_ns > 0 for e in failure.effects)
        assert bool(failure.finding) == bool(failure.hosts)
        if failure.family is Family.LINK:
            assert failure.truth in {link(*ends) for ends in CLOS.links}


@pytest.mark.parametrize("number", [each for each in TYPES if each != STEPPED])
def test_a_failure_loses_or_slows_probes(number):
    rng = np.random.default_rng(number)
    made = Agents(CLOS, seed=1)
    made.fail([draw(number, CLOS, rng)], now_ns=made.start_ns)
    changed = 0
    for _ in range(4):
        for summary in made.window():
            lost = sum(items(summary.flows, "lost"))
            slow = max(items(summary.flows, "max_ns")) > 150_000
            slow |= (np.frombuffer(summary.flows.mean_ln, "<f4") > np.log(30_000)).any()
            refused = any(items(summary.flows, "refused"))
            changed += bool(lost) or bool(slow) or bool(refused)
    assert changed


def test_only_links_that_are_dead_for_good_are_avoided():
    rng = np.random.default_rng(1)
    dead, ends = link(*CLOS.links[0]), CLOS.links[0]
    effects = (
        Effect(dead, 1.0), Effect(dead, 0.5), Effect(ends, 1.0), Effect(dead, 1.0, period_ns=9),
    )  # fmt: skip
    got = rehashed(Failure(2, dead, Family.LINK, effects), rng).effects
    assert [bool(each.reroute_ns) for each in got] == [True, False, False, False]
    assert 1_000_000_000 <= got[0].reroute_ns <= 10_000_000_000
