# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.arrival import AFTER_NS, MAX_TOLD, RESTART_NS, Arrival
from analyzer.detect.contract import Seen
from analyzer.intake.windows import WindowState
from analyzer.roster.registry import Registry
from netagent.model.path import Component, Kind
from netagent.model.task import Task
from netagent.model.window import Window
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.detect.seen import nothing

NOBODY = frozenset()
WIDTH = 5 * SECOND
DECLARED = 1_000 * SECOND
BEGAN = 1_300 * SECOND
"""When the first container of the task comes."""
DUE = BEGAN + AFTER_NS


def cluster(containers=("a0", "a1"), came="a0"):
    registry = Registry()
    registry.put_task(Task("train-a", tuple(containers), 1, (0,)), DECLARED)
    if came:
        registry.apply(registration("h0", endpoint("h0", came)), BEGAN)
    return registry


def seen(end_ns):
    state = WindowState(Window(end_ns - WIDTH, WIDTH))
    return Seen(state, *nothing(state), {}, NOBODY, NOBODY, NOBODY)


def missing(arrival, end_ns):
    with pytest.raises(StopIteration) as done:
        next(arrival.detect(seen(end_ns)))
    return [each.subject.name for each in done.value.value]


A1 = Component(Kind.CONTAINER, "a1")


def test_what_does_not_come_is_missing_after_twenty_minutes_and_until_it_comes():
    registry = cluster()
    arrival = Arrival(registry)
    assert missing(arrival, DUE - 1) == []
    assert missing(arrival, DUE) == ["a1"]
    assert (arrival.missing[0].task, arrival.missing[0].declared_ns) == ("train-a", DECLARED)
    assert not arrival.over([A1], seen(DUE))
    registry.apply(registration("h1", endpoint("h1", "a1")), DUE + 1)
    assert missing(arrival, DUE + WIDTH) == []
    assert arrival.over([A1], seen(DUE + WIDTH))


def test_a_container_that_was_there_and_went_in_order_is_not_missing():
    registry = cluster()
    registry.apply(registration("h1", endpoint("h1", "a1")), BEGAN + 1)
    registry.apply(registration("h1", generation=2), BEGAN + 2)
    registry.expire(BEGAN + 10**15)  # and nobody remembers its endpoints any more
    assert missing(Arrival(registry), 10 * DUE) == []


def test_a_declaration_that_goes_takes_its_containers_along():
    registry = cluster()
    arrival = Arrival(registry)
    assert missing(arrival, DUE) == ["a1"]
    registry.delete_task("train-a", DUE + 1)
    assert missing(arrival, DUE + WIDTH) == []
    assert arrival.over([A1], seen(DUE + WIDTH))


def test_of_a_task_that_has_not_begun_nothing_is_missing():
    assert missing(Arrival(cluster(came=None)), 100 * DUE) == []


def test_after_a_restart_agents_have_time_to_register():
    arrival = Arrival(cluster())
    arrival.begin(2 * DUE)
    assert missing(arrival, 2 * DUE + RESTART_NS - 1) == []
    assert missing(arrival, 2 * DUE + RESTART_NS) == ["a1"]


def test_the_operator_says_how_long():
    assert missing(Arrival(cluster(), 60 * SECOND), BEGAN + 60 * SECOND) == ["a1"]


def test_where_most_do_not_come_a_few_are_told_and_none_of_them_is_over():
    names = [f"a{n}" for n in range(40)]
    arrival = Arrival(cluster(names))
    assert missing(arrival, DUE) == names[1 : MAX_TOLD + 1]
    assert not arrival.over([Component(Kind.CONTAINER, "a39")], seen(DUE))
