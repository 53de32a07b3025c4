# SPDX-License-Identifier: Apache-2.0
"""How much one host may send: a bucket of summaries and one of bytes, filled as time goes. Pure.

An agent sends a summary each window, and after an outage what its spool holds; it keeps what is
refused and comes again. So these bound what one stolen or broken host costs all others.
"""

from dataclasses import dataclass

from netagent.model.errors import CapabilityMissing

BURST, PER_S = 1_000, 50
"""Summaries that one host may send at once, and each second. Chosen: an hour of windows at once;
beyond, one host takes 2 to 3 % of the core that receives (`tests.bench receiving`)."""
BURST_BYTES, BYTES_PER_S = 64 << 20, 256 << 10
"""Bytes likewise. Chosen: a whole spool at once, and a hundred times what a host sends."""


@dataclass(slots=True)
class _Bucket:
    summaries: float
    bytes: float
    at_ns: int


class Admission:
    """What each host may still send."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    def take(self, host: str, size: int, now_ns: int) -> None:
        """Let a host send a summary of `size` bytes; `now_ns` is of a clock that nobody sets.

        Raises CapabilityMissing where it sent too much; then it has used up nothing.
        """
        bucket = self._buckets.setdefault(host, _Bucket(BURST, BURST_BYTES, now_ns))
        passed_s = max(0, now_ns - bucket.at_ns) / 1e9
        bucket.summaries = min(BURST, bucket.summaries + passed_s * PER_S)
        bucket.bytes = min(BURST_BYTES, bucket.bytes + passed_s * BYTES_PER_S)
        bucket.at_ns = max(now_ns, bucket.at_ns)
        if bucket.summaries < 1 or bucket.bytes < size:
            raise CapabilityMissing(
                f"room for {host}", f"{PER_S} summaries and {BYTES_PER_S} bytes a second: wait"
            )
        bucket.summaries -= 1
        bucket.bytes -= size

    def forget(self, now_ns: int) -> None:
        """Drop who sent nothing for the seconds in which its buckets fill."""
        full_ns = now_ns - 10**9 * max(BURST // PER_S, BURST_BYTES // BYTES_PER_S)
        self._buckets = {host: b for host, b in self._buckets.items() if b.at_ns > full_ns}
