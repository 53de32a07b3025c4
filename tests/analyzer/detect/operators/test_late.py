# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators import hang
from analyzer.detect.operators.verdict import Holdup
from analyzer.operators.log import Group, Kind, State
from tests.analyzer.detect.operators.test_hang import FOUR, collective, named, rows


def test_who_waits_in_what_ended_at_others_is_no_suspect_beside_one_that_explains_all():
    ended = [collective(rank, 4, State.ENDED) for rank in (0, 1, 2)]
    log = rows(*ended, collective(3, 4), collective(0, 5), collective(1, 5))
    assert [ranks for _, ranks in named(hang.judge(log))] == [(2,)]


def test_a_dump_from_before_is_known_by_any_group_it_had():
    groups = (*FOUR, Group("h", members=(0, 3)))
    log = rows(
        *(collective(rank, 4, State.ENDED) for rank in (2, 3)), collective(0, 5), collective(1, 5),
        collective(3, 7, State.ENDED, group=1), collective(0, 8, State.ENDED, group=1),
        groups=groups,
    )  # fmt: skip
    assert [ranks for _, ranks in named(hang.judge(log))] == [(2,)]


def test_a_dump_from_before_a_transfer_that_its_peer_has_is_known():
    log = rows(
        *(collective(rank, 4, State.ENDED) for rank in (2, 3)), collective(0, 5), collective(1, 5),
        (3, Kind.SEND, -1, 0, 1, State.ENDED), (0, Kind.RECV, -1, 3, 2, State.ENDED),
    )  # fmt: skip
    assert [ranks for _, ranks in named(hang.judge(log))] == [(2,)]


def test_where_others_are_in_what_all_came_to_the_job_may_be_at_work():
    groups = (*FOUR, Group("h", members=(0, 1)))
    waiting = [collective(rank, 9, group=1) for rank in (0, 1)]
    log = rows(*waiting, collective(2, 5), collective(3, 4, State.ENDED), groups=groups)
    verdict = hang.judge(log)
    assert (verdict.holdup, verdict.culprits) == (Holdup.INSUFFICIENT, ())
    assert "may just be at work" in verdict.summary
    given_up = rows(
        *waiting, collective(2, 5), collective(3, 4, State.ENDED), groups=groups, overdue=1
    )
    assert [ranks for _, ranks in named(hang.judge(given_up))] == [(3,)]


def test_a_rank_without_a_log_is_named_where_all_others_wait_for_it_in_the_end():
    groups = (*FOUR, Group("h", members=(2, 3)))
    log = rows(
        collective(0, 5), collective(1, 5), collective(2, 9, group=1), groups=groups, unseen=(3,)
    )
    verdict = hang.judge(log)
    assert (verdict.holdup, [ranks for _, ranks in named(verdict)]) == (Holdup.HANG_RANK, [(3,)])
