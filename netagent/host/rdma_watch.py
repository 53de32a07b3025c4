# SPDX-License-Identifier: Apache-2.0
"""Watches the RDMA devices of endpoints: what their state, GIDs, MTU and counters give away.

A finding holds while its cause does; one that comes from counters or events holds until they were
quiet for `SPAN_NS`. There is one finding per kind and device, however many counters or endpoints
give rise to it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from netagent.host.carrier import FLAP_HOLD_NS, FLAP_SPAN_NS
from netagent.host.counters import FLAPS, NOT_READY, PHYSICAL_ERRORS, RETRANSMITS, Deltas
from netagent.host.rdma_facts import (
    ACTIVE,
    ROCE_V2,
    RdmaDevice,
    RdmaEvent,
    RdmaEventKind,
    RdmaPort,
    roce_mtu_bytes,
)
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, rnic

SPAN_NS = 10_000_000_000
"""Nanoseconds within which the growth of counters is judged. Chosen: a burst of a second or two is
no finding at these rates."""

FLAP_DOWNS = 2
"""Outages within `FLAP_SPAN_NS` that make a port flapping. Chosen: one, with its repair, is no
flapping."""

SETTLE_NS = 3_000_000_000
"""Nanoseconds within which an outage that was seen, reported by an event and counted is one outage.
Chosen: devices are read once a second, and less often where they are slow."""

RETRANSMITS_PER_S = 10.0
"""Retransmissions per second, held for `SPAN_NS`, that are a finding. Chosen: a lossless fabric has
none, a dropped packet of a task leaves a few, and this rate slows its collectives."""
RNR_PER_S = 10.0
"""Receiver-not-ready NAKs per second, held for `SPAN_NS`, that are a finding. Chosen: as for
retransmissions, a few are harmless and this rate slows a task's collectives."""

_TROUBLE = frozenset({RdmaEventKind.DEVICE_FATAL, RdmaEventKind.QP_ERROR})
_COUNTED = FLAPS | PHYSICAL_ERRORS | RETRANSMITS | NOT_READY


@dataclass(frozen=True, slots=True)
class WatchedRnic:
    """The port by which an endpoint was announced."""

    endpoint: EndpointId
    device: str
    gid: str
    port: int = 1
    mtu_bytes: int | None = None
    """MTU of the interface inside the container; None where it is not known."""
    qpns: tuple[int, ...] = ()
    """New ones mean that the endpoint was opened anew, with the GID's place at that time."""


_WITNESSES = ("seen", "told", "counted")


@dataclass(slots=True)
class _Seen:
    """What is remembered of one device and port."""

    port: RdmaPort | None = None
    existed: bool = False
    read_ns: int = 0
    deltas: Deltas = field(default_factory=Deltas)
    grown: deque[tuple[int, int, dict[str, int]]] = field(default_factory=deque)
    """Time of the reading before, time of the reading, and what grew in between."""
    told_down: bool = False
    """What events said last."""
    downs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WITNESSES, 0))
    total: int = 0
    down_ns: deque[int] = field(default_factory=deque)
    flapping: bool = False
    trouble: deque[tuple[int, RdmaEvent]] = field(default_factory=lambda: deque(maxlen=8))


class RdmaWatch:
    """Turns successive sights of RDMA devices into findings. Reads no clock."""

    def __init__(
        self,
        host: str,
        *,
        retransmits_per_s: float = RETRANSMITS_PER_S,
        rnr_per_s: float = RNR_PER_S,
    ) -> None:
        self._host = host
        self._limits = (
            (FindingKind.RNIC_ERRORS, PHYSICAL_ERRORS, 0.0),
            (FindingKind.RNIC_RETRANSMITS, RETRANSMITS, retransmits_per_s),
            (FindingKind.RNIC_RNR, NOT_READY, rnr_per_s),
        )
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._places: dict[WatchedRnic, int] = {}
        """Index of each announced GID when it was first seen."""
        self._since_wall_ns: dict[tuple[FindingKind, Component], int] = {}

    def observe(
        self,
        watched: Iterable[WatchedRnic],
        devices: Mapping[str, RdmaDevice],
        events: Iterable[RdmaEvent] = (),
        *,
        now_ns: int,
        wall_ns: int,
    ) -> tuple[Finding, ...]:
        """Return what holds now; `wall_ns` of a finding says since when.

        `devices` are all that exist, by name. Devices that are not `watched` are forgotten.
        """
        rnics = sorted(set(watched), key=lambda each: (each.device, each.port, each.endpoint))
        keys = {(each.device, each.port) for each in rnics}
        told = sorted(events, key=lambda event: event.wall_ns)
        self._seen = {key: self._seen.get(key) or _Seen() for key in sorted(keys)}
        for (name, number), seen in self._seen.items():
            device = devices.get(name)
            port = device.port(number) if device else None
            _look(seen, port, [event for event in told if event.device == name], now_ns)
        return self._merged(
            [*self._of_devices(now_ns), *self._of_endpoints(rnics, devices)], wall_ns
        )

    def _of_devices(self, now_ns: int) -> Iterator[Finding]:
        for (name, number), seen in self._seen.items():
            component = rnic(self._host, name)
            if reason := _why_down(seen):
                text = f"{name} {reason}"
                evidence = _evidence(seen.port, number)
                yield Finding(FindingKind.RNIC_DOWN, component, text, 0, evidence)
            if seen.flapping:
                text = f"port {number} of {name} went down {len(seen.down_ns)} times lately"
                evidence = {"outages": str(seen.total)}
                yield Finding(FindingKind.RNIC_FLAPPING, component, text, 0, evidence)
            for kind, names, per_s in self._limits:
                yield from _counted(kind, component, seen, names, per_s, now_ns)
            for _, event in seen.trouble:
                text = f"{name} told of {event.kind}: {event.text}"
                yield Finding(FindingKind.RNIC_ERRORS, component, text, 0)

    def _of_endpoints(
        self, rnics: list[WatchedRnic], devices: Mapping[str, RdmaDevice]
    ) -> Iterator[Finding]:
        self._places = {key: at for key, at in self._places.items() if key in set(rnics)}
        best = _best_mtu_bytes(self._active(rnics))
        for each, port in self._active(rnics):
            if port.active_mtu_bytes is not None:
                yield from self._mtu(each, port.active_mtu_bytes, best[each.endpoint.container])
        for each in rnics:
            shown = self._seen[each.device, each.port].port
            if shown is not None and shown.gids is not None:
                yield from self._gid(each, shown, devices)

    def _active(self, rnics: list[WatchedRnic]) -> Iterator[tuple[WatchedRnic, RdmaPort]]:
        for each in rnics:
            port = self._seen[each.device, each.port].port
            if port is not None and port.state == ACTIVE:
                yield each, port

    def _gid(
        self, each: WatchedRnic, port: RdmaPort, devices: Mapping[str, RdmaDevice]
    ) -> Iterator[Finding]:
        entry = port.find(each.gid)
        if entry is None:
            where = _elsewhere(each, devices)
            text = f"{each.endpoint} was announced with {each.gid}, which {where}"
        elif entry.index != (was := self._places.setdefault(each, entry.index)):
            text = f"{each.gid} of {each.endpoint} moved from index {was} to {entry.index}"
        else:
            return
        evidence = {e.gid: f"index {e.index}, {e.type}" for e in port.gids or ()}
        component = rnic(self._host, each.device)
        yield Finding(FindingKind.GID_CHANGED, component, text, 0, evidence)

    def _mtu(self, each: WatchedRnic, active: int, best: int) -> Iterator[Finding]:
        allowed = roce_mtu_bytes(each.mtu_bytes) if each.mtu_bytes else 0
        if active < allowed:
            why = f"its interface's MTU of {each.mtu_bytes} allows {allowed}"
        elif active < best:
            why = f"another RNIC of {each.endpoint.container} has {best}"
        else:
            return
        text = f"{each.device} has an active MTU of {active}, but {why}"
        yield Finding(FindingKind.WRONG_MTU, rnic(self._host, each.device), text, 0)

    def _merged(self, found: list[Finding], wall_ns: int) -> tuple[Finding, ...]:
        merged: dict[tuple[FindingKind, Component], Finding] = {}
        for each in found:
            key = (each.kind, each.component)
            known = merged.get(key)
            text = f"{known.text}; {each.text}" if known and known.text != each.text else each.text
            evidence = {**(known.evidence if known else {}), **each.evidence}
            since = self._since_wall_ns.get(key, wall_ns)
            merged[key] = Finding(*key, text, since, evidence)
        self._since_wall_ns = {key: each.wall_ns for key, each in merged.items()}
        return tuple(merged.values())


# --- what one device shows ----------------------------------------------------------------------


def _look(seen: _Seen, port: RdmaPort | None, events: list[RdmaEvent], now_ns: int) -> None:
    """Take in one sight of a port."""
    was_active = seen.port is not None and seen.port.state == ACTIVE
    new = dict.fromkeys(_WITNESSES, 0)
    if was_active and (port is None or port.state != ACTIVE):
        new["seen"] = 1
    new["told"] = _told(seen, events, now_ns)
    if port is None:
        seen.deltas = Deltas()  # when it is made anew, its counters start over
    else:
        grown = seen.deltas.add({n: v for n, v in port.counters.items() if n in _COUNTED})
        new["counted"] = sum(grown.get(name, 0) for name in FLAPS)
        if grown:
            seen.grown.append((seen.read_ns, now_ns, grown))
        seen.read_ns, seen.existed = now_ns, True
    seen.port = port
    _flaps(seen, new, now_ns)
    while seen.grown and now_ns - seen.grown[0][1] >= SPAN_NS:
        seen.grown.popleft()
    while seen.trouble and now_ns - seen.trouble[0][0] >= SPAN_NS:
        seen.trouble.popleft()


def _told(seen: _Seen, events: list[RdmaEvent], now_ns: int) -> int:
    """Return how many times the port went down, by `events`; several may report one outage."""
    downs = 0
    for event in events:
        if event.kind is RdmaEventKind.PORT_DOWN:
            downs += not seen.told_down
            seen.told_down = True
        elif event.kind is RdmaEventKind.PORT_UP:
            seen.told_down = False
        elif event.kind in _TROUBLE:
            seen.trouble.append((now_ns, event))
    return downs


def _flaps(seen: _Seen, new: Mapping[str, int], now_ns: int) -> None:
    """Account for outages; three witnesses report the same outage at slightly different times."""
    times = seen.down_ns
    if not any(new.values()) and (not times or now_ns - times[-1] >= SETTLE_NS):
        seen.downs = dict.fromkeys(_WITNESSES, seen.total)
    for witness, count in new.items():
        seen.downs[witness] += count
    total = max(seen.downs.values())
    # More stamps than the limit say nothing more.
    times.extend([now_ns] * min(total - seen.total, 2 * FLAP_DOWNS))
    seen.total = total
    while times and now_ns - times[0] > FLAP_SPAN_NS:
        times.popleft()
    if not times or now_ns - times[-1] >= FLAP_HOLD_NS:
        seen.flapping = False
    elif len(times) >= FLAP_DOWNS:
        seen.flapping = True


def _why_down(seen: _Seen) -> str | None:
    if seen.port is None:
        return "was removed" if seen.existed else "does not exist"
    if seen.port.state in {ACTIVE, ""}:
        return None
    return f"port {seen.port.port} is {seen.port.state} (physical state {seen.port.phys_state})"


def _evidence(port: RdmaPort | None, number: int) -> dict[str, str]:
    if port is None:
        return {"port": str(number)}
    return {"port": str(number), "state": port.state, "netdevs": ",".join(port.netdevs)}


def _counted(
    kind: FindingKind,
    component: Component,
    seen: _Seen,
    names: AbstractSet[str],
    per_s: float,
    now_ns: int,
) -> Iterator[Finding]:
    """Yield the finding `kind` if the counters `names` grew faster than `per_s`."""
    grown = [(since, at, delta) for since, at, delta in seen.grown if names & delta.keys()]
    total: dict[str, int] = {}
    for _, _, delta in grown:
        for name in sorted(names & delta.keys()):
            total[name] = total.get(name, 0) + delta[name]
    if not total or sum(total.values()) < per_s * SPAN_NS / 1e9:
        return
    seconds = f"{(now_ns - grown[0][0]) / 1e9:.1f} s"
    text = ", ".join(f"{name} grew by {count}" for name, count in total.items())
    evidence = {name: f"+{count} in {seconds}" for name, count in total.items()}
    yield Finding(kind, component, f"{text} within {seconds}", 0, evidence)


def _best_mtu_bytes(active: Iterable[tuple[WatchedRnic, RdmaPort]]) -> dict[str, int]:
    best: dict[str, int] = {}
    for each, port in active:
        container = each.endpoint.container
        best[container] = max(best.get(container, 0), port.active_mtu_bytes or 0)
    return best


def _elsewhere(each: WatchedRnic, devices: Mapping[str, RdmaDevice]) -> str:
    # Not on other devices: another tenant's may have the same address all along.
    device = devices.get(each.device)
    for port in device.ports if device else ():
        if port.find(each.gid):
            return f"is now on port {port.port}"
    return f"is no longer a {ROCE_V2} GID of {each.device}"
