# SPDX-License-Identifier: Apache-2.0
"""Which hosts are asked for fine ticks, in what their deliveries are answered. Pure.

Asked each by a connection of its own, a task of thousands of hosts took minutes of handshakes.
"""

from collections.abc import Mapping

from analyzer.skeleton.judging import FINE_NS, S
from netagent.wire.messages import SampleRequest

SAY_NS = 15 * S
"""Nanoseconds for which a request is said, over and over. Chosen: three deliveries of a host; of
those one may be lost, and asking again only prolongs it."""


class Sampling:
    """Requests by host."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[int, float]] = {}
        """Host -> instant of the request, and for how many seconds."""

    def ask(self, hosts: Mapping[str, float], now_ns: int) -> None:
        """Ask these hosts, each for so many seconds from now on."""
        for host, seconds in hosts.items():
            self._wanted[host] = now_ns, seconds

    def of(self, host: str, now_ns: int) -> SampleRequest | None:
        """Return what a host is asked for."""
        asked_ns, seconds = self._wanted.get(host, (0, 0.0))
        left_s = seconds - (now_ns - asked_ns) / S
        if left_s > 0 and now_ns - asked_ns < SAY_NS:
            return SampleRequest(tick_ms=FINE_NS // 1_000_000, seconds=left_s)
        self._wanted.pop(host, None)
        return None
