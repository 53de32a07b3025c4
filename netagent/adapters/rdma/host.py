# SPDX-License-Identifier: Apache-2.0
"""All that a host does by RDMA: watches its devices, opens endpoints, has their probes answered.

An endpoint's transport is chosen once, when it is first seen with the devices known, and its place
(device, GID, namespace) stays what it last was while nothing better is found: an endpoint whose
RNIC fails goes on being announced and probed, for its failure must not hide itself.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.host.rnics import RnicMonitor
from netagent.adapters.host.traffic import Readings, read
from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.messages import RdmaEvent as Told
from netagent.adapters.rdma.resolver import Resolver
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.adapters.rdma.transport import RdmaTransport, open_rdma
from netagent.collect.traffic import CountedAt, Source, compared, sources
from netagent.concurrency import TaskGroup
from netagent.config import AgentConfig
from netagent.host.announcing import RdmaState
from netagent.host.bypassed import BypassWatch, Carried
from netagent.host.counters import CounterRows, CounterTally
from netagent.host.facts import HostView, Namespace
from netagent.host.rates import PortRate, RateWatch
from netagent.host.rdma_facts import (
    ACTIVE,
    RdmaDevice,
    RdmaEvent,
    RdmaEventKind,
    RdmaView,
    device_of,
)
from netagent.host.rdma_watch import RdmaWatch, WatchedRnic
from netagent.model.endpoint import Endpoint, EndpointState, RdmaAddress
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList
from netagent.model.window import Window
from netagent.probing.rdma.gids import address_of
from netagent.probing.transport import Askers

log = structlog.get_logger()

STEP_S = 1.0
"""Seconds between two looks at helper processes and quiet devices. Chosen: a dead helper is noticed
by its pipe, so the looks only have to find hung ones."""
COMPARE_S = 10.0
"""Seconds between two readings of what endpoints sent by RDMA and by their kernels. Chosen: a span
holds some steps of a training task, and entering the containers' namespaces costs milliseconds."""
REPLIES_PER_PROBE_CAP = 4
"""Replies a host may send per probe that it may send itself. Chosen: several peers may probe one
host at once, and a flood must not cost the host more."""
DECIDE_NS = 2_000_000_000
"""Nanoseconds from an endpoint's first sight to the decision that no device has its address, and
UDP must do. Chosen: the kernel's workers make GIDs some time after addresses."""
_KINDS = {
    "PORT_ERR": RdmaEventKind.PORT_DOWN,
    "PORT_ACTIVE": RdmaEventKind.PORT_UP,
    "GID_CHANGE": RdmaEventKind.GID_CHANGED,
    "DEVICE_FATAL": RdmaEventKind.DEVICE_FATAL,
    "QP_FATAL": RdmaEventKind.QP_ERROR,
    "QP_REQ_ERR": RdmaEventKind.QP_ERROR,
    "QP_ACCESS_ERR": RdmaEventKind.QP_ERROR,
}
"""Events of ibverbs that say something of a device's health."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """What the responder's process counted in a window."""

    answered: int
    bad_frames: int
    queue_us: int
    """Longest time from a probe's arrival in the process to its reply."""
    capped: Mapping[str, int]
    """Probes not answered because of the cap on replies, by the endpoint's name."""


class RdmaHost:
    """The RDMA side of one host's agent. Without RDMA devices it costs a look a second."""

    def __init__(self, config: AgentConfig, askers: Askers, changed: Callable[[], None]) -> None:
        self._config = config.probe
        self._wanted = config.probe.transport == "rdma"
        self._askers = askers
        self._changed = changed
        self._host = HostView()
        self._rnics: RdmaView | None = None
        self._chosen: dict[EndpointId, bool] = {}
        self._seen_ns: dict[EndpointId, int] = {}
        """Wall clock of each endpoint's first sight."""
        self._places: dict[EndpointId, Place] = {}
        self._transports: dict[EndpointId, RdmaTransport] = {}
        self._resolver = Resolver()
        replies = config.probe.rate_per_host * REPLIES_PER_PROBE_CAP
        self._responders = ResponderClient(replies_per_second=replies)
        self._monitor = RnicMonitor()
        self._watch = RdmaWatch(config.host)
        self._rates = RateWatch(config.host)
        self._bypass = BypassWatch(config.host)
        self._bypassed: tuple[Finding, ...] = ()
        self._tally = CounterTally()
        self._told: list[Told] = []
        self.addresses: dict[EndpointId, RdmaAddress] = {}
        """Where each RDMA endpoint answers, or last did."""
        self._findings: tuple[Finding, ...] = ()

    async def run(self) -> None:
        """Watch the devices and look after the helpers until cancelled."""
        loop = asyncio.get_running_loop()
        helpers = (self._resolver, self._responders)
        for helper in helpers:
            loop.add_reader(helper.fileno(), self._step)
        try:
            async with TaskGroup() as group:
                group.create_task(self._monitor.run(self._on_rnics))
                group.create_task(self._keep_stepping())
                group.create_task(self._keep_comparing())
        finally:
            for helper in helpers:
                loop.remove_reader(helper.fileno())

    async def _keep_stepping(self) -> None:
        while True:
            self._step()
            await asyncio.sleep(STEP_S)

    async def _keep_comparing(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_S)
            by_rdma, by_kernel = compared(self._host, self._counted_at(), self._by_name())
            sent = await asyncio.to_thread(read, by_rdma)
            carried = await asyncio.to_thread(read, by_kernel) if sent else {}
            self._bypassed = self._bypass.observe(self._carried(sent, carried), now_ns=now_ns())

    def _carried(self, by_rdma: Readings, by_kernel: Readings) -> dict[EndpointId, Carried]:
        return {
            key: Carried(
                self._places[key].device,
                sent.sent_bytes * sent.source.unit_bytes,
                by_kernel[key].sent_bytes,
            )
            for key, sent in by_rdma.items()
            if key in by_kernel and key in self._places
        }

    # --- which endpoints, and where ------------------------------------------------------------

    def observe(self, host: HostView) -> None:
        """Take in the endpoints of this host."""
        self._host = host
        self._monitor.set_namespaces(host.namespaces.values())
        present = {endpoint.id for endpoint in host.endpoints}
        for key in present:
            self._seen_ns.setdefault(key, wall_ns())
        for kept in (self._chosen, self._seen_ns, self._places, self.addresses):
            for key in kept.keys() - present:
                del kept[key]
        self._arrange()

    def _on_rnics(self, view: RdmaView) -> None:
        view = self._rnics = self._with_mtus(view)
        names = [device.name for device in view.devices]
        self._tally.retain(names)
        for device in view.devices:
            for port in device.ports:
                self._tally.add(device.name, port.counters, wall_ns=view.wall_ns)
        self._arrange()
        self._judge()

    def _with_mtus(self, view: RdmaView) -> RdmaView:
        # Verbs alone know the active MTU, and only of what is open.
        known: dict[str, int] = {}
        for key, transport in self._transports.items():
            if (place := self._places.get(key)) and (mtu := transport.active_mtu()):
                known[place.device] = mtu
        return replace(view, devices=tuple(_with_mtu(d, known.get(d.name)) for d in view.devices))

    def _arrange(self) -> None:
        if self._rnics is None:
            return
        before = dict(self._places), dict(self._chosen)
        for endpoint in self._host.endpoints:
            if endpoint.state is EndpointState.UP:
                self._place(endpoint, self._rnics)
        if before != (self._places, self._chosen):
            flows = self._config.flows_per_pair
            self._responders.set_endpoints({k: (p, flows) for k, p in self._places.items()})
            self._changed()

    def _place(self, endpoint: Endpoint, rnics: RdmaView) -> None:
        namespace = self._host.namespaces.get(endpoint.id)
        netdev = self._host.netdevs.get(endpoint.id)
        if namespace is None or netdev is None:
            return
        found = device_of(rnics.devices, netdev, endpoint.address, endpoint.mac)
        late = not rnics.devices or rnics.wall_ns > self._seen_ns[endpoint.id] + DECIDE_NS
        if found is not None or self._wanted or late:
            self._chosen.setdefault(endpoint.id, self._wanted or found is not None)
        if self._chosen.get(endpoint.id) and found is not None:
            # In shared mode every namespace sees every device, and none has to be entered.
            inside = namespace if rnics.mode == "exclusive" else None
            self._places[endpoint.id] = Place(
                device=found[0].device,
                gid=found[1].gid,
                path=inside.path if inside else "",
                inode=inside.inode if inside else None,
                index=found[1].index,
            )

    def chosen(self, endpoint: EndpointId) -> bool | None:
        """Whether an endpoint is probed by RDMA; None where that is not known yet."""
        return True if self._wanted else self._chosen.get(endpoint)

    def place(self, endpoint: EndpointId) -> Place | None:
        """Return where an RDMA endpoint is, or last was."""
        return self._places.get(endpoint)

    def sources(self) -> dict[EndpointId, Source]:
        """Return where the bytes that each endpoint of this host sent are counted."""
        return sources(self._host, self._counted_at(), self._by_name())

    def _counted_at(self) -> dict[EndpointId, CountedAt]:
        return {key: _counted_at(place) for key, place in self._places.items()}

    def _by_name(self) -> dict[str, RdmaDevice]:
        return self._rnics.by_name() if self._rnics else {}

    def _why_not(self, endpoint: EndpointId) -> str | None:
        """Return why nobody answers RDMA probes for an endpoint that never could; else None."""
        if endpoint in self.addresses:
            return None
        if endpoint not in self._places:
            return "no RDMA device has a RoCE v2 GID of its address"
        return self._responders.failed.get(endpoint)

    # --- probing ---------------------------------------------------------------------------------

    def open(self, endpoint: EndpointId) -> RdmaTransport:
        """Open an endpoint to probe from; raises OSError or CapabilityMissing."""
        place = self._places[endpoint]
        opened = open_rdma(
            place.device,
            place.gid,
            flows=self._config.flows_per_pair,
            path=place.path,
            inode=place.inode,
            resolver=self._resolver,
        )
        self._transports[endpoint] = opened
        return opened

    def aim(self, pinglist: PingList) -> None:
        """Expect probes from the targets of `pinglist`: who is probed mostly probes, too."""
        probers: dict[EndpointId, list[str]] = {}
        for target in pinglist.targets:
            if target.rdma is not None and target.source in self._places:
                probers.setdefault(target.source, []).append(target.rdma.gid)
        self._responders.aim(probers)

    # --- what happens ----------------------------------------------------------------------------

    def _step(self) -> None:
        self._resolver.step()
        self._responders.step()
        for asked in self._responders.take_asked():
            sender = address_of(asked.sender)
            self._askers.add(asked.session, asked.port, asked.endpoint, sender, now_ns=now_ns())
        self._told += self._responders.take_events()
        self._transports = {k: t for k, t in self._transports.items() if not t.closed}
        for transport in self._transports.values():
            self._told += transport.take_events()
        if self._told:
            self._monitor.poke()
        opened = {key: a for key, a in self._responders.opened.items() if key in self._places}
        if any(self.addresses.get(key) != address for key, address in opened.items()):
            self.addresses.update(opened)
            self._changed()

    def _judge(self) -> None:
        if self._rnics is None:
            return
        told, self._told = self._told, []
        events = [
            RdmaEvent(each.device, _KINDS[each.kind], each.wall_ns, each.text)
            for each in told
            if each.kind in _KINDS
        ]
        watched = [
            WatchedRnic(e.id, a.device, a.gid, mtu_bytes=e.mtu, qpns=a.qpns)
            for e in self._host.endpoints
            if e.state is EndpointState.UP and (a := self.addresses.get(e.id))
        ]
        devices = self._rnics.by_name()
        found = self._watch.observe(watched, devices, events, now_ns=now_ns(), wall_ns=wall_ns())
        rates = {each.device: _rate(devices.get(each.device), each.port) for each in watched}
        slow = self._rates.observe(rates, now_ns=now_ns())
        found += self._dated((*slow, *self._bypassed))
        if found != self._findings:
            self._findings = found
            self._changed()

    def _dated(self, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Give each finding the time since when it holds."""
        since = {(f.kind, f.component): f.wall_ns for f in self._findings}
        return tuple(
            replace(each, wall_ns=since.get((each.kind, each.component), wall_ns()))
            for each in found
        )

    def seal(self, keys: Mapping[EndpointId, bytes]) -> None:
        """Take the keys by which probes to endpoints are sealed."""
        self._responders.seal(keys)

    def state(self) -> RdmaState:
        """Return what the endpoints' announcements and findings need."""
        ids = [e.id for e in self._host.endpoints if self.chosen(e.id)]
        failed = {key: why for key in ids if (why := self._why_not(key))}
        return RdmaState(self.chosen, self.addresses, failed, self._findings)

    def devices(self) -> tuple[RdmaDevice, ...]:
        """Return the host's devices, as read last."""
        return self._rnics.devices if self._rnics else ()

    def close_window(self, window: Window) -> CounterRows:
        """Return what the devices' counters grew by."""
        return self._tally.close(window)

    def take_queueing(self) -> Queueing:
        """Return what the responder did since the last call."""
        taken = self._responders.take_counters()
        return Queueing(taken.answered, taken.bad_frames, taken.queue_ns_max // 1000, taken.capped)

    def close(self) -> None:
        """End the helpers; transports are their owner's."""
        with suppress(OSError):
            self._resolver.close()
        self._responders.close()


def _counted_at(place: Place) -> CountedAt:
    inside = Namespace(place.path, place.inode) if place.path and place.inode else None
    return CountedAt(place.device, inside)


def _with_mtu(device: RdmaDevice, mtu: int | None) -> RdmaDevice:
    return replace(device, ports=tuple(replace(p, active_mtu_bytes=mtu) for p in device.ports))


def _rate(device: RdmaDevice | None, number: int) -> PortRate | None:
    port = device.port(number) if device else None
    if port is None or port.state != ACTIVE or not port.rate_bps:
        return None
    return PortRate(port.rate_bps, port.lanes)
