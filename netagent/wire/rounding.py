# SPDX-License-Identifier: Apache-2.0
"""Round trips of a window as a row tells them: as exactly as a few of them are worth.

A flow has two to four round trips in a window. Digits far below their own spread do not deflate,
and were half of a row; of two round trips, the moments and the histogram follow from the extremes.
"""

import math

FEW = 2
"""Round trips of which a row tells the extremes alone."""
BITS = 7
"""Binary digits of a time. Chosen: 0.8 % at most, less than the histogram's buckets allow, and an
eighth of what round trips of one flow differ by."""
HOST_BITS = 3
"""Binary digits of the time that a host took. Chosen: 12 % at most; late is what takes
milliseconds, and hosts at work take microseconds."""
PER_LN = 128
"""Steps of a logarithm per unit. Chosen: as exact as the times."""
VARIANCE_STEPS = 16
"""Steps up to each power of two of a variance. Chosen: 6 % of it at most, where that of four round
trips is known to a factor of two."""


def most_ns(bits: int) -> int:
    """Return the longest time of 32 bits that is told by so many digits."""
    return ((1 << bits) - 1) << 32 - bits


def rounded_ns(time_ns: int, bits: int = BITS) -> int:
    """Return a time of at most 32 bits as it is told."""
    shift = time_ns.bit_length() - bits
    if shift <= 0:
        return time_ns
    return min((time_ns + (1 << shift - 1)) >> shift << shift, most_ns(bits))


def rounded_ln(mean: float) -> float:
    """Return a mean of logarithms as it is told."""
    return round(mean * PER_LN) / PER_LN


def rounded_variance(variance: float) -> float:
    """Return a variance as it is told."""
    share, power = math.frexp(variance)
    return math.ldexp(round(share * VARIANCE_STEPS) / VARIANCE_STEPS, power)
