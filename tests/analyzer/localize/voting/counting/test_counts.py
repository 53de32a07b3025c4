# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.localize.voting.counting.counts import Wanted, counted_on, crossed_to, middle
from netagent.model.path import link, switch
from netagent.wire.messages import PathAnswer
from tests.analyzer.localize.voting.counting.ways import (
    FABRIC,
    FAR,
    FLOW,
    NEAR,
    SPINE,
    UNTRACED,
    way,
)


def test_routers_that_are_silent_break_what_is_crossed():
    assert crossed_to(("a", "b", "", "c", "d"), 5) == {
        *map(switch, "abcd"), link("a", "b"), link("c", "d"),
    }  # fmt: skip
    assert crossed_to(("a", "b"), 1) == {switch("a")}
    assert crossed_to((), 3) == set()


@pytest.mark.parametrize(("routers", "up"), [("a", 1), ("abc", 2), ("abcde", 3)])
def test_the_topmost_router_is_the_last_from_which_there_is_one_way_back(routers, up):
    assert middle(routers) == up


def test_a_way_that_a_host_found_is_its_own_and_one_of_a_flow_is_as_that_was_traced():
    assert way("spine-1", 50, 50, 50).own
    answer = PathAnswer(source_port=0, outer_port=1, sent=9, answered=(9, 9, 9))
    mine = counted_on(Wanted(FLOW), answer, FABRIC.topology())
    assert (mine.own, mine.routers[:2]) == (False, (NEAR, SPINE))
    assert counted_on(Wanted(FLOW), answer, UNTRACED).routers == ()


def test_a_router_that_answers_for_the_next_ones_is_not_where_they_are():
    """As a lab gave it: the leaf lost its route to the spine, and said so once a second."""
    for hops in ((NEAR, NEAR, ""), (NEAR, "", NEAR)):
        answer = PathAnswer(source_port=0, outer_port=1, hops=hops, sent=100, answered=(100, 1, 0))
        assert counted_on(Wanted(FLOW), answer, FABRIC.topology()).routers == (NEAR, SPINE, FAR)
