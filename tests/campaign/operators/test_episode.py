# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.detect.operators.verdict import Culprit, Who
from analyzer.simulate.operators.faults import Blame, Fault
from tests.campaign.operators.episode import SHAPES, episode, is_to_blame, matches, outcome
from tests.campaign.operators.report import blamed, plain, share, table

SEED = 500_000
"""Neither tuned on, nor of those that judge: a wrong one here is to be looked at."""


def test_the_campaign_in_short_names_who_is_at_fault_and_nobody_else():
    outcomes = [outcome(episode(SEED + n, 64)) for n in range(60)]
    guilty = [each for each in outcomes if blamed(each)]
    assert len(guilty) > 30
    assert sum(each.first["netagent"] for each in guilty) >= 0.95 * len(guilty)
    assert not any(each.false["netagent"] for each in outcomes)
    quiet = [each for each in outcomes if not blamed(each)]
    assert sum(each.told for each in quiet) >= 0.9 * len(quiet)
    # Simpler rules are worse, or the episodes are too easy to show anything.
    for rule in ("ratios to means", "who waits least", "one iteration"):
        assert sum(each.first[rule] for each in guilty) < 0.9 * len(guilty)
    lines = list(table(list(plain(outcomes))))
    assert any(line.startswith("netagent         right first") for line in lines)


@pytest.mark.parametrize("ranks", SHAPES)
def test_every_episode_has_as_many_ranks_as_asked_for(ranks):
    for seed in range(20):
        each = episode(SEED + seed, ranks)
        assert each.job.world == ranks
        assert all(0 <= fault.rank < ranks for fault in each.faults)


def test_an_episode_is_the_same_each_time():
    assert episode(SEED, 64) == episode(SEED, 64)


def test_a_rank_beside_the_one_to_blame_is_wrong():
    truth = Blame(Who.RANK, frozenset({3}))
    assert matches(Culprit(Who.RANK, (3,), 0.9, ""), Fault.SLOW_RANK, truth)
    assert not matches(Culprit(Who.RANK, (2,), 0.9, ""), Fault.SLOW_RANK, truth)
    assert not matches(Culprit(Who.EDGE, (3, 4), 0.9, ""), Fault.SLOW_RANK, truth)
    assert matches(Culprit(Who.EDGE, (3, 4), 0.9, ""), Fault.NIC, truth)


@pytest.mark.parametrize(("kind", "ranks", "fault", "truth", "blamed"), [
    (Who.RANK, (3,), Fault.SLOW_RANK, Blame(Who.RANK, frozenset({3})), True),
    (Who.RANK, (2,), Fault.SLOW_RANK, Blame(Who.RANK, frozenset({3})), False),
    (Who.GROUP, (3, 4), Fault.SLOW_RANK, Blame(Who.RANK, frozenset({3})), False),
    (Who.RANK, (3,), Fault.LINK, Blame(Who.EDGE, frozenset({3, 7})), False),
    (Who.EDGE, (3, 7), Fault.LINK, Blame(Who.EDGE, frozenset({3, 7})), True),
    (Who.EDGE, (3, 8), Fault.LINK, Blame(Who.EDGE, frozenset({3, 7})), False),
    (Who.EDGE, (3, 7), Fault.LOSSY, Blame(Who.RANK, frozenset({3})), True),
    (Who.EDGE, (3, 7), Fault.SLOW_RANK, Blame(Who.RANK, frozenset({3})), False),
    (Who.RANK, (3,), Fault.HOST, Blame(Who.HOST, frozenset(range(8))), True),
    (Who.RANK, (3,), Fault.RING, Blame(Who.GROUP, frozenset({3, 7})), False),
    (Who.RANK, (3,), Fault.LAST_STAGE, Blame(Who.GROUP, frozenset({3, 7})), True),
    (Who.GROUP, (3, 9), Fault.HOST, Blame(Who.HOST, frozenset(range(8))), False),
])  # fmt: skip
def test_who_is_named_beside_those_at_fault_is_healthy(kind, ranks, fault, truth, blamed):
    assert is_to_blame(Culprit(kind, ranks, 0.9, ""), fault, truth) is blamed


def test_a_share_has_its_interval():
    made = share("x", np.array([True] * 9 + [False]).tolist())
    assert (made["hits"], made["of"], made["share"]) == (9, 10, 0.9)
    assert made["low"] < 0.9 < made["high"]
