# SPDX-License-Identifier: Apache-2.0
"""Ways between two VTEPs, and losses on them, where nobody sees the outer headers. Pure.

An RNIC that encapsulates by itself shows its host no outer header, so the way of no flow is known.
But the host can send packets of its own between the same two addresses: from many source ports,
which ECMP spreads over the ways that the probes' packets take as well. A survey first looks which
way each of its ports takes, then counts packets along one port of each way (`paths.HopCount`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from netagent.model.encapsulation import VXLAN
from netagent.probing.paths import ANSWER_NS, HopCount, OuterFlow, TtlProbe

FIRST_PORT = 49_152
"""Source port of the first flow. RFC 7348, section 5, recommends 49152 to 65535."""
PORTS_PER_WAY = 4
"""Ports tried for each way that is asked for. Chosen: one way in fifty stays unseen."""
MAX_WAYS = 32
"""Most ways of one survey. Chosen: with `MAX_PACKETS` it bounds what routers have to answer."""
MAX_PACKETS = 2_000
"""Most packets that are counted in one survey. Chosen: some three seconds at the rate of counts, so
that the answer is there within a window."""
LOOKS = 2
"""Packets to each router while ways are looked for. Chosen: a way that loses a fifth of them is
still found; one that loses more shows by its absence."""
MOST_OVER_NS = 3_000_000_000
"""Most nanoseconds that packets are spread over. Chosen: the answer is there within a window."""
FULL_LENGTH = 4
"""Ports that are followed as far as packets may go. Chosen: all ways between two leaves are as long
as each other, and of four not all are broken."""


@dataclass(frozen=True, slots=True)
class SurveyedWay:
    """One way."""

    outer_port: int
    routers: tuple[str, ...]
    """Nearest first."""
    sent: int
    """Packets to each router."""
    reached: tuple[int, ...]
    rtt_ns: tuple[int, ...]
    """Median round trip to each router; 0 where none answered."""


class WaySurvey:
    """Finds up to `most` ways, then counts `count` packets to each router of each.

    These are spread over `over_ns`, at most MOST_OVER_NS.
    """

    def __init__(
        self,
        source: str,
        target: str,
        *,
        max_hops: int,
        most: int,
        count: int,
        over_ns: int = 0,
        target_port: int = VXLAN.port,
    ) -> None:
        most = max(1, min(most, MAX_WAYS))
        self._over_ns = min(over_ns, MOST_OVER_NS)
        self._since_ns: int | None = None
        """When counting began, monotonic; None while ways are looked for."""
        self._total = 0
        """Packets to count."""
        self._flows = [
            OuterFlow(source, target, FIRST_PORT + n, target_port)
            for n in range(PORTS_PER_WAY * most)
        ]
        self._most, self._count = most, count
        self._looks = self._ahead(self._flows[:FULL_LENGTH], max_hops)
        self._seen: dict[OuterFlow, dict[int, str]] = {flow: {} for flow in self._flows}
        self._waiting: dict[int, TtlProbe] = {}
        self._last_ns = 0
        self._length = 0
        """Routers of the longest way; 0 until it is known."""
        self._counts: dict[OuterFlow, HopCount] | None = None
        """Port of each way, and what is counted on it; None while ways are looked for."""
        self._whose: dict[int, HopCount] = {}

    @staticmethod
    def _ahead(flows: Sequence[OuterFlow], hops: int) -> deque[tuple[OuterFlow, int]]:
        each = [(flow, ttl) for flow in flows for ttl in range(1, hops + 1)]
        return deque(LOOKS * each)

    def due(self, *, now_ns: int) -> int:
        """Return how many packets can be sent now (monotonic ns)."""
        if self._counts is None:
            return len(self._looks)
        left = sum(count.due(now_ns=now_ns) for count in self._counts.values())
        if self._since_ns is None:
            self._since_ns, self._total = now_ns, left
        if now_ns >= self._since_ns + self._over_ns:
            return left
        share = (now_ns - self._since_ns) / self._over_ns
        return max(0, left - round(self._total * (1 - share)))

    def take(self, idents: Sequence[int]) -> list[TtlProbe]:
        """Return the next packets, at most one per free identification."""
        probes: list[TtlProbe] = []
        for ident in idents:
            if self._counts is None:
                if not self._looks:
                    break
                probes.append(TtlProbe(*self._looks.popleft(), ident))
            else:
                # A packet on each way in turn: what happens in the meantime happens to all.
                for flow, count in list(self._counts.items()):
                    self._counts[flow] = self._counts.pop(flow)
                    if made := count.take([ident]):
                        self._whose[ident] = count
                        probes += made
                        break
        return probes

    def sent(self, probe: TtlProbe, *, wall_ns: int) -> None:
        """Note that a packet is sent now."""
        self._last_ns = wall_ns
        if (count := self._whose.get(probe.ident)) is not None:
            count.sent(probe, wall_ns=wall_ns)
        else:
            self._waiting[probe.ident] = probe

    def answered(self, ident: int, router: str, *, wall_ns: int) -> None:
        """Take a router's answer, received by the kernel at `wall_ns`."""
        if (count := self._whose.pop(ident, None)) is not None:
            count.answered(ident, router, wall_ns=wall_ns)
        elif (probe := self._waiting.pop(ident, None)) is not None:
            self._seen[probe.flow][probe.ttl] = router

    def finished(self, *, wall_ns: int) -> bool:
        """Whether all is sent, and answered or overdue; goes on to what follows."""
        if self._counts is not None:
            return all(count.finished(wall_ns=wall_ns) for count in self._counts.values())
        if self._looks or (self._waiting and abs(wall_ns - self._last_ns) <= ANSWER_NS):
            return False
        self._waiting.clear()
        if not self._length:
            self._length = max(max(seen, default=0) for seen in self._seen.values())
            self._looks = self._ahead(self._flows[FULL_LENGTH:], self._length)
            return not self._length
        self._counts = self._chosen()
        return not self._counts

    def _chosen(self) -> dict[OuterFlow, HopCount]:
        ways: dict[tuple[str, ...], OuterFlow] = {}
        for flow, seen in self._seen.items():
            way = tuple(seen.get(ttl, "") for ttl in range(1, self._length + 1))
            if all(way):
                ways.setdefault(way, flow)
        chosen = list(ways.values())[: self._most]
        hops = self._length
        count = min(self._count, MAX_PACKETS // max(1, hops * len(chosen)))
        return {flow: HopCount(flow, hops=hops, count=count) for flow in chosen}

    def ways(self) -> list[SurveyedWay]:
        """Return what was counted on each way."""
        made: list[SurveyedWay] = []
        for flow, count in (self._counts or {}).items():
            sent, reached, rtt_ns = count.totals()
            seen = self._seen[flow]
            # Who is there was seen before: one that answers no packet now has not gone away.
            routers = tuple(now or seen[n] for n, now in enumerate(count.routers, start=1))
            made.append(SurveyedWay(flow.source_port, routers, sent, reached, rtt_ns))
        return sorted(made, key=lambda way: way.routers)
