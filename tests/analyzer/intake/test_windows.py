# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.windows import GRACE_NS, KEPT, MOST_NS, QUIET_NS, Watermarks
from netagent.wire.messages import Summary

WIDTH = 5_000_000_000


def rows(host, window):
    return FlowNumbers().decode(
        Summary(host=host, instance="i", start_ns=window * WIDTH, width_ns=WIDTH)
    )


def add(marks, host, window, now_ns=0):
    marks.add(rows(host, window), (), now_ns=now_ns or (window + 1) * WIDTH)


def starts(states):
    return [state.window.start_ns // WIDTH for state in states]


def test_a_window_closes_when_all_reported_or_after_the_grace():
    marks = Watermarks()
    add(marks, "a", 3)
    end = 4 * WIDTH
    assert marks.close({"a", "b"}, now_ns=end + GRACE_NS - 1) == []
    add(marks, "b", 3)
    assert starts(marks.close({"a", "b"}, now_ns=end)) == [3]
    add(marks, "a", 4)
    assert starts(marks.close({"a", "b"}, now_ns=5 * WIDTH + GRACE_NS)) == [4]


def test_a_window_waits_for_the_end_of_a_burst_that_takes_longer():
    marks, end = Watermarks(), 4 * WIDTH
    for number in range(1000):
        came_ns = end + number * QUIET_NS // 2
        if marks.close({"never"}, now_ns=came_ns):
            break
        add(marks, f"h{number}", 3, now_ns=came_ns)
    assert end + MOST_NS <= came_ns < end + MOST_NS + QUIET_NS


def test_a_burst_is_over_once_it_pauses():
    marks, late_ns = Watermarks(), 4 * WIDTH + GRACE_NS + QUIET_NS
    add(marks, "a", 3, now_ns=late_ns)
    assert marks.overdue_ns(WIDTH) == late_ns + QUIET_NS
    add(marks, "a", 3, now_ns=late_ns + 1)  # who repeats itself holds nobody up
    assert marks.close({"a", "b"}, now_ns=late_ns + QUIET_NS - 1) == []
    assert starts(marks.close({"a", "b"}, now_ns=late_ns + QUIET_NS)) == [3]


def test_a_running_window_does_not_close_early():
    marks = Watermarks()
    add(marks, "a", 3, now_ns=3 * WIDTH)
    assert marks.close({"a"}, now_ns=4 * WIDTH - 1) == []


def test_a_window_nobody_reported_is_judged_too():
    marks = Watermarks()
    marks.ensure(WIDTH, now_ns=4 * WIDTH + 1)
    (state,) = marks.close({"a"}, now_ns=4 * WIDTH + GRACE_NS)
    assert (state.window.start_ns, state.rows) == (3 * WIDTH, {})
    marks.ensure(WIDTH, now_ns=4 * WIDTH + GRACE_NS)
    assert marks.close({"a"}, now_ns=4 * WIDTH + 2 * GRACE_NS) == []


def test_windows_of_a_future_that_a_wrong_clock_saw_are_forgotten():
    marks = Watermarks()
    add(marks, "a", 2)
    marks.begin(now_ns=40 * WIDTH)
    marks.ensure(WIDTH, now_ns=41 * WIDTH)
    assert starts(marks.close({"a"}, now_ns=41 * WIDTH + GRACE_NS)) == [40]
    add(marks, "a", 3)
    assert marks.late == 1
    marks.set_back(now_ns=4 * WIDTH)
    for window in (3, 4):
        add(marks, "a", window)
    assert marks.late == 1
    assert starts(marks.close({"a"}, now_ns=5 * WIDTH)) == [4]  # the other one was history


def test_history_is_taken_in_and_judged_no_more():
    marks = Watermarks()
    assert marks.begin(now_ns=0) == []
    for window in (8, 7, 99, 100):
        add(marks, "a", window, now_ns=100 * WIDTH)
    assert starts(marks.begin(now_ns=100 * WIDTH)) == [7, 8, 99]
    assert starts(marks.close({"a"}, now_ns=101 * WIDTH)) == [100]


def test_windows_that_were_judged_keep_no_rows_and_those_that_wait_do():
    marks = Watermarks()
    for window in (3, 4, 5):
        add(marks, "a", window)
    closed = marks.close({"a"}, now_ns=6 * WIDTH)
    marks.let_go(5 * WIDTH)
    add(marks, "b", 4)  # too late for anybody
    add(marks, "b", 5)  # it waits to be judged
    assert [list(state.rows) for state in closed] == [[], [], ["a", "b"]]
    assert marks.late == 2
    assert [list(state.rows) for state in marks.recent(3)] == [["a", "b"], [], []]


def test_late_and_early_summaries_are_counted():
    marks = Watermarks()
    for window in (3, 4):
        add(marks, "a", window)
    marks.close({"a"}, now_ns=6 * WIDTH)
    add(marks, "b", 3)
    add(marks, "c", 1)
    add(marks, "d", 1000, now_ns=5 * WIDTH)
    assert (marks.late, marks.ahead) == (2, 1)
    assert set(marks.recent(2)[1].rows) == {"a", "b"}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(0, 3)), max_size=80)
)
def test_each_window_is_returned_once_and_in_order(script):
    marks, now_ns, closed = Watermarks(), 0, []
    for host, window, wait in script:
        now_ns += wait * GRACE_NS
        add(marks, host, window, now_ns=now_ns)
        closed += starts(marks.close({"a", "b"}, now_ns=now_ns))
    closed += starts(marks.close(set(), now_ns=1000 * WIDTH))
    assert closed == sorted(set(closed))
    assert len(marks.recent(1000)) <= KEPT


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=20))
def test_nothing_closes_before_it_may(happens):
    """The oracle closes at each moment, whether or not anything may."""
    asked, always = Watermarks(), Watermarks()
    now_ns = 2 * WIDTH
    for comes, later in happens:
        now_ns += later * WIDTH // 10
        if comes:
            for marks in (asked, always):
                add(marks, "a", now_ns // WIDTH - 1, now_ns=now_ns)
        may = asked.may_close(WIDTH, now_ns=now_ns)
        always.ensure(WIDTH, now_ns=now_ns)
        closed = starts(always.close({"a"}, now_ns=now_ns))
        if may:
            asked.ensure(WIDTH, now_ns=now_ns)
            assert starts(asked.close({"a"}, now_ns=now_ns)) == closed
        assert may or not closed
