# SPDX-License-Identifier: Apache-2.0
from analyzer.localize.tomography.likelihood import rank
from analyzer.localize.tomography.observations import Builder


def ranking(*flows):
    """Return the ranking over flows of (ways, sent, lost)."""
    builder = Builder()
    for ways, sent, lost in flows:
        builder.flow([builder.leg(ways)], sent, lost)
    seen = builder.build()
    return rank(seen, [0.0] * len(seen.components))


def test_what_is_blamed_comes_first_then_what_could_be_meant_then_the_rest():
    fine = [([["c"]], 100, 0)] * 5
    found = ranking(([["a", "b"]], 100, 50), ([["a", "b"]], 100, 50), ([["a"]], 20, 7), *fine)
    assert found.decided
    assert [each.component for each in found.ranked][:2] == ["a", "b"]
    assert found.ranked[0].confidence > 0.9
    assert found.missing == ()


def test_a_tie_is_not_decided_and_says_which_flows_would_tell():
    found = ranking(([["a"], ["b"]], 100, 50), *[([["c"]], 100, 0)] * 5)
    assert not found.decided
    assert {each.component for each in found.ranked[:2]} == {"a", "b"}
    assert found.missing == (
        "flows whose path is known across one of these, and not the others: a, b",
    )


def test_nothing_lost_ranks_nothing():
    found = ranking(([["a"]], 100, 0))
    assert (found.decided, found.ranked, found.missing) == (False, (), ())
