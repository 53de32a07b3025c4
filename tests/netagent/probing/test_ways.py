# SPDX-License-Identifier: Apache-2.0
import random

from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.paths import ANSWER_NS
from netagent.probing.ways import (
    FIRST_PORT,
    LOOKS,
    MAX_PACKETS,
    MAX_WAYS,
    MOST_OVER_NS,
    PORTS_PER_WAY,
    WaySurvey,
)

A, B = "172.30.0.10", "172.30.0.12"
IDENTS = range(0x8000, 0x10000)


class World:
    """Routers that answer what they are sent, one packet after the other."""

    def __init__(self, spines, *, seed=0, dead=(), lossy=None, between=("leaf-0", "leaf-1")):
        self.rng = random.Random(seed)
        self.spines, self.dead, self.lossy = spines, dead, lossy
        self.between = between
        self.at_ns, self.sent = 0, 0
        self.at = {}

    def route(self, port):
        spine = self.spines[random.Random(port).randrange(len(self.spines))]
        first, last = self.between
        if first == last:
            return (first,)
        return (first,) if spine in self.dead else (first, spine, last)

    step_ns = ANSWER_NS // 2

    def run(self, survey, *, at_once=60):
        ident = 0
        while not survey.finished(wall_ns=self.at_ns):
            due = min(at_once, survey.due(now_ns=self.at_ns))
            idents = [IDENTS[(ident + n) % len(IDENTS)] for n in range(due)]
            ident += due
            probes = survey.take(idents)
            assert len(probes) == due
            self.at[self.at_ns] = len(probes)
            for probe in probes:
                survey.sent(probe, wall_ns=self.at_ns)
                self.sent += 1
            for probe in probes:
                route = self.route(probe.flow.source_port)
                is_lost = self.lossy in route and self.rng.random() < 0.5 and probe.ttl > 1
                if probe.ttl <= len(route) and not is_lost:
                    router = route[probe.ttl - 1]
                    survey.answered(probe.ident, router, wall_ns=self.at_ns + 1_000 * probe.ttl)
            self.at_ns += self.step_ns
        return survey.ways()


def survey(most=4, count=20):
    return WaySurvey(A, B, max_hops=6, most=most, count=count)


def test_every_way_is_found_and_counted_on():
    found = World(["s0", "s1", "s2"]).run(survey())
    assert [way.routers for way in found] == [("leaf-0", f"s{n}", "leaf-1") for n in range(3)]
    assert all((way.sent, way.reached) == (20, (20, 20, 20)) for way in found)
    assert all(way.rtt_ns == (1_000, 2_000, 3_000) for way in found)
    assert len({way.outer_port for way in found}) == 3


def test_who_loses_shows_on_its_way_alone():
    found = World(["s0", "s1", "s2"], lossy="s1").run(survey(count=60))
    share = {way.routers[1]: way.reached[2] / way.sent for way in found}
    assert share["s0"] == share["s2"] == 1.0
    assert 0.2 < share["s1"] < 0.8


def test_ways_that_end_early_are_not_counted_on():
    found = World(["s0", "s1", "s2"], dead=["s2"]).run(survey())
    assert [way.routers[1] for way in found] == ["s0", "s1"]


def test_neighbours_at_one_leaf_have_one_way():
    found = World(["s0"], between=("leaf-0", "leaf-0")).run(survey())
    assert [(way.routers, way.reached) for way in found] == [(("leaf-0",), (20,))]


def test_where_nobody_answers_there_is_no_way():
    world = World(["s0"])
    world.route = lambda port: ()
    assert world.run(survey()) == []


def test_ways_may_be_asked_for_without_counts():
    found = World(["s0", "s1"]).run(survey(count=0))
    assert [(way.routers[1], way.sent) for way in found] == [("s0", 0), ("s1", 0)]


@given(over_ns=st.integers(0, 2 * MOST_OVER_NS), step_ns=st.integers(10**7, 5 * 10**8))
def test_packets_are_spread_over_the_time_that_is_asked_for(over_ns, step_ns):
    world = World(["s0", "s1"])
    world.step_ns = step_ns
    found = world.run(WaySurvey(A, B, max_hops=6, most=2, count=50, over_ns=over_ns), at_once=1000)
    assert [way.reached for way in found] == [(50, 50, 50)] * 2
    looks = LOOKS * (4 * 6 + 4 * 3)
    batches = [(at_ns, sent) for at_ns, sent in world.at.items() if sent]
    while looks:
        looks -= batches.pop(0)[1]
    assert sum(sent for _, sent in batches) == 300
    spread_ns = min(over_ns, MOST_OVER_NS)
    assert batches[-1][0] - batches[0][0] >= spread_ns - 3 * step_ns
    assert max(sent for _, sent in batches) <= 300 * min(1, 2 * step_ns / max(1, spread_ns)) + 1


@given(st.integers(-3, 80), st.integers(0, 500), st.integers(1, 70), st.integers(0, 9))
def test_what_is_sent_is_bounded(most, count, spines, seed):
    world = World([f"s{n}" for n in range(spines)], seed=seed)
    found = world.run(survey(most, count))
    assert len(found) <= min(max(1, most), MAX_WAYS, spines)
    assert world.sent <= LOOKS * PORTS_PER_WAY * MAX_WAYS * 6 + MAX_PACKETS
    assert all(0 <= way.outer_port - FIRST_PORT < PORTS_PER_WAY * MAX_WAYS for way in found)
    assert all(0 <= r <= way.sent for way in found for r in way.reached)


def test_a_clock_that_goes_back_keeps_no_survey_waiting():
    asked, at_ns = survey(), 1000 * ANSWER_NS
    for probe in asked.take(IDENTS[: asked.due(now_ns=0)]):
        asked.sent(probe, wall_ns=at_ns)
    assert not asked.finished(wall_ns=at_ns)
    assert asked.finished(wall_ns=at_ns // 2)
