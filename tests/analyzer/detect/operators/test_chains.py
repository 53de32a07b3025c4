# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators.chains import ends_of
from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.operators.log import Group, State
from tests.analyzer.detect.operators.test_hang import collective, rows


def ends(log, *, first=True):
    return ends_of(Waits(log), first=first)


def test_the_end_of_a_chain_is_who_waits_for_nobody():
    groups = (Group("a", members=(0, 1)), Group("b", members=(1, 2)))
    log = rows(
        collective(0, 1), collective(1, 1, group=1), collective(2, 0, State.ENDED, group=1),
        groups=groups,
    )  # fmt: skip
    found = ends(log)
    assert (found.late, found.stuck, found.circles) == ((2,), (), ())


def test_what_all_came_to_is_an_end():
    found = ends(rows(*(collective(rank, 1) for rank in range(4))))
    assert found.stuck == (Meeting(0, 1),)


def test_what_one_rank_waits_in_alone_says_not_for_whom():
    found = ends(rows(collective(0, 1), groups=(Group("?1", members=(0,)),)))
    assert (found.unknown, found.stuck, found.late) == ((Meeting(0, 1),), (), ())


def test_who_left_no_log_is_another_end():
    log = rows(*(collective(rank, 1) for rank in (0, 1, 2)), unseen=(3,))
    assert ends(log).unseen == (3,)
