# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers
from analyzer.picture import crossings
from analyzer.picture.asked import Between, Fabric, Matrix, Totals
from analyzer.picture.picture import BACK_NS, MAX_ANSWERS, Picture, totals
from netagent.model.errors import CapabilityMissing
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    PORTS,
    START_NS,
    WIDTH_NS,
    Flow,
    finished,
    flows,
    known,
    learn,
    scene_of,
    table_of,
    topology_of,
    whole,
)

WINDOW = [Flow(0, 2, PORTS[0], 1, (1_000,), (0, 0))]


def draw(picture, asked):
    return finished(picture.draw(asked))


def shown(picture):
    return draw(picture, Totals())["at_ns"]


def saw(picture, start_ns, numbers=None):
    numbers = numbers or FlowNumbers()
    picture.saw(table_of(WINDOW, numbers, start_ns), known(), topology_of(WINDOW, numbers))


@given(flows)
def test_totals_are_what_one_counts(window):
    drawn = totals(scene_of(window), Totals())
    assert drawn["flows"] == len(window)
    assert drawn["pairs"] == len({(f.source, f.target) for f in window})
    assert drawn["sent"] == sum(f.sent for f in window)
    unknown = [f for f in window if None in [whole(window, f, reply=r) for r in (False, True)]]
    assert drawn["unknown"] == len(unknown)
    pairs = {f"{ENDPOINTS[f.source].id} to {ENDPOINTS[f.target].id}" for f in unknown}
    assert set(drawn["unknown_examples"]) <= pairs
    assert bool(drawn["unknown_examples"]) == bool(unknown)


def test_before_the_first_window_nothing_is_shown():
    with pytest.raises(CapabilityMissing):
        draw(Picture(), Totals())


def test_the_newest_window_is_shown_and_what_comes_late_changes_nothing():
    picture = Picture()
    saw(picture, START_NS)
    saw(picture, START_NS + WIDTH_NS)
    saw(picture, START_NS)
    assert shown(picture) == START_NS + WIDTH_NS
    assert not picture.wants(START_NS)


def test_a_clock_that_went_back_begins_anew():
    picture = Picture()
    saw(picture, START_NS + BACK_NS)
    saw(picture, START_NS)
    assert shown(picture) == START_NS


def test_a_window_whose_flows_may_be_others_is_forgotten():
    picture = Picture()
    saw(picture, START_NS)
    picture.expire(START_NS)
    assert shown(picture) == START_NS
    picture.expire(START_NS + 1)
    with pytest.raises(CapabilityMissing):
        shown(picture)


def test_each_question_has_its_answer():
    picture = Picture()
    saw(picture, START_NS)
    ends = {"source": ENDPOINTS[0].id, "target": ENDPOINTS[2].id}
    assert draw(picture, Fabric())["nodes"]
    assert draw(picture, Matrix())["cells"]
    assert draw(picture, Between(**ends))["sent"] == 2


def test_what_was_summed_up_stands_until_the_next_window():
    picture = Picture()
    saw(picture, START_NS)
    first = draw(picture, Matrix())
    assert draw(picture, Matrix()) is first
    for n in range(MAX_ANSWERS):
        draw(picture, Matrix(row=str(n)))
    again = draw(picture, Matrix())
    assert again == first
    assert again is not first
    saw(picture, START_NS + WIDTH_NS)
    assert draw(picture, Matrix())["at_ns"] == START_NS + WIDTH_NS


@given(st.lists(flows, min_size=1, max_size=3), st.sampled_from([Fabric(), Matrix(), Totals()]))
def test_what_is_kept_of_the_windows_before_changes_nothing(windows, asked):
    picture, numbers = Picture(), FlowNumbers()
    topology = topology_of([], numbers)
    for n, window in enumerate(windows):
        learn(topology, window)
        alone = Picture()
        for each in (picture, alone):
            each.saw(table_of(window, numbers, START_NS + n * WIDTH_NS), known(), topology)
        assert draw(picture, asked) == draw(alone, asked)


@pytest.mark.parametrize("asked", [Totals(), Fabric(), Matrix()])
def test_a_window_that_comes_meanwhile_changes_nothing_of_what_is_drawn(asked):
    picture, numbers = Picture(), FlowNumbers()
    picture.saw(table_of(WINDOW, numbers, START_NS), known(), topology_of(WINDOW, numbers))
    expected = draw(picture, asked)
    later = [Flow(0, 2, PORTS[0], 7, (1_000,), (1, 1))]
    for pieces in range(3):
        picture, topology = Picture(), topology_of(WINDOW, numbers)
        picture.saw(table_of(WINDOW, numbers, START_NS), known(), topology)
        drawing = picture.draw(asked)
        for _ in range(pieces + 1):
            next(drawing)
        learn(topology, later)
        picture.saw(table_of(later, numbers, START_NS + WIDTH_NS), known(), topology)
        assert finished(drawing) == expected
        assert draw(picture, asked)["at_ns"] == START_NS + WIDTH_NS


def test_who_prepares_leaves_a_fabric_little_to_do_and_changes_nothing_of_it(monkeypatch):
    monkeypatch.setattr(crossings, "BLOCK", 1)
    entered = []
    window = [Flow(0, b, PORTS[0], 1, (1_000,), (b // 2 % 2, 0)) for b in (2, 4, 6, 8)]
    whole_enter = crossings.Crossings._enter
    monkeypatch.setattr(
        crossings.Crossings, "_enter",
        lambda self, routes, rows: (entered.append(len(rows)), whole_enter(self, routes, rows)),
    )  # fmt: skip

    def fresh():
        picture, numbers = Picture(), FlowNumbers()
        picture.saw(table_of(window, numbers, 0), known(), topology_of(window, numbers))
        return picture

    def cost(prepared):
        entered.clear()
        preparing, drawing = prepared.prepare(), prepared.draw(Fabric())
        for _ in range(2):
            next(preparing)
        before = len(entered)
        try:
            while True:
                next(drawing)
                next(preparing, None)
        except StopIteration as drawn:
            return before, len(entered), drawn.value

    assert finished(Picture().prepare()) is None
    plain = draw(fresh(), Fabric())
    alone, entered[:] = len(entered), []
    before, all_of_them, drawn = cost(fresh())
    assert (before, all_of_them) == (2, alone)
    assert drawn == plain
