# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators import hang, stuck
from analyzer.detect.operators.verdict import Holdup, Who
from analyzer.operators.log import Group, State
from tests.analyzer.detect.operators.test_hang import FOUR, collective, named, rows

ALL = [collective(rank, 4) for rank in range(4)]


def test_dumps_that_a_watchdog_writes_show_a_network_that_stands_still():
    verdict = hang.judge(rows(*ALL, at_rest=True))
    assert (verdict.holdup, named(verdict)) == (
        Holdup.HANG_COMMUNICATION, [(Who.GROUP, (0, 1, 2, 3))]
    )  # fmt: skip
    assert verdict.culprits[0].confidence == stuck.AT_REST_CONFIDENCE
    assert stuck.GOES_ON in verdict.missing


def test_what_a_program_asked_for_does_not():
    assert hang.judge(rows(*ALL)).culprits == ()


def test_nor_where_a_rank_has_no_dump_or_waits_for_nothing_or_has_left():
    log = rows(*ALL[:3], groups=(Group("g", members=(0, 1, 2)),), unseen=(3,), at_rest=True)
    assert hang.judge(log).culprits == ()
    groups = (Group("g", members=(0, 1, 2)),)
    log = rows(*ALL[:3], collective(3, 1, State.ENDED), groups=groups, at_rest=True)
    assert hang.judge(log).culprits == ()
    left = rows(*ALL[:3], collective(3, 4, State.ENDED), collective(3, 9, group=1), at_rest=True,
                groups=(*FOUR, Group("h", members=(3,))))  # fmt: skip
    assert hang.judge(left).culprits == ()


def test_several_that_are_under_way_at_once_are_a_job_at_work():
    groups = (Group("a", members=(0, 1)), Group("b", members=(2, 3)))
    log = rows(
        collective(0, 1), collective(1, 1), collective(2, 1, group=1), collective(3, 1, group=1),
        groups=groups, at_rest=True,
    )  # fmt: skip
    assert hang.judge(log).culprits == ()
