# SPDX-License-Identifier: Apache-2.0
"""Drives path tracing: outer headers seen on the uplinks in, TTL-limited packets out."""

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.paths import outer, traceroute
from netagent.collect.paths import TracedPath
from netagent.config import TraceConfig
from netagent.model.encapsulation import KNOWN, VXLAN, Encapsulation
from netagent.model.ids import FlowId
from netagent.probing.paths import (
    COUNT_IDENTS,
    TRACE_IDENTS,
    HopCount,
    OuterFlow,
    PathTracer,
)
from netagent.probing.schedule import TokenBucket
from netagent.probing.ways import WaySurvey
from netagent.wire import frame

log = structlog.get_logger()

COUNT_PACKETS_PER_S = 600
"""Packets per second, at most, that count losses per router on demand. Chosen: it bounds what
answers cost the routers."""
MAX_COUNTS = 16
"""Counts that may be under way at once; a further one is refused. Chosen: they share
`COUNT_PACKETS_PER_S`."""
MAX_SURVEYS = 4
"""Counts on ways that the host finds by itself, among those. Chosen: each takes some seconds of
that rate."""
STALE_NS = 120_000_000_000
"""Nanoseconds without a sighting after which an outer header is no longer traced. Chosen: a live
flow is marked every twenty seconds, so it missed six."""
FORGET_EVERY_NS = 1_000_000_000
"""Nanoseconds between two searches for stale outer headers. Chosen: each looks at all of them."""
Count = HopCount | WaySurvey
FlowOf = Callable[[outer.Sighting], FlowId | None]


class Tracer:
    """Knows the outer header of each probed flow and the routers on its way."""

    def __init__(self, config: TraceConfig, flow_of: FlowOf) -> None:
        self._flow_of = flow_of
        self._paths = PathTracer(
            packets_per_s=config.packets_per_second,
            refresh_ns=int(config.refresh_s * 1e9),
            max_hops=config.max_hops,
            now_ns=now_ns(),
        )
        self._max_hops = config.max_hops
        self._traces = config.packets_per_second > 0
        self._devices: dict[str, Encapsulation] = {}
        self._uplinks: dict[str, tuple[socket.socket, int, Encapsulation]] = {}
        """Device -> its socket, the index it had when that was opened, and what it looks for."""
        self._sockets: traceroute.TraceSockets | None = None
        self._outer: dict[tuple[FlowId, bool], tuple[OuterFlow, int]] = {}
        self._changed = False
        """Whether `_outer` knows other flows than those that are traced."""
        self._forgot_ns = 0
        self._longest: dict[FlowId, int] = {}
        """Hops of the longest trace: a count sends to the routers beyond a dead link as well."""
        self._count_bucket = TokenBucket(
            COUNT_PACKETS_PER_S, COUNT_PACKETS_PER_S / 10, now_ns=now_ns()
        )
        self._counts: dict[Count, int] = {}
        self._counting: dict[int, Count] = {}  # ident -> whose
        self._ident = 0
        self.sent = 0

    def set_uplinks(self, devices: Mapping[str, Encapsulation]) -> None:
        """Watch exactly these RNIC netdevs for these tunnels, also after they were made anew."""
        self._devices = {name: t for name, t in devices.items() if t.kind in KNOWN}
        self._watch()

    def _watch(self) -> None:
        # A socket stays bound to the device it was opened on, not to its name.
        for name, (uplink, index, tunnel) in list(self._uplinks.items()):
            if self._devices.get(name) != tunnel or _index(name) != index:
                uplink.close()
                del self._uplinks[name]
        for name in self._devices.keys() - self._uplinks.keys():
            tunnel = self._devices[name]
            try:
                self._uplinks[name] = (outer.open_uplink(name, tunnel), _index(name), tunnel)
            except OSError as error:
                log.warning("uplink_not_watched", device=name, error=str(error))

    def keep(self, wanted: Callable[[FlowId], bool]) -> None:
        """Forget flows that `wanted` does not want."""
        self._outer = {key: seen for key, seen in self._outer.items() if wanted(key[0])}
        self._changed = True
        self._longest = {flow: hops for flow, hops in self._longest.items() if wanted(flow)}

    def step(self) -> None:
        """Read sightings and answers, and send what is due."""
        at_ns = now_ns()
        for uplink, _, tunnel in self._uplinks.values():
            with suppress(OSError):  # down or deleted: reported once per event; `_watch` mends it
                for sighting in outer.drain(uplink, tunnel):
                    self._saw(sighting, at_ns)
        if at_ns - self._forgot_ns >= FORGET_EVERY_NS:
            self._forget_stale(at_ns)
        # Seldom: hundreds of flows need not be compared at every step.
        if self._changed and self._traces:
            self._changed = False
            self._paths.follow({flow for flow, _ in self._outer.values()})
        self._exchange(at_ns)

    def prefer(self, flows: Iterable[FlowId]) -> None:
        """Trace both ways of these flows next: they lose probes."""
        seen = [self._outer.get((flow, reply)) for flow in flows for reply in (False, True)]
        self._paths.prefer((each[0] for each in seen if each), now_ns=now_ns())

    def _forget_stale(self, at_ns: int) -> None:
        self._forgot_ns = at_ns
        self._watch()
        stale = [key for key, (_, seen_ns) in self._outer.items() if at_ns - seen_ns >= STALE_NS]
        for key in stale:
            del self._outer[key]
            self._longest.pop(key[0], None)  # flows end: what is kept of them must not add up
            self._changed = True

    def _exchange(self, at_ns: int) -> None:
        try:
            if self._sockets is None:
                self._sockets = traceroute.open_trace()
            for answer in traceroute.drain(self._sockets):
                self._answered(answer)
        except OSError as error:
            log.warning("trace_failed", error=str(error))
            return
        for probe in self._paths.due(now_ns=at_ns):
            self.sent += traceroute.send(self._sockets, probe)
        for count, size in list(self._counts.items()):
            self._send_counted(self._sockets, count, size, at_ns)

    def _send_counted(
        self, sockets: traceroute.TraceSockets, count: Count, size: int, at_ns: int
    ) -> None:
        idents: list[int] = []
        # One that waits takes nobody's share.
        most = min(count.due(now_ns=at_ns), COUNT_PACKETS_PER_S // 10)
        while len(idents) < most and self._count_bucket.take(1, now_ns=at_ns):
            idents.append(COUNT_IDENTS[self._ident])
            self._ident = (self._ident + 1) % len(COUNT_IDENTS)
        for probe in count.take(idents):
            self._counting[probe.ident] = count
            count.sent(probe, wall_ns=wall_ns())
            self.sent += traceroute.send(sockets, probe, size=size)
        if count.finished(wall_ns=wall_ns()):
            del self._counts[count]
            self._counting = {k: v for k, v in self._counting.items() if v is not count}

    def _answered(self, answer: traceroute.Answer) -> None:
        if answer.ident in TRACE_IDENTS:
            self._paths.answered(answer.ident, answer.router)
        elif (count := self._counting.pop(answer.ident, None)) is not None:
            count.answered(answer.ident, answer.router, wall_ns=answer.wall_ns)

    def begin_count(self, flow: FlowId, *, count: int, size: int) -> HopCount | None:
        """Send `count` packets to each router that `flow` crosses; None before it was traced."""
        traced = self.of_flow(flow)
        hops = max(len(traced.hops), self._longest.get(flow, 0)) if traced else 0
        if not hops or len(self._counts) >= MAX_COUNTS:
            return None
        begun = HopCount(self._outer[flow, False][0], hops=hops, count=count)
        self._counts[begun] = size
        return begun

    def begin_survey(
        self,
        ends: tuple[str, str],
        *,
        ways: int,
        count: int,
        size: int,
        over_ns: int = 0,
        target_port: int = VXLAN.port,
    ) -> WaySurvey | None:
        """Look for ways between two VTEPs, and count on each; None where too much is under way."""
        surveys = sum(isinstance(count, WaySurvey) for count in self._counts)
        if len(self._counts) >= MAX_COUNTS or surveys >= MAX_SURVEYS:
            return None
        begun = WaySurvey(
            *ends, max_hops=self._max_hops, most=ways, count=count, over_ns=over_ns,
            target_port=target_port,
        )  # fmt: skip
        self._counts[begun] = size
        return begun

    @property
    def is_counting(self) -> bool:
        """Whether any count is under way."""
        return bool(self._counts)

    def counting(self, count: Count) -> bool:
        """Whether a count is still under way."""
        return count in self._counts

    def _saw(self, sighting: outer.Sighting, at_ns: int) -> None:
        flow = self._flow_of(sighting)
        if flow is not None:
            key = (flow, bool(sighting.frame.flags & frame.REPLY))
            known = self._outer.get(key)
            if known is None or known[0] != sighting.outer:
                self._changed = True
            self._outer[key] = (sighting.outer, at_ns)

    def traced(self) -> list[TracedPath]:
        """Return every flow direction whose path was traced."""
        rows: list[TracedPath] = []
        for (flow, reply), (outer_flow, _) in self._outer.items():
            hops = self._paths.hops(outer_flow)
            if hops is not None:
                if not reply:
                    self._longest[flow] = max(self._longest.get(flow, 0), len(hops))
                rows.append(TracedPath(flow, reply, outer_flow.source_port, hops))
        return rows

    def of_flow(self, flow: FlowId) -> TracedPath | None:
        """Return what is known of the probes' way; hops are empty before the first trace."""
        seen = self._outer.get((flow, False))
        if seen is None:
            return None
        hops = self._paths.hops(seen[0]) or ()
        return TracedPath(flow, reply=False, outer_port=seen[0].source_port, hops=hops)

    def close(self) -> None:
        """Close every socket."""
        self.set_uplinks({})
        if self._sockets is not None:
            self._sockets.close()


def _index(device: str) -> int:
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return 0
