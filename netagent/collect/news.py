# SPDX-License-Identifier: Apache-2.0
"""In which windows' summaries a host says what seldom changes: once in a minute, and as it does.

So an analyzer that starts anew, or lost a summary, knows within a minute what each host has. Pure.
"""

from typing import Generic, TypeVar
from zlib import crc32

AGAIN_NS = 60_000_000_000
"""Nanoseconds from one window with all of it to the next one. Chosen: half of the time that an
analyzer reads again after a restart; some hundred bytes a minute."""

T = TypeVar("T")


class News(Generic[T]):
    """What was said of one thing of a host: of its inventory, of its part of a controller."""

    def __init__(self, host: str) -> None:
        # Without the difference all hosts would say it in one and the same window.
        self._phase_ns = crc32(host.encode()) * AGAIN_NS >> 32
        self._said: T | None = None
        self._minute = 0

    def of(self, now: T | None, *, start_ns: int) -> T | None:
        """Return what the summary says of a window that began at `start_ns` (Unix time)."""
        minute = (start_ns + self._phase_ns) // AGAIN_NS
        if now == self._said and minute == self._minute:
            return None
        self._said, self._minute = now, minute
        return now
