# SPDX-License-Identifier: Apache-2.0
"""Probes from all local endpoints: schedules, caps, bursts, and what became of each probe. Pure.

Who drives it (`netagent.adapters.probes.loop`) opens and closes the transports, says which of their
descriptors are ready, and calls `send_due` when `wake_ns` says so. Time is an argument; only the
stamp that a probe carries is read as that probe leaves.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import PingList, Target
from netagent.probing.roaming import Turns, ports_of
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
from netagent.probing.settings import Settings
from netagent.probing.transport import Outcome, Roamer, Transport
from netagent.wire import frame
from netagent.wire.messages import ProbeAnswer

MARK_OFTEN_NS = 5_000_000_000
"""Nanoseconds between two probes of a flow whose outer header is observed, while its pair is new,
has a new port, or loses probes. Chosen: few packets pass the kernel's filter, and a new path is
seen in seconds."""
MARK_SELDOM_NS = 20_000_000_000
"""Nanoseconds between two such probes else. Chosen: a flow's outer header changes where the virtual
switch began anew, which loses probes; and to look at it costs as much as a probe."""
NEW_NS = 20_000_000_000
"""Nanoseconds after which a pair is as any other. Chosen: four looks, of which one finds all at
work."""
MAX_BURST_PROBES = 4096
"""Probes sent on demand whose answers are kept; the oldest go first. Chosen: whoever asked may have
gone away."""
SEND_EVERY_NS = 40_000_000
"""Nanoseconds within which visits that fall due go out together. Chosen: a wake-up costs more than
a packet."""
IDLE_NS = 1_000_000_000
"""Nanoseconds until the prober looks again where nothing is due. Chosen: one wake-up a second costs
nothing."""


class Tally(Protocol):
    """Counts what became of probes: `netagent.collect.windows.WindowTally` in production."""

    def add(self, event: ProbeEvent) -> None:
        """Count one event."""

    def forget(self, keep: set[tuple[EndpointId, EndpointId]]) -> None:
        """Forget all pairs but these."""

    def end(self, flows: Iterable[FlowId]) -> None:
        """Forget flows of which no more events will come, once they are reported."""


Asker = Callable[[int, int], tuple[EndpointId, str] | None]
"""From session and port of a marked probe to the local endpoint that it asked, and the asker's
overlay address; None where nobody knows."""


@dataclass(slots=True)
class _Peer:
    """What sending to one target needs, flow by flow."""

    target: Target
    ports: tuple[int, ...]
    """Source port of each flow, by its index in the transport."""
    flows: tuple[FlowId, ...]
    marked_ns: list[int]
    news_ns: int
    """When it was new, had a new port or lost a probe last."""

    def roam(self, port: int, *, now_ns: int) -> FlowId:
        """Go on with the last flow from another source port; return the flow that ends."""
        ended = self.flows[-1]
        self.flows = (*self.flows[:-1], replace(ended, source_port=port))
        self.marked_ns[-1], self.news_ns = 0, now_ns
        return ended

    def is_to_mark(self, index: int, *, now_ns: int) -> bool:
        """Whether the outer header of this flow's next probe is to be observed; note that it is."""
        every_ns = MARK_OFTEN_NS if now_ns - self.news_ns < NEW_NS else MARK_SELDOM_NS
        if now_ns - self.marked_ns[index] <= every_ns:
            return False
        self.marked_ns[index] = now_ns
        return True


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
    """When a visit is due or a probe overdue (monotonic ns); early at worst."""
    turned: int | None = None
    """Number of the window in which its roaming port had its last turn."""
    ended: list[FlowId] = field(default_factory=list)
    """Flows from the port that was exchanged last: their probes may be under way."""


@dataclass(slots=True)
class Burst:
    """Probes of one target on demand."""

    local: _Local
    peer: _Peer
    until_ns: int = 0
    """When its last probe is settled at the latest (monotonic)."""
    begun: int = 0
    """Probes that were to be sent so far; what a cap holds back is not sent."""
    open: set[int] = field(default_factory=set)
    """Sequence numbers of probes that are neither replied, lost nor failed."""
    answers: dict[int, ProbeAnswer] = field(default_factory=dict)


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
    """Probes from the endpoints of this host. `now_ns` is monotonic."""

    def __init__(
        self,
        settings: Settings,
        tally: Tally,
        asker: Asker,
        *,
        rng: Random,
        wall_ns: Callable[[], int],
        now_ns: int,
        phase: int = 0,
    ) -> None:
        """Hosts of another `phase` exchange ports in other windows."""
        self._settings = settings
        self._tally = tally
        self._asker = asker
        self._rng = rng
        self._wall_ns = wall_ns
        """Read as each probe leaves, for t1."""
        self._locals: dict[EndpointId, _Local] = {}
        self.eager = False
        """Whether a packet is late while it waits: nobody but this process stamps it."""
        self._by_fd: dict[int, _Local] = {}
        self._by_session: dict[int, _Local] = {}
        self._pinglist = PingList(0)
        self.keys: Mapping[EndpointId, bytes] = {}
        """By which probes of local endpoints are sealed; without, they have no seal."""
        self._skips_rare = False
        self._bursts: dict[tuple[int, int], Burst] = {}
        self._burst: Burst | None = None
        """The newest of them."""
        self._rates = Rates(
            settings.rate_per_endpoint,
            settings.pings_per_visit,
            settings.flows_per_pair,
            len(settings.sizes),
        )
        self._send_ns = 0
        self._gather_ns = min(SEND_EVERY_NS, self._rates.visit_ns // 2)
        """Of each endpoint, one visit goes out in this time."""
        rate = settings.rate_per_host
        host_bytes = settings.bytes_per_second_per_host
        self._bytes_cap = TokenBucket(host_bytes, host_bytes, now_ns=now_ns)
        self._losing: set[FlowId] = set()
        self._probe_cap = TokenBucket(rate, max(rate / 2, 16), now_ns=now_ns)
        self.counters = ProberCounters()
        self._turns = Turns(
            rotate_s=settings.rotate_s,
            window_s=settings.window_s,
            timeout_ms=settings.timeout_ms,
            phase=phase,
        )
        self.turn_ns = now_ns + self._turns.wait_ns(wall_ns=wall_ns())
        """When roaming ports may have their turn (monotonic ns)."""

    # --- what to probe -----------------------------------------------------------------------

    def __contains__(self, key: EndpointId) -> bool:
        """Whether it probes from this endpoint."""
        return key in self._locals

    def retain(self, wanted: Mapping[EndpointId, tuple[Endpoint, object]]) -> list[Transport]:
        """Keep the wanted endpoints that have the same identity; forget the others.

        Return the transports of those that were forgotten, which are to be closed.
        """
        gone = []
        for key, local in list(self._locals.items()):
            new = wanted.get(key)
            if new is None or new[1] != local.identity or local.transport.broken:
                gone.append(self._drop(key))
            else:
                local.endpoint = new[0]
        return gone

    def add(
        self,
        endpoint: Endpoint,
        identity: object,
        transport: Transport,
        *,
        session: int,
        now_ns: int,
    ) -> None:
        """Probe from an endpoint by its open transport, once `apply` is called.

        `session` is a random number of 32 bits: replies are recognised by it.
        """
        settings = self._settings
        cap = settings.bytes_per_second_per_endpoint
        local = _Local(
            endpoint,
            identity,
            transport,
            tuple(_frame_bytes(size, endpoint.mtu, transport) for size in settings.sizes),
            ProbeSession(session=session, timeout_ns=settings.timeout_ms * 1_000_000),
            Schedule(self._rates, self._rng, now_ns=now_ns),
            TokenBucket(cap, cap, now_ns=now_ns),
        )
        self._locals[endpoint.id] = local
        self._note_eager()
        self._by_session[session] = local
        for descriptor in transport.descriptors():
            self._by_fd[descriptor] = local

    def broken(self) -> dict[EndpointId, str]:
        """Return why endpoints do not probe any more, until they are set again."""
        return {k: why for k, local in self._locals.items() if (why := local.transport.broken)}

    def stamps(self) -> Mapping[EndpointId, Stamps]:
        """Return who stamps each endpoint's probes."""
        return {key: local.transport.stamps for key, local in self._locals.items()}

    def set_pinglist(self, pinglist: PingList, *, now_ns: int) -> None:
        """Probe exactly these targets from now on."""
        self._pinglist = pinglist
        self.apply(now_ns=now_ns)

    def apply(self, *, now_ns: int) -> None:
        """Aim every endpoint at its targets, after endpoints were added or forgotten."""
        by_source: dict[EndpointId, list[Target]] = {}
        for target in self._pinglist.targets:
            by_source.setdefault(target.source, []).append(target)
        keep = {(t.source, t.target) for t in self._pinglist.targets if t.source in self._locals}
        self._tally.forget(keep)
        for key, local in self._locals.items():
            targets = by_source.get(key, [])
            local.addresses = {t.address: t.target for t in targets}
            local.session.abandon_target(keep)
            local.peers = {t.target: self._meet(local, t, now_ns) for t in targets}
            local.wake_ns = 0
            local.transport.aim(targets)
            local.schedule.skips_rare = self._skips_rare
            local.schedule.replace(targets, self._pinglist.rare_share)

    def skip_rare(self, *, skips: bool) -> None:
        """Leave out pairs that their task does not use, or visit them again."""
        self._skips_rare = skips
        for local in self._locals.values():
            local.schedule.skips_rare = skips

    def _peer(self, local: _Local, target: Target, now_ns: int) -> _Peer:
        known = local.peers.get(target.target)
        if known is not None and known.target == target:
            return known
        numbers = self._ports_of(local, target.target)
        flows = tuple(
            FlowId(local.endpoint.id, target.target, local.transport.ports[n]) for n in numbers
        )
        return _Peer(target, numbers, flows, [0] * len(flows), now_ns)

    def _ports_of(self, local: _Local, target: EndpointId) -> tuple[int, ...]:
        return ports_of(
            target,
            ports=len(local.transport.ports),
            flows=self._settings.flows_per_pair,
            roams=local.transport.roamer is not None,
        )

    def _meet(self, local: _Local, target: Target, now_ns: int) -> _Peer:
        peer = self._peer(local, target, now_ns)
        if peer is not local.peers.get(target.target):
            until_ns = now_ns + local.transport.introduction_ns
            local.session.introduce(peer.flows, until_ns=until_ns)
        return peer

    def _note_eager(self) -> None:
        stamps = (each.transport.stamps for each in self._locals.values())
        self.eager = any(each is Stamps.PROCESS for each in stamps)

    def _drop(self, key: EndpointId) -> Transport:
        local = self._locals.pop(key)
        self._note_eager()
        local.session.abandon()
        self._by_session.pop(local.session.session, None)
        for descriptor in local.transport.descriptors():
            self._by_fd.pop(descriptor, None)
        return local.transport

    # --- ports that roam ---------------------------------------------------------------------

    def turning(self, *, now_ns: int) -> list[tuple[Transport, Roamer]]:
        """Return the transports whose roaming port is to be exchanged now, and what does that.

        Who exchanged it calls `turned`.
        """
        if now_ns < self.turn_ns:
            return []
        wall_ns = self._wall_ns()
        self.turn_ns = now_ns + self._turns.wait_ns(wall_ns=wall_ns)
        window = self._turns.due(wall_ns=wall_ns)
        due = []
        for local in self._locals.values() if window is not None else ():
            roamer = local.transport.roamer
            if window != local.turned and roamer is not None:
                local.turned = window
                due.append((local.transport, roamer))
        return due

    def turned(self, transport: Transport, opened: int, closed: int | None, *, now_ns: int) -> None:
        """Probe from the new port, whose descriptor is `opened`; `closed` is gone for good."""
        local = next(each for each in self._locals.values() if each.transport is transport)
        self._by_fd[opened] = local
        if closed is not None:
            del self._by_fd[closed]
            self._tally.end(local.ended)
        port = transport.ports[-1]
        local.ended = [peer.roam(port, now_ns=now_ns) for peer in local.peers.values()]

    def bursting(self, *, now_ns: int) -> bool:
        """Whether somebody waits for the newest burst."""
        burst = self._burst
        return burst is not None and bool(burst.open) and now_ns < burst.until_ns

    def take_counters(self) -> ProberCounters:
        """Return what went wrong since the last call."""
        taken, self.counters = self.counters, ProberCounters()
        return taken

    def take_losing(self) -> set[FlowId]:
        """Return the flows that lost probes since the last call."""
        taken, self._losing = self._losing, set()
        return taken

    # --- what comes and what goes ------------------------------------------------------------

    def read(
        self, ready: Iterable[tuple[int, int]], *, woken_ns: int, due_ns: int, now_ns: int
    ) -> None:
        """Take one packet, or a few, of each descriptor that is ready.

        `woken_ns` and `due_ns` are wall clock: see `Transport.read`.
        """
        for fd, events in ready:
            local = self._by_fd.get(fd)
            if local is not None:
                foreign = local.transport.read(
                    fd, events, local.session, woken_ns=woken_ns, due_ns=due_ns
                )
                self.counters.bad_frames += foreign
                self._account(local, now_ns)

    def wake_ns(self, *, now_ns: int) -> int:
        """Return when probes are due again, or overdue."""
        wakes = [local.wake_ns for local in self._locals.values()]
        return max(self._send_ns, min(wakes, default=now_ns + IDLE_NS))

    def send_due(self, *, now_ns: int, settles: bool = True) -> bool:
        """Settle what is overdue, if that may be, and send what is due; return whether any was."""
        if now_ns < self._send_ns:
            return False
        sent = False
        for local in self._locals.values():
            if now_ns < local.wake_ns - local.schedule.early_ns:
                continue
            if settles:
                local.session.expire(now_ns=now_ns)
            pings = local.schedule.due(now_ns=now_ns)
            for ping in pings:
                self._ping(local, local.peers[ping.target.target], ping, now_ns)
            self._account(local, now_ns)
            sent = sent or bool(pings)
            wakes = (local.schedule.next_ns(), local.session.deadline_ns())
            local.wake_ns = min((w for w in wakes if w is not None), default=now_ns + IDLE_NS)
        if sent:
            self._send_ns = now_ns + self._gather_ns
        return sent

    def _ping(
        self, local: _Local, peer: _Peer, ping: Ping, at_ns: int, *, burst: Burst | None = None
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
            peer.flows[index], ping.size_class, now_ns=at_ns, wall_ns=self._wall_ns()
        )
        if peer.is_to_mark(index, now_ns=at_ns):
            probe = probe._replace(flags=frame.MARKED)
        key = self.keys.get(peer.target.source)
        if key is None:
            payload = frame.encode(probe, size=size)
        else:
            target, wall_ns = str(peer.target.target), self._wall_ns()
            payload = frame.sealed(probe, key, target, size=size, wall_ns=wall_ns)
        sent = local.transport.send(peer.target, peer.ports[index], payload)
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
                if (peer := local.peers.get(event.flow.target)) is not None:
                    peer.news_ns = at_ns

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
        asker = self._asker(seen.session, seen.port)
        local = self._locals.get(asker[0]) if asker else None
        if asker is None or local is None or asker[1] not in local.addresses:
            return None
        return FlowId(local.addresses[asker[1]], local.endpoint.id, seen.port)

    def ports(self, source: EndpointId, target: EndpointId) -> tuple[int, ...]:
        """Return the UDP source ports from a local endpoint to another one.

        There are none where it is not probed from.
        """
        local = self._locals.get(source)
        if local is None:
            return ()
        ports = local.transport.ports
        return tuple(ports[number] for number in self._ports_of(local, target))

    def begin_burst(self, target: Target, *, now_ns: int) -> Burst:
        """Begin to probe `target` on demand; raises KeyError where its source is not local."""
        local = self._locals[target.source]
        self._burst = Burst(local, self._peer(local, target, now_ns))
        return self._burst

    def send_of(self, burst: Burst, *, now_ns: int) -> None:
        """Send the next probe of a burst, within the caps."""
        local, n = burst.local, burst.begun
        burst.begun += 1
        burst.until_ns = now_ns + self._settings.timeout_ms * 1_000_000
        ports, sizes = len(burst.peer.flows), len(local.sizes)
        ping = Ping(burst.peer.target, (n // 2) % ports, n % sizes)
        self._ping(local, burst.peer, ping, now_ns, burst=burst)
        local.wake_ns = 0

    def answers_of(self, burst: Burst) -> list[ProbeAnswer] | None:
        """Return None while probes of a burst are open, then the answers, in the order sent."""
        if burst.open:
            return None
        for seq in burst.answers:
            self._bursts.pop((burst.local.session.session, seq), None)
        return [burst.answers[seq] for seq in sorted(burst.answers)]

    def _account_burst(self, local: _Local, burst: Burst, event: ProbeEvent) -> None:
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
