# SPDX-License-Identifier: Apache-2.0
"""Counters of bytes sent, read about each tick of the wall clock, into series. Reads no clock.

Tick k is the interval [k * tick, (k + 1) * tick) of the host's wall clock, the same on all hosts.
No reading comes exactly at an edge: what a counter grew by between two readings is laid evenly over
the time between them. A tick is known where such intervals cover it whole. It is a gap before the
first reading, where a counter was reset or read too seldom, and where the clock was set.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from netagent.host.counters import advance
from netagent.host.facts import HostView, Namespace
from netagent.host.rdma_facts import RdmaDevice
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

STEP_NS = 50_000_000
"""Nanoseconds by which the wall clock must leave the monotonic clock between two readings to count
as set. Chosen: slewing does not come near."""
SPARSE = 1.5
"""Ticks between two readings beyond which they say nothing of the ticks between. Chosen: midway
between a late reading and a missing one."""
MAX_TICKS = 600
"""Ticks kept until they are taken; the oldest go first. Chosen: ten minutes of the default ticks,
one minute of the finest."""

SENT = {"port_xmit_data": 4, "tx_bytes": 1, "ip4OutOctets": 1}
"""Counters of an RDMA port that count what it sent -> bytes per unit: IBTA's PortXmitData (mlx5 and
others), hw_counters of bnxt_re and efa, of irdma. Soft-RoCE has none."""


@dataclass(frozen=True, slots=True)
class Source:
    """A counter of the bytes that an endpoint sent."""

    path: str
    """File, relative to the root of sysfs."""
    unit_bytes: int = 1
    namespace: Namespace | None = None
    """Whose sysfs; None: the agent's own."""


@dataclass(frozen=True, slots=True)
class CountedAt:
    """An endpoint's RDMA device, as far as its counters go."""

    device: str
    namespace: Namespace | None = None
    """To read it in; None: it is visible from here."""


def sources(
    view: HostView, places: Mapping[EndpointId, CountedAt], devices: Mapping[str, RdmaDevice]
) -> dict[EndpointId, Source]:
    """Return where to read each endpoint: its RNIC, else the other end of its interface.

    One that has no other end is counted inside, and left out while it cannot be entered.
    """
    return {
        endpoint.id: source
        for endpoint in view.endpoints
        if (source := _of_rnic(places.get(endpoint.id), devices) or _of_interface(endpoint, view))
    }


def compared(
    view: HostView, places: Mapping[EndpointId, CountedAt], devices: Mapping[str, RdmaDevice]
) -> tuple[dict[EndpointId, Source], dict[EndpointId, Source]]:
    """Return where to read what endpoints' RDMA devices sent, and what their kernels did.

    Only of endpoints of which both are counted: Soft-RoCE's devices count no bytes.
    """
    by_rdma = {key: source for key, place in places.items() if (source := _of_rnic(place, devices))}
    by_kernel = {
        key: _inside(netdev, view.namespaces[key])
        for key, netdev in view.netdevs.items()
        if key in by_rdma and key in view.namespaces
    }
    return {key: by_rdma[key] for key in by_kernel}, by_kernel


def _of_rnic(place: CountedAt | None, devices: Mapping[str, RdmaDevice]) -> Source | None:
    device = devices.get(place.device) if place else None
    if place is None or device is None:
        return None
    for port in device.ports:
        for name, unit_bytes in SENT.items():
            if name in port.counters:
                folder = "counters" if name == "port_xmit_data" else "hw_counters"
                path = f"class/infiniband/{device.name}/ports/{port.port}/{folder}/{name}"
                return Source(path, unit_bytes, place.namespace)
    return None


def _of_interface(endpoint: Endpoint, view: HostView) -> Source | None:
    if not endpoint.bridge:
        namespace, netdev = view.namespaces.get(endpoint.id), view.netdevs.get(endpoint.id)
        return _inside(netdev, namespace) if namespace and netdev else None
    # What the host's end of the cable receives is what the container sent.
    return Source(f"class/net/{endpoint.port}/statistics/rx_bytes")


def _inside(netdev: str, namespace: Namespace) -> Source:
    return Source(f"class/net/{netdev}/statistics/tx_bytes", namespace=namespace)


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter's value at one time."""

    source: Source
    sent_bytes: int
    """The counter in bytes; it wraps and resets."""
    wall_ns: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class TrafficRows:
    """Bytes sent in successive ticks, for each endpoint."""

    start_ns: int
    """When the first tick began (wall clock)."""
    tick_ns: int
    sent_bytes: dict[EndpointId, tuple[int | None, ...]]
    """Bytes per tick, by endpoint; None where they are not known."""


@dataclass(slots=True)
class _Cell:
    sent_bytes: int = 0
    covered_ns: int = 0


@dataclass(slots=True)
class TrafficTally:
    """Readings in, known ticks out."""

    tick_ns: int
    _last: dict[EndpointId, Reading] = field(default_factory=dict)
    _cells: dict[int, dict[EndpointId, _Cell]] = field(default_factory=dict)
    """Bytes by number of the tick."""
    _next: int | None = None
    """First tick that was not taken yet."""
    _read_ns: int = 0
    """Wall time of the newest reading."""

    def add(self, readings: Mapping[EndpointId, Reading]) -> None:
        """Take in one reading of each endpoint; those not among them are forgotten."""
        for endpoint, reading in readings.items():
            before = self._last.get(endpoint)
            if before is not None and _set(before, reading):
                self._next = reading.wall_ns // self.tick_ns
                self._cells.clear()
            elif before is not None and before.source == reading.source:
                self._lay(endpoint, before, reading)
            self._read_ns = reading.wall_ns
        self._last = dict(readings)
        oldest = self._read_ns // self.tick_ns - MAX_TICKS
        while self._cells and (first := next(iter(self._cells))) < oldest:
            del self._cells[first]
        if readings and self._next is None:
            self._next = self._read_ns // self.tick_ns

    def _lay(self, endpoint: EndpointId, before: Reading, reading: Reading) -> None:
        grown = advance(before.sent_bytes, reading.sent_bytes)
        span_ns = reading.wall_ns - before.wall_ns
        if grown is None or not 0 < span_ns <= SPARSE * self.tick_ns:
            return
        grown *= reading.source.unit_bytes
        at_ns, laid = before.wall_ns, 0
        while at_ns < reading.wall_ns:
            tick = at_ns // self.tick_ns
            until_ns = min((tick + 1) * self.tick_ns, reading.wall_ns)
            upto = grown * (until_ns - before.wall_ns) // span_ns
            cell = self._cells.setdefault(tick, {}).setdefault(endpoint, _Cell())
            cell.sent_bytes += upto - laid
            cell.covered_ns += until_ns - at_ns
            at_ns, laid = until_ns, upto

    def take(self) -> TrafficRows | None:
        """Return the ticks that ended before the newest reading and were not returned before."""
        end = self._read_ns // self.tick_ns
        if self._next is None or end <= self._next:
            return None
        first = max(self._next, end - MAX_TICKS)
        rows = {
            endpoint: tuple(self._known(tick, endpoint) for tick in range(first, end))
            for endpoint in self._endpoints(first, end)
        }
        self._cells = {tick: cells for tick, cells in self._cells.items() if tick >= end}
        self._next = end
        return TrafficRows(first * self.tick_ns, self.tick_ns, rows) if rows else None

    def _known(self, tick: int, endpoint: EndpointId) -> int | None:
        cell = self._cells.get(tick, {}).get(endpoint)
        return cell.sent_bytes if cell and cell.covered_ns == self.tick_ns else None

    def _endpoints(self, first: int, end: int) -> Collection[EndpointId]:
        counted = (each for tick in range(first, end) for each in self._cells.get(tick, ()))
        return sorted({*self._last, *counted})

    def with_tick(self, tick_ns: int) -> "TrafficTally":
        """Return a tally that goes on from the newest readings in other ticks."""
        following = -(-self._read_ns // tick_ns) if self._read_ns else None
        return TrafficTally(tick_ns, self._last, _next=following, _read_ns=self._read_ns)


def _set(before: Reading, reading: Reading) -> bool:
    drift_ns = (reading.wall_ns - before.wall_ns) - (reading.now_ns - before.now_ns)
    return abs(drift_ns) > STEP_NS


class TrafficRecorder:
    """The tallies of all ticks that were used since the last window."""

    def __init__(self, tick_ns: int) -> None:
        self._tally = TrafficTally(tick_ns)
        self._done: list[TrafficRows] = []

    def add(self, tick_ns: int, readings: Mapping[EndpointId, Reading]) -> None:
        """Take in one reading of each endpoint, made at the edge of a tick of `tick_ns`."""
        if tick_ns != self._tally.tick_ns:
            self._done += _present(self._tally.take())
            self._tally = self._tally.with_tick(tick_ns)
        self._tally.add(readings)

    def take(self) -> list[TrafficRows]:
        """Return what became known since the last call, oldest first."""
        taken, self._done = self._done + _present(self._tally.take()), []
        return taken


def _present(rows: TrafficRows | None) -> list[TrafficRows]:
    return [] if rows is None else [rows]
