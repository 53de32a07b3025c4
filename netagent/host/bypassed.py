# SPDX-License-Identifier: Apache-2.0
"""Watches by what endpoints send: their RDMA device, or the kernel beside it. Reads no clock.

A collective library that cannot use the RDMA device falls back to TCP without a word. Probes still
go by RDMA and lose nothing; the task is many times slower. The device then moves next to nothing,
while the interface carries what the device did before, or what the devices of the container's other
endpoints do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from netagent.host.counters import advance
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import rnic

SPANS = 3
"""Readings in a row that must agree, for a finding to come or to go. Chosen: of ten seconds each,
half a minute is longer than most checkpoints, which may go by TCP by right."""
LEAST_BPS = 1e9
"""Bits per second of RDMA from which a device counts as used. Chosen: probes make a thousandth of
it, and a task that trains makes a hundred times as much."""
IDLE = 0.01
"""Share of the usual RDMA traffic up to which a device moves nothing. Chosen: it leaves room for
probes."""
CARRIED = 0.5
"""Share of the usual RDMA traffic that the interface must carry. Chosen: TCP rarely reaches what
RDMA did, and all else that a task sends beside its collectives is less."""
LEAST_SIBLINGS = 2
"""Fewest other endpoints of a container that say what its devices send. Chosen: one may have more
to send by right."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What an endpoint has sent, as counted from any beginning."""

    device: str
    """Its RDMA device."""
    rdma_bytes: int
    """Bytes that the device sent."""
    netdev_bytes: int
    """Bytes that the kernel sent by its interface."""


@dataclass(frozen=True, slots=True)
class _Span:
    """What an endpoint sent from one reading to the next, in bits per second."""

    rdma_bps: float
    netdev_bps: float


@dataclass(slots=True)
class _Known:
    """What is remembered of one endpoint."""

    read: Carried
    read_ns: int
    span: _Span | None = None
    """Between the last two readings; None where a counter began anew."""
    usual_bps: float = 0.0
    """The most that its device sent in two spans in a row."""
    reference_bps: float = 0.0
    """What the latest span was held against."""
    streak: int = 0
    """Spans in a row that say otherwise than what holds."""
    bypassed: bool = False


class BypassWatch:
    """Turns successive readings of both counters into findings."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: dict[EndpointId, _Known] = {}

    def observe(self, read: Mapping[EndpointId, Carried], *, now_ns: int) -> tuple[Finding, ...]:
        """Take in one reading of each endpoint and return what holds; others are forgotten."""
        self._known = {
            key: _advanced(self._known.get(key), each, now_ns) for key, each in read.items()
        }
        for key, known in self._known.items():
            self._judge(key, known)
        return tuple(self._findings())

    def _judge(self, key: EndpointId, known: _Known) -> None:
        if known.span is None:
            known.streak = 0
            return
        known.reference_bps = max(known.usual_bps, self._siblings_bps(key))
        reference = known.reference_bps
        idle = known.span.rdma_bps <= IDLE * reference
        bypassed = reference >= LEAST_BPS and idle and known.span.netdev_bps >= CARRIED * reference
        known.streak = known.streak + 1 if bypassed != known.bypassed else 0
        if known.streak >= SPANS:
            known.bypassed, known.streak = bypassed, 0

    def _siblings_bps(self, key: EndpointId) -> float:
        """Return what the devices of the container's other endpoints usually send now."""
        rates = [
            other.span.rdma_bps
            for sibling, other in self._known.items()
            if sibling != key and sibling.container == key.container and other.span is not None
        ]
        return median(rates) if len(rates) >= LEAST_SIBLINGS else 0.0

    def _findings(self) -> Iterator[Finding]:
        for key, known in sorted(self._known.items()):
            if not known.bypassed:
                continue
            text = (
                f"{key} sends by TCP what {known.read.device} should send by RDMA "
                f"({known.reference_bps / 1e9:.0f} Gb/s): nothing is lost, but the task is as slow "
                "as its host's kernel"
            )
            yield Finding(
                FindingKind.NOT_RDMA, rnic(self._host, known.read.device), text, 0,
                {"endpoint": str(key)},
            )  # fmt: skip


def _advanced(known: _Known | None, read: Carried, now_ns: int) -> _Known:
    """Return what is known after a reading."""
    if known is None or known.read.device != read.device or now_ns <= known.read_ns:
        return _Known(read, now_ns)
    before, span = known.span, _span(known, read, now_ns)
    if before is not None and span is not None:
        known.usual_bps = max(known.usual_bps, min(before.rdma_bps, span.rdma_bps))
    known.read, known.read_ns, known.span = read, now_ns, span
    return known


def _span(known: _Known, read: Carried, now_ns: int) -> _Span | None:
    rdma = advance(known.read.rdma_bytes, read.rdma_bytes)
    netdev = advance(known.read.netdev_bytes, read.netdev_bytes)
    if rdma is None or netdev is None:
        return None
    seconds = (now_ns - known.read_ns) / 1e9
    return _Span(8 * rdma / seconds, 8 * netdev / seconds)
