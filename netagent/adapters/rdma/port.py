# SPDX-License-Identifier: Apache-2.0
"""The queue pairs of one endpoint: frames in, frames out, faults mended.

Memory is small whatever the MTU: a frame is 24 bytes and then zeros, so all long sends share one
run of zeros, and what follows the beginning of a long packet is written to one place for all. A
short one is one piece: each further piece is another walk through the device's tables.

What breaks a queue pair (a send while the link is down, on Soft-RoCE) also flushes its receives,
which wakes us: it is reset and goes on. What a reset does not cure is `broken`: the owner closes
the port and opens another.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.rdma import verbs
from netagent.adapters.rdma.messages import Place, RdmaEvent
from netagent.adapters.rdma.place import call_at
from netagent.probing.rdma.gids import choose_gid, packed_gid
from netagent.probing.rdma.rings import ReceiveRing, SendRing
from netagent.probing.rdma.steering import (
    Steering,
    flow_ports,
    port_label,
    queue_port,
    steering_of,
)
from netagent.wire.frame import SEALED_BYTES, tell_held

if TYPE_CHECKING:
    from typing_extensions import Self

QKEY = 0x2E615072
"""Queue key of all our queue pairs. Chosen: any value without the top bit, which would make it a
privileged one (InfiniBand Architecture Specification)."""
SEND_SLOTS = 64
"""Requests that a queue pair may have under way. Chosen: more than one visit sends, and little
memory."""
RECEIVE_SLOTS = 256
"""Packets of one endpoint that may wait to be read; its queue pairs share them. Chosen: a burst of
many peers fits."""
SIGNAL_EVERY = 8
"""Sends per completion where completions carry no timestamp. Chosen: a completion costs a call, and
slots must come back in time."""
CHUNK = 16
"""Receives that are posted together. Chosen: one call of verbs serves them all."""
MEND_EVERY_NS = 100_000_000
"""Nanoseconds between two resets of a queue pair that keeps failing. Chosen: ten attempts a second
find the end of a fault soon enough."""
_PIECE_BYTES = 88
"""Bytes up to which a probe is one piece of memory. Chosen: 128 bytes with the GRH."""
_RECEIVE_BYTES = verbs.GRH_BYTES + _PIECE_BYTES
_BATCH = 64
"""Completions taken by one poll. Chosen: one call of verbs serves a queue of sends."""
_MAX_SIZES = 8
"""Probe lengths whose requests a slot keeps. Chosen: as many as the configuration's `sizes` may
have."""
_FATAL = {"DEVICE_FATAL", "CQ_ERR"}


class Arrived(NamedTuple):
    """A packet."""

    queue: int
    """Index of the queue pair that it came to."""
    header: bytes
    """The frame; shorter where the packet was."""
    length: int
    """Bytes of payload."""
    grh: bytes
    """The 40 bytes before the payload."""
    qpn: int
    """Queue pair that sent it."""
    wall_ns: int
    """When the device received it; where it has no stamps, when it was known to be there."""


class _Queue:
    """A queue pair with its rings and requests."""

    def __init__(
        self, index: int, pair: verbs.QueuePair, sends: SendRing, receives: ReceiveRing
    ) -> None:
        self.index = index
        self.pair = pair
        self.headers = 0
        """Offset of the headers of what it sends."""
        self.sends = sends
        self.receives = receives
        self.chains: list[list[Any]] = []
        self.requests: list[dict[int, Any]] = []
        """Send requests by slot, then by length."""
        self.names = [0] * SEND_SLOTS
        """Names by slot: what the sender calls the send."""
        self.failed = False
        self.mended_ns = 0

    def close(self) -> None:
        self.pair.close()
        for each in (*self.chains, *(slot.values() for slot in self.requests)):
            for request in each:
                request.close()
        self.chains.clear()
        self.requests.clear()


class RdmaPort:
    """An endpoint's device, queue pairs and memory."""

    def __init__(self, place: Place, *, flows: int) -> None:
        """Open it in the calling thread's namespace; raises OSError or CapabilityMissing."""
        self.place = place
        self.broken: str | None = None
        """Why it must be closed and opened again."""
        with ExitStack() as stack:
            self._open(stack, flows)
            self._closing = stack.pop_all()

    @classmethod
    def open(cls, place: Place, *, flows: int) -> "Self":
        """Open it in the endpoint's namespace; raises OSError or CapabilityMissing."""
        return call_at(place, lambda: cls(place, flows=flows))

    def _open(self, stack: ExitStack, flows: int) -> None:
        self._device = verbs.Device(self.place.device)
        stack.callback(self._device.close)
        index = choose_gid(self._device.gids(), verbs.ROCE_V2, self.place.gid)
        if index is None:
            raise OSError(f"{self.place.device} has no RoCE v2 GID {self.place.gid}")
        self._gid_index = index
        self.own_gid = packed_gid(self.place.gid)
        self.active = self._device.active()
        self.mtu = self._device.mtu()
        self.steering = steering_of(self._device.vendor_id)
        count = flows if self.steering is Steering.QUEUE_PAIR else 1
        self._lay_out(count)
        self._memory = verbs.Memory(self._device, self._length)
        stack.callback(self._memory.close)
        self._view = self._memory.view
        self._suspects = False
        self._open_completions(stack)
        self._queues: list[_Queue] = []
        stack.callback(self._close_queues)
        self._open_queues(count)
        self.qpns = tuple(queue.pair.qpn for queue in self._queues)
        if self.steering is Steering.QUEUE_PAIR:
            self.ports = tuple(map(queue_port, self.qpns))
        else:
            self.ports = flow_ports(self.place.gid, flows)
        self._refused = verbs.refusal()
        self._backlog: list[Arrived] = []
        self._spent = False
        """Whether the descriptor may be ready for what was taken already."""
        self._stamps: list[tuple[int, int]] = []
        self.arrivals.arm()

    def _lay_out(self, queues: int) -> None:
        # Zeros to send, a place for what is not looked at, headers to send, packets received.
        self._receive_slots = max(CHUNK, RECEIVE_SLOTS // queues // CHUNK * CHUNK)
        self._zeros, self._waste = 0, self.mtu
        self._headers = 2 * self.mtu
        self._packets = self._headers + queues * SEND_SLOTS * _PIECE_BYTES
        self._length = self._packets + queues * self._receive_slots * _RECEIVE_BYTES
        self._entries = (queues * self._receive_slots, queues * SEND_SLOTS)

    def _open_completions(self, stack: ExitStack) -> None:
        self.stamped = True
        try:
            self._open_both(stack)
        except OSError:  # EOPNOTSUPP and others: no such timestamps here
            self.stamped = False
            self._open_both(stack)

    def _open_both(self, stack: ExitStack) -> None:
        receives, sends = self._entries
        with ExitStack() as local:
            self.arrivals = verbs.CompletionQueue(
                self._device, receives, waited_for=True, stamped=self.stamped
            )
            local.callback(self.arrivals.close)
            self._departures = verbs.CompletionQueue(
                self._device, sends, waited_for=False, stamped=self.stamped
            )
            local.callback(self._departures.close)
            stack.callback(local.pop_all().close)

    def _open_queues(self, count: int) -> None:
        # Two Soft-RoCE queue pairs may hash to one source port: then another is made.
        spares: list[verbs.QueuePair] = []
        try:
            while len(self._queues) < count:
                pair = self._open_pair()
                if queue_port(pair.qpn) in {queue_port(q.pair.qpn) for q in self._queues}:
                    spares.append(pair)
                    continue
                self._queues.append(self._outfit(pair, len(self._queues)))
        finally:
            for spare in spares:
                spare.close()

    def _open_pair(self) -> verbs.QueuePair:
        return verbs.QueuePair(
            self._memory,
            (self._departures, self.arrivals),
            qkey=QKEY,
            send_slots=SEND_SLOTS,
            receive_slots=self._receive_slots,
        )

    def _outfit(self, pair: verbs.QueuePair, index: int) -> _Queue:
        every = 1 if self.stamped else SIGNAL_EVERY
        queue = _Queue(
            index,
            pair,
            SendRing(SEND_SLOTS, every=every),
            ReceiveRing(self._receive_slots, chunk=CHUNK),
        )
        queue.headers = self._headers + index * SEND_SLOTS * _PIECE_BYTES
        queue.requests = [{} for _ in range(SEND_SLOTS)]
        waste = self._memory.piece(self._waste, self.mtu)
        first = index * self._receive_slots
        for start in range(first, first + self._receive_slots, CHUNK):
            slots = range(start, start + CHUNK)
            pieces = [
                self._memory.piece(self._packets + slot * _RECEIVE_BYTES, _RECEIVE_BYTES)
                for slot in slots
            ]
            requests = [(slot, (piece, waste)) for slot, piece in zip(slots, pieces, strict=True)]
            queue.chains.append(verbs.receive_chain(requests))
            for piece in pieces:
                piece.close()
        waste.close()
        for chain in queue.chains:
            pair.receive(chain)
        return queue

    def _close_queues(self) -> None:
        for queue in self._queues:
            queue.close()

    # --- sending -------------------------------------------------------------------------------

    def handle(self, gid: str, port: int) -> verbs.Handle:
        """Make an address handle for a flow; raises OSError. Takes a second at a silent target."""
        label = port_label(port) if self.steering is Steering.FLOW_LABEL else 0
        return self._memory.handle(self._gid_index, gid, label=label)

    def send(
        self,
        flow: int,
        handle: verbs.Handle,
        to: tuple[int, int],
        header: bytes,
        *,
        length: int,
        name: int = 0,
        arrived_ns: int = 0,
    ) -> int:
        """Send a frame's `header`, with zeros up to `length`, to a (QPN, QKEY).

        Return the wall clock just before it was posted, in nanoseconds; 0 where the device
        refused. `name` comes back with the departure's stamp, where there are stamps. A reply to
        what came at `arrived_ns` carries the nanoseconds that it was held.
        """
        queue = self._queues[flow % len(self._queues)]
        if not self.active or self.broken or (queue.failed and not self._mend(queue)):
            return 0
        slot = queue.sends.take()
        if slot is None:
            self._reap()
            slot = queue.sends.take()
            if slot is None:
                return 0
        offset = queue.headers + slot * _PIECE_BYTES
        self._view[offset : offset + SEALED_BYTES] = header.ljust(SEALED_BYTES, b"\0")
        queue.names[slot] = name
        request = queue.requests[slot].get(length) or self._request(queue, slot, length)
        verbs.address(request, handle, *to)
        post = queue.pair.post
        left_ns = wall_ns()  # the rest counts as network
        if arrived_ns:
            tell_held(self._view, offset, left_ns - arrived_ns)
        try:
            post(request)
        except self._refused:
            queue.sends.give_back()
            self._suspect(queue)
            return 0
        return left_ns

    def _request(self, queue: _Queue, slot: int, length: int) -> Any:
        known = queue.requests[slot]
        if len(known) >= _MAX_SIZES:
            known.pop(next(iter(known))).close()
        short = min(length, _PIECE_BYTES)
        pieces = [self._memory.piece(queue.headers + slot * _PIECE_BYTES, short)]
        if length > short:
            pieces.append(self._memory.piece(self._zeros, length - short))
        signalled = queue.sends.signalled(slot)
        number = queue.index * SEND_SLOTS + slot
        known[length] = verbs.send_request(number, pieces, signalled=signalled)
        for piece in pieces:
            piece.close()
        return known[length]

    def _reap(self) -> None:
        while completions := self._departures.poll(_BATCH):
            for completion in completions:
                index, slot = divmod(completion.wr_id, SEND_SLOTS)
                queue = self._queues[index]
                if completion.status:
                    self._suspect(queue)
                    continue
                queue.sends.completed(slot)
                if isinstance(completion, verbs.StampedCompletion):
                    self._stamps.append((queue.names[slot], completion.wall_ns))
            if len(completions) < _BATCH:
                return

    def take_stamps(self) -> Sequence[tuple[int, int]]:
        """Return (name, wall clock ns of the departure) of what left since the last call."""
        if not self.stamped:
            return ()
        self._reap()
        taken, self._stamps = self._stamps, []
        return taken

    # --- receiving -----------------------------------------------------------------------------

    def read(self, woken_ns: int) -> list[Arrived]:
        """Return what arrived; the arrivals' descriptor is quiet until there is more.

        `woken_ns` is the wall clock just after that descriptor was found ready: what made it so had
        arrived by then, and is stamped with it where the device stamps nothing.
        """
        found = self._take(1, 0 if self._spent else woken_ns)
        self._spent = False
        self.arrivals.hush()
        self.arrivals.arm()
        return found + self.take()

    def take(self, spins: int = 1) -> list[Arrived]:
        """Return what arrived, without a look at the descriptor.

        Who polls busily looks up to `spins` times for something.
        """
        return self._take(spins, 0)

    def _take(self, spins: int, woken_ns: int) -> list[Arrived]:
        poll = self.arrivals.poll
        for _ in range(spins):
            completions = poll(_BATCH)
            if completions:
                break
        taken_ns = wall_ns()  # nothing comes between: what does counts as network
        self._spent = self._spent or bool(completions)
        found, self._backlog = self._backlog, []
        self._collect(completions, (woken_ns or taken_ns, taken_ns), found)
        if self._suspects:
            self._mend_all()
        return found

    def _collect(
        self,
        completions: Sequence[verbs.Completion],
        stamps: tuple[int, int],
        found: list[Arrived],
    ) -> None:
        # `stamps` are of the oldest one, and of the others.
        first_ns, taken_ns = stamps
        # What is left after a queue full of packets came after `arm`, and rings again.
        for left in reversed(range(self.arrivals.entries // _BATCH + 1)):
            for completion in completions:
                self._sort(completion, first_ns, found)
                first_ns = taken_ns
            if len(completions) < _BATCH or not left:
                return
            completions = self.arrivals.poll(_BATCH)
            first_ns = taken_ns = wall_ns()

    def _sort(self, completion: verbs.Completion, taken_ns: int, found: list[Arrived]) -> None:
        index, slot = divmod(completion.wr_id, self._receive_slots)
        queue = self._queues[index]
        if completion.status:
            self._suspect(queue)
            if completion.status == verbs.FLUSHED:
                return  # the reset posts it again
        else:
            found.append(self._arrived(queue, completion, taken_ns))
        chunk = queue.receives.consumed(slot)
        if chunk is not None:
            self._post_again(queue, chunk)

    def _arrived(self, queue: _Queue, completion: verbs.Completion, taken_ns: int) -> Arrived:
        at = self._packets + completion.wr_id * _RECEIVE_BYTES
        body, length = at + verbs.GRH_BYTES, completion.byte_len - verbs.GRH_BYTES
        view, kept = self._view, min(length, SEALED_BYTES)
        if isinstance(completion, verbs.StampedCompletion):
            taken_ns = completion.wall_ns
        header, grh = view[body : body + kept], view[at:body]
        return Arrived(queue.index, header, length, grh, completion.src_qp, taken_ns)

    def _post_again(self, queue: _Queue, chunk: int) -> None:
        try:
            queue.pair.receive(queue.chains[chunk])
        except OSError as error:  # there is room: only a device that is going away refuses
            self.broken = f"queue pair {queue.pair.qpn}: {error}"

    # --- faults --------------------------------------------------------------------------------

    def _suspect(self, queue: _Queue) -> None:
        queue.failed = self._suspects = True

    def _mend(self, queue: _Queue) -> bool:
        """Reset a queue pair that failed; return whether it can be used."""
        at_ns = now_ns()
        if not self.active or self.broken or at_ns - queue.mended_ns < MEND_EVERY_NS:
            return False
        queue.mended_ns = at_ns
        self._reap()
        # Its descriptor still rings for these.
        self._spent = True
        self._collect(self.arrivals.poll(_BATCH), (wall_ns(),) * 2, self._backlog)
        try:
            if not queue.pair.healthy():
                self._reset(queue)
        except OSError as error:
            self.broken = f"queue pair {queue.pair.qpn}: {error}"
            return False
        queue.failed = False
        self._suspects = any(each.failed for each in self._queues)
        return True

    def _mend_all(self) -> None:
        for queue in self._queues:
            if queue.failed:
                self._mend(queue)

    def _reset(self, queue: _Queue) -> None:
        queue.pair.reset()
        queue.sends.clear()
        queue.receives.clear()
        for chain in queue.chains:
            queue.pair.receive(chain)

    def events(self) -> list[RdmaEvent]:
        """Return what happened to the device since the last call; look once a second at least."""
        found = [self._event(kind) for kind in self._device.events()]
        if not self.broken and not self._device.present():
            self.broken = "the device was removed"
            found.append(self._told("DEVICE_FATAL", self.broken))
        if self._suspects:
            self._mend_all()  # one that only receives is woken by nothing else
        return found

    def _event(self, kind: str) -> RdmaEvent:
        if kind in _FATAL:
            self.broken = self.broken or kind
        elif kind in {"PORT_ERR", "PORT_ACTIVE"}:
            self.active = kind == "PORT_ACTIVE"
        elif kind == "GID_CHANGE":
            self._look_for_gid()
        elif kind.startswith("QP_"):
            for queue in self._queues:
                self._suspect(queue)  # its state shows which
        return self._told(kind, self.broken or "")

    def _look_for_gid(self) -> None:
        try:
            index = choose_gid(self._device.gids(), verbs.ROCE_V2, self.place.gid)
        except OSError as error:
            self.broken = str(error)
            return
        if index != self._gid_index:
            now_at = "is gone" if index is None else f"moved to index {index}"
            self.broken = f"GID {self.place.gid} {now_at}"

    def _told(self, kind: str, text: str) -> RdmaEvent:
        return RdmaEvent(device=self.place.device, kind=kind, wall_ns=wall_ns(), text=text)

    def active_mtu(self) -> int | None:
        """Ask the device for its active MTU in bytes; None where it does not answer."""
        try:
            return self._device.mtu()
        except OSError:
            return None

    def descriptors(self) -> tuple[int, int]:
        """Return the descriptors that are readable when `read`, or `events`, has something."""
        return self.arrivals.fd, self._device.event_fd

    def close(self) -> None:
        """Give everything back to the kernel; handles must be closed before."""
        self._closing.close()
