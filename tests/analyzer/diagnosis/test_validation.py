# SPDX-License-Identifier: Apache-2.0
"""Hosts compare their tables for a diagnosis: asked, believed, told, recorded and played again."""

import io

import msgspec
import pytest

from analyzer.questions import CheckRequest, Failed, Question, Why
from analyzer.replay import records
from analyzer.replay.anonymize import anonymized
from analyzer.replay.frames import frame
from analyzer.replay.player import play, read
from analyzer.replay.state import freeze, thaw
from netagent.model.path import flow_table, vswitch
from netagent.wire.validate import ValidateRequest
from tests.analyzer.localize.validating.test_judge import found, reply
from tests.analyzer.replay.worlds import Recorded

PARTIAL = 0.5


class Comparing(Recorded):
    """A cluster in which one pair loses half of its probes; `faulty` holds flows that are stale."""

    def __init__(self, faulty="", says=None):
        super().__init__(2)
        self.faulty, self.says, self.asked = faulty, says, []
        self.pair = None

    def lose(self):
        """Let both ways of one pair lose half of their probes, whatever they cross."""
        flow = self.fabric.flows[0]
        self.pair = {flow.source, flow.target}
        well = self.fabric.lost

        def lost(flow, *, large):
            if {flow.source, flow.target} == self.pair:
                return self.fabric.rng.random() < PARTIAL
            return well(flow, large=large)

        self.fabric.lost = lost

    def reply(self, question: Question):
        if not isinstance(question.request, ValidateRequest):
            return super().reply(question)
        self.asked.append(question)
        if self.says is not None:
            return self.says
        host = question.host
        if host != self.faulty:
            return reply(host=host)
        stale = found("stale-megaflow", component=flow_table(host, "br-int", 10))
        return reply(stale, host=host)

    @property
    def hosts(self):
        return {self.fabric.endpoints[end].host for end in self.pair}


def faulty(windows):
    """Return a cluster whose pair has lost probes for some windows, by what one host holds."""
    world = Comparing()
    world.live(4)
    world.lose()
    world.faulty = sorted(world.hosts)[1]
    world.live(windows)
    return world


def test_a_single_pair_that_keeps_losing_ends_in_the_entries_that_differ_until_it_is_well():
    world = faulty(5)
    (incident,) = world.diagnosis.incidents()
    assert incident.verdict.component == flow_table(world.faulty, "br-int", 10)
    assert {question.host for question in world.asked} == world.hosts
    assert len(world.asked) == 2  # once each
    (request,) = {q.request for q in world.asked if q.host == world.faulty}
    assert request.local in world.pair
    del world.fabric.lost
    assert world.live(3) == []


def test_a_recording_of_it_replays_byte_for_byte_and_without_names():
    world = faulty(4)
    data = world.recording()
    again = play(read(io.BytesIO(data)))
    assert again.differences == []
    assert again.incidents == world.told
    assert [str(i.verdict.component) for i in again.incidents.values()] == [
        f"flow {world.faulty}/br-int/table=10"
    ]
    made = anonymized(lambda: read(io.BytesIO(data)))
    nameless = b"".join(frame(records.pack(record)) for record in made)
    hidden = play(read(io.BytesIO(nameless)))
    assert hidden.differences == []
    (incident,) = hidden.incidents.values()
    assert str(incident.verdict.component).startswith("flow host-")


def test_a_diagnosis_that_was_written_down_goes_on_with_what_was_compared():
    def lived(stop):
        world = Comparing()
        for window in range(9):
            if window == 4:
                world.lose()
                world.faulty = sorted(world.hosts)[1]
            if window == stop:
                world.diagnosis = thaw(freeze(world.diagnosis), world.registry)
            world.live(1)
        return [msgspec.json.encode(incident) for incident in world.told.values()]

    plain = lived(None)
    assert plain
    assert [lived(stop) for stop in (5, 6, 7, 8)] == [plain] * 4


@pytest.mark.parametrize(
    "says",
    [
        None,
        Failed(Why.CANNOT, "no Open vSwitch"),
        reply(found("stale-megaflow", component=vswitch("h3")), host="h3"),
    ],
    ids=["clean", "cannot", "liar"],
)
def test_nobody_is_named_where_nothing_differs_or_somebody_lies(says):
    world = Comparing(says=says)
    world.live(4)
    world.lose()
    incidents = world.live(6)
    assert world.asked
    assert [i.verdict.component for i in incidents if i.verdict.component] == []


def test_a_person_who_asks_for_it_gets_it_beside_the_walk():
    world = Comparing()
    world.live(1)
    flow = world.fabric.flows[0]
    asking = world.diagnosis.diagnose(flow.source, flow.target, layers=True)
    asks = next(asking)
    assert all(isinstance(ask.request, CheckRequest) for ask in asks)
    asks = asking.send([Failed(Why.TIMEOUT, "timeout") for _ in asks])
    hosts = [ask.host for ask in asks]
    assert all(isinstance(ask.request, ValidateRequest) for ask in asks)
    with pytest.raises(StopIteration) as done:
        asking.send([reply(host=hosts[0]), Failed(Why.CANNOT, "no Open vSwitch")])
    near, far = done.value.value["tree"][-2:]
    assert near["children"][0]["text"].endswith("they agree")
    assert far["children"][0]["text"] == "not compared: no Open vSwitch"
