# SPDX-License-Identifier: Apache-2.0
"""Drives the probing of all local endpoints: sockets in, sockets out, decisions elsewhere.

One epoll set holds every socket: one wake-up serves all that is ready. A packet that waits in its
socket is late for nobody, since the kernel has stamped it. A wake-up costs more than the packet
that causes it, so the prober lets packets gather while the host is busy: for GATHER_NS at most,
which the responder's and the prober's delays therefore include.
"""

import secrets
import select
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
MAX_BURST_PROBES = 4096
"""On-demand probes whose asker may have gone away."""
REPLIES_PER_PROBE_CAP = 4
"""A host answers at most this many times the probes it may send."""
GATHER_NS = 2_000_000
"""A packet waits so long at most for others that the same wake-up serves."""
SEND_EVERY_NS = 5_000_000
"""Visits that fall due within this time go out together."""
IDLE_NS = 1_000_000_000
_MAX_ROUNDS = 256
"""Packets that one socket yields to a step; what a flood leaves over waits for the next."""
_IN, _ERROR = select.EPOLLIN, select.EPOLLERR
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


@dataclass(slots=True)
class _Peer:
    """What sending to one target needs, by index of the source port."""

    address: tuple[str, int]
    flows: tuple[FlowId, ...]
    marked_ns: list[int]


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
    peers: dict[EndpointId, _Peer] = field(default_factory=dict)
    wake_ns: int = 0
    """When a visit is due or a probe overdue; early at worst."""
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
        """The last is the source port of probes; 0 where probes arrive."""
        self._by_session: dict[int, _Local] = {}
        self._askers: dict[tuple[int, int], FlowId] = {}
        self._pinglist = PingList(0)
        self._bursts: dict[tuple[int, int], _Burst] = {}
        self._epoll = select.epoll()
        # It rings once and is then silent until the next step, so that packets can gather.
        self._bell = select.epoll()
        self._bell.register(self._epoll.fileno(), _ONCE)
        self._send_ns = 0
        rate = config.rate_per_host
        host_bytes = config.bytes_per_second_per_host
        self._bytes_cap = TokenBucket(host_bytes, host_bytes, now_ns=now_ns())
        self._losing: set[FlowId] = set()
        self._probe_cap = TokenBucket(rate, max(rate / 2, 16), now_ns=now_ns())
        replies = rate * REPLIES_PER_PROBE_CAP
        self._reply_cap = TokenBucket(replies, replies, now_ns=now_ns())
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
            local.peers = {t.target: self._peer(local, t) for t in targets}
            local.wake_ns = 0
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
        for each, port in zip(
            (sockets.responder, *sockets.probers), (0, *local.ports), strict=True
        ):
            self._by_fd[each.fileno()] = (local, each, port)
            self._epoll.register(each.fileno(), _IN)

    def _peer(self, local: _Local, target: Target) -> _Peer:
        address = (target.address, self._config.port)
        known = local.peers.get(target.target)
        if known is not None and known.address == address:
            return known
        flows = tuple(FlowId(local.endpoint.id, target.target, port) for port in local.ports)
        return _Peer(address, flows, [0] * len(flows))

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

    def take_losing(self) -> set[FlowId]:
        """Return the flows that lost probes since the last call."""
        taken, self._losing = self._losing, set()
        return taken

    # --- the loop ----------------------------------------------------------------------------

    def hush(self) -> None:
        """Keep the descriptor quiet until the next `step`: what arrived is known."""
        self._bell.poll(0)

    def step(self) -> int:
        """Read, settle and send what is due; return when to come again (monotonic ns)."""
        self.read()
        at_ns = now_ns()
        if at_ns >= self._send_ns and self._send_due(at_ns):
            self._send_ns = at_ns + SEND_EVERY_NS
            return at_ns + GATHER_NS  # for the replies, which need no bell
        wakes = [local.wake_ns for local in self._locals.values()]
        wake_ns = max(self._send_ns, min(wakes, default=at_ns + IDLE_NS))
        if wake_ns - at_ns > GATHER_NS:
            self._bell.modify(self._epoll.fileno(), _ONCE)
        return wake_ns

    def read(self) -> None:
        """Read every socket that has something, one packet of each per round."""
        for _ in range(_MAX_ROUNDS):
            ready = self._epoll.poll(0)
            if not ready:
                return
            at_ns = now_ns()
            for fd, events in ready:
                entry = self._by_fd.get(fd)
                if entry is None:
                    continue
                local, waiting, port = entry
                if port:
                    self._read_replies(local, waiting, port, events, at_ns)
                else:
                    self._read_probes(local, waiting, events, at_ns)

    def _read_replies(
        self, local: _Local, waiting: socket.socket, port: int, events: int, at_ns: int
    ) -> None:
        if events & _ERROR:
            self._stamp(local, waiting)
        received = udp.receive(waiting) if events & _IN else None
        if received is not None:
            payload, _, arrived_ns = received
            try:
                local.session.receive(
                    frame.decode(payload),
                    source_port=port,
                    arrived_wall_ns=arrived_ns,
                    taken_wall_ns=wall_ns(),
                )
            except RemoteProtocolError:
                self.counters.bad_frames += 1
        self._account(local, at_ns)

    def _stamp(self, local: _Local, waiting: socket.socket) -> None:
        noticed = udp.notice(waiting)
        name = frame.name(noticed.payload) if noticed else None
        if noticed is None or name is None:
            return  # an ICMP error may quote less than a frame
        if noticed.notice is udp.Notice.TRANSMITTED:
            local.session.transmitted(name[1], left_wall_ns=noticed.wall_ns)
        else:
            local.session.refuse(name[1])

    def _read_probes(self, local: _Local, waiting: socket.socket, events: int, at_ns: int) -> None:
        if events & _ERROR:
            self._reply_stamp(local, waiting)
        received = udp.receive(waiting) if events & _IN else None
        if received is None:
            return
        try:
            probe = frame.decode(received.payload)
        except RemoteProtocolError:
            self.counters.bad_frames += 1
            return
        if not probe.flags & frame.REPLY and self._reply_cap.take(1, now_ns=at_ns):
            self._answer(local, waiting, probe, received)

    def _answer(
        self, local: _Local, waiting: socket.socket, probe: frame.Frame, received: udp.Received
    ) -> None:
        payload, (address, port), arrived_ns = received
        if probe.flags & frame.MARKED and address in local.targets:
            key = (probe.session, port)
            self._askers[key] = FlowId(local.targets[address], local.endpoint.id, port)
            _bound(self._askers, 8192)
        local.arrived[probe.session, probe.seq] = (port, arrived_ns)
        _bound(local.arrived, 1024)
        reply = frame.encode(local.responder.reply(probe, source_port=port), size=len(payload))
        self.counters.answered += udp.send(waiting, reply, received.address)
        # A container's veth stamps at once, and the next reply on the flow tells of this one.
        self._reply_stamp(local, waiting)

    def _reply_stamp(self, local: _Local, waiting: socket.socket) -> None:
        noticed = udp.notice(waiting)
        name = frame.name(noticed.payload) if noticed else None
        arrival = local.arrived.pop(name, None) if name else None
        if noticed and name and arrival and noticed.notice is udp.Notice.TRANSMITTED:
            port, arrived_ns = arrival
            held_ns = noticed.wall_ns - arrived_ns
            local.responder.replied(name[0], port, name[1], held_ns=held_ns)

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
        wire_bytes = size + udp.IP_AND_UDP_BYTES
        if not (
            self._probe_cap.take(1, now_ns=at_ns)
            and local.bytes_cap.take(wire_bytes, now_ns=at_ns)
            and self._bytes_cap.take(wire_bytes, now_ns=at_ns)
        ):
            self.counters.capped += 1
            return
        self.counters.sent += 1
        self.counters.delayed += ping.late
        probe = local.session.send(
            peer.flows[index], ping.size_class, now_ns=at_ns, wall_ns=wall_ns()
        )
        if burst is not None:
            burst.open.add(probe.seq)
            self._bursts[probe.session, probe.seq] = burst
            _bound(self._bursts, MAX_BURST_PROBES)
        if at_ns - peer.marked_ns[index] > MARK_EVERY_NS:
            peer.marked_ns[index] = at_ns
            probe = probe._replace(flags=frame.MARKED)
        payload = frame.encode(probe, size=size)
        if not udp.send(local.sockets.probers[index], payload, peer.address):
            local.session.fail(probe.seq)

    def _account(self, local: _Local, at_ns: int) -> None:
        while (event := local.session.next_event()) is not None:
            burst = self._bursts.get((local.session.session, event.seq)) if self._bursts else None
            if burst is not None:
                self._account_burst(local, burst, event)
                continue
            self._tally.add(event)
            if isinstance(event, ProbeLost):
                local.schedule.lost(event.flow.target, now_ns=at_ns)
                self._losing.add(event.flow)

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
        peer = self._peer(local, target)
        burst = _Burst({}, set())
        for n in range(count):
            ping = Ping(target, (n // 2) % len(local.ports), n % len(local.sizes))
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
