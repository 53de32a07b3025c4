# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from analyzer.simulate.clocks import SteppedClock

S = 1_000_000_000
START, WIDTH = 1_000 * S, 5 * S


def closed(steps, seconds=60):
    clock = SteppedClock([(START + int(at * S), int(by * S)) for at, by in steps], START, WIDTH)
    windows = [each for n in range(5, seconds + 1, 5) for each in clock.until(START + n * S)]
    return [
        ((each.start_ns - START) // S, (each.true_ns - START) / S, each.steps) for each in windows
    ]


def test_a_clock_that_is_right_closes_each_window_at_its_end():
    assert closed([], 20) == [(0, 5.0, 0), (5, 10.0, 0), (10, 15.0, 0), (15, 20.0, 0)]


def test_a_clock_that_is_set_ahead_skips_windows_and_stays_early():
    assert closed([(7.5, 12)], 20) == [(0, 5.0, 0), (5, 8.0, 1), (20, 13.0, 1), (25, 18.0, 1)]


def test_a_clock_that_is_set_back_a_little_makes_a_window_longer():
    assert closed([(7, -3)], 20) == [(0, 5.0, 0), (5, 13.0, 1), (10, 18.0, 1)]


def test_a_clock_that_is_set_back_far_sends_nothing_until_it_has_caught_up():
    told = closed([(7, -20)], 40)
    assert told[0] == (0, 5.0, 0)
    assert told[1:] == [(5, 30.0, 1), (10, 35.0, 1), (15, 40.0, 1)]


def test_a_step_that_is_taken_back_is_two():
    assert closed([(7, 12), (14, -12)])[-1][2] == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-30, 30)), max_size=4))
def test_no_window_is_sent_twice_and_none_is_closed_before_it_ends(steps):
    told = closed(steps)
    assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(told))
    for start_s, true_s, _ in told:
        wall_s = true_s + sum(by for at, by in steps if at <= true_s)
        assert wall_s >= start_s + 5
