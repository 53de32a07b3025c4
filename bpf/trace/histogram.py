# SPDX-License-Identifier: Apache-2.0
"""Latency histograms as the programs fill them: four buckets per power of two, in nanoseconds."""

from collections.abc import Sequence

from bpf.trace.abi import BUCKETS


def lower_ns(bucket: int) -> int:
    """Return the smallest latency that falls into `bucket`, in nanoseconds."""
    if bucket < 4:
        return bucket
    power, step = bucket // 4 + 1, bucket % 4
    return (4 + step) << (power - 2)


def bucket_of(latency_ns: int) -> int:
    """Return the bucket of a latency: what `bucket_of` of include/journey.h does."""
    if latency_ns < 4:
        return latency_ns
    if latency_ns >= 1 << 32:
        return BUCKETS - 1
    power = latency_ns.bit_length() - 1
    return 4 * (power - 1) + (latency_ns >> (power - 2) & 3)


def quantile_ns(buckets: Sequence[int], share: float) -> int | None:
    """Return the latency that `share` of the samples do not exceed; None without samples.

    It is the middle of a bucket, at most 12.5 % off.
    """
    total = sum(buckets)
    if not total:
        return None
    rank, seen = share * total, 0
    for bucket, count in enumerate(buckets):
        seen += count
        if count and seen >= rank:
            return (lower_ns(bucket) + max(lower_ns(bucket), lower_ns(bucket + 1) - 1)) // 2
    return lower_ns(BUCKETS - 1)
