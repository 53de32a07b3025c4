# SPDX-License-Identifier: Apache-2.0
"""Round trips of a window: extremes, moments, and a histogram."""

import math
from dataclasses import dataclass, field

from netagent.wire.histogram import LN_GAMMA, value_of


@dataclass(slots=True)
class Digest:
    """Count, extremes, moments of ln(value) and histogram of round trips, in ns."""

    count: int = 0
    min_ns: int = 0
    max_ns: int = 0
    sum_ln: float = 0.0
    sum_ln2: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, value_ns: int) -> None:
        """Count one round trip; what is below 1 ns (clock granularity) counts as 1 ns."""
        value_ns = max(1, value_ns)
        ln = math.log(value_ns)
        if value_ns < self.min_ns or not self.count:
            self.min_ns = value_ns
        self.max_ns = max(self.max_ns, value_ns)
        self.count += 1
        self.sum_ln += ln
        self.sum_ln2 += ln * ln
        bucket = math.ceil(ln / LN_GAMMA)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    @property
    def mean_ln(self) -> float:
        """Mean of ln(ns); 0 where nothing was counted."""
        return self.sum_ln / self.count if self.count else 0.0

    @property
    def var_ln(self) -> float:
        """Population variance of ln(ns); 0 where nothing was counted."""
        if not self.count:
            return 0.0
        return max(0.0, self.sum_ln2 / self.count - self.mean_ln**2)

    def quantile(self, q: float) -> float:
        """Return the `q` quantile in ns, within 1 %; 0.0 where nothing was counted."""
        rank = q * (self.count - 1)
        below = 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below > rank:
                return value_of(bucket)
        return 0.0
