# SPDX-License-Identifier: Apache-2.0
"""What jobs say of themselves, beside what probes say: one incident where both mean one fault."""

import asyncio

import pytest

from analyzer.detect.held import AGAIN_NS, EVERY_NS, STALE_NS, JobVerdict
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.diagnosis.engine import Diagnosis
from analyzer.diagnosis.incidents import ADOPT_NS
from analyzer.localize.sentences import sentences
from analyzer.operators.keeper import Keeper, Reported, Row, Told
from analyzer.operators.log import Group, GroupKind, Kind
from analyzer.replay.state import freeze, thaw
from analyzer.server.jobs import Jobs
from netagent.model.errors import Unreachable
from netagent.model.ids import EndpointId
from netagent.model.path import link, rnic
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import IncidentState, Symptom
from netagent.wire.operators import OperatorProcess
from tests.analyzer.diagnosis.world import WIDTH, World

PLACES = {rank: (EndpointId(f"t0-c{rank}", 0),) for rank in range(4)}
SLOW = Culprit(Who.RANK, (1,), 0.9, "computes 1.8 times longer than its peers", "h1")
EDGE = Culprit(Who.EDGE, (0, 1), 0.8, "4.2 times the median", network=True)
LINK = link("leaf-s1-r0", "spine-0")


def say(world, *culprits, holdup=Holdup.SLOW_RANK):
    told = Verdict(holdup, "t0 is slow", culprits, innocent=holdup is Holdup.SLOW_RANK)
    world.diagnosis.held_up([JobVerdict("t0", told, world.now_ns(), PLACES)])


def open_ones(incidents):
    return {str(each.verdict.component): each.verdict.symptom for each in incidents}


def test_a_slow_rank_is_an_incident_of_its_task_until_the_job_says_otherwise():
    world = World(1)
    world.live(4)
    say(world, SLOW)
    (incident,) = world.live(2)
    assert str(incident.verdict.component) == "rank t0/1"
    assert (incident.state, incident.tasks) == (IncidentState.CONFIRMED, ("t0",))
    assert "the network is innocent" in incident.verdict.summary
    say(world, holdup=Holdup.NOTHING)
    assert world.live(2) == []


def test_while_nobody_collects_the_incident_waits_unobserved():
    world = World(1)
    world.live(4)
    say(world, SLOW)
    world.live(1)
    world.live(1 + STALE_NS // 5_000_000_000)
    (incident,) = world.live(2)
    assert incident.unobserved_ns is not None
    assert str(incident.verdict.component) == "rank t0/1"


def test_a_slow_edge_over_an_rnic_that_loses_is_one_incident_with_both_evidences():
    world = World(1)
    world.live(4)
    world.fabric.loss = {rnic("h1", "rnic0"): 0.3}
    say(world, EDGE, holdup=Holdup.SLOW_COMMUNICATION)
    incidents = world.live(3)
    assert open_ones(incidents) == {"rnic h1/rnic0": Symptom.LOSS}
    assert "operators of t0:" in sentences(incidents[0].verdict.evidence)


def test_a_slow_rank_and_a_link_that_loses_are_two():
    world = World(1)
    world.live(4)
    world.fabric.loss = {LINK: 0.3}
    say(world, SLOW)
    assert open_ones(world.live(4)) == {"rank t0/1": Symptom.HELD_UP, str(LINK): Symptom.LOSS}


def test_a_diagnosis_that_was_written_down_knows_what_jobs_say():
    world = World(1)
    world.live(4)
    say(world, SLOW)
    world.diagnosis = thaw(freeze(world.diagnosis), world.registry)
    assert open_ones(world.live(2)) == {"rank t0/1": Symptom.HELD_UP}


class Hung:
    """Agents that say how far ranks of `t0` came, and who looks at that; rank 1 never came."""

    def __init__(self, world):
        async def nobody(host, _request):
            raise Unreachable(host, "it hangs, too")

        self.world, self.keeper = world, Keeper()
        self.jobs = Jobs(
            self.keeper, world.registry, nobody,
            lambda given: world.diagnosis.held_up(given.jobs), world.now_ns,
        )  # fmt: skip

    def live(self, windows, *, silent=0, phase=0):
        """Let windows pass; agents say nothing in the first ones."""
        incidents = []
        for window in range(windows):
            if window >= silent:
                self.say()
            if window % (EVERY_NS // WIDTH) == phase:
                asyncio.run(self.jobs.step())
            incidents = self.world.live(1)
        return incidents

    def say(self):
        group = Group("dp0", GroupKind.DATA, tuple(range(4)))
        for rank, begun in enumerate((7, 6, 7, 7)):
            told = Told(1, 64, 10, 10, 10, begun, 6, 0)
            process = OperatorProcess(job="t0", rank=rank, world=4, pid=1, container=f"t0-c{rank}")
            row = Row(group, "all_reduce", Kind.COLLECTIVE, told)
            self.keeper.take(f"h{rank}", (Reported(process, (row,)),), self.world.now_ns())


@pytest.mark.parametrize("phase", range(EVERY_NS // WIDTH))
def test_a_hang_is_the_same_incident_after_a_restart_however_late_agents_come_back(phase):
    world = World(1)
    (before,) = Hung(world).live(24)
    assert str(before.verdict.component) == "rank t0/1"
    world.diagnosis = Diagnosis(world.registry, DeclaredTopology())
    world.diagnosis.restore([before], world.now_ns())
    world.diagnosis.begin(world.now_ns())
    again = Hung(world)
    (after,) = again.live((ADOPT_NS + AGAIN_NS) // WIDTH + 4, silent=ADOPT_NS // WIDTH, phase=phase)
    assert (after.id, after.notes) == (before.id, ())
    assert after.unobserved_ns is None
    assert again.jobs.latest("t0").verdict.holdup is Holdup.HANG_RANK
    assert [each.state for each in world.told.values()] == [IncidentState.CONFIRMED]
