# SPDX-License-Identifier: Apache-2.0
"""Answers RDMA probes, in a process of its own, so that a busy agent is not a slow network.

It serves all local endpoints and dies with the agent. An answer needs an address handle for the
prober; where there is none yet, the probe waits for the resolver, and the answer reports the wait
as the responder's delay. `netagent.adapters.rdma.responder_client` is the agent's side.
"""

import select
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from socket import AF_INET6, inet_ntop

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.rdma.channel import Channel, serve_parent
from netagent.adapters.rdma.handles import Handles
from netagent.adapters.rdma.messages import (
    Asked,
    Opened,
    Orders,
    RdmaEvent,
    Report,
    ResponderCounters,
    Served,
    Unopened,
)
from netagent.adapters.rdma.port import QKEY, Arrived, RdmaPort
from netagent.adapters.rdma.resolver import Resolver
from netagent.model.endpoint import RdmaAddress
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.probing.rdma.gids import sender_of, sender_slice
from netagent.probing.seals import Seals
from netagent.probing.session import Responder
from netagent.probing.shares import Shares
from netagent.wire import frame

WAIT_NS = 400_000_000
"""Nanoseconds a probe waits for its sender's address. Chosen: less than a prober's timeout (0.5 s
by default)."""
MAX_WAITING = 1024
"""Probes of one endpoint that may wait for addresses. Chosen: it bounds memory."""
MAX_STRANGERS = 1024
"""Senders per endpoint that nobody announced and whose handles are kept. Chosen: it bounds
memory."""
MAX_TOLD = 1024
"""News of each kind kept while the agent does not listen. Chosen: all must fit into one message."""
TICK_NS = 1_000_000_000
"""Nanoseconds between two looks at devices and two reports of counters. Chosen: the agent takes a
silence of `HUNG_NS` for a hang."""


@dataclass(slots=True)
class _Endpoint:
    """An endpoint that is answered for."""

    served: Served
    port: RdmaPort
    handles: Handles
    sender: slice
    """The bytes of a packet that identify its sender."""
    announced: set[str] = field(default_factory=set)
    strangers: dict[str, None] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    """What is there -> GID, of those who probed."""
    waiting: deque[tuple[int, str, Arrived, frame.Frame]] = field(default_factory=deque)
    """Probes whose sender is being resolved, oldest first, with when they were taken."""
    responder: Responder = field(default_factory=Responder)
    departing: dict[int, tuple[frame.Frame, int]] = field(default_factory=dict)
    """Number of the reply -> probe and its arrival, until the device's stamp is in."""
    replies: int = 0


class Service:
    """Does what it is ordered to."""

    def __init__(self, parent: Channel) -> None:
        self._parent = parent
        self._resolver = Resolver()
        self._epoll = select.epoll()
        self._by_fd: dict[int, Callable[[int], None]] = {
            parent.fileno(): lambda _: self._obey(),
            self._resolver.fileno(): lambda _: self._resolver.step(),
        }
        """What to do with a descriptor that was found ready at a wall clock."""
        self._reused = False
        """Whether descriptors were closed, so that their numbers may be others' by now."""
        self._endpoints: dict[EndpointId, _Endpoint] = {}
        self._orders = Orders(endpoints=(), aims=(), replies_per_second=0)
        self._cap = Shares(0, now_ns=now_ns())
        self._sealed_cap = Shares(0, now_ns=now_ns())
        self._seals = Seals()
        self._opened: deque[Opened] = deque(maxlen=MAX_TOLD)
        self._failed: deque[Unopened] = deque(maxlen=MAX_TOLD)
        self._asked: deque[Asked] = deque(maxlen=MAX_TOLD)
        self._events: deque[RdmaEvent] = deque(maxlen=MAX_TOLD)
        self._counters = ResponderCounters()
        self._waiting = False
        """Whether any endpoint has probes that wait."""
        self._tick_ns = now_ns() + TICK_NS
        for end in self._by_fd:
            self._epoll.register(end, select.EPOLLIN)

    def run(self) -> None:
        """Serve until the parent goes away."""
        while not self._parent.closed:
            self._look(self._wait_s())

    def _look(self, wait_s: float) -> None:
        ready, woken_ns = self._epoll.poll(wait_s), wall_ns()
        self._reused = False
        for fd, _ in ready:
            if self._reused:
                break  # what is still ready is found again
            self._by_fd[fd](woken_ns)
        self._step()

    def _wait_s(self) -> float:
        until_ns = self._tick_ns - now_ns()
        return max(0, min(until_ns, WAIT_NS // 8) if self._waiting else until_ns) / 1e9

    def _step(self) -> None:
        if self._waiting:
            for endpoint in self._endpoints.values():
                self._serve_waiting(endpoint)
            self._waiting = any(endpoint.waiting for endpoint in self._endpoints.values())
        tick = now_ns() >= self._tick_ns
        if tick:
            self._tick_ns = now_ns() + TICK_NS
            self._resolver.step()
            for endpoint in self._endpoints.values():
                self._events += endpoint.port.events()
            self._reopen()
        if tick or self._opened or self._failed or self._asked or self._events:
            self._tell()

    def _tell(self) -> None:
        self._parent.flush()
        if self._parent.backlog():
            return  # the agent does not listen at the moment: the news gather here
        self._parent.send(
            Report(
                opened=tuple(self._opened),
                failed=tuple(self._failed),
                asked=tuple(self._asked),
                events=tuple(self._events),
                counters=self._counters,
            )
        )
        for told in (self._opened, self._failed, self._asked, self._events):
            told.clear()
        self._counters = ResponderCounters()

    # --- which endpoints ---

    def _obey(self) -> None:
        for orders in self._parent.receive(Orders):
            if orders.replies_per_second != self._orders.replies_per_second:
                rate = orders.replies_per_second
                self._cap = Shares(rate, now_ns=now_ns())
                self._sealed_cap = Shares(rate, now_ns=now_ns())
                for key in self._endpoints:
                    self._join(key)
            self._orders = orders
        self._seals.keys = dict(self._orders.keys)
        wanted = {served.endpoint: served for served in self._orders.endpoints}
        for key, endpoint in list(self._endpoints.items()):
            if wanted.get(key) != endpoint.served:
                self._close(key)
        self._open_missing()
        self._aim()

    def _open_missing(self) -> None:
        for served in self._orders.endpoints:
            if served.endpoint not in self._endpoints:
                self._open(served)

    def _open(self, served: Served) -> None:
        key = served.endpoint
        try:
            port = RdmaPort.open(served.place, flows=served.flows)
        except (OSError, CapabilityMissing) as error:
            self._failed.append(Unopened(endpoint=key, place=served.place, reason=str(error)))
            return
        endpoint = _Endpoint(
            served, port, Handles(port, self._resolver), sender_slice(port.own_gid)
        )
        self._endpoints[key] = endpoint
        self._join(key)
        arrivals, events = port.descriptors()
        self._by_fd[arrivals] = partial(self._serve, endpoint)
        self._by_fd[events] = partial(self._notice, endpoint)
        for fd in (arrivals, events):
            self._epoll.register(fd, select.EPOLLIN)
        address = RdmaAddress(served.place.device, served.place.gid, port.qpns, QKEY, port.mtu)
        self._opened.append(Opened(endpoint=key, place=served.place, address=address))

    def _join(self, key: EndpointId) -> None:
        for cap in (self._cap, self._sealed_cap):
            cap.join(key, now_ns=now_ns())

    def _aim(self) -> None:
        aims = {aim.endpoint: set(aim.gids) for aim in self._orders.aims}
        for key, endpoint in self._endpoints.items():
            endpoint.announced = aims.get(key, set())
            endpoint.handles.aim(endpoint.announced | endpoint.strangers.keys())

    def _close(self, key: EndpointId) -> None:
        endpoint = self._endpoints.pop(key)
        for cap in (self._cap, self._sealed_cap):
            cap.leave(key, now_ns=now_ns())
        self._reused = True
        for fd in endpoint.port.descriptors():
            del self._by_fd[fd]
            self._epoll.unregister(fd)
        endpoint.handles.close()
        endpoint.port.close()

    def _reopen(self) -> None:
        for key, endpoint in list(self._endpoints.items()):
            if endpoint.port.broken:
                served, reason = endpoint.served, endpoint.port.broken
                self._failed.append(Unopened(endpoint=key, place=served.place, reason=reason))
                self._close(key)
        if len(self._endpoints) < len(self._orders.endpoints):
            self._open_missing()
            self._aim()

    # --- answering ---

    def _notice(self, endpoint: _Endpoint, _woken_ns: int) -> None:
        self._events += endpoint.port.events()
        self._reopen()

    def _serve(self, endpoint: _Endpoint, woken_ns: int) -> None:
        arrivals = endpoint.port.read(woken_ns)
        at_ns = now_ns()
        for arrived in arrivals:
            self._take(endpoint, arrived, at_ns)
        if endpoint.port.stamped:
            self._learn_departures(endpoint)

    def _take(self, endpoint: _Endpoint, arrived: Arrived, at_ns: int) -> None:
        try:
            probe = frame.decode(arrived.header)
        except RemoteProtocolError:
            self._counters.bad_frames += 1
            return
        key = arrived.grh[endpoint.sender]
        gid = endpoint.names.get(key) or _name(endpoint, arrived.grh, key)
        if gid is None or probe.flags & frame.REPLY:
            self._counters.bad_frames += 1
        elif not self._may(endpoint.served.endpoint, arrived.header, probe, at_ns):
            capped, whose = self._counters.capped, str(endpoint.served.endpoint)
            capped[whose] = capped.get(whose, 0) + 1
        elif not self._answer(endpoint, gid, arrived, probe):
            self._let_wait(endpoint, gid, arrived, probe)

    def _may(self, key: EndpointId, header: bytes, probe: frame.Frame, at_ns: int) -> bool:
        return (
            self._seals.holds(key, header, probe, wall_ns=wall_ns())
            and self._sealed_cap.take(key, now_ns=at_ns)
        ) or self._cap.take(key, now_ns=at_ns)

    def _answer(self, endpoint: _Endpoint, gid: str, arrived: Arrived, probe: frame.Frame) -> bool:
        handle = endpoint.handles.find(gid, probe.port)
        if handle is None:
            return False
        session, seq, udp_port, flags, _, _ = probe
        port, name, since_ns = endpoint.port, 0, arrived.wall_ns
        if port.stamped:
            endpoint.replies = name = endpoint.replies + 1
            endpoint.departing[name] = (probe, since_ns)
            reply = endpoint.responder.reply(probe)
        else:
            flags = flags & ~frame.SEALED | frame.REPLY | frame.HELD
            reply = frame.Frame(session, seq, udp_port, flags, seq)
        left_ns = port.send(
            arrived.queue,
            handle,
            (arrived.qpn, QKEY),
            frame.encode(reply, size=min(arrived.length, frame.SEALED_BYTES)),
            length=arrived.length,
            name=name,
            arrived_ns=0 if port.stamped else since_ns,
        )
        # With stamps the two are of different clocks: the delay is known when the departure is.
        held_ns = 0 if port.stamped else max(0, left_ns - since_ns)
        sent = self._count(left_ns, held_ns=held_ns)
        if probe.flags & frame.MARKED and sent:
            key = endpoint.served.endpoint
            self._asked.append(Asked(endpoint=key, session=session, port=udp_port, sender=gid))
        return True

    def _count(self, left_ns: int, *, held_ns: int) -> bool:
        counters = self._counters
        if not left_ns:
            counters.failed += 1
            return False
        counters.answered += 1
        counters.queue_ns_total += held_ns
        counters.queue_ns_max = max(counters.queue_ns_max, held_ns)
        return True

    def _learn_departures(self, endpoint: _Endpoint) -> None:
        for name, left_ns in endpoint.port.take_stamps():
            probe, arrived_ns = endpoint.departing.pop(name, (None, 0))
            if probe is not None:
                held_ns = left_ns - arrived_ns
                self._counters.queue_ns_total += held_ns
                self._counters.queue_ns_max = max(self._counters.queue_ns_max, held_ns)
                endpoint.responder.replied(
                    probe.session, probe.port, probe.seq, held_ns=held_ns, now_ns=now_ns()
                )
        while len(endpoint.departing) > MAX_WAITING:
            del endpoint.departing[next(iter(endpoint.departing))]

    # --- senders whose address is not resolved ---

    def _let_wait(
        self, endpoint: _Endpoint, gid: str, arrived: Arrived, probe: frame.Frame
    ) -> None:
        if gid not in endpoint.announced and gid not in endpoint.strangers:
            endpoint.strangers[gid] = None
            if len(endpoint.strangers) > MAX_STRANGERS:
                oldest = next(iter(endpoint.strangers))
                del endpoint.strangers[oldest]
                endpoint.handles.forget(oldest)
        endpoint.handles.heard(gid)
        endpoint.waiting.append((now_ns(), gid, arrived, probe))
        self._waiting = True
        if len(endpoint.waiting) > MAX_WAITING:
            endpoint.waiting.popleft()
            self._counters.unresolved += 1

    def _serve_waiting(self, endpoint: _Endpoint) -> None:
        oldest_ns = now_ns() - WAIT_NS
        for _ in range(len(endpoint.waiting)):
            taken_ns, gid, arrived, probe = endpoint.waiting.popleft()
            if self._answer(endpoint, gid, arrived, probe):
                continue
            if taken_ns <= oldest_ns:
                self._counters.unresolved += 1
            else:
                endpoint.waiting.append((taken_ns, gid, arrived, probe))


def _name(endpoint: _Endpoint, grh: bytes, key: bytes) -> str | None:
    # Seldom: each sender's GID is written once.
    sender = sender_of(grh, endpoint.port.own_gid)
    if sender is None:
        return None
    while len(endpoint.names) >= 2 * MAX_STRANGERS:
        del endpoint.names[next(iter(endpoint.names))]
    endpoint.names[key] = inet_ntop(AF_INET6, sender)
    return endpoint.names[key]


def main() -> None:
    """Serve the parent process."""
    Service(serve_parent(sys.argv[1:])).run()


if __name__ == "__main__":
    main()
