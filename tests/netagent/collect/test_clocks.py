# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.clocks import KEPT, ClockEstimate
from netagent.wire.messages import ClockOffset

MS = 1_000_000
T0 = 1_700_000_000 * 10**9


@given(
    st.integers(-3_600_000 * MS, 3_600_000 * MS),
    st.lists(
        st.tuples(*[st.integers(0, 500 * MS) for _ in range(3)]), min_size=1, max_size=2 * KEPT
    ),
)
def test_the_true_offset_is_within_the_error_whatever_the_ways_take(offset_ns, trips):
    estimate, at_ns = ClockEstimate(), 0
    for there, held, back in trips:
        t1 = T0 + at_ns
        t2 = t1 + there + offset_ns
        t3 = t2 + held
        t4 = t3 + back - offset_ns
        at_ns += there + held + back
        estimate.add(t1, t2, t3, t4, now_ns=at_ns)
        told = estimate.best(now_ns=at_ns)
        assert abs(told.offset_ns - offset_ns) <= told.error_ns + 1


def test_the_quickest_exchange_counts_until_clocks_may_have_drifted():
    estimate = ClockEstimate()
    estimate.add(T0, T0 + MS, T0 + MS, T0 + 2 * MS, now_ns=0)
    estimate.add(T0, T0 + 60 * MS, T0 + 60 * MS, T0 + 100 * MS, now_ns=0)
    assert estimate.best(now_ns=0) == ClockOffset(offset_ns=0, error_ns=MS)
    assert estimate.best(now_ns=100 * 10**9).error_ns == 6 * MS


def test_stamps_that_make_no_sense_are_left_out():
    estimate = ClockEstimate()
    for stamps in ((T0, 0, 0, T0 + 1), (T0, T0 + 9, T0 + 8, T0 + 20), (T0, T0, T0 + 9, T0 + 3)):
        estimate.add(*stamps, now_ns=0)
    assert estimate.best(now_ns=0) is None


def test_a_clock_that_was_set_is_compared_anew():
    estimate = ClockEstimate()
    estimate.add(T0, T0 + 1, T0 + 1, T0 + 2, now_ns=0)
    estimate.forget()
    assert estimate.best(now_ns=0) is None
