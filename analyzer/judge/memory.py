# SPDX-License-Identifier: Apache-2.0
"""What the judge has the C library do with memory."""

import ctypes

# Of glibc's malloc.h: options of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def keep_freed() -> bool:
    """Have what is freed kept for what is asked for next; return whether the C library can.

    Each window asks for hundreds of megabytes, and half a minute of 40,000 RNICs for gigabytes.
    Otherwise they go back to the kernel and are cleared by it when they are asked for again, which
    took a third of such a half minute. The process stays as large as it once was.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    # Neither mappings of their own for what is large, nor an end of the heap that is given back,
    # nor a heap for each thread: what half a minute needed has room for the minute that is written.
    wanted = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    taken = [mallopt(*each) for each in wanted]
    return all(taken)
