# SPDX-License-Identifier: Apache-2.0
"""A link's two directions: what is said of one must be what was put in, or nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting.directions import OneWay, one_way
from analyzer.localize.voting.election import MIN_LOST, Ballot
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import link, switch

LINK = link("L0", "S0")
UNDERLAY = {0: "172.30.0.1", 1: "172.30.0.2"}
OUT, BACK, ELSEWHERE = ("L0", "S0", "L1"), ("L1", "S0", "L0"), ("L0", "S1", "L1")


def voted(*rows, maybe=False):
    """Return flows of (there, back, lost, sent) with their ballots, and what traces taught."""
    topology, votes, paths = LearnedTopology(), [], []
    for number, (there, back, lost, sent) in enumerate(rows):
        flow = FlowId(EndpointId(f"a{number}", 0), EndpointId(f"b{number}", 1), 40000)
        paths += [PathRow(flow, False, 1, there), PathRow(flow, True, 1, back)]
        parts = {link(a, b) for way in (there, back) for a, b in pairwise(way)}
        doubt = {switch("S9"): 0.5} if maybe else {}
        ballot = Ballot((number, 0), sent, lost, frozenset(parts), flow, doubt)
        votes.append((ballot, flow))
    for _ in range(2):
        topology.learn(PathTable.of(paths), lambda endpoint: UNDERLAY[endpoint.rail])
    return LINK, votes, topology


AROUND = ELSEWHERE[::-1]


def test_the_direction_that_loses_is_named_with_what_crosses_it():
    rows = [(OUT, AROUND, 10, 100)] * 3 + [(ELSEWHERE, BACK, 0, 100)] * 3
    rows += [(OUT, BACK, 9, 100), (ELSEWHERE, AROUND, 0, 500)]
    found = one_way(*voted(*rows))
    assert found == OneWay("L0", "S0", 39, 400, 0, 300)
    assert (found.rate, found.back_rate) == (39 / 400, 0.0)
    mirrored = [(back[::-1], there[::-1], lost, sent) for there, back, lost, sent in rows]
    assert one_way(*voted(*mirrored)) == OneWay("S0", "L0", 39, 400, 0, 300)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(OUT, AROUND, 10, 100), (ELSEWHERE, BACK, 8, 100)], id="both lose"),
        pytest.param([(OUT, AROUND, 40, 400), (ELSEWHERE, BACK, 8, 400)], id="both, one more"),
        pytest.param([(OUT, AROUND, 3, 30), (ELSEWHERE, BACK, 0, 30)], id="too few"),
        pytest.param([(OUT, BACK, 40, 400)], id="all cross it both ways"),
        pytest.param([(OUT, AROUND, 40, 400)], id="none crosses it the other way"),
        pytest.param([(OUT, AROUND, 40, 400), (ELSEWHERE, BACK, 0, 4)], id="hardly any does"),
    ],
)
def test_what_is_not_clear_is_not_said(rows):
    assert one_way(*voted(*rows, (ELSEWHERE, AROUND, 0, 500))) is None


def test_what_is_lost_everywhere_is_no_loss_of_the_other_direction():
    """Another fault loses two in a hundred of all that does not cross the link either."""
    rows = [(OUT, AROUND, 60, 400), (ELSEWHERE, BACK, 8, 400)]
    assert one_way(*voted(*rows, (ELSEWHERE, AROUND, 20, 1000))) == OneWay(
        "L0", "S0", 60, 400, 8, 400
    )
    assert one_way(*voted(*rows, (ELSEWHERE, AROUND, 0, 1000))) is None


def test_probes_whose_way_is_not_known_for_certain_do_not_count():
    rows = [(OUT, AROUND, 40, 400), (ELSEWHERE, BACK, 0, 400), (ELSEWHERE, AROUND, 0, 500)]
    assert one_way(*voted(*rows)) is not None
    assert one_way(*voted(*rows, maybe=True)) is None


COUNTS = st.integers(0, 300).flatmap(lambda sent: st.tuples(st.integers(0, sent), st.just(sent)))


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_whichever_direction_is_named_loses_more_and_enough(out, back, both, elsewhere):
    ways = ((OUT, AROUND), (ELSEWHERE, BACK), (OUT, BACK), (ELSEWHERE, AROUND))
    counts = (out, back, both, elsewhere)
    found = one_way(*voted(*[(*way, *n) for way, n in zip(ways, counts, strict=True)]))
    if found is not None:
        lossy, other = (out, back) if found.source == "L0" else (back, out)
        assert lossy[0] >= MIN_LOST
        assert lossy[0] * other[1] > other[0] * lossy[1]
        assert (found.back_lost, found.back_crossed) == other
        assert (found.lost, found.crossed) == (lossy[0] + both[0], lossy[1] + both[1])
