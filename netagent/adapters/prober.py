# SPDX-License-Identifier: Apache-2.0
"""Drives the probing of all local endpoints: sockets in, sockets out, decisions elsewhere.

One epoll set holds every socket, and its descriptor is what the event loop watches: one wake-up
serves all that is ready. A reply that waits in its socket is late for nobody: the kernel has
stamped it.
"""

import secrets
import select
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from netagent.adapters import udp
from netagent.adapters.clock import now_ns, wall_ns
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.errors import RemoteProtocolError
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
    Responder,
)
from netagent.wire import frame
from netagent.wire.messages import ProbeAnswer

MARK_EVERY_NS = 5_000_000_000
"""How often a flow's outer header is looked at."""
REPLIES_PER_PROBE_CAP = 4
"""A host answers at most this many times the probes it may send."""


@dataclass(slots=True)
class _Local:
    endpoint: Endpoint
    inode: int
    sockets: udp.EndpointSockets
    ports: tuple[int, ...]
    sizes: tuple[int, ...]
    session: ProbeSession
    schedule: Schedule
    bytes_cap: TokenBucket
    responder: Responder = field(default_factory=Responder)
    targets: dict[str, EndpointId] = field(default_factory=dict)
    """Overlay address -> target, for what arrives here."""
    marked_ns: dict[FlowId, int] = field(default_factory=dict)
    arrived: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(session, seq) -> (source port, t3) of replies whose transmit stamp is awaited."""


@dataclass(slots=True)
class _Burst:
    answers: dict[int, ProbeAnswer]
    open: set[int]


@dataclass(slots=True)
class ProberCounters:
    """What went wrong on our own side, since the last window."""

    sent: int = 0
    answered: int = 0
    delayed: int = 0
    capped: int = 0
    bad_frames: int = 0


class Prober:
    """Probes and answers for the endpoints of this host."""

    def __init__(self, config: ProbeConfig, tally: WindowTally) -> None:
        self._config = config
        self._tally = tally
        self._rng = Random(secrets.randbits(64))
        self._locals: dict[EndpointId, _Local] = {}
        self._by_fd: dict[int, tuple[_Local, socket.socket, int]] = {}
        self._by_session: dict[int, _Local] = {}
        self._askers: dict[tuple[int, int], FlowId] = {}
        self._pinglist = PingList(0)
        self._bursts: dict[tuple[int, int], _Burst] = {}
        self._epoll = select.epoll()
        rate = config.rate_per_host
        self._probe_cap = TokenBucket(rate, max(rate / 2, 16), now_ns=now_ns())
        replies = rate * REPLIES_PER_PROBE_CAP
        self._reply_cap = TokenBucket(replies, replies, now_ns=now_ns())
        self.counters = ProberCounters()

    def fileno(self) -> int:
        """Return the descriptor that is readable when `step` has something to read."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Close every socket."""
        for key in list(self._locals):
            self._drop(key)
        self._epoll.close()

    # --- what to probe -----------------------------------------------------------------------

    def set_endpoints(
        self, endpoints: Iterable[Endpoint], namespaces: dict[EndpointId, tuple[str, int]]
    ) -> list[tuple[EndpointId, OSError]]:
        """Probe and answer for exactly these endpoints; return those that could not be opened.

        `namespaces` gives each endpoint's namespace as (path, inode).
        """
        failed: list[tuple[EndpointId, OSError]] = []
        wanted = {e.id: e for e in endpoints if e.state is EndpointState.UP and e.id in namespaces}
        for key, local in list(self._locals.items()):
            new = wanted.get(key)
            if new is None or _moved(local, new, namespaces[key][1]):
                self._drop(key)
            else:
                local.endpoint = new
        for key, endpoint in wanted.items():
            if key not in self._locals:
                try:
                    self._add(endpoint, *namespaces[key])
                except OSError as error:
                    failed.append((key, error))
        self._apply()
        return failed

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
            local.targets = {t.address: t.target for t in targets}
            local.schedule.replace(targets)
            local.session.abandon_target(keep)

    def _add(self, endpoint: Endpoint, path: str, inode: int) -> None:
        config = self._config
        sockets = udp.open_endpoint(
            path, endpoint.address, port=config.port, flows=config.flows_per_pair, inode=inode
        )
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
            inode,
            sockets,
            sockets.ports(),
            tuple(_payload(size, endpoint.mtu) for size in config.sizes),
            session,
            Schedule(rates, self._rng, now_ns=at_ns),
            TokenBucket(cap, cap, now_ns=at_ns),
        )
        self._locals[endpoint.id] = local
        self._by_session[session.session] = local
        for index, each in enumerate((sockets.responder, *sockets.probers)):
            self._by_fd[each.fileno()] = (local, each, index - 1)
            self._epoll.register(each.fileno(), select.EPOLLIN)

    def _drop(self, key: EndpointId) -> None:
        local = self._locals.pop(key)
        local.session.abandon()
        self._by_session.pop(local.session.session, None)
        for each in (local.sockets.responder, *local.sockets.probers):
            self._by_fd.pop(each.fileno(), None)
        local.sockets.close()  # the kernel takes them out of the epoll set

    def take_counters(self) -> ProberCounters:
        """Return what went wrong since the last call."""
        taken, self.counters = self.counters, ProberCounters()
        return taken

    # --- the loop ----------------------------------------------------------------------------

    def step(self) -> int:
        """Read, settle and send what is due; return when to come again (monotonic ns)."""
        self.read()
        at_ns = now_ns()
        wake_ns = at_ns + 1_000_000_000
        for local in list(self._locals.values()):
            local.session.expire(now_ns=at_ns)
            self._account(local, at_ns)
            for ping in local.schedule.due(now_ns=at_ns):
                self._ping(local, ping, at_ns)
            for due_ns in (local.schedule.next_ns(), local.session.deadline_ns()):
                if due_ns is not None and due_ns < wake_ns:
                    wake_ns = due_ns
        return wake_ns

    def read(self) -> None:
        """Read every socket that has something."""
        for fd, _ in self._epoll.poll(0):
            entry = self._by_fd.get(fd)
            if entry is None:
                continue
            local, ready, index = entry
            if index < 0:
                self._answer(local, ready)
            else:
                self._stamps(local, ready)
                self._replies(local, ready, local.ports[index])
            self._account(local, now_ns())

    def _replies(self, local: _Local, ready: socket.socket, port: int) -> None:
        for received in udp.drain(ready):
            try:
                reply = frame.decode(received.payload)
                local.session.receive(
                    reply,
                    source_port=port,
                    arrived_wall_ns=received.wall_ns,
                    taken_wall_ns=wall_ns(),
                )
            except RemoteProtocolError:
                self.counters.bad_frames += 1

    def _stamps(self, local: _Local, ready: socket.socket) -> None:
        for noticed in udp.drain_errors(ready):
            try:
                sent = frame.decode(noticed.payload)
            except RemoteProtocolError:
                continue  # a truncated quote in an ICMP error
            if sent.session != local.session.session:
                continue
            if noticed.notice is udp.Notice.TRANSMITTED:
                local.session.transmitted(sent.seq, left_wall_ns=noticed.wall_ns)
            else:
                local.session.refuse(sent.seq)

    def _answer(self, local: _Local, ready: socket.socket) -> None:
        for received in udp.drain(ready):
            try:
                probe = frame.decode(received.payload)
            except RemoteProtocolError:
                self.counters.bad_frames += 1
                continue
            if probe.flags & frame.REPLY or not self._reply_cap.take(1, now_ns=now_ns()):
                continue
            address, port = received.address
            reply = local.responder.reply(probe, source_port=port)
            if probe.flags & frame.MARKED and address in local.targets:
                key = (probe.session, port)
                self._askers[key] = FlowId(local.targets[address], local.endpoint.id, port)
                _bound(self._askers, 8192)
            local.arrived[probe.session, probe.seq] = (port, received.wall_ns)
            _bound(local.arrived, 1024)
            payload = frame.encode(reply, size=len(received.payload))
            self.counters.answered += udp.send(ready, payload, received.address)
            self._reply_stamps(local, ready)
        self._reply_stamps(local, ready)

    def _reply_stamps(self, local: _Local, ready: socket.socket) -> None:
        for noticed in udp.drain_errors(ready):
            try:
                reply = frame.decode(noticed.payload)
            except RemoteProtocolError:
                continue
            arrival = local.arrived.pop((reply.session, reply.seq), None)
            if arrival is not None and noticed.notice is udp.Notice.TRANSMITTED:
                port, arrived_ns = arrival
                held_ns = noticed.wall_ns - arrived_ns
                local.responder.replied(reply.session, port, reply.seq, held_ns=held_ns)

    def _ping(self, local: _Local, ping: Ping, at_ns: int, *, burst: _Burst | None = None) -> None:
        size = local.sizes[ping.size_class]
        wire_bytes = size + udp.IP_AND_UDP_BYTES
        if not (
            self._probe_cap.take(1, now_ns=at_ns) and local.bytes_cap.take(wire_bytes, now_ns=at_ns)
        ):
            self.counters.capped += 1
            return
        self.counters.sent += 1
        self.counters.delayed += ping.late
        sender = local.sockets.probers[ping.port_index]
        flow = FlowId(local.endpoint.id, ping.target.target, local.ports[ping.port_index])
        probe = local.session.send(flow, ping.size_class, now_ns=at_ns, wall_ns=wall_ns())
        if burst is not None:
            burst.open.add(probe.seq)
            self._bursts[probe.session, probe.seq] = burst
        if at_ns - local.marked_ns.get(flow, 0) > MARK_EVERY_NS:
            local.marked_ns[flow] = at_ns
            _bound(local.marked_ns, 8192)
            probe = replace(probe, flags=frame.MARKED)
        payload = frame.encode(probe, size=size)
        if not udp.send(sender, payload, (ping.target.address, self._config.port)):
            local.session.fail(probe.seq)
        self._stamps(local, sender)

    def _account(self, local: _Local, at_ns: int) -> None:
        while (event := local.session.next_event()) is not None:
            burst = self._bursts.get((local.session.session, event.seq))
            if burst is not None:
                self._account_burst(local, burst, event)
                continue
            self._tally.add(event)
            if isinstance(event, ProbeLost):
                local.schedule.lost(event.flow.target, now_ns=at_ns)

    # --- what others want to know --------------------------------------------------------------

    def flow_of(
        self, seen: frame.Frame, source_port: int, target_port: int, target: str
    ) -> FlowId | None:
        """Return the flow of a probe (ours) or a reply (to another's) seen on the uplink."""
        if seen.flags & frame.REPLY:
            return self._askers.get((seen.session, target_port))
        local = self._by_session.get(seen.session)
        if local is None or target not in local.targets:
            return None
        return FlowId(local.endpoint.id, local.targets[target], source_port)

    def ports(self, source: EndpointId) -> tuple[int, ...]:
        """Return the UDP source ports of a local endpoint; empty where it is not probed from."""
        local = self._locals.get(source)
        return local.ports if local else ()

    def begin_burst(self, target: Target, count: int) -> Callable[[], list[ProbeAnswer] | None]:
        """Probe `target` `count` times now, within the caps.

        Return a function that gives None while probes are open, then the answers. Raises KeyError
        where `target.source` is not local.
        """
        local = self._locals[target.source]
        burst = _Burst({}, set())
        for n in range(count):
            ping = Ping(target, (n // 2) % len(local.ports), n % len(local.sizes))
            self._ping(local, ping, now_ns(), burst=burst)
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
            size=local.sizes[event.size_class] + udp.IP_AND_UDP_BYTES,
            outcome=_OUTCOMES[type(event)],
        )


_OUTCOMES: dict[type, str] = {
    ProbeReplied: "replied",
    ProbeLost: "lost",
    ProbeRefused: "refused",
    ProbeFailed: "failed",
}


def _moved(local: _Local, new: Endpoint, inode: int) -> bool:
    old = local.endpoint
    return (old.address, old.mtu, local.inode) != (new.address, new.mtu, inode)


def _payload(size: int | str, mtu: int) -> int:
    # Sizes are of the overlay IP packet; none exceeds what the interface takes.
    packet = mtu if isinstance(size, str) else min(size, mtu)
    return max(frame.HEADER_BYTES, packet - udp.IP_AND_UDP_BYTES)


def _bound(mapping: dict[Any, Any], limit: int) -> None:
    while len(mapping) > limit:
        mapping.pop(next(iter(mapping)))
