# SPDX-License-Identifier: Apache-2.0
"""Buckets of a latency histogram, which merges exactly.

Bucket i holds (GAMMA**(i-1), GAMMA**i]; its representative 2*GAMMA**i/(GAMMA+1) is within 1 % of
every value in it. Masson, Rim & Lee, "DDSketch", VLDB 2019.
"""

import math

RELATIVE_ERROR = 0.01
"""Largest relative error of a quantile (alpha of DDSketch). Chosen: 1 % of a round trip is less
than its noise."""
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
"""Ratio of a bucket's bounds: (1 + alpha) / (1 - alpha) of the DDSketch paper, cited above."""
LN_GAMMA = math.log(GAMMA)


def bucket_of(value_ns: int) -> int:
    """Return the bucket of `value_ns`; values under 1 ns share bucket 0."""
    return math.ceil(math.log(value_ns) / LN_GAMMA) if value_ns > 1 else 0


def value_of(bucket: int) -> float:
    """Return the representative of `bucket`, in ns."""
    return float(2 * GAMMA**bucket / (GAMMA + 1))
