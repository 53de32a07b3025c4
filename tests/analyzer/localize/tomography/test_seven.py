# SPDX-License-Identifier: Apache-2.0
from analyzer.localize.tomography import seven
from analyzer.localize.tomography.observations import Builder


def ranking(*flows):
    """Return the ranking over flows of (ways, lost)."""
    builder = Builder()
    for ways, lost in flows:
        builder.flow([builder.leg(ways)], 10, lost)
    seen = builder.build()
    return seven.rank(seen, [name != "node" for name in seen.components])


def test_a_vote_is_shared_by_the_links_of_a_path():
    # "a" alone gets a whole vote, "b" two halves of it and "c" one half.
    found = ranking(([["a"]], 1), ([["a", "b"]], 1), ([["b", "c"]], 1))
    assert [each.component for each in found.ranked] == ["a", "b", "c"]


def test_what_is_blamed_takes_its_flows_along():
    flows = [([["a", "b"]], 1)] * 4 + [([["a", "c"]], 1)] * 3 + [([["d"]], 1)]
    found = ranking(*flows)
    assert found.decided
    # "b" has more votes than "d", all of them of flows that "a" explains.
    assert [each.component for each in found.ranked] == ["a", "d", "b", "c"]


def test_nothing_lost_is_nothing_blamed():
    found = ranking(([["a"]], 0))
    assert (found.decided, found.ranked) == (False, ())


def test_what_is_no_candidate_gets_no_vote():
    assert ranking(([["node"]], 5)).ranked == ()


def test_ways_that_may_have_been_taken_share_a_vote():
    found = ranking(([["a"], ["b"]], 1), ([["b"]], 1))
    assert found.ranked[0].component == "b"
