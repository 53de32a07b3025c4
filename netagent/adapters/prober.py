# SPDX-License-Identifier: Apache-2.0
"""Drives the probing of all local endpoints: transports in, transports out, decisions elsewhere.

One epoll set holds every descriptor: one wake-up serves all that is ready. A packet that waits in
its socket is late for nobody, since the kernel has stamped it. A wake-up costs more than the packet
that causes it, so the prober lets packets gather while the host is busy: for GATHER_NS at most,
which the responder's and the prober's delays therefore include.
"""

import secrets
import select
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.transport import Outcome, Transport
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import PingList, Target
from netagent.probing.schedule import Ping, Rates, Schedule, TokenBucket
from netagent.probing.session import (
    ProbeEvent,
    ProbeFailed,
    ProbeLost,
    ProbeMeasured,
    ProbeRefused,
    ProbeReplied,
    ProbeSession,
    Stamps,
)
from netagent.wire import frame
from netagent.wire.messages import ProbeAnswer

MARK_EVERY_NS = 5_000_000_000
"""How often a flow's outer header is looked at."""
MAX_BURST_PROBES = 4096
"""On-demand probes whose asker may have gone away."""
GATHER_NS = 2_000_000
"""A packet waits so long at most for others that the same wake-up serves."""
SEND_EVERY_NS = 5_000_000
"""Visits that fall due within this time go out together."""
IDLE_NS = 1_000_000_000
_MAX_ROUNDS = 256
"""Packets that one socket yields to a step; what a flood leaves over waits for the next."""
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Transports(Protocol):
    """Opens transports; `netagent.adapters.transports` in production."""

    def identity(self, endpoint: Endpoint) -> object:
        """Return what, if it changes, calls for a new transport; None: it cannot be opened now."""

    def open(self, endpoint: Endpoint) -> Transport:
        """Open an endpoint's transport; raises OSError or CapabilityMissing."""

    def asker(self, session: int, port: int) -> tuple[EndpointId, str] | None:
        """Return the local endpoint that a marked probe asked, and the asker's overlay address."""


@dataclass(slots=True)
class _Peer:
    """What sending to one target needs, by index of the source port."""

    target: Target
    flows: tuple[FlowId, ...]
    marked_ns: list[int]


@dataclass(slots=True)
class _Local:
    endpoint: Endpoint
    identity: object
    transport: Transport
    sizes: tuple[int, ...]
    session: ProbeSession
    schedule: Schedule
    bytes_cap: TokenBucket
    addresses: dict[str, EndpointId] = field(default_factory=dict)
    """Overlay address -> target, for what arrives here."""
    peers: dict[EndpointId, _Peer] = field(default_factory=dict)
    wake_ns: int = 0
    """When a visit is due or a probe overdue; early at worst."""


@dataclass(slots=True)
class _Burst:
    answers: dict[int, ProbeAnswer]
    open: set[int]


@dataclass(slots=True)
class ProberCounters:
    """What went wrong on our own side, since the last window."""

    sent: int = 0
    delayed: int = 0
    capped: int = 0
    pending: int = 0
    """Not sent, since the target's link-layer address was not known yet, or not answered, since
    ours was not."""
    bad_frames: int = 0


class Prober:
    """Probes from the endpoints of this host."""

    def __init__(self, config: ProbeConfig, tally: WindowTally, transports: Transports) -> None:
        self._config = config
        self._tally = tally
        self._transports = transports
        self._rng = Random(secrets.randbits(64))
        self._locals: dict[EndpointId, _Local] = {}
        self._by_fd: dict[int, _Local] = {}
        self._by_session: dict[int, _Local] = {}
        self._pinglist = PingList(0)
        self._bursts: dict[tuple[int, int], _Burst] = {}
        self._epoll = select.epoll()
        # It rings once and is then silent until the next step, so that packets can gather.
        self._bell = select.epoll()
        self._bell.register(self._epoll.fileno(), _ONCE)
        self._ready: list[tuple[int, int]] = []
        """What was found ready as the bell rang, and when."""
        self._woken_ns = 0
        self._send_ns = 0
        rate = config.rate_per_host
        host_bytes = config.bytes_per_second_per_host
        self._bytes_cap = TokenBucket(host_bytes, host_bytes, now_ns=now_ns())
        self._losing: set[FlowId] = set()
        self._probe_cap = TokenBucket(rate, max(rate / 2, 16), now_ns=now_ns())
        self.counters = ProberCounters()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `read` has something to read."""
        return self._bell.fileno()

    def close(self) -> None:
        """Close every socket."""
        for key in list(self._locals):
            self._drop(key)
        self._bell.close()
        self._epoll.close()

    # --- what to probe -----------------------------------------------------------------------

    def set_endpoints(
        self, endpoints: Iterable[Endpoint]
    ) -> list[tuple[EndpointId, OSError | CapabilityMissing]]:
        """Probe from exactly these endpoints; return those that could not be opened."""
        failed: list[tuple[EndpointId, OSError | CapabilityMissing]] = []
        wanted = {
            each.id: (each, identity)
            for each in endpoints
            if each.state is EndpointState.UP
            and (identity := self._transports.identity(each)) is not None
        }
        for key, local in list(self._locals.items()):
            new = wanted.get(key)
            if new is None or new[1] != local.identity or local.transport.broken:
                self._drop(key)
            else:
                local.endpoint = new[0]
        for key, (endpoint, identity) in wanted.items():
            if key not in self._locals:
                try:
                    self._add(endpoint, identity)
                except (OSError, CapabilityMissing) as error:
                    failed.append((key, error))
        self._apply()
        return failed

    def broken(self) -> dict[EndpointId, str]:
        """Return why endpoints do not probe any more, until they are set again."""
        return {k: why for k, local in self._locals.items() if (why := local.transport.broken)}

    def stamps(self) -> Mapping[EndpointId, Stamps]:
        """Return who stamps each endpoint's probes."""
        return {key: local.transport.stamps for key, local in self._locals.items()}

    def set_pinglist(self, pinglist: PingList) -> None:
        """Probe exactly these targets from now on."""
        self._pinglist = pinglist
        self._apply()

    def _apply(self) -> None:
        by_source: dict[EndpointId, list[Target]] = {}
        for target in self._pinglist.targets:
            by_source.setdefault(target.source, []).append(target)
        keep = {(t.source, t.target) for t in self._pinglist.targets if t.source in self._locals}
        self._tally.forget(keep)
        for key, local in self._locals.items():
            targets = by_source.get(key, [])
            local.addresses = {t.address: t.target for t in targets}
            local.session.abandon_target(keep)
            local.peers = {t.target: self._meet(local, t) for t in targets}
            local.wake_ns = 0
            local.transport.aim(targets)
            local.schedule.replace(targets, self._pinglist.rare_share)

    def _add(self, endpoint: Endpoint, identity: object) -> None:
        config = self._config
        transport = self._transports.open(endpoint)
        at_ns = now_ns()
        rates = Rates(
            config.rate_per_endpoint,
            config.pings_per_visit,
            config.flows_per_pair,
            len(config.sizes),
        )
        session = ProbeSession(
            session=secrets.randbits(32), timeout_ns=config.timeout_ms * 1_000_000
        )
        cap = config.bytes_per_second_per_endpoint
        local = _Local(
            endpoint,
            identity,
            transport,
            tuple(_frame_bytes(size, endpoint.mtu, transport) for size in config.sizes),
            session,
            Schedule(rates, self._rng, now_ns=at_ns),
            TokenBucket(cap, cap, now_ns=at_ns),
        )
        self._locals[endpoint.id] = local
        self._by_session[session.session] = local
        for descriptor in transport.descriptors():
            self._by_fd[descriptor] = local
            self._epoll.register(descriptor, select.EPOLLIN)

    def _peer(self, local: _Local, target: Target) -> _Peer:
        known = local.peers.get(target.target)
        if known is not None and known.target == target:
            return known
        ports = local.transport.ports
        flows = tuple(FlowId(local.endpoint.id, target.target, port) for port in ports)
        return _Peer(target, flows, [0] * len(flows))

    def _meet(self, local: _Local, target: Target) -> _Peer:
        peer = self._peer(local, target)
        if peer is not local.peers.get(target.target):
            until_ns = now_ns() + local.transport.introduction_ns
            local.session.introduce(peer.flows, until_ns=until_ns)
        return peer

    def _drop(self, key: EndpointId) -> None:
        local = self._locals.pop(key)
        self._ready = []  # descriptors are used again
        local.session.abandon()
        self._by_session.pop(local.session.session, None)
        for descriptor in local.transport.descriptors():
            self._by_fd.pop(descriptor, None)
            self._epoll.unregister(descriptor)
        local.transport.close()

    def take_counters(self) -> ProberCounters:
        """Return what went wrong since the last call."""
        taken, self.counters = self.counters, ProberCounters()
        return taken

    def take_losing(self) -> set[FlowId]:
        """Return the flows that lost probes since the last call."""
        taken, self._losing = self._losing, set()
        return taken

    # --- the loop ----------------------------------------------------------------------------

    @property
    def gather_ns(self) -> int:
        """How long a packet may wait for others that the same wake-up serves."""
        # What nobody but this process stamps is late while it waits.
        eager = any(each.transport.stamps is Stamps.PROCESS for each in self._locals.values())
        return 0 if eager else GATHER_NS

    def hush(self) -> None:
        """Keep the descriptor quiet until the next `step`: what arrived is known."""
        self._bell.poll(0)
        if not self.gather_ns:
            self._ready, self._woken_ns = self._epoll.poll(0), wall_ns()

    def step(self) -> int:
        """Read, settle and send what is due; return when to come again (monotonic ns)."""
        self.read()
        at_ns, gather_ns = now_ns(), self.gather_ns
        if at_ns >= self._send_ns and self._send_due(at_ns):
            self._send_ns = at_ns + SEND_EVERY_NS
            if gather_ns:
                return at_ns + gather_ns  # for the replies, which need no bell
        wakes = [local.wake_ns for local in self._locals.values()]
        wake_ns = max(self._send_ns, min(wakes, default=at_ns + IDLE_NS))
        if wake_ns - at_ns > gather_ns:
            self._bell.modify(self._epoll.fileno(), _ONCE)
        return wake_ns

    def read(self) -> None:
        """Read every socket that has something, one packet of each per round."""
        ready, woken_ns = self._ready, self._woken_ns
        self._ready = []
        for _ in range(_MAX_ROUNDS):
            if not ready:
                ready, woken_ns = self._epoll.poll(0), wall_ns()
            if not ready:
                return
            at_ns = now_ns()
            for fd, events in ready:
                local = self._by_fd.get(fd)
                if local is not None:
                    foreign = local.transport.read(fd, events, local.session, woken_ns=woken_ns)
                    self.counters.bad_frames += foreign
                    self._account(local, at_ns)
            ready = []

    def _send_due(self, at_ns: int) -> bool:
        sent = False
        for local in self._locals.values():
            if local.wake_ns > at_ns:
                continue
            local.session.expire(now_ns=at_ns)
            pings = local.schedule.due(now_ns=at_ns)
            for ping in pings:
                self._ping(local, local.peers[ping.target.target], ping, at_ns)
            self._account(local, at_ns)
            sent = sent or bool(pings)
            wakes = (local.schedule.next_ns(), local.session.deadline_ns())
            local.wake_ns = min((w for w in wakes if w is not None), default=at_ns + IDLE_NS)
        return sent

    def _ping(
        self, local: _Local, peer: _Peer, ping: Ping, at_ns: int, *, burst: _Burst | None = None
    ) -> None:
        index = ping.port_index
        size = local.sizes[ping.size_class]
        wire_bytes = size + local.transport.overhead_bytes
        if not (
            self._probe_cap.take(1, now_ns=at_ns)
            and local.bytes_cap.take(wire_bytes, now_ns=at_ns)
            and self._bytes_cap.take(wire_bytes, now_ns=at_ns)
        ):
            self.counters.capped += 1
            return
        self.counters.delayed += ping.late
        probe = local.session.send(
            peer.flows[index], ping.size_class, now_ns=at_ns, wall_ns=wall_ns()
        )
        if at_ns - peer.marked_ns[index] > MARK_EVERY_NS:
            peer.marked_ns[index] = at_ns
            probe = probe._replace(flags=frame.MARKED)
        payload = frame.encode(probe, size=size)
        sent = local.transport.send(peer.target, index, payload)
        if sent.outcome is Outcome.PENDING:
            local.session.withdraw(probe.seq)
            self.counters.pending += 1
            return
        self.counters.sent += 1
        if burst is not None:
            burst.open.add(probe.seq)
            self._bursts[probe.session, probe.seq] = burst
            _bound(self._bursts, MAX_BURST_PROBES)
        if sent.outcome is Outcome.FAILED:
            local.session.fail(probe.seq)
        elif sent.left_wall_ns is not None:
            local.session.transmitted(probe.seq, left_wall_ns=sent.left_wall_ns)

    def _account(self, local: _Local, at_ns: int) -> None:
        while (event := local.session.next_event()) is not None:
            burst = self._bursts.get((local.session.session, event.seq)) if self._bursts else None
            if burst is not None:
                self._account_burst(local, burst, event)
                continue
            if isinstance(event, ProbeLost) and event.introducing:
                self.counters.pending += 1
                continue
            self._tally.add(event)
            if isinstance(event, ProbeLost):
                local.schedule.lost(event.flow.target, now_ns=at_ns)
                self._losing.add(event.flow)

    # --- what others want to know --------------------------------------------------------------

    def flow_of(self, seen: frame.Frame, target: str) -> FlowId | None:
        """Return the flow of a probe (ours) or a reply (to another's) to overlay address `target`,
        as seen on the uplink.
        """  # noqa: D205 - one sentence
        if seen.flags & frame.REPLY:
            return self._asked_flow(seen)
        local = self._by_session.get(seen.session)
        if local is None or target not in local.addresses:
            return None
        return FlowId(local.endpoint.id, local.addresses[target], seen.port)

    def _asked_flow(self, seen: frame.Frame) -> FlowId | None:
        asker = self._transports.asker(seen.session, seen.port)
        local = self._locals.get(asker[0]) if asker else None
        if asker is None or local is None or asker[1] not in local.addresses:
            return None
        return FlowId(local.addresses[asker[1]], local.endpoint.id, seen.port)

    def ports(self, source: EndpointId) -> tuple[int, ...]:
        """Return the UDP source ports of a local endpoint; empty where it is not probed from."""
        local = self._locals.get(source)
        return local.transport.ports if local else ()

    def begin_burst(self, target: Target, count: int) -> Callable[[], list[ProbeAnswer] | None]:
        """Probe `target` `count` times now, within the caps.

        Return a function that gives None while probes are open, then the answers. Raises KeyError
        where `target.source` is not local.
        """
        local = self._locals[target.source]
        peer = self._peer(local, target)
        burst = _Burst({}, set())
        for n in range(count):
            ping = Ping(target, (n // 2) % len(local.transport.ports), n % len(local.sizes))
            self._ping(local, peer, ping, now_ns(), burst=burst)
        local.wake_ns = 0
        session = local.session.session

        def collect() -> list[ProbeAnswer] | None:
            if burst.open:
                return None
            for seq in burst.answers:
                self._bursts.pop((session, seq), None)
            return [burst.answers[seq] for seq in sorted(burst.answers)]

        return collect

    def _account_burst(self, local: _Local, burst: _Burst, event: ProbeEvent) -> None:
        if isinstance(event, ProbeMeasured):
            if event.seq in burst.answers:
                known = burst.answers[event.seq]
                burst.answers[event.seq] = ProbeAnswer(
                    source_port=known.source_port,
                    size=known.size,
                    outcome=known.outcome,
                    network_ns=event.network_ns,
                    prober_ns=event.prober_ns,
                    responder_ns=event.responder_ns,
                )
            return
        burst.open.discard(event.seq)
        burst.answers[event.seq] = ProbeAnswer(
            source_port=event.flow.source_port,
            size=local.sizes[event.size_class] + local.transport.overhead_bytes,
            outcome=_OUTCOMES[type(event)],
        )


_OUTCOMES: dict[type, str] = {
    ProbeReplied: "replied",
    ProbeLost: "lost",
    ProbeRefused: "refused",
    ProbeFailed: "failed",
}


def _frame_bytes(size: int | str, mtu: int, transport: Transport) -> int:
    # Sizes are of the overlay IP packet; none exceeds what the interface takes.
    packet = mtu if isinstance(size, str) else min(size, mtu)
    frame_bytes = min(packet - transport.overhead_bytes, transport.max_frame_bytes)
    return max(frame.HEADER_BYTES, frame_bytes)


def _bound(mapping: dict[Any, Any], limit: int) -> None:
    while len(mapping) > limit:
        mapping.pop(next(iter(mapping)))
