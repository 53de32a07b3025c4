# SPDX-License-Identifier: Apache-2.0
"""How much one host may send: a bucket of summaries and one of bytes, filled as time goes. Pure.

An agent sends a summary each window, and after an outage what its spool holds; it keeps what is
refused and comes again. So these bound what one stolen or broken host costs all others.
"""

from dataclasses import dataclass
from statistics import median

from netagent.model.errors import CapabilityMissing

BURST, PER_S = 1_000, 50
"""Summaries that one host may send at once, and each second. Chosen: an hour of windows at once;
beyond, one host takes 2 to 3 % of the core that receives (`tests.bench receiving`)."""
BURST_BYTES, BYTES_PER_S = 64 << 20, 256 << 10
"""Bytes likewise. Chosen: a whole spool at once, and a hundred times what a host sends."""
PERIOD_NS = 600 * 10**9
"""Nanoseconds over which is added up what hosts send. Chosen: an outage's backlog is in it."""
FAIR, FAIR_BYTES_PER_S = 16, 32 << 10
"""How many times what a median host sends one may send for long, and bytes a second that any may.
Chosen: a host of 32 endpoints among small ones; and one host's share of the history is bounded."""


@dataclass(slots=True)
class _Bucket:
    summaries: float
    bytes: float
    at_ns: int


class Admission:
    """What each host may still send."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._sent: dict[str, int] = {}
        """Host -> bytes since the period began."""
        self._began_ns: int | None = None
        self.bytes_per_s = float(BYTES_PER_S)
        """What one host may send for long, by what all hosts sent in the period before."""

    def take(self, host: str, size: int, now_ns: int) -> None:
        """Let a host send a summary of `size` bytes; `now_ns` is of a clock that nobody sets.

        Raises CapabilityMissing where it sent too much; then it has used up nothing.
        """
        self._share(now_ns)
        bucket = self._buckets.setdefault(host, _Bucket(BURST, BURST_BYTES, now_ns))
        passed_s = max(0, now_ns - bucket.at_ns) / 1e9
        bucket.summaries = min(BURST, bucket.summaries + passed_s * PER_S)
        bucket.bytes = min(BURST_BYTES, bucket.bytes + passed_s * self.bytes_per_s)
        bucket.at_ns = max(now_ns, bucket.at_ns)
        if bucket.summaries < 1 or bucket.bytes < size:
            raise CapabilityMissing(
                f"room for {host}",
                f"{PER_S} summaries and {self.bytes_per_s:.0f} bytes a second: wait",
            )
        bucket.summaries -= 1
        bucket.bytes -= size
        self._sent[host] = self._sent.get(host, 0) + size

    def _share(self, now_ns: int) -> None:
        if self._began_ns is None:
            self._began_ns = now_ns
        passed_ns = now_ns - self._began_ns
        if passed_ns < PERIOD_NS:
            return
        usual = median(self._sent.values()) * 1e9 / passed_ns if self._sent else 0.0
        self.bytes_per_s = min(float(BYTES_PER_S), max(float(FAIR_BYTES_PER_S), FAIR * usual))
        self._sent, self._began_ns = {}, now_ns

    def forget(self, now_ns: int) -> None:
        """Drop who sent nothing for the seconds in which its buckets fill."""
        full_ns = now_ns - 10**9 * max(BURST // PER_S, BURST_BYTES // FAIR_BYTES_PER_S)
        self._buckets = {host: b for host, b in self._buckets.items() if b.at_ns > full_ns}
