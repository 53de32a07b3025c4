# SPDX-License-Identifier: Apache-2.0
from tests.lab.usual import Usual


def test_a_job_that_is_told_nothing_only_trains() -> None:
    none = Usual()
    steps = range(200)
    assert not any(none.saves_s(0, step) or none.collects_s(0, step) for step in steps)
    assert not any(map(none.evaluates, steps))


def test_rank_0_saves_for_all_and_seldom_all_of_it() -> None:
    usual = Usual(save_every=10, save_s=3.0, full_every=40, full_s=75.0)
    saved = {step: usual.saves_s(0, step) for step in range(81) if usual.saves_s(0, step)}
    assert saved == {10: 3.0, 20: 3.0, 30: 3.0, 40: 75.0, 50: 3.0, 60: 3.0, 70: 3.0, 80: 75.0}
    assert not any(usual.saves_s(1, step) for step in range(81))


def test_ranks_collect_as_often_as_each_other_and_at_different_times() -> None:
    usual = Usual(collect_every=60, collect_s=0.15)
    of = [{step for step in range(1, 601) if usual.collects_s(rank, step)} for rank in range(8)]
    assert [len(each) for each in of] == 8 * [10]
    assert len(set.union(*of)) == 80


def test_all_ranks_evaluate_in_the_same_steps() -> None:
    usual = Usual(evaluate_every=40)
    assert [step for step in range(130) if usual.evaluates(step)] == [40, 80, 120]
