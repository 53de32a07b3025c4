# SPDX-License-Identifier: Apache-2.0
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.probing.digest import Digest
from netagent.wire.histogram import RELATIVE_ERROR

RTTS = st.lists(st.integers(1, 4_000_000_000), min_size=1, max_size=60)


def of(values):
    digest = Digest()
    for value in values:
        digest.add(value)
    return digest


@given(RTTS)
def test_moments_are_those_of_the_values(values):
    digest = of(values)
    logs = [math.log(v) for v in values]
    assert (digest.count, digest.min_ns, digest.max_ns) == (len(values), min(values), max(values))
    assert digest.mean_ln == pytest.approx(statistics.fmean(logs), abs=1e-9)
    assert digest.var_ln == pytest.approx(statistics.pvariance(logs), abs=1e-6)


@given(RTTS, st.floats(0, 1))
def test_a_quantile_is_within_one_percent_of_the_sorted_values(values, q):
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert of(values).quantile(q) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.001)


@given(RTTS, RTTS)
def test_histograms_merge_exactly(left, right):
    a, b, both = of(left).buckets, of(right).buckets, of(left + right).buckets
    assert {k: a.get(k, 0) + b.get(k, 0) for k in a.keys() | b.keys()} == both


def test_an_empty_digest_says_nothing():
    assert (Digest().mean_ln, Digest().var_ln, Digest().quantile(0.5)) == (0.0, 0.0, 0.0)


def test_what_is_below_the_clocks_granularity_counts_as_one_nanosecond():
    assert of([0, -5]).buckets == {0: 2}
