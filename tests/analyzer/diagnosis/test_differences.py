# SPDX-License-Identifier: Apache-2.0
"""Faults of controllers in a diagnosis: incidents of their own, beside those of the network."""

import pytest

from analyzer.intent.differences.contract import Difference
from analyzer.replay.state import freeze, thaw
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, controller, link, rnic
from netagent.model.verdict import IncidentState, Symptom
from tests.analyzer.diagnosis.world import World

ONE = tuple(EndpointId("t0-c1", rail) for rail in (0, 1))
LINK = link("leaf-s1-r1", "spine-0")


def difference(kind, part, **whom):
    return Difference(Finding(kind, controller(part), f"{part}: {kind}", 1), **whom)


UNBOUND = difference(FindingKind.PORT_UNBOUND, "port p1", hosts=("h1",), endpoints=ONE)
STALE = difference(FindingKind.CONTROLLER_STALE, "h1", hosts=("h1",))
AWAY = difference(FindingKind.CONTROLLER_AWAY, "ovn")


def open_ones(incidents):
    return {str(each.verdict.component): each.verdict.symptom for each in incidents}


def test_a_port_that_is_nowhere_is_an_incident_until_its_pairs_talk_again():
    world = World(1)
    world.live(4)
    world.fabric.loss = {Component(Kind.CONTAINER, "t0-c1"): 1.0}
    world.diagnosis.differed([UNBOUND])
    assert open_ones(world.live(2)) == {"controller port p1": Symptom.UNCONNECTIVITY}
    (incident,) = world.told.values()
    assert incident.state is IncidentState.CONFIRMED
    assert incident.tasks == ("t0",)
    assert world.diagnosis.findings() == [UNBOUND.finding]
    world.fabric.loss = {}
    world.diagnosis.differed([])
    assert world.live(2) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_a_link_that_fails_at_the_same_time_is_named_too(seed, rate):
    world = World(seed)
    world.live(4)
    world.fabric.loss = {Component(Kind.CONTAINER, "t0-c1"): 1.0, LINK: rate}
    world.diagnosis.differed([UNBOUND])
    assert open_ones(world.live(4)).keys() == {"controller port p1", str(LINK)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("truth", [LINK, rnic("h1", "rnic0")], ids=str)
def test_a_difference_that_costs_nothing_swallows_no_fault(seed, truth):
    world = World(seed)
    world.live(4)
    both = [
        difference(FindingKind.TUNNEL_ADDRESS_WRONG, "tunnel h1", hosts=("h1",), is_whole=True),
        UNBOUND,
    ]
    world.diagnosis.differed(both)
    assert open_ones(world.live(2)) == {"controller tunnel h1": Symptom.MASKED}
    world.fabric.loss = {truth: 0.2}
    found = open_ones(world.live(4))
    assert found.keys() == {"controller tunnel h1", str(truth)}
    assert found["controller tunnel h1"] is Symptom.MASKED


def test_a_frozen_instance_is_masked_and_over_once_it_is_told_no_more():
    world = World(1)
    world.live(3)
    world.diagnosis.differed([STALE])
    assert open_ones(world.live(2)) == {"controller h1": Symptom.MASKED}
    world.silent = {"h1": "refused"}
    world.diagnosis.differed([])  # a silent host is not accused, and mends nothing
    assert "controller h1" in open_ones(world.live(3))
    world.silent = {}
    assert world.live(3) == []


def test_an_incident_waits_unobserved_while_its_controller_cannot_be_read():
    world = World(1)
    world.live(3)
    world.diagnosis.differed([STALE])
    world.live(2)
    world.diagnosis.differed([AWAY])
    (incident,) = world.live(4)
    assert str(incident.verdict.component) == "controller h1"
    assert incident.unobserved_ns is not None
    world.diagnosis.differed([STALE])
    (incident,) = world.live(2)
    assert incident.unobserved_ns is None
    world.diagnosis.differed([])
    assert world.live(2) == []


@pytest.mark.parametrize(("host", "waits"), [("h1", True), ("h2", False)])
def test_an_incident_waits_for_the_zone_that_it_is_of_and_no_other(host, waits):
    world = World(1)
    world.live(3)
    world.diagnosis.differed([STALE])
    world.live(2)
    away = difference(FindingKind.CONTROLLER_AWAY, f"ovn {host}", hosts=(host,))
    world.diagnosis.differed([away])
    assert [str(each.verdict.component) for each in world.live(4)] == ["controller h1"] * waits


@pytest.mark.parametrize("later", [[STALE], []])
def test_after_a_restart_an_incident_waits_until_it_is_known_what_differs(later):
    before = World(1)
    before.live(3)
    before.diagnosis.differed([STALE])
    before.live(2)
    world = World(1)
    world.diagnosis.restore(before.diagnosis.incidents(), world.now_ns())
    for _ in range(6):
        (incident,) = world.live(4)
        assert incident.recovered_ns is None
    world.diagnosis.differed(later)
    known = [each.id for each in world.live(2)]
    assert known == ([incident.id] if later else [])


def test_what_a_vote_named_first_is_revised_when_the_controller_is_known_to_be_why():
    world = World(1)
    world.live(4)
    world.fabric.loss = {Component(Kind.CONTAINER, "t0-c1"): 1.0}
    voted = open_ones(world.live(13))  # the difference has to last
    assert voted.keys() == {"container t0-c1"}
    world.diagnosis.differed([UNBOUND])
    (incident,) = world.live(2)
    assert str(incident.verdict.component) == "controller port p1"
    assert "revised: was container t0-c1" in incident.notes


def test_a_diagnosis_that_was_written_down_knows_what_differs():
    world = World(1)
    world.live(3)
    world.diagnosis.differed([STALE])
    world.diagnosis = thaw(freeze(world.diagnosis), world.registry)
    assert world.diagnosis.findings() == [STALE.finding]
    assert open_ones(world.live(2)) == {"controller h1": Symptom.MASKED}
