# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.drill import Tried, _places, _singles, draw, lines, targets
from tests.lab.faults import plan
from tests.lab.shape import Shape, Transport
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
    found = targets(spec, state)
    assert found
    assert len({plan(spec.name, each, {}, state).key for each in found}) == len(found)


def test_what_is_no_fault_is_never_one_of_two_and_something_is_known_before_it_blinds() -> None:
    drawn = {name for seed in range(200) for name, _ in draw(STATE, seed)}
    assert drawn.isdisjoint(name for name, spec in CATALOGUE.items() if spec.blameless)
    for name in ("analyzer-disk-full", "management-down"):
        ((_, plans),) = _singles(STATE, 1, [name])
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
