# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.abi import BUCKETS
from bpf.trace.histogram import bucket_of, lower_ns, quantile_ns

latencies = st.integers(0, (1 << 32) - 1) | st.integers(0, 64)


@given(latencies)
def test_a_latency_falls_between_its_buckets_bounds(latency_ns):
    bucket = bucket_of(latency_ns)
    assert lower_ns(bucket) <= latency_ns
    assert latency_ns < lower_ns(bucket + 1)


def test_every_bucket_is_wider_than_none_and_in_order():
    bounds = [lower_ns(bucket) for bucket in range(BUCKETS)]
    assert bounds[0] == 0
    assert bounds == sorted(set(bounds))
    assert bucket_of(1 << 40) == BUCKETS - 1


@given(st.lists(latencies, min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_a_quantile_is_an_eighth_off_at_most(samples, share):
    buckets = [0] * BUCKETS
    for sample in samples:
        buckets[bucket_of(sample)] += 1
    ordered = sorted(samples)
    exact = ordered[max(0, -(-int(share * 100) * len(samples) // 100) - 1)]
    estimate = quantile_ns(buckets, share)
    assert estimate is not None
    assert abs(estimate - exact) <= max(1, exact // 8)


def test_without_samples_there_is_no_quantile():
    assert quantile_ns([0] * BUCKETS, 0.5) is None
