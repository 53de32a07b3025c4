# SPDX-License-Identifier: Apache-2.0
"""Endpoints that no virtual switch carries, through the whole diagnosis."""

from dataclasses import replace

import pytest

from analyzer.questions import Question, Reply
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind, vswitch
from netagent.wire.messages import CheckRequest, PathRequest, Registration
from netagent.wire.trace import TraceRequest
from netagent.wire.validate import ValidateRequest
from tests.analyzer.diagnosis.world import HOSTS, START, World

OF_SWITCHES = {Kind.VSWITCH, Kind.TUNNEL, Kind.FLOW}
DOWN = Finding(FindingKind.VSWITCH_DOWN, vswitch("h1"), "no process", 1)


def bare(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, bridge="", port="net1")


class Bare(World):
    """A cluster of which `hosts` have endpoints without a port; nothing is traced there."""

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self.asked: list[Question] = []
        ends = self.fabric.endpoints
        self.ours = {key for key, end in ends.items() if end.host in hosts}
        self.traced = lambda flow, _: not self.ours & {flow.source, flow.target}
        for host in hosts:
            mine = tuple(bare(end) for end in ends.values() if end.host == host)
            said = Registration(host=host, instance="1", generation=2, rpc_url="", endpoints=mine)
            self.registry.apply(said, START - 50 * 10**9)

    def reply(self, question: Question) -> Reply | None:
        self.asked.append(question)
        return super().reply(question)


def lose(world: World, component: str) -> None:
    world.fabric.loss = {Component.parse(component): 1.0}


@pytest.mark.parametrize(
    "broken", ["rnic h1/rnic0", "container t0-c1", "switch leaf-s0-r0", "switch spine-0"]
)
def test_no_table_is_asked_and_no_switch_is_blamed_whatever_breaks(broken):
    world = Bare(*HOSTS)
    world.live(2)
    world.asked.clear()
    lose(world, broken)
    world.live(6)
    asked = [question.request for question in world.asked]
    assert not any(isinstance(r, CheckRequest | TraceRequest | ValidateRequest) for r in asked)
    assert not any(isinstance(r, PathRequest) and r.ways for r in asked)
    named = {each.verdict.component for each in world.told.values()}
    assert named
    assert not any(component and component.kind in OF_SWITCHES for component in named)


def test_an_rnic_without_a_switch_is_named_as_any_other_is():
    world = Bare(*HOSTS)
    world.live(2)
    lose(world, "rnic h1/rnic0")
    (incident, *_) = world.live(4)
    suspects = {incident.verdict.component, *(s.component for s in incident.verdict.alternatives)}
    assert Component.parse("rnic h1/rnic0") in suspects


def test_a_dead_switch_explains_no_losses_of_what_bypasses_it():
    world = Bare("h1")
    world.live(2)
    lose(world, "rnic h1/rnic0")
    world.findings["h1"] = (DOWN,)
    world.live(4)
    (down,) = (
        each.verdict for each in world.told.values() if each.verdict.component == vswitch("h1")
    )
    assert down.failing == ()
    assert any(each.verdict.component != vswitch("h1") for each in world.told.values())


def test_who_asks_about_such_a_pair_is_told_that_there_are_no_tables():
    world = Bare("h1")
    world.live(1)
    near = min(world.ours)
    far = next(key for key in sorted(world.fabric.endpoints) if key not in world.ours)
    asking = world.diagnosis.diagnose(near, far, layers=True)
    with pytest.raises(StopIteration) as told:
        next(asking)
    assert f"flow tables: no virtual switch carries {near}" in str(told.value.value)


def test_the_hops_of_such_a_pair_are_its_fabric_with_what_was_probed_there():
    world = Bare("h1")
    world.live(3)
    near = min(world.ours)
    far = next(
        key for key in sorted(world.fabric.endpoints)
        if key.rail == near.rail and key not in world.ours
    )  # fmt: skip
    with pytest.raises(StopIteration) as told:
        next(world.diagnosis.diagnose(near, far))
    hops = [hop for hop in told.value.value["observations"] if hop["way"] == "there"]
    assert hops[0]["component"] == f"endpoint {near}"
    assert f"vswitch {hops[0]['host']}" not in {hop["component"] for hop in hops}
    rails = [hop for hop in hops if hop["component"].startswith("rnic")]
    assert [hop["action"] for hop in rails] == ["forwarded", "forwarded"]
    assert {hop["text"] for hop in rails} == {hops[-1]["text"]}
    assert hops[-1]["text"].startswith("0 of ")
    assert hops[-1]["action"] == "delivered"
