# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from tests.lab import drill
from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.demo import Observer
from tests.lab.drill import Tried, _places, draw, lines, singles, targets
from tests.lab.faults import plan
from tests.lab.shape import Controller, Shape, Transport, driven_by
from tests.lab.state import State
from tests.lab.targets import spelled
from tests.lab.workload import Container

EVERYONE = tuple(Container(task, host) for task in ("train-a", "train-b") for host in range(4))
STATE = State(Shape(), containers=EVERYONE)
RIGHT = Tried(1, ("link-loss@x",), ("link x",), (4.2,), False, (), 9.0)


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=lambda spec: spec.name)
def test_every_target_of_a_fault_is_one_that_it_takes(spec: Spec) -> None:
    rdma = tuple(Container(each.task, each.host, Transport.RDMA) for each in EVERYONE)
    state = State(Shape(transport=Transport.RDMA), containers=rdma) if spec.rdma else STATE
    if spec.controller is not None:
        state = State(Shape(controller=spec.controller), containers=EVERYONE)
    found = targets(spec, state)
    assert found
    assert len({plan(spec.name, each, {}, state).key for each in found}) == len(found)


def test_on_ovn_every_fault_that_can_be_there_is_tried() -> None:
    state = State(driven_by(Controller.OVN), containers=EVERYONE)
    names = {plans[-1][0] for _, plans in singles(state, 1, ())}
    assert {"flow-lost", "ghost-chassis", "policy-drop", "link-loss"} <= names
    assert names.isdisjoint({"flow-deleted", "far-vni", "gid-change"})
    for seed in range(20):  # what is known before it blinds can be there, too
        ((_, [(known, _), _]),) = singles(state, seed, ["management-down"])
        assert CATALOGUE[known].is_possible(Controller.OVN)


def test_what_is_no_fault_is_never_one_of_two_and_something_is_known_before_it_blinds() -> None:
    drawn = {name for seed in range(200) for name, _ in draw(STATE, seed)}
    assert drawn.isdisjoint(name for name, spec in CATALOGUE.items() if spec.blameless)
    for name in ("analyzer-disk-full", "management-down"):
        ((_, plans),) = singles(STATE, 1, [name])
        assert [each for each, _ in plans][1:] == [name]
        assert not CATALOGUE[plans[0][0]].blameless


@pytest.mark.parametrize(
    ("name", "target", "hides"),
    [
        ("link-down", "leaf-s0-r1--spine-0", {"leaf-s0-r1--spine-0", "leaf-s1-r1--spine-0"}),
        ("leaf-down", "leaf-s1-r0", {f"leaf-s{s}-r0--spine-{n}" for s in (0, 1) for n in (0, 1)}),
        ("spine-down", "spine-1", {f"leaf-s{s}-r{r}--spine-1" for s in (0, 1) for r in (0, 1)}),
        ("link-loss", "leaf-s0-r1--spine-0", {"leaf-s0-r1--spine-0"}),
    ],
)
def test_a_link_that_carries_nothing_any_more_is_not_broken_beside(
    name: str, target: str, hides: set[str]
) -> None:
    links = {spelled(link) for link in STATE.shape.links()}
    assert _places(name, target, STATE) & links == hides


@pytest.mark.parametrize("seed", range(60))
def test_two_faults_are_drawn_that_fit_a_lab_together(seed: int) -> None:
    plans = draw(STATE, seed)
    assert draw(STATE, seed) == plans
    (one, first), (other, second) = plans
    assert one != other
    broken = STATE.with_fault(plan(one, first, {}, STATE))
    assert plan(other, second, {}, broken).truth


def test_a_miss_or_an_accusation_is_told() -> None:
    early = Tried(3, ("link-down@x", "management-down@all"), ("link x",), (4.2,), False, (), None,
                  ("link x",))  # fmt: skip
    assert not early.right
    assert lines([early])[1:] == ["  link-down@x + management-down@all: over too early"]
    wrong = Tried(2, ("a@x", "b@y"), ("link x", "rnic y"), (4.2, None), False, ("switch z",), None)
    assert RIGHT.right
    assert not wrong.right
    assert lines([RIGHT, wrong]) == [
        "2 of 3 faults named; 1 others accused in 2 tries",
        "  a@x + b@y: wrongly switch z",
        "  a@x + b@y: not all seen",
    ]
    between = replace(RIGHT, between=("switch z",))
    assert not between.right
    assert lines([RIGHT, between]) == [
        "2 of 2 faults named; 1 others accused in 2 tries",
        "  before link-loss@x: switch z",
    ]


Told = list[dict[str, Any]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Incidents as the analyzer has them, and no time to wait for them."""
    monkeypatch.setattr(drill, "WINDOW_S", 0.0)
    monkeypatch.setattr(drill, "SETTLE_S", {Transport.UDP: 0.0})
    monkeypatch.setattr(drill, "record", Mock())
    return []


@pytest.fixture
def client(told: Told) -> Iterator[httpx.Client]:
    answer = httpx.MockTransport(lambda _: httpx.Response(200, json={"incidents": told}))
    with httpx.Client(transport=answer, base_url="https://analyzer") as made:
        yield made


def opened(told: Told, component: str | None) -> None:
    told.append({"id": f"i{len(told)}", "component": component, "state": "recovered"})


def test_who_is_named_while_all_should_be_well_is_told_once(
    client: httpx.Client, told: Told
) -> None:
    observer = Observer(client)
    opened(told, "switch spine-0")
    opened(told, None)
    assert drill.quiet(observer) == {"switch spine-0"}
    assert drill.quiet(observer) == set()


def test_a_try_takes_what_was_said_in_it_as_known(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, told: Told
) -> None:
    for limit in ("NAME_WITHIN_S", "WATCH_S"):
        monkeypatch.setattr(drill, limit, 0.0)
    truth = SimpleNamespace(component="link x")
    lab = Mock(inject=lambda name, target: SimpleNamespace(name=name, key=target, truth=truth))
    for component in ("link x", "switch spine-0"):
        incident = {"id": component, "component": component, "state": "recovered", "summary": ""}
        told.append(incident | {"localized_ns": None})
    observer = Observer(client)
    assert drill.attempt(lab, observer, 1, [("link-loss", "x")]).wrong == ("switch spine-0",)
    assert observer.new() == []


Attempt = Callable[[Mock, Observer, int, Sequence[drill.Plan]], Tried]


def drilled(monkeypatch: pytest.MonkeyPatch, client: httpx.Client, attempt: Attempt) -> list[Tried]:
    """Return two tries of a lab; `attempt` stands for each."""
    monkeypatch.setattr(drill, "attempt", attempt)
    lab = Mock(state=lambda: STATE)
    lab.services().client.return_value = Mock(__enter__=lambda _: client, __exit__=lambda *_: None)
    return drill.run(lab, lambda _: None, pairs=2, seed=1, each=False)


def test_what_opens_between_two_tries_counts_in_the_second(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, told: Told
) -> None:
    """But what was broken a moment ago, and is named again."""
    opened(told, "host h9")  # while the lab settles

    def attempt(_lab: Mock, _observer: Observer, _seed: int, _: Sequence[drill.Plan]) -> Tried:
        opened(told, "switch spine-0")
        opened(told, "link x")
        return RIGHT

    tried = drilled(monkeypatch, client, attempt)
    assert [one.between for one in tried] == [("host h9",), ("switch spine-0",)]


def test_what_opens_before_a_fault_that_cannot_be_done_counts_in_the_next_try(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, told: Told
) -> None:
    opened(told, "host h9")

    def attempt(_lab: Mock, _observer: Observer, seed: int, _: Sequence[drill.Plan]) -> Tried:
        if seed == 1:
            opened(told, "rnic y")
            raise drill._Impossible("rnic y")
        return RIGHT

    tried = drilled(monkeypatch, client, attempt)
    assert [one.between for one in tried] == [("host h9",), ()]


def test_what_opens_after_the_last_try_counts_in_it(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, told: Told
) -> None:
    made = iter([None, "host h9"])

    def attempt(_lab: Mock, observer: Observer, *_: object) -> Tried:
        observer.remember()
        opened(told, next(made))
        return RIGHT

    tried = drilled(monkeypatch, client, attempt)
    assert [one.wrong for one in tried] == [(), ("host h9",)]
    assert [one.right for one in tried] == [True, False]


def test_a_controller_s_fault_has_the_time_that_it_has_to_last() -> None:
    plain = drill.name_within_s([("link-loss", "x")])
    assert drill.name_within_s([("link-loss", "x"), ("controller-frozen", "h2")]) > plain + 120
    assert drill.name_within_s([("policy-drop", "x")]) > plain + 120


def test_what_is_a_finding_and_no_incident_is_waited_for_in_vain_by_nobody(
    monkeypatch: pytest.MonkeyPatch, client: httpx.Client, told: Told
) -> None:
    for limit in ("NAME_WITHIN_S", "WATCH_S"):
        monkeypatch.setattr(drill, limit, 0.0)
    monkeypatch.setattr(drill, "LASTING_S", {})
    truth = SimpleNamespace(component="controller chassis ghost")
    lab = Mock(inject=lambda name, target: SimpleNamespace(name=name, key=target, truth=truth))
    observer = Observer(client)
    assert drill.attempt(lab, observer, 1, [("ghost-chassis", "ghost")]).right
    incident = {"id": "i", "component": truth.component, "state": "recovered", "summary": ""}
    told.append(incident | {"localized_ns": 1})
    assert not drill.attempt(lab, observer, 1, [("ghost-chassis", "ghost")]).right
    drawn = {name for seed in range(200) for name, _ in draw(STATE, seed)}
    assert "ghost-chassis" not in drawn
