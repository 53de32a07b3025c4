# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster.admission import (
    BURST,
    BURST_BYTES,
    BYTES_PER_S,
    FAIR,
    FAIR_BYTES_PER_S,
    PER_S,
    PERIOD_NS,
    Admission,
)
from netagent.model.errors import CapabilityMissing

S = 10**9


def taken(admission, host, size, now_ns):
    try:
        admission.take(host, size, now_ns)
    except CapabilityMissing:
        return False
    return True


@given(st.lists(st.tuples(st.integers(0, 20 * S), st.integers(0, 16 << 20)), max_size=300))
def test_no_host_sends_more_than_a_burst_and_what_time_brings(sent):
    admission, now_ns, number, size = Admission(), 0, 0, 0
    for later_ns, length in sent:
        now_ns += later_ns
        if taken(admission, "h0", length, now_ns):
            number, size = number + 1, size + length
    assert number <= BURST + PER_S * now_ns / S
    assert size <= BURST_BYTES + BYTES_PER_S * now_ns / S


def test_an_hour_of_windows_comes_at_once_and_more_of_them_at_a_rate():
    admission = Admission()
    assert all(taken(admission, "h0", 6_000, 0) for _ in range(BURST))
    assert not taken(admission, "h0", 6_000, 0)
    assert sum(taken(admission, "h0", 6_000, S) for _ in range(BURST)) == PER_S


def test_what_one_host_sends_costs_no_other_its_room():
    admission = Admission()
    while taken(admission, "h0", 1 << 20, 0):
        pass
    assert taken(admission, "h1", 1 << 20, 0)
    with pytest.raises(CapabilityMissing, match="h0"):
        admission.take("h0", 1 << 20, 0)


def test_who_says_an_earlier_time_is_given_nothing_for_it():
    admission = Admission()
    while taken(admission, "h0", 1, 100 * S):
        pass
    for earlier_ns in (0, 50 * S, 99 * S):
        assert not taken(admission, "h0", 1, earlier_ns)
        assert not taken(admission, "h0", 1, 100 * S)
    assert taken(admission, "h0", 1, 101 * S)


def test_who_may_send_all_again_is_forgotten_and_nobody_else():
    admission = Admission()
    while taken(admission, "h0", 1 << 20, 0):
        pass
    admission.forget(60 * S)
    assert not taken(admission, "h0", BURST_BYTES, 60 * S)
    admission.forget(3600 * S)
    assert not admission._buckets


def spent(admission, host, since_ns, until_ns):
    """Send all that may be, ten times a minute; return how many bytes that were."""
    sent = 0
    for now_ns in range(since_ns, until_ns, 6 * S):
        while taken(admission, host, 128 << 10, now_ns):
            sent += 128 << 10
    return sent


@pytest.mark.parametrize(
    ("each_per_s", "most_per_s"),
    [(1_000, FAIR_BYTES_PER_S), (5_000, FAIR * 5_000), (100_000, BYTES_PER_S)],
)
def test_for_long_one_host_sends_no_more_than_some_times_what_most_send(each_per_s, most_per_s):
    admission = Admission()
    hour_ns = 3600 * S
    for now_ns in range(0, hour_ns, 60 * S):
        for host in range(9):
            assert taken(admission, f"h{host}", each_per_s * 60, now_ns)
    before = spent(admission, "greedy", hour_ns, hour_ns + S)
    assert before == BURST_BYTES
    for now_ns in range(hour_ns, hour_ns + 1200 * S, 60 * S):
        for host in range(9):
            assert taken(admission, f"h{host}", each_per_s * 60, now_ns)
        spent(admission, "greedy", now_ns, now_ns + 60 * S)
    assert admission.bytes_per_s == pytest.approx(most_per_s, rel=0.15)


def test_a_period_in_which_nobody_sent_leaves_each_its_least():
    admission = Admission()
    assert taken(admission, "h0", 1, 0)
    assert taken(admission, "h0", 1, 2 * PERIOD_NS)
    assert taken(admission, "h0", 1, 4 * PERIOD_NS)
    assert admission.bytes_per_s == FAIR_BYTES_PER_S
