# SPDX-License-Identifier: Apache-2.0
"""Probes and answers of one endpoint over UDP, in the agent's own process."""

import select
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.probes import udp
from netagent.model.encapsulation import UDP_BYTES, ip_bytes
from netagent.model.endpoint import Endpoint
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.probing.seals import Seals
from netagent.probing.session import ProbeSession, Responder, Stamps
from netagent.probing.shares import Shares
from netagent.probing.transport import Askers, Outcome, Sent
from netagent.wire import frame

MAX_AWAITED = 1024
"""Replies whose transmit stamp may be awaited; the oldest gives way. Chosen: stamps come within
milliseconds."""
BACKLOG_NS = 1_000_000_000
"""Nanoseconds that a probe waited to be read, from which on it is no sign of a flood. Chosen: this
agent stood still for as long, and what came meanwhile is read at once; of a flood, the socket keeps
less than that."""
_IN, _ERROR = select.EPOLLIN, select.EPOLLERR


class Answering:
    """What the responders of a host share: caps, counts, and who asked.

    Frames without a seal prove nothing of who sent them: a tenant that floods its own endpoint may
    not use up what is there for those of others, nor for probes that have one.
    """

    def __init__(self, replies_per_s: float) -> None:
        self._cap = Shares(replies_per_s, now_ns=now_ns())
        self._sealed_cap = Shares(replies_per_s, now_ns=now_ns())
        self.seals = Seals()
        self.askers = Askers()
        self.answered = 0
        self._capped = Counter[EndpointId]()

    def join(self, endpoint: EndpointId) -> None:
        """Let an endpoint answer."""
        for cap in (self._cap, self._sealed_cap):
            cap.join(endpoint, now_ns=now_ns())

    def leave(self, endpoint: EndpointId) -> None:
        """Let the others have what it had."""
        for cap in (self._cap, self._sealed_cap):
            cap.leave(endpoint, now_ns=now_ns())

    def may(
        self, endpoint: EndpointId, payload: bytes, probe: frame.Frame, *, arrived_ns: int
    ) -> bool:
        """Whether a probe that came then (Unix time) may be answered; count it where it may not."""
        at_ns, wall, seals = now_ns(), wall_ns(), self.seals
        may = (
            seals.holds(endpoint, payload, probe, wall_ns=wall)
            and self._sealed_cap.take(endpoint, now_ns=at_ns)
        ) or self._cap.take(endpoint, now_ns=at_ns)
        if not may and wall - arrived_ns < BACKLOG_NS:
            self._capped[endpoint] += 1
        return may

    def take(self) -> tuple[int, dict[str, int]]:
        """Return how many probes were answered since the last call, and how many of whom not."""
        taken = self.answered, {str(whose): count for whose, count in self._capped.items()}
        self.answered, self._capped = 0, Counter()
        return taken


class UdpTransport:
    """An endpoint's sockets: one that answers, and one per source port that probes."""

    introduction_ns = 0
    max_frame_bytes = 65_000
    stamps = Stamps.KERNEL
    broken: str | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        sockets: udp.EndpointSockets,
        port: int,
        answering: Answering,
        reopen: Callable[[], socket.socket] | None = None,
    ) -> None:
        """`reopen` opens a further socket to probe from; None: all ports stay."""
        self._endpoint = endpoint
        self.overhead_bytes = ip_bytes(endpoint.address) + UDP_BYTES
        self._sockets = sockets
        self._port = port
        self._answering = answering
        answering.join(endpoint.id)
        self._by_fd = {each.fileno(): each for each in sockets.probers}
        self._reopen = reopen
        self._left: deque[socket.socket] = deque()
        """Sockets from which nothing is sent any more; replies may come."""
        self._responder = Responder()
        self._arrived: dict[tuple[int, int], tuple[int, int]] = {}
        """(session, seq) -> (port, t3) of probes whose reply's transmit stamp is awaited."""
        self.ports = sockets.ports()

    @property
    def roamer(self) -> "UdpTransport | None":
        """What exchanges the last port: this, where it can open others."""
        return self if self._reopen is not None else None

    def renew(self) -> int:
        """Open the last port anew and return its descriptor; raises OSError."""
        assert self._reopen is not None  # noqa: S101 - else there is no roamer
        opened = self._reopen()
        *staying, before = self._sockets.probers
        self._left.append(before)
        self._sockets.probers = (*staying, opened)
        self._by_fd[opened.fileno()] = opened
        self.ports = self._sockets.ports()
        return opened.fileno()

    def drained(self) -> int | None:
        """Return the descriptor of a port that was renewed twice; None where there is none."""
        return self._left[0].fileno() if len(self._left) > 1 else None

    def drop(self) -> None:
        """Close that one."""
        gone = self._left.popleft()
        del self._by_fd[gone.fileno()]
        gone.close()

    def descriptors(self) -> tuple[int, ...]:
        """Return the sockets' descriptors."""
        return (self._sockets.responder.fileno(), *self._by_fd)

    def urgent(self) -> tuple[int, ...]:
        """Return the socket that answers. Replies wait in theirs: the kernel has stamped them."""
        return (self._sockets.responder.fileno(),)

    def aim(self, targets: Sequence[Target]) -> None:
        """Do nothing: the kernel resolves addresses as packets go."""

    def send(self, target: Target, port: int, payload: bytes) -> Sent:
        """Send a frame; its transmit stamp comes on the error queue."""
        address = (target.address, self._port)
        sent = udp.send(self._sockets.probers[port], payload, address)
        return Sent(Outcome.SENT if sent else Outcome.FAILED)

    def read(
        self,
        descriptor: int,
        events: int,
        session: ProbeSession,
        *,
        woken_ns: int,  # noqa: ARG002 - a Transport; the kernel stamps
        due_ns: int,
    ) -> int:
        """Take one packet, and one notice of the error queue."""
        prober = self._by_fd.get(descriptor)
        try:
            if prober is not None:
                _take_reply(prober, events, session, due_ns)
            else:
                self._take_probe(events)
        except RemoteProtocolError:
            return 1
        return 0

    def _take_probe(self, events: int) -> None:
        waiting = self._sockets.responder
        if events & _ERROR:
            self._take_stamp(waiting)
        received = udp.receive(waiting) if events & _IN else None
        if received is None:
            return
        probe = frame.decode(received.payload)
        if probe.flags & frame.REPLY:
            return
        local, payload = self._endpoint.id, received.payload
        if self._answering.may(local, payload, probe, arrived_ns=received.wall_ns):
            self._answer(waiting, probe, received)

    def _answer(self, waiting: socket.socket, probe: frame.Frame, received: udp.Received) -> None:
        if probe.flags & frame.MARKED:
            askers, local = self._answering.askers, self._endpoint.id
            askers.add(probe.session, probe.port, local, received.address[0], now_ns=now_ns())
        self._arrived[probe.session, probe.seq] = (probe.port, received.wall_ns)
        if len(self._arrived) > MAX_AWAITED:
            self._arrived.pop(next(iter(self._arrived)))
        reply = frame.encode(self._responder.reply(probe), size=len(received.payload))
        self._answering.answered += udp.send(waiting, reply, received.address)
        # A container's veth stamps at once; the flow's next reply carries this one's delay.
        self._take_stamp(waiting)

    def _take_stamp(self, waiting: socket.socket) -> None:
        noticed = udp.notice(waiting)
        name = frame.name(noticed.payload) if noticed else None
        arrival = self._arrived.pop(name, None) if name else None
        if noticed and name and arrival and noticed.notice is udp.Notice.TRANSMITTED:
            port, arrived_ns = arrival
            held_ns = noticed.wall_ns - arrived_ns
            self._responder.replied(name[0], port, name[1], held_ns=held_ns, now_ns=now_ns())

    def close(self) -> None:
        """Close every socket."""
        self._answering.leave(self._endpoint.id)
        self._sockets.close()
        for each in self._left:
            each.close()


def _take_reply(waiting: socket.socket, events: int, session: ProbeSession, due_ns: int) -> None:
    if events & _ERROR:
        _take_notice(waiting, session)
    received = udp.receive(waiting) if events & _IN else None
    if received is not None:
        arrived_ns = received.wall_ns
        # That it waited until it was to be read is no delay of ours.
        late_ns = max(0, wall_ns() - max(arrived_ns, due_ns))
        session.receive(
            frame.decode(received.payload),
            arrived_wall_ns=arrived_ns,
            taken_wall_ns=arrived_ns + late_ns,
        )


def _take_notice(waiting: socket.socket, session: ProbeSession) -> None:
    noticed = udp.notice(waiting)
    name = frame.name(noticed.payload) if noticed else None
    if noticed is None or name is None:
        return  # an ICMP error may quote less than a frame
    if noticed.notice is udp.Notice.TRANSMITTED:
        session.transmitted(name[1], left_wall_ns=noticed.wall_ns)
    else:
        session.refuse(name[1])
