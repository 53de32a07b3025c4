# SPDX-License-Identifier: Apache-2.0
"""Probes of one endpoint, from sent to settled. Does no I/O and reads no clock.

Theory of operation. A probe settles exactly once, as replied, lost, refused or failed:

    sent --reply within the timeout--> replied
         --timeout-------------------> lost       a later reply changes nothing; before the flow's
                                                  first answer it may mean nothing (`introduce`)
         --ICMP port unreachable-----> refused    the path works, nothing listens there
         --kernel refused to send----> failed     says nothing about the path

The round trip is known only when all stamps are in: the kernel's transmit stamp of the probe, and
the responder's delay, which the *next* reply on the flow carries (`netagent.wire.frame`). Until
then the probe waits in `_unmeasured`, settled already, so that a missing stamp costs a
measurement and never a loss. Whether a reply was in time is decided by the kernel's stamps: an
agent that was late to read its socket has lost nothing.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.probing.recent import Recent
from netagent.wire.frame import HELD, REPLY, SEALED, Frame

MAX_UNMEASURED = 512
"""Settled probes that may wait for a stamp; the oldest gives way. Chosen: it bounds memory, and a
missing stamp costs only a measurement."""
MAX_PEERS = 8192
"""Flows of which one responding socket remembers the last delay. Chosen: it bounds memory."""
HELD_FOR_NS = 600_000_000_000
"""Nanoseconds for which it does so at least. Chosen: a prober visits a target every few seconds, a
tenth as often as by default still within minutes; no more, since each port that roams and each
container that ends leaves a last delay that nobody asks for."""


class Stamps(IntEnum):
    """Who takes t2 to t5. The prober's and the responder's stamps need not be alike."""

    KERNEL = 0
    """As the packet passes the network stack (SO_TIMESTAMPING, software)."""
    PROCESS = 1
    """The process itself, beside its calls: scheduling counts as network."""
    RNIC = 2
    """The RNIC, in its completions."""


# Events are tuples: a thousand a second are made, and a frozen dataclass takes four times as long.


class ProbeReplied(NamedTuple):
    """An answer came within the timeout."""

    flow: FlowId
    seq: int
    size_class: int


class ProbeLost(NamedTuple):
    """No answer within the timeout."""

    flow: FlowId
    seq: int
    size_class: int
    sent_ns: int
    """Monotonic."""
    introducing: bool = False
    """Sent before the target answered on this flow for the first time: see `introduce`."""


class ProbeRefused(NamedTuple):
    """The target's network stack said that nothing listens: the path is fine."""

    flow: FlowId
    seq: int
    size_class: int


class ProbeFailed(NamedTuple):
    """The local kernel refused to send."""

    flow: FlowId
    seq: int
    size_class: int


class ProbeMeasured(NamedTuple):
    """All stamps of an earlier `ProbeReplied` are in."""

    flow: FlowId
    seq: int
    network_ns: int
    prober_ns: int
    responder_ns: int


ProbeEvent = ProbeReplied | ProbeLost | ProbeRefused | ProbeFailed | ProbeMeasured


@dataclass(slots=True)
class _Probe:
    flow: FlowId
    size_class: int
    sent_ns: int
    asked_wall_ns: int
    left_wall_ns: int | None = None
    arrived_wall_ns: int | None = None
    taken_wall_ns: int | None = None
    held_ns: int | None = None


class ProbeSession:
    """All probes of one local endpoint, over all its source ports."""

    def __init__(self, *, session: int, timeout_ns: int) -> None:
        self.session = session
        self._timeout_ns = timeout_ns
        self._next_seq = 0
        self._open: dict[int, _Probe] = {}  # insertion order = deadline order
        self._unmeasured: dict[int, _Probe] = {}
        self._introducing: dict[FlowId, int] = {}
        """Flows not answered yet -> until when (monotonic ns) that means nothing."""
        self._events: deque[ProbeEvent] = deque()

    def introduce(self, flows: Iterable[FlowId], *, until_ns: int) -> None:
        """Take it that the target of `flows` must learn the way back to us first.

        A probe lost before its first answer, or `until_ns` (monotonic), counts as `introducing`.
        """
        self._introducing.update(dict.fromkeys(flows, until_ns))

    def send(self, flow: FlowId, size_class: int, *, now_ns: int, wall_ns: int) -> Frame:
        """Open a probe; `wall_ns` is t1. Return the frame to send."""
        seq = self._next_seq
        self._next_seq = (seq + 1) & 0xFFFFFFFF
        self._open[seq] = _Probe(flow, size_class, now_ns, wall_ns)
        return Frame(self.session, seq, flow.source_port)

    def fail(self, seq: int) -> None:
        """Settle probe `seq` as failed: the kernel refused to send it."""
        if (probe := self._open.pop(seq, None)) is not None:
            self._events.append(ProbeFailed(probe.flow, seq, probe.size_class))

    def withdraw(self, seq: int) -> None:
        """Forget probe `seq`, which was not sent for want of the target's address."""
        self._open.pop(seq, None)

    def transmitted(self, seq: int, *, left_wall_ns: int) -> None:
        """Kernel transmit stamp t2 of probe `seq`."""
        probe = self._open.get(seq) or self._unmeasured.get(seq)
        if probe is not None:
            probe.left_wall_ns = left_wall_ns
            if probe.held_ns is not None:
                self._measure(seq, probe)

    def refuse(self, seq: int) -> None:
        """ICMP answered that nothing listens at the target of probe `seq`."""
        if (probe := self._open.pop(seq, None)) is not None:
            self._events.append(ProbeRefused(probe.flow, seq, probe.size_class))

    def receive(self, frame: Frame, *, arrived_wall_ns: int, taken_wall_ns: int) -> None:
        """Account for a reply, with its receive stamp t5 and t6.

        Raises RemoteProtocolError for what answers no probe of this session.
        """
        if not frame.flags & REPLY or frame.session != self.session:
            raise RemoteProtocolError("not a reply to this session")
        self._settle(frame, arrived_wall_ns, taken_wall_ns)
        if frame.flags & HELD:
            self._learn_held(frame.held_seq, frame.held_ns)

    def _settle(self, frame: Frame, arrived_wall_ns: int, taken_wall_ns: int) -> None:
        probe = self._open.get(frame.seq)
        if probe is None:
            return  # a duplicate, or later than its deadline: settled already
        if probe.flow.source_port != frame.port:
            raise RemoteProtocolError(f"reply to probe {frame.seq} on another port")
        probe.arrived_wall_ns, probe.taken_wall_ns = arrived_wall_ns, taken_wall_ns
        left = probe.left_wall_ns if probe.left_wall_ns is not None else probe.asked_wall_ns
        if arrived_wall_ns - left > self._timeout_ns:
            return  # expire() will count it lost
        del self._open[frame.seq]
        if probe.flow in self._introducing:
            self._introduced(probe)
        self._events.append(ProbeReplied(probe.flow, frame.seq, probe.size_class))
        if len(self._unmeasured) >= MAX_UNMEASURED:
            self._unmeasured.pop(next(iter(self._unmeasured)))
        self._unmeasured[frame.seq] = probe

    def _introduced(self, first: _Probe) -> None:
        del self._introducing[first.flow]
        for seq, probe in list(self._open.items()):
            if probe.flow == first.flow and probe.sent_ns < first.sent_ns:
                del self._open[seq]
                self._lose(seq, probe, introducing=True)

    def _learn_held(self, seq: int, held_ns: int) -> None:
        if (probe := self._unmeasured.get(seq)) is not None:
            probe.held_ns = held_ns
            self._measure(seq, probe)

    def _measure(self, seq: int, probe: _Probe) -> None:
        left, arrived, taken = probe.left_wall_ns, probe.arrived_wall_ns, probe.taken_wall_ns
        if left is None or arrived is None or taken is None or probe.held_ns is None:
            return
        self._unmeasured.pop(seq, None)
        network_ns = arrived - left - probe.held_ns
        prober_ns = (left - probe.asked_wall_ns) + (taken - arrived)
        # A wall clock that stepped in between shows as a negative or absurd difference.
        if 0 <= network_ns <= self._timeout_ns and prober_ns >= 0:
            self._events.append(
                ProbeMeasured(probe.flow, seq, network_ns, prober_ns, probe.held_ns)
            )

    def expire(self, *, now_ns: int) -> None:
        """Settle what is overdue as lost. Read the sockets first: replies may wait in them."""
        while self._open:
            seq, probe = next(iter(self._open.items()))
            if now_ns - probe.sent_ns < self._timeout_ns:
                return
            del self._open[seq]
            introducing = now_ns < self._introducing.get(probe.flow, now_ns)
            if not introducing:
                self._introducing.pop(probe.flow, None)
            self._lose(seq, probe, introducing=introducing)

    def _lose(self, seq: int, probe: _Probe, *, introducing: bool) -> None:
        self._events.append(
            ProbeLost(probe.flow, seq, probe.size_class, probe.sent_ns, introducing)
        )

    def abandon(self) -> None:
        """Forget what is open, without a verdict: the endpoint or a target went away."""
        self._open.clear()
        self._unmeasured.clear()
        self._introducing.clear()

    def abandon_target(self, keep: set[tuple[EndpointId, EndpointId]]) -> None:
        """Forget open probes whose (source, target) is not in `keep`."""
        for store in (self._open, self._unmeasured):
            for seq in [s for s, p in store.items() if (p.flow.source, p.flow.target) not in keep]:
                del store[seq]
        self._introducing = {
            flow: until_ns
            for flow, until_ns in self._introducing.items()
            if (flow.source, flow.target) in keep
        }

    def deadline_ns(self) -> int | None:
        """Return when the oldest open probe expires, monotonic; None where none is open."""
        if not self._open:
            return None
        return next(iter(self._open.values())).sent_ns + self._timeout_ns

    def next_event(self) -> ProbeEvent | None:
        """Return the oldest event not yet taken."""
        return self._events.popleft() if self._events else None


class Responder:
    """What one responding socket must remember: the delay of its last reply to each prober."""

    def __init__(self) -> None:
        # (session, port) -> seq, ns
        self._held = Recent[tuple[int, int], tuple[int, int]](span_ns=HELD_FOR_NS, most=MAX_PEERS)

    def reply(self, frame: Frame) -> Frame:
        """Return the reply to the probe `frame`."""
        held = self._held.pop((frame.session, frame.port))
        flags = REPLY | (frame.flags & ~(HELD | SEALED)) | (HELD if held else 0)
        held_seq, held_ns = held or (0, 0)
        return Frame(frame.session, frame.seq, frame.port, flags, held_seq, held_ns)

    def replied(self, session: int, port: int, seq: int, *, held_ns: int, now_ns: int) -> None:
        """Remember that the reply to probe `seq` left `held_ns` after its arrival (t4 - t3)."""
        if held_ns < 0:
            return  # the wall clock stepped back in between
        self._held.put((session, port), (seq, held_ns), now_ns=now_ns)
