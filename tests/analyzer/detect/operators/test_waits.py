# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators.waits import Meeting, Waits
from analyzer.operators.log import UNKNOWN, Group, Kind, State, log_of
from tests.analyzer.detect.operators.test_hang import collective, rows


def test_a_rank_waits_first_where_it_began_first():
    waits = Waits(rows(collective(0, 4), collective(0, 5), collective(1, 3, State.ENDED)))
    assert waits.waiting == (0,)
    assert waits.first(0) == Meeting(0, 4)
    assert list(waits.all_of(0)) == [Meeting(0, 4), Meeting(0, 5)]
    assert waits.first(1) is None
    assert waits.waiters(Meeting(0, 5)) == [0]
    assert waits.waiters(Meeting(0, 9)) == []
    assert waits.first_here(Meeting(0, 5)) == []


def test_late_is_who_has_not_begun_it():
    waits = Waits(rows(collective(0, 4), collective(1, 4, State.ENDED), collective(2, 3)))
    assert waits.late(Meeting(0, 4)) == [2, 3]
    assert waits.reached(0, 1) == waits.ended(0, 1) == 4
    assert waits.ended(0, 0) == waits.reached(0, 3) == UNKNOWN


def test_members_that_nobody_states_are_those_seen():
    log = rows(collective(0, 4), collective(2, 3, State.ENDED), groups=(Group("g"),))
    assert Waits(log).members(Meeting(0, 4)) == (0, 2)
    loose = rows((0, Kind.COLLECTIVE, -1, -1, -1, State.STARTED))
    assert Waits(loose).members(Meeting(-1, -1)) == (0,)


def test_who_is_seen_goes_before_who_left_no_log():
    waits = Waits(rows(collective(0, 4), collective(1, 3, State.ENDED)))
    assert list(waits.onwards(Meeting(0, 4))) == [1]
    assert waits.seen == {0, 1}
    alone = Waits(rows(collective(0, 4), groups=(Group("g", members=(0, 7)),)))
    assert list(alone.onwards(Meeting(0, 4))) == [7]


def test_a_meeting_to_which_all_came_waits_for_who_has_something_before_it():
    groups = (Group("a", members=(0, 1)), Group("b", members=(1, 2)))
    log = rows(
        collective(0, 1), collective(1, 5, group=1), collective(1, 1), collective(2, 5, group=1),
        groups=groups,
    )  # fmt: skip
    waits = Waits(log)
    assert list(waits.onwards(Meeting(0, 1))) == [1]
    assert list(waits.onwards(1)) == [Meeting(1, 5)]
    assert list(waits.onwards(1, first=False)) == [Meeting(1, 5), Meeting(0, 1)]
    assert list(waits.onwards(Meeting(1, 5))) == []
    assert list(waits.onwards(9)) == []


def test_ages_are_of_one_rank_and_zero_where_nothing_is_known():
    columns = {
        "rank": [0, 0, 1], "kind": [Kind.COLLECTIVE] * 3, "group": [0] * 3, "sequence": [1, 2, 1],
        "state": [State.STARTED] * 3, "enqueued_ns": [10, 17, 99],
    }  # fmt: skip
    waits = Waits(log_of(columns, groups=(Group("g", members=(0, 1)),)))
    assert waits.age_ns(0, Meeting(0, 1)) == 7
    assert waits.age_ns(1, Meeting(0, 2)) == 0
    assert Waits(rows(collective(0, 4))).age_ns(0, Meeting(0, 4)) == 0
    assert waits.is_timed(0)
    assert not Waits(rows(collective(0, 4, State.ENQUEUED))).is_timed(0)
