# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given

from analyzer.intake.flows import FlowNumbers
from analyzer.picture.asked import Between, Fabric, Matrix, Totals
from analyzer.picture.picture import BACK_NS, MAX_ANSWERS, Picture, totals
from netagent.model.errors import CapabilityMissing
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    PORTS,
    START_NS,
    WIDTH_NS,
    Flow,
    flows,
    known,
    scene_of,
    table_of,
    topology_of,
    whole,
)

WINDOW = [Flow(0, 2, PORTS[0], 1, (1_000,), (0, 0))]


def shown(picture):
    return picture.draw(Totals())["at_ns"]


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
        Picture().draw(Totals())


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
    assert picture.draw(Fabric())["nodes"]
    assert picture.draw(Matrix())["cells"]
    assert picture.draw(Between(**ends))["sent"] == 2


def test_what_was_summed_up_stands_until_the_next_window():
    picture = Picture()
    saw(picture, START_NS)
    first = picture.draw(Matrix())
    assert picture.draw(Matrix()) is first
    for n in range(MAX_ANSWERS):
        picture.draw(Matrix(row=str(n)))
    again = picture.draw(Matrix())
    assert again == first
    assert again is not first
    saw(picture, START_NS + WIDTH_NS)
    assert picture.draw(Matrix())["at_ns"] == START_NS + WIDTH_NS
