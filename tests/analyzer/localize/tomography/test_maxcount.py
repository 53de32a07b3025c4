# SPDX-License-Identifier: Apache-2.0
from analyzer.localize.tomography import maxcount
from analyzer.localize.tomography.observations import Builder


def ranking(*flows):
    """Return the ranking over flows of (ways, lost)."""
    builder = Builder()
    for ways, lost in flows:
        builder.flow([builder.leg(ways)], 10, lost)
    seen = builder.build()
    return maxcount.rank(seen, [name != "node" for name in seen.components])


def test_the_link_most_failing_paths_cross_is_blamed():
    found = ranking(([["a", "b"]], 1), ([["b", "c"]], 9), ([["c"]], 0))
    assert found.decided
    assert [each.component for each in found.ranked] == ["b", "a", "c"]
    assert found.ranked[0].explains == 10


def test_one_failing_path_is_not_enough():
    assert not ranking(([["a"]], 5), ([["b"]], 0)).decided


def test_links_with_as_many_votes_share_the_blame():
    found = ranking(([["a", "b"]], 1), ([["a", "b"]], 1))
    assert [each.confidence for each in found.ranked] == [0.5, 0.5]


def test_ways_that_may_have_been_taken_share_a_vote():
    found = ranking(([["a"], ["b"]], 1), ([["b"]], 1))
    assert [each.component for each in found.ranked] == ["b", "a"]


def test_what_is_no_candidate_gets_no_vote_and_nothing_lost_is_nothing_blamed():
    assert ranking(([["node"]], 5), ([["node"]], 5)).ranked == ()
    assert ranking(([["a"]], 0)).ranked == ()
