# SPDX-License-Identifier: Apache-2.0
"""The underlay path of each outer flow, from TTL-limited packets. Pure.

A trace sends one packet per TTL with the very addresses and ports of the outer header, so that
switches hash it as they hash the probes; each router on the way answers TTL-exceeded with its own
address. It is repeated for ever at a capped rate, because flows rehash after a failure. The
destination never answers: the VTEP drops the packet, which is too short for a tunnel's.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from netagent.model.encapsulation import VXLAN
from netagent.probing.schedule import TokenBucket

TRACE_IDENTS = range(1, 0x8000)
"""Identifications of continuous traces; counts use those above."""
COUNT_IDENTS = range(0x8000, 0x10000)
ANSWER_NS = 400_000_000
"""Nanoseconds a router has to answer; later it counts as silent. Chosen: a data centre's round trip
takes under a millisecond, so the rest is for a busy router."""
PREFER_NS = 1_000_000_000
"""Nanoseconds from the end of a trace until a flow that loses probes may be traced out of turn.
Chosen: a lossy flow does not use up the rate."""
EXPLORE_EVERY = 8
"""Traces of a flow per trace that looks beyond its known hops. Chosen: a path that grew longer is
found, and seven of eight traces stay short."""

PLACED = 0.5
"""Share of a router's most answers at any TTL from which it is where packets of a TTL end. Chosen:
far above strays; of its most, not of what is sent, as it may police answers or be behind loss."""


@dataclass(frozen=True, slots=True, order=True)
class OuterFlow:
    """What the underlay hashes."""

    source: str
    target: str
    source_port: int
    target_port: int = VXLAN.port
    label: int = 0
    """Flow label of an IPv6 header (RFC 6438); 0 of IPv4."""


@dataclass(frozen=True, slots=True)
class TtlProbe:
    """One packet to send; `ident` comes back in the router's answer."""

    flow: OuterFlow
    ttl: int
    ident: int
    """1..65535; the IP identification of IPv4."""


@dataclass(slots=True)
class _Trace:
    answers: dict[int, str] = field(default_factory=dict)
    ttls: int = 0
    number: int = 0
    begun_ns: int = 0
    hops: tuple[str, ...] | None = None
    done_ns: int = 0
    idents: list[int] = field(default_factory=list)
    """Of the packets sent last."""


class PathTracer:
    """Traces every flow that it is given, again and again."""

    def __init__(
        self, *, packets_per_s: float, refresh_ns: int, max_hops: int, now_ns: int
    ) -> None:
        self._bucket = TokenBucket(packets_per_s, max(packets_per_s / 4, max_hops), now_ns=now_ns)
        self._refresh_ns = refresh_ns
        self._max_hops = max_hops
        self._traces: dict[OuterFlow, _Trace] = {}
        self._queue: deque[OuterFlow] = deque()
        self._running: dict[OuterFlow, None] = {}
        self._idents: dict[int, tuple[OuterFlow, int, int]] = {}
        self._ident = 0

    def follow(self, flows: set[OuterFlow]) -> None:
        """Trace exactly these flows from now on; new ones come first."""
        gone = self._traces.keys() - flows
        for flow in gone:
            self._forget_idents(self._traces.pop(flow))
            self._running.pop(flow, None)
        if gone:
            self._queue = deque(flow for flow in self._queue if flow in self._traces)
        for flow in flows - self._traces.keys():
            self._traces[flow] = _Trace()
            self._queue.appendleft(flow)

    def prefer(self, flows: Iterable[OuterFlow], *, now_ns: int) -> None:
        """Trace these next, if their last trace is not of this second: they lose probes."""
        for flow in flows:
            trace = self._traces.get(flow)
            if trace is None or flow in self._running or now_ns - trace.done_ns < PREFER_NS:
                continue
            self._queue.remove(flow)
            self._queue.appendleft(flow)
            trace.done_ns = 0

    def hops(self, flow: OuterFlow) -> tuple[str, ...] | None:
        """Return the routers of the last finished trace, nearest first; "" where one was silent."""
        trace = self._traces.get(flow)
        return trace.hops if trace else None

    def due(self, *, now_ns: int) -> list[TtlProbe]:
        """Return packets to send now, within the rate."""
        self._finish(now_ns)
        probes: list[TtlProbe] = []
        for _ in range(len(self._queue)):
            flow = self._queue[0]
            trace = self._traces[flow]
            if trace.done_ns and now_ns - trace.done_ns < self._refresh_ns:
                break  # the queue is in order of completion: the rest is younger
            ttls = self._reach(trace)
            if not self._bucket.take(ttls, now_ns=now_ns):
                break
            self._queue.popleft()
            self._running[flow] = None
            trace.begun_ns, trace.ttls, trace.answers = now_ns, ttls, {}
            trace.number += 1
            trace.idents = [self._ident_for(flow, ttl, trace.number) for ttl in range(1, ttls + 1)]
            probes += [TtlProbe(flow, ttl, i) for ttl, i in enumerate(trace.idents, start=1)]
        return probes

    def _reach(self, trace: _Trace) -> int:
        if not trace.hops or trace.number % EXPLORE_EVERY == 0:
            return self._max_hops
        return min(self._max_hops, len(trace.hops) + 1)

    def _ident_for(self, flow: OuterFlow, ttl: int, number: int) -> int:
        self._ident = self._ident % TRACE_IDENTS[-1] + 1
        self._idents[self._ident] = (flow, ttl, number)
        return self._ident

    def _forget_idents(self, trace: _Trace) -> None:
        # The target never answers: what waits for it would add up to megabytes.
        for ident in trace.idents:
            self._idents.pop(ident, None)
        trace.idents = []

    def answered(self, ident: int, router: str) -> None:
        """Router `router` said TTL exceeded about packet `ident`."""
        flow, ttl, number = self._idents.pop(ident, (None, 0, 0))
        trace = self._traces.get(flow) if flow else None
        if trace is not None and trace.number == number:
            trace.answers[ttl] = router

    def _finish(self, now_ns: int) -> None:
        for flow in list(self._running):
            trace = self._traces[flow]
            if now_ns - trace.begun_ns < ANSWER_NS:
                return  # begun in order
            del self._running[flow]
            last = max(trace.answers, default=0)
            trace.hops = tuple(trace.answers.get(ttl, "") for ttl in range(1, last + 1))
            trace.done_ns = now_ns
            self._forget_idents(trace)
            self._queue.append(flow)


class HopCount:
    """Counts how many of `count` packets reach each router of one outer flow.

    Loss that begins at a router tells which link loses, where end-to-end probes cannot: they may
    cross two links always together. A router that polices its answers does not mislead: a packet
    that a farther router answered has passed it. Nor does one that knows no route, and so answers
    packets that were to go farther: these ended where it is. Where a router is does not follow from
    a stray answer, as packets take another way while routes change.
    """

    def __init__(self, flow: OuterFlow, *, hops: int, count: int) -> None:
        self._flow, self._hops, self._count = flow, hops, count
        self._next = 0
        self._sent_ns: dict[int, tuple[int, int]] = {}  # ident -> (ttl, when)
        self._rtt_ns: list[dict[str, list[int]]] = [{} for _ in range(hops)]
        """By how far packets were to go, and by who answered."""
        self._last_ns = 0

    def due(self, *, now_ns: int) -> int:  # noqa: ARG002 - all are due at any time
        """Return how many packets can be sent now."""
        return self._left

    @property
    def _left(self) -> int:
        return self._hops * self._count - self._next

    def take(self, idents: Sequence[int]) -> list[TtlProbe]:
        """Return the next packets, at most one per free identification."""
        probes: list[TtlProbe] = []
        for ident in idents[: self._left]:
            ttl = self._next % self._hops + 1
            self._next += 1
            probes.append(TtlProbe(self._flow, ttl, ident))
        return probes

    def sent(self, probe: TtlProbe, *, wall_ns: int) -> None:
        """Note that a packet is sent now: those before it in a burst do not count as its way."""
        self._sent_ns[probe.ident] = (probe.ttl, wall_ns)
        self._last_ns = wall_ns

    def answered(self, ident: int, router: str, *, wall_ns: int) -> None:
        """Count a router's answer, received by the kernel at `wall_ns`."""
        ttl, sent_ns = self._sent_ns.pop(ident, (0, 0))
        if ttl:
            times = self._rtt_ns[ttl - 1].setdefault(router, [])
            times.append(max(0, wall_ns - sent_ns))

    def finished(self, *, wall_ns: int) -> bool:
        """Whether all is sent, and answered or overdue."""
        return not self._left and (not self._sent_ns or abs(wall_ns - self._last_ns) > ANSWER_NS)

    @property
    def routers(self) -> tuple[str, ...]:
        """Return the routers that answered most, nearest first; "" where none did."""
        return tuple(max(a, key=lambda r: len(a[r]), default="") for a in self._rtt_ns)

    def totals(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return packets sent per router, how many reached each, and median round trips (ns)."""
        most: dict[str, int] = {}
        for answers in self._rtt_ns:
            for router, times in answers.items():
                most[router] = max(most.get(router, 0), len(times))
        place: dict[str, int] = {}
        for n, answers in enumerate(self._rtt_ns):
            for router, times in answers.items():
                if len(times) >= PLACED * most[router]:
                    place.setdefault(router, n)
        reached, rtt_ns = [], []
        for n in range(self._hops):
            passed = (
                sum(len(times) for router, times in answers.items() if place[router] >= n)
                for answers in self._rtt_ns[n:]
            )
            reached.append(max(passed))
            own = [t for router, ts in self._rtt_ns[n].items() if place[router] == n for t in ts]
            rtt_ns.append(int(median(own)) if own else 0)
        return self._count, tuple(reached), tuple(rtt_ns)
