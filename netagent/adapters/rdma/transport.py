# SPDX-License-Identifier: Apache-2.0
"""RDMA transport, the probing side: an endpoint's probes out, replies in, as UD datagrams.

Stamps are those of the device's completions where it has them; else the wall clock just before a
send is posted and just after an arrival woke the process (what else has arrived by then is stamped
as it is polled), which makes the agent's own lateness part of the network's round trip.
`netagent.adapters.rdma.responder` answers.
"""

from collections.abc import Sequence

from netagent.adapters.clock import wall_ns
from netagent.adapters.rdma.handles import Handles, Reach
from netagent.adapters.rdma.messages import Place, RdmaEvent
from netagent.adapters.rdma.port import Arrived, RdmaPort
from netagent.adapters.rdma.resolver import Resolver
from netagent.model.encapsulation import UDP_BYTES, ip_bytes
from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.pinglist import Target
from netagent.probing.rdma.gids import address_of, packed_gid, sender_key, sender_slice
from netagent.probing.session import ProbeSession, Stamps
from netagent.probing.transport import Outcome, Sent
from netagent.wire import frame

_BESIDE_IP_BYTES = UDP_BYTES + 12 + 8 + 4
"""Bytes of a packet beside its payload and the IP header: UDP, BTH, DETH and ICRC (InfiniBand
Architecture Specification)."""
UNANSWERED = 8
"""Probes in a row without a reply after which the target's neighbour is resolved anew. Chosen:
fewer may be plain loss."""
INTRODUCTION_NS = 10_000_000_000
"""Nanoseconds in which a new target's losses before its first answer are no loss of the network.
Chosen: its responder resolves our address first, and a lost ARP costs it a second or more."""

MAX_AIMED = 8192
"""Targets kept that are probed on demand only; at more they are all forgotten. Chosen: it bounds
memory."""
_UNSENT = {
    Reach.PENDING: Sent(Outcome.PENDING),
    Reach.SILENT: Sent(Outcome.UNRESOLVED),
    Reach.READY: Sent(Outcome.FAILED),  # it took no handle: the device is going away
}
_FAILED = Sent(Outcome.FAILED)
_POSTED = Sent(Outcome.SENT)


class _Aimed:
    __slots__ = ("gid", "unanswered")

    def __init__(self, gid: str) -> None:
        self.gid = gid
        self.unanswered = 0


class RdmaTransport:
    """Probes from one local endpoint."""

    introduction_ns = INTRODUCTION_NS
    roamer = None
    """All ports stay: on Soft-RoCE each one is a queue pair, on other devices an address handle for
    each target, and no such device was at hand to try on what fresh ones cost."""

    def __init__(self, port: RdmaPort, resolver: Resolver) -> None:
        self._port = port
        self.overhead_bytes = ip_bytes(address_of(port.place.gid)) + _BESIDE_IP_BYTES
        self._handles = Handles(port, resolver, port.ports)
        self._aimed: dict[str, _Aimed] = {}
        self._by_sender: dict[bytes, _Aimed] = {}
        """Targets by their `sender_key`."""
        self._sender = sender_slice(port.own_gid)
        self.ports = port.ports
        """UDP source port on the wire, by index of the flow."""
        self.max_frame_bytes = port.mtu
        """The port's active MTU: a longer probe would not fit into one packet."""
        self.stamps = Stamps.RNIC if port.stamped else Stamps.PROCESS
        self._arrivals, self._events = port.descriptors()
        self._happened: list[RdmaEvent] = []
        self.closed = False

    @property
    def broken(self) -> str | None:
        """Why it must be closed and opened again; None while it works."""
        return self._port.broken

    def active_mtu(self) -> int | None:
        """Return the port's active MTU in bytes, as it is now; None where it cannot be had."""
        if self.closed or self.broken:
            return None
        return self._port.active_mtu()

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that are readable when `read` has something to do."""
        return self._arrivals, self._events

    def urgent(self) -> tuple[int, ...]:
        """Return all of them: a completion queue that runs over is lost."""
        return self.descriptors()

    def aim(self, targets: Sequence[Target]) -> None:
        """Be ready to probe exactly these; their addresses are resolved in the background."""
        gids = dict.fromkeys(t.rdma.gid for t in targets if t.rdma is not None)
        self._aimed = {gid: self._aimed.get(gid) or _Aimed(gid) for gid in gids}
        own = self._port.own_gid
        self._by_sender = {
            sender_key(packed_gid(gid), own): aimed for gid, aimed in self._aimed.items()
        }
        self._handles.aim(gids)

    def send(self, target: Target, port: int, payload: bytes) -> Sent:
        """Send a frame that zeros follow; LocalProtocolError where it does not fit a packet."""
        if len(payload) > self.max_frame_bytes:
            raise LocalProtocolError(f"{len(payload)} bytes to {target}")
        address = target.rdma
        if address is None:
            return _FAILED  # it answers over UDP only
        aimed = self._aimed.get(address.gid) or self._aim_too(address.gid)
        handle = self._handles.find(aimed.gid, self.ports[port])
        if handle is None:
            return _UNSENT[self._handles.reach(aimed.gid)]
        aimed.unanswered += 1
        if aimed.unanswered % UNANSWERED == 0:
            self._handles.lost(aimed.gid)
        to = (address.qpns[port % len(address.qpns)], address.qkey)
        header, length = payload[: frame.SEALED_BYTES], len(payload)
        if self._port.stamped:
            _, seq = frame.name(header) or (0, 0)
            sent = self._port.send(port, handle, to, header, length=length, name=seq)
            return _POSTED if sent else _FAILED
        left_ns = self._port.send(port, handle, to, header, length=length)
        return Sent(Outcome.SENT, left_ns) if left_ns else _FAILED

    def _aim_too(self, gid: str) -> _Aimed:
        # Asked on demand; until the next `aim`.
        self._handles.heard(gid)
        if len(self._aimed) >= MAX_AIMED:
            self._aimed.clear()
        aimed = self._aimed[gid] = _Aimed(gid)
        return aimed

    def read(
        self,
        descriptor: int,
        events: int,  # noqa: ARG002 - a Transport
        session: ProbeSession,
        *,
        woken_ns: int,
        due_ns: int,  # noqa: ARG002 - likewise: it is read at once
    ) -> int:
        """Take what waits at `descriptor` to `session`; return how many frames were foreign."""
        if descriptor == self._arrivals:
            return self._deliver(session, self._port.read(woken_ns))
        self._happened += self._port.events()
        return 0

    def poll(self, session: ProbeSession, *, spins: int) -> int:
        """Look up to `spins` times for replies to `session`, not at descriptors."""
        return self._deliver(session, self._port.take(spins))

    def _deliver(self, session: ProbeSession, arrivals: Sequence[Arrived]) -> int:
        if not arrivals:
            return 0
        foreign, taken_ns = 0, wall_ns()
        if self._port.stamped:
            for seq, left_ns in self._port.take_stamps():
                session.transmitted(seq, left_wall_ns=left_ns)
        for _, header, _, grh, _, at_ns in arrivals:
            aimed = self._by_sender.get(grh[self._sender])
            if aimed is not None:
                aimed.unanswered = 0
            try:
                reply = frame.decode(header)
                session.receive(reply, arrived_wall_ns=at_ns, taken_wall_ns=taken_ns)
            except RemoteProtocolError:
                foreign += 1
        return foreign

    def take_events(self) -> list[RdmaEvent]:
        """Return what happened to the device; look once a second, see `RdmaPort.events`."""
        self._happened += self._port.events()
        taken, self._happened = self._happened, []
        return taken

    def close(self) -> None:
        """Give everything back to the kernel."""
        self.closed = True
        self._handles.close()
        self._port.close()


def open_rdma(
    device: str, gid: str, *, flows: int, path: str, inode: int | None, resolver: Resolver
) -> RdmaTransport:
    """Open the endpoint with `gid` on `device`, in the namespace at `path` if that is not empty.

    Raises OSError, and CapabilityMissing where pyverbs is not installed.
    """
    place = Place(device=device, gid=gid, path=path, inode=inode)
    return RdmaTransport(RdmaPort.open(place, flows=flows), resolver)
