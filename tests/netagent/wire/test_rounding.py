# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.wire.rounding import (
    BITS,
    HOST_BITS,
    PER_LN,
    most_ns,
    rounded_ln,
    rounded_ns,
    rounded_variance,
)  # fmt: skip

TIMES = st.integers(0, 2**32 - 1)


@given(TIMES, st.sampled_from([BITS, HOST_BITS]))
def test_a_time_is_told_within_half_of_its_last_digit(time_ns, bits):
    told = rounded_ns(time_ns, bits)
    assert abs(told - time_ns) <= time_ns / 2**bits or told == most_ns(bits)
    assert rounded_ns(told, bits) == told <= most_ns(bits)
    assert told % (1 << max(0, told.bit_length() - bits)) == 0


@given(TIMES, TIMES)
def test_rounding_keeps_the_order(one_ns, other_ns):
    least, most = sorted([one_ns, other_ns])
    assert rounded_ns(least) <= rounded_ns(most)


@pytest.mark.parametrize(
    ("time_ns", "told_ns"),
    [(0, 0), (127, 127), (128, 128), (129, 130), (20_100, 20_224), (2**32 - 1, 0xFE00_0000)],
)
def test_short_times_are_told_as_they_are(time_ns, told_ns):
    assert rounded_ns(time_ns) == told_ns


@given(st.floats(0, 23))
def test_a_mean_is_told_as_exactly_as_a_time(mean):
    assert abs(rounded_ln(mean) - mean) <= 0.5 / PER_LN


@given(st.floats(0, 500))
def test_a_variance_is_told_to_a_sixteenth(variance):
    told = rounded_variance(variance)
    assert math.isclose(told, variance, rel_tol=1 / 16)
    assert rounded_variance(told) == told
