# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.roster.admission import BURST, BURST_BYTES, BYTES_PER_S, PER_S, Admission
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
