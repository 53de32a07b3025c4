# SPDX-License-Identifier: Apache-2.0
"""The agent: builds the adapters, wires them and supervises the work."""

import asyncio
import os
import resource
import secrets
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import structlog
from msgspec import structs

from netagent import __version__
from netagent.adapters import outer
from netagent.adapters.announcer import Announcer
from netagent.adapters.clock import StepDetector, now_ns, wall_ns
from netagent.adapters.pace import Pace
from netagent.adapters.prober import Prober
from netagent.adapters.rdma_host import REPLIES_PER_PROBE_CAP, Queueing, RdmaHost
from netagent.adapters.spool import Spool
from netagent.adapters.trace_worker import TraceWorker
from netagent.adapters.tracer import Tracer
from netagent.adapters.traffic import TrafficSampler
from netagent.adapters.transports import Transports
from netagent.adapters.udp_transport import Answering
from netagent.adapters.uplink import Shipper, Uplink
from netagent.adapters.watcher import Watcher
from netagent.collect import announcing
from netagent.collect.announcing import RdmaState
from netagent.collect.hostfacts import HostView
from netagent.collect.rates import CounterRows
from netagent.collect.traffic import TrafficRecorder, sources
from netagent.collect.windows import WindowTally
from netagent.config import AgentConfig
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.errors import CapabilityMissing, NetAgentError, RemoteProtocolError, Unreachable
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component
from netagent.model.pinglist import PingList, Target
from netagent.model.window import Window
from netagent.probing.activation import Activation
from netagent.wire.codec import encode
from netagent.wire.messages import (
    Announced,
    Announcement,
    CheckReply,
    CheckRequest,
    FlowsReply,
    Health,
    PathAnswer,
    PathReply,
    PathRequest,
    Peer,
    ProbeReply,
    ProbeRequest,
    Registration,
    SampleReply,
    SampleRequest,
    Status,
)
from netagent.wire.tracing import TraceReply, TraceRequest

log = structlog.get_logger()

T = TypeVar("T")

TRACE_TICK_S = 0.1
LONG_POLL_S = 20.0
RETRY_S = (0.2, 5.0)
REGISTER_AGAIN_S = 30.0
"""The full state is told again this often: an analyzer that lost its disk learns it anew."""
REOPEN_S = 0.5
"""Sockets that could not be opened (an address still missing) are tried again."""
ACTIVATE_S = 0.05
"""Announcements that come within this are acted on together."""
BURST_DEADLINE_S = 3.0
MAX_COUNT = 200


class VswitchRpc(Protocol):
    """Answers that need a worker process."""

    async def check(self, request: CheckRequest) -> CheckReply:
        """Walk the host's flow tables."""

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        """Dump the flows of a bridge."""

    def warm(self) -> None:
        """Be ready to answer soon."""


class Agent:
    """One host's agent. `run` works until cancelled, and releases everything on its way out."""

    def __init__(self, config: AgentConfig, vswitch: VswitchRpc) -> None:
        self._config = config
        self._vswitch = vswitch
        self._trace_worker = TraceWorker()
        self._instance = secrets.token_hex(8)
        self._generation = 0
        self._view = HostView()
        self._pinglist = PingList(0)
        self._tally = WindowTally(large_class=len(config.probe.sizes) - 1)
        self._answering = Answering(config.probe.rate_per_host * REPLIES_PER_PROBE_CAP)
        wanted = config.probe.transport != "udp"
        self._rdma = RdmaHost(config, self._answering.askers, self._on_rdma) if wanted else None
        self._addresses: dict[EndpointId, RdmaAddress] = {}
        self._transports = Transports(config.probe, self._answering, self._rdma)
        self._prober = Prober(config.probe, self._tally, self._transports)
        self._pace = Pace(self._prober)
        self._tracer = Tracer(config.trace, self._flow_seen)
        tick_ns = config.traffic.tick_ms * 1_000_000
        self._sampler, self._traffic = TrafficSampler(tick_ns), TrafficRecorder(tick_ns)
        self._uplink, self._announcer = Uplink(config), Announcer(config)
        self._activation = Activation()
        self._peers: tuple[Peer, ...] = ()
        self._activating: asyncio.TimerHandle | None = None
        spool = Spool(Path(config.state_dir) / "spool", limit_bytes=config.limits.spool_mib << 20)
        self._shipper = Shipper(self._uplink, spool)
        self._steps = StepDetector()
        self._health = Health()
        self._last_window_ns = 0
        self._cpu_s = _cpu_s()
        self._changed = asyncio.Event()
        self._unopened: dict[EndpointId, str] = {}
        self._held: dict[tuple[FindingKind, Component], Finding] = {}
        """Findings of the running window: one that came and went is told as well."""

    async def run(self) -> None:
        """Work until cancelled."""
        watcher = Watcher(self._config)
        try:
            async with asyncio.TaskGroup() as group:
                if self._rdma is not None:
                    group.create_task(_supervised("rdma", self._rdma.run))
                for name, work in (
                    ("discovery", lambda: watcher.run(self._on_view)),
                    ("registration", self._register),
                    ("pinglist", self._follow_pinglist),
                    ("announcing", self._announcer.run),
                    ("probing", self._pace.run),
                    ("tracing", self._trace),
                    ("windows", self._close_windows),
                    ("shipping", self._shipper.run),
                    ("reopening", self._reopen),
                    ("traffic", lambda: self._sampler.run(self._traffic.add)),
                ):
                    group.create_task(_supervised(name, work))
        finally:
            if self._activating is not None:
                self._activating.cancel()
            await self._say_goodbye()
            self._prober.close()
            if self._rdma is not None:
                self._rdma.close()
            self._tracer.close()
            await self._announcer.close()
            await self._uplink.close()

    # --- discovery and registration ----------------------------------------------------------

    def _on_view(self, view: HostView) -> None:
        known = {e.id for e in self._view.endpoints}
        for endpoint in view.endpoints:
            if endpoint.id not in known:
                log.info("endpoint_appeared", endpoint=str(endpoint.id), state=endpoint.state)
        self._view = view
        if self._rdma is not None:
            self._rdma.observe(view)
        self._open()
        self._tracer.set_uplinks({d for u in view.uplinks for d in (u.members or (u.device,))})
        self._generation += 1
        self._changed.set()

    def _on_rdma(self) -> None:
        if self._rdma is not None and self._rdma.addresses != self._addresses:
            self._addresses = dict(self._rdma.addresses)
            self._generation += 1
            self._changed.set()
        self._open()

    def _open(self) -> None:
        self._transports.place(self._view.namespaces)
        failed = self._prober.set_endpoints(self._view.endpoints)
        for endpoint, error in failed:
            if endpoint not in self._unopened:
                log.warning("endpoint_not_opened", endpoint=str(endpoint), error=str(error))
        unopened = {endpoint: str(error) for endpoint, error in failed}
        if unopened.keys() != self._unopened.keys():
            self._generation += 1
            self._changed.set()
        self._unopened = unopened
        where = self._rdma.sources() if self._rdma else sources(self._view, {}, {})
        self._sampler.set_sources(where)
        self._hold_findings()

    def _hold_findings(self) -> None:
        self._held.update({(f.kind, f.component): f for f in self._findings()})

    def _findings(self) -> tuple[Finding, ...]:
        return announcing.findings(
            self._view, self._unopened, self._rdma_state(), wall_ns=wall_ns()
        )

    def _endpoints(self) -> tuple[Endpoint, ...]:
        return announcing.announced(self._view, self._unopened, self._rdma_state())

    def _rdma_state(self) -> RdmaState:
        return self._rdma.state() if self._rdma else RdmaState()

    async def _reopen(self) -> None:
        while True:
            await asyncio.sleep(REOPEN_S)
            if self._unopened or self._prober.broken():
                self._open()

    async def _register(self) -> None:
        while not self._view.complete:
            await self._wait_for_change()
        while True:
            await _insist(self._register_once)
            await self._wait_for_change(timeout_s=REGISTER_AGAIN_S)

    async def _wait_for_change(self, timeout_s: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _register_once(self) -> None:
        said, asked_ns = self._registration(), now_ns()
        reply = await self._uplink.register(said)
        self._use(reply.pinglist, asked_ns=asked_ns)
        self._peers = reply.peers
        self._announcer.announce(_announcement(said), reply.peers)

    def _registration(self, *, leaving: bool = False) -> Registration:
        return Registration(
            host=self._config.host,
            instance=self._instance,
            generation=self._generation,
            rpc_url=self._config.rpc_url,
            endpoints=() if leaving else self._endpoints(),
        )

    async def _say_goodbye(self) -> None:
        # A planned stop is no failure: without endpoints nobody probes this host.
        self._generation += 1
        said = self._registration(leaving=True)
        try:
            async with asyncio.timeout(2):
                await self._uplink.register(said)
                await self._announcer.tell(_announcement(said), self._peers, tries=1)
        except (NetAgentError, TimeoutError) as error:
            log.warning("goodbye_not_heard", error=str(error))

    async def _follow_pinglist(self) -> None:
        while True:
            await _insist(self._poll_pinglist)

    async def _poll_pinglist(self) -> None:
        asked_ns = now_ns()
        pinglist = await self._uplink.pinglist(self._activation.version, LONG_POLL_S)
        self._use(pinglist, asked_ns=asked_ns)

    def _use(self, pinglist: PingList | None, *, asked_ns: int) -> None:
        # Not "greater": an analyzer that lost its disk begins again, and it decides.
        self._activation.use(pinglist, asked_ns=asked_ns)
        self._activate()

    def _activate(self) -> None:
        if self._activating is not None:
            self._activating.cancel()
            self._activating = None
        pinglist = self._activation.active(self._endpoints())
        if pinglist == self._pinglist:
            return
        self._pinglist = pinglist
        if self._rdma is not None:
            self._rdma.aim(pinglist)
        self._prober.set_pinglist(pinglist)
        ends = {t.source for t in pinglist.targets} | {t.target for t in pinglist.targets}
        self._tracer.keep(lambda flow: flow.source in ends and flow.target in ends)

    # --- probing and windows -----------------------------------------------------------------

    async def _trace(self) -> None:
        while True:
            if losing := self._prober.take_losing():
                self._tracer.prefer(losing)
                self._vswitch.warm()  # losses bring questions
            self._tracer.step()
            await asyncio.sleep(TRACE_TICK_S)

    def _flow_seen(self, sighting: outer.Sighting) -> FlowId | None:
        return self._prober.flow_of(sighting.frame, sighting.target)

    async def _close_windows(self) -> None:
        width_ns = self._config.probe.window_s * 1_000_000_000
        window = Window.covering(wall_ns(), width_ns=width_ns)
        while True:
            if self._steps.observe(wall_ns=wall_ns(), now_ns=now_ns()):
                self._uplink.clock.forget()
            left_ns = window.end_ns - wall_ns()
            if 0 < left_ns <= 2 * width_ns:
                await asyncio.sleep(min(left_ns / 1e9, 1.0))
                continue
            self._prober.step()  # read and settle first: what is in the sockets is of this window
            if self._view.complete and left_ns <= 0:
                self._ship(window)
            # A clock set back must not yield a window twice: its second summary would be a
            # duplicate. Counters simply go on into the next new one.
            fresh = Window.covering(wall_ns(), width_ns=width_ns)
            window = fresh if fresh > window or left_ns > 0 else Window(window.end_ns, width_ns)

    def _ship(self, window: Window) -> None:
        if window.start_ns <= self._last_window_ns:
            return
        self._last_window_ns = window.start_ns
        self._health = self._take_health(until_ns=now_ns() - (wall_ns() - window.end_ns))
        summary = self._tally.close(
            window,
            host=self._config.host,
            instance=self._instance,
            paths=self._tracer.traced(),
            findings=self._held.values(),
            health=self._health,
            stamps=self._prober.stamps(),
            counters=self._rdma.close_window(window) if self._rdma else CounterRows(),
            traffic=self._traffic.take(),
            clock=self._uplink.clock.best(now_ns=now_ns()),
        )
        self._held.clear()
        self._hold_findings()
        self._shipper.submit(window.start_ns, encode(summary))

    def _take_health(self, *, until_ns: int) -> Health:
        counters = self._prober.take_counters()
        queueing = self._rdma.take_queueing() if self._rdma else Queueing(0, 0, 0)
        before_s, self._cpu_s = self._cpu_s, _cpu_s()
        return Health(
            sent=counters.sent,
            answered=self._answering.take() + queueing.answered,
            delayed=counters.delayed,
            capped=counters.capped,
            pending=counters.pending,
            send_errors=self._tally.take_send_errors(),
            bad_frames=counters.bad_frames + queueing.bad_frames,
            queue_us=queueing.queue_us,
            spool_dropped=self._shipper.dropped,
            cpu_ms=round(1000 * (self._cpu_s - before_s)),
            rss_kb=_rss_kb(),
            stalled_ms=self._pace.take_stalled_ns(until_ns=until_ns) // 1_000_000,
            clock_steps=self._steps.steps,
        )

    # --- RPC ---------------------------------------------------------------------------------

    async def status(self) -> Status:
        """Return who this agent is and what it does."""
        return Status(
            host=self._config.host,
            instance=self._instance,
            version=__version__,
            endpoints=self._endpoints(),
            pinglist_version=self._pinglist.version,
            targets=len(self._pinglist.targets),
            last_window_ns=self._last_window_ns,
            acknowledged_ns=self._shipper.acknowledged_ns,
            health=self._health,
            findings=self._findings(),
            tick_ms=self._sampler.tick_ns // 1_000_000,
            clock=self._uplink.clock.best(now_ns=now_ns()),
        )

    async def check(self, request: CheckRequest) -> CheckReply:
        """Walk this host's flow tables in a worker process."""
        return await self._vswitch.check(request)

    async def flows(self, bridge: str, table: int | None = None) -> FlowsReply:
        """Dump the flows of a bridge with cookie and counters."""
        return await self._vswitch.flows(bridge, table)

    async def trace(self, request: TraceRequest) -> TraceReply:
        """Count a flow's packets at each stage of the virtual switch, in a worker process."""
        if not self._config.limits.vswitch_traces:
            raise CapabilityMissing("tracing", "limits.vswitch_traces is false on this host")
        return await self._trace_worker.trace(request)

    async def hear(self, said: Announcement) -> Announced:
        """Take what another host announces of its endpoints."""
        news = self._activation.hear(said, now_ns=now_ns())
        if news and self._activating is None:
            # Containers start in crowds; a list of thousands is not made anew for each.
            loop = asyncio.get_running_loop()
            self._activating = loop.call_later(ACTIVATE_S, self._activate)
        return Announced(news=news)

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Sample traffic in finer ticks for a while."""
        tick_ms, seconds = self._sampler.zoom(request.tick_ms, request.seconds)
        return SampleReply(tick_ms=tick_ms, seconds=seconds)

    async def path(self, request: PathRequest) -> PathReply:
        """Return the outer path of a pair's flows, and where packets are lost if asked to count."""
        ports = self._prober.ports(request.source)
        if not ports:
            raise RemoteProtocolError(f"{request.source} is not probed from this host")
        if request.source_port:
            ports = tuple(port for port in ports if port == request.source_port)
        flows = [FlowId(request.source, request.target, port) for port in ports]
        count = min(request.count, MAX_COUNT)
        answers = await asyncio.gather(*(self._path(f, count, request.size) for f in flows))
        return PathReply(paths=tuple(answers))

    async def _path(self, flow: FlowId, count: int, size: int) -> PathAnswer:
        traced = self._tracer.of_flow(flow)
        if traced is None:
            return PathAnswer(source_port=flow.source_port, outer_port=None)
        known = PathAnswer(
            source_port=flow.source_port, outer_port=traced.outer_port, hops=traced.hops
        )
        begun = self._tracer.begin_count(flow, count=count, size=size) if count else None
        if begun is None:
            return known
        while self._tracer.counting(begun):  # noqa: ASYNC110 - the tracer is stepped by a clock
            await asyncio.sleep(TRACE_TICK_S)
        sent, answered, rtt_ns = begun.totals()
        return structs.replace(
            known, hops=begun.routers, sent=sent, answered=answered, rtt_ns=rtt_ns
        )

    async def probe(self, request: ProbeRequest) -> ProbeReply:
        """Probe a target now, within the caps."""
        target = target_of(request, self._pinglist.targets, self._endpoints())
        count = min(request.count, 100)
        try:
            collect = self._prober.begin_burst(target, count)
        except KeyError:
            raise RemoteProtocolError(f"{request.source} is not probed from this host") from None
        deadline_ns = now_ns() + int(BURST_DEADLINE_S * 1e9)
        while (answers := collect()) is None and now_ns() < deadline_ns:  # noqa: ASYNC110 - the
            # prober settles probes from socket events, and knows no coroutine to wake
            await asyncio.sleep(0.01)
        return ProbeReply(probes=tuple(answers or ()))


def _announcement(said: Registration) -> Announcement:
    return Announcement(
        host=said.host,
        instance=said.instance,
        generation=said.generation,
        endpoints=said.endpoints,
    )


def target_of(request: ProbeRequest, targets: Iterable[Target], own: Iterable[Endpoint]) -> Target:
    """Return what to probe: of the ping list, or at the address given.

    Raises RemoteProtocolError where that is not enough.
    """
    for target in targets:
        if (target.source, target.target) == (request.source, request.target):
            return target
    if request.address is None:
        raise RemoteProtocolError(
            f"{request.target} is not on the ping list of {request.source}; give its address"
        )
    if any(each.id == request.source and each.rdma is not None for each in own):
        raise RemoteProtocolError(
            f"{request.source} probes by RDMA, for which an address is not enough: "
            f"{request.target} must be on its ping list"
        )
    return Target(request.source, request.target, request.address, "")


async def _supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    # One part that breaks must not take the others with it; it starts again, ever more slowly.
    wait_s = RETRY_S[0]
    while True:
        began_ns = now_ns()
        try:
            await work()
        except Exception:  # supervision: whatever it was, it is logged and the part restarted
            log.exception("part_failed", part=name, again_in_s=wait_s)
        else:
            return
        if now_ns() - began_ns > 60 * 1_000_000_000:
            wait_s = RETRY_S[0]
        await asyncio.sleep(wait_s)
        wait_s = min(RETRY_S[1], 2 * wait_s)


async def _insist(request: Callable[[], Awaitable[T]]) -> T:
    wait_s = RETRY_S[0]
    while True:
        try:
            return await request()
        except (Unreachable, RemoteProtocolError) as error:
            log.warning("analyzer_request_failed", error=str(error))
        await asyncio.sleep(wait_s)
        wait_s = min(RETRY_S[1], 2 * wait_s)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024
