# SPDX-License-Identifier: Apache-2.0
"""How far a host's wall clock is off the analyzer's. Reads no clock.

Each delivery is an exchange of four stamps, as in NTP (RFC 5905, section 8): t1 and t4 by the host,
as it asks and is answered, t2 and t3 by the analyzer, as it is asked and answers. The exchange that
took least is the one that says most.
"""

from collections import deque
from dataclasses import dataclass

from netagent.wire.messages import ClockOffset

KEPT = 24
"""Exchanges kept, one per window. Chosen: two minutes of the default windows; older ones are worse
by `DRIFT`."""
DRIFT = 50e-6
"""Share of the time since two clocks were compared by which they may have drifted apart. Chosen:
crystals are within some tens of ppm."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    offset_ns: int
    error_ns: int
    at_ns: int

    def error_at(self, now_ns: int) -> int:
        return self.error_ns + round(DRIFT * max(0, now_ns - self.at_ns))


class ClockEstimate:
    """The best of the latest exchanges."""

    def __init__(self) -> None:
        self._kept: deque[_Exchange] = deque(maxlen=KEPT)

    def add(self, t1_ns: int, t2_ns: int, t3_ns: int, t4_ns: int, *, now_ns: int) -> None:
        """Take in one exchange; one whose stamps make no sense is left out."""
        trip_ns = (t4_ns - t1_ns) - (t3_ns - t2_ns)
        if t2_ns <= 0 or t3_ns < t2_ns or t4_ns < t1_ns or trip_ns < 0:
            return
        offset_ns = ((t2_ns - t1_ns) + (t3_ns - t4_ns)) // 2
        self._kept.append(_Exchange(offset_ns, trip_ns // 2, now_ns))

    def forget(self) -> None:
        """Begin anew: the clock was set."""
        self._kept.clear()

    def best(self, *, now_ns: int) -> ClockOffset | None:
        """Return what is known; None before the first exchange."""
        if not self._kept:
            return None
        best = min(self._kept, key=lambda each: each.error_at(now_ns))
        return ClockOffset(offset_ns=best.offset_ns, error_ns=best.error_at(now_ns))
