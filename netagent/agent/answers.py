# SPDX-License-Identifier: Apache-2.0
"""The agent's answers to the questions of the analyzer, other agents and humans."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from math import ceil

from msgspec import structs

from netagent import __version__
from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.host.hops import Hop, first_hops
from netagent.agent.acting import Acting
from netagent.agent.adapters import Adapters
from netagent.agent.membership import Membership
from netagent.agent.windows import Windows
from netagent.config import AgentConfig
from netagent.host.facts import Namespace
from netagent.host.shedding import Shed
from netagent.model.address import canonical
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import Target
from netagent.wire.actions import ActionReply, ActionRequest
from netagent.wire.messages import (
    Announced,
    Announcement,
    CheckReply,
    CheckRequest,
    EgressQuestion,
    FlowsReply,
    IngressQuestion,
    PathAnswer,
    PathReply,
    PathRequest,
    ProbeReply,
    ProbeRequest,
    Status,
)
from netagent.wire.operators import OperatorsReply, OperatorsRequest
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.zone import ZoneReply, ZoneRequest

Question = EgressQuestion | IngressQuestion

TRACE_TICK_S = 0.1
"""Seconds between two looks at a running count. Chosen: an answer is late by a tenth of a second at
most."""
BURST_DEADLINE_S = 3.0
"""Seconds a burst of probes may take. Chosen: far longer than a probe's timeout (0.5 s by
default)."""
MAX_COUNT = 200
"""Packets per router, at most, that one request may send. Chosen: twice what the analyzer asks for
(decision 2)."""
MIN_SIZE, MAX_SIZE = 64, 9_600
"""Bytes of a packet that is counted. Chosen: the least that all headers fit into, and a jumbo frame
with its outer headers."""
MAX_OVER_MS = 20_000
"""Milliseconds, at most, over which packets are counted. Chosen: within the deadline of a request
(`netagent.server.ANSWER_S`), which else is answered by nobody."""
VALIDATE_EVERY_S = 10.0
"""Seconds from one comparison of tables to the next. Chosen: a dump of the datapath disturbs what
it forwards, and whoever asks may ask for several pairs."""


class Answers:
    """The agent's service, as `netagent.server.AgentService` describes it."""

    def __init__(
        self,
        config: AgentConfig,
        instance: str,
        adapters: Adapters,
        membership: Membership,
        windows: Windows,
        acting: Acting,
    ) -> None:
        self._config = config
        self._instance = instance
        self._adapters = adapters
        self._membership = membership
        self._windows = windows
        self._acting = acting
        self._validate_from_ns = 0

    async def status(self) -> Status:
        """Return who this agent is and what it does."""
        return Status(
            host=self._config.host,
            instance=self._instance,
            version=__version__,
            endpoints=self._membership.endpoints(),
            pinglist_version=self._membership.pinglist.version,
            targets=len(self._membership.pinglist.targets),
            last_window_ns=self._windows.last_ns,
            acknowledged_ns=self._adapters.shipper.acknowledged_ns,
            health=self._windows.health,
            findings=self._membership.findings(),
            tick_ms=self._adapters.sampler.tick_ns // 1_000_000,
            clock=self._adapters.uplink.clock.best(now_ns=now_ns()),
            wall_ns=wall_ns(),
            controller=self._membership.controller,
            unprobed=self._membership.unprobed,
        )

    def _spare(self, level: Shed, what: str) -> None:
        if self._windows.shed >= level:
            why = f"no {what} now: the agent is near its limits of memory or CPU; ask again later"
            raise TooSoon(self._config.host, why)

    async def check(self, request: CheckRequest) -> CheckReply:
        """Walk this host's flow tables in a worker process."""
        self._spare(Shed.WALKS, "walks")
        known = self._membership
        own = {each.id: each.address for each in known.endpoints()}
        asked = await asyncio.to_thread(routed, request.questions, own, known.namespace_of)
        return await self._adapters.vswitch.check(CheckRequest(questions=asked))

    async def flows(self, bridge: str, table: int | None = None) -> FlowsReply:
        """Dump the flows of a bridge with cookie and counters."""
        self._spare(Shed.WALKS, "dumps")
        return await self._adapters.vswitch.flows(bridge, table)

    async def zone(self, request: ZoneRequest) -> ZoneReply:
        """Read the databases of the controller that this host has itself."""
        self._spare(Shed.WALKS, "reads of OVN's databases")
        return await self._adapters.zone.read(request)

    async def operators(self, request: OperatorsRequest) -> OperatorsReply:
        """Return what jobs of this host recorded of a time."""
        if not self._config.operators.enabled:
            raise CapabilityMissing("operators", "set enabled = true in [operators] of this host")
        self._spare(Shed.TRACES, "records of operators")
        return await asyncio.to_thread(self._adapters.rings.answer, request)

    async def trace(self, request: TraceRequest) -> TraceReply:
        """Count a flow's packets at each stage of the virtual switch, in a worker process."""
        if not self._config.limits.vswitch_traces:
            raise CapabilityMissing("tracing", "limits.vswitch_traces is false on this host")
        self._spare(Shed.TRACES, "traces")
        tunnel = self._membership.tunnel_of(request.uplink)
        asked = structs.replace(request, tunnel=tunnel.kind, tunnel_port=tunnel.port)
        return await self._adapters.trace_worker.trace(asked)

    async def validate(self, request: ValidateRequest) -> ValidateReply:
        """Compare the copies of the flow tables for a pair's packets, in a worker process."""
        if not self._config.limits.vswitch_validation:
            raise CapabilityMissing("validation", "limits.vswitch_validation is false on this host")
        self._spare(Shed.WALKS, "comparisons")
        if (early_ns := self._validate_from_ns - now_ns()) > 0:
            wait = f"tables were just compared; ask again in {ceil(early_ns / 1e9)} s"
            raise TooSoon(self._config.host, wait)
        self._validate_from_ns = now_ns() + round(VALIDATE_EVERY_S * 1e9)
        return await self._adapters.vswitch.validate(request)

    async def act(self, request: ActionRequest, peer: str | None) -> ActionReply:
        """Do what `peer` asks for, where this host's owner permits it."""
        return await self._acting.act(request, peer)

    async def hear(self, said: Announcement) -> Announced:
        """Take what another host announces of its endpoints."""
        return self._membership.hear(said)

    async def path(self, request: PathRequest) -> PathReply:
        """Return the outer path of a pair's flows, and where packets are lost if asked to count."""
        check_path(request)
        if request.ways:
            return await self._survey(request)
        targets, own = self._membership.pinglist.targets, self._membership.endpoints()
        if bare := _bare_end(request, targets, own):
            raise CapabilityMissing("tracing", f"no virtual switch carries {bare}")
        ports = self._adapters.prober.ports(request.source, request.target)
        if not ports:
            raise RemoteProtocolError(f"{request.source} is not probed from this host")
        if request.source_port:
            ports = (request.source_port,)  # it may have been exchanged: its way is still known
        flows = [FlowId(request.source, request.target, port) for port in ports]
        count = max(0, min(request.count, MAX_COUNT))
        answers = await asyncio.gather(*(self._path(f, count, request.size) for f in flows))
        return PathReply(paths=tuple(answers))

    async def _survey(self, request: PathRequest) -> PathReply:
        ends = vteps_of(request, self._membership.pinglist.targets, self._membership.endpoints())
        count = max(0, min(request.count, MAX_COUNT))
        begun = self._adapters.tracer.begin_survey(
            ends, ways=request.ways, count=count, size=request.size,
            over_ns=max(0, request.over_ms) * 1_000_000,
            target_port=self._membership.encapsulation(ends[0]).port,
        )  # fmt: skip
        if begun is None:
            raise CapabilityMissing("counting", "too many counts are under way on this host")
        while self._adapters.tracer.counting(begun):  # noqa: ASYNC110 - the tracer is stepped by a clock
            await asyncio.sleep(TRACE_TICK_S)
        return PathReply(
            paths=tuple(
                PathAnswer(
                    source_port=0, outer_port=way.outer_port, hops=way.routers, sent=way.sent,
                    answered=way.reached, rtt_ns=way.rtt_ns,
                )
                for way in begun.ways()
            )
        )  # fmt: skip

    async def _path(self, flow: FlowId, count: int, size: int) -> PathAnswer:
        traced = self._adapters.tracer.of_flow(flow)
        if traced is None:
            return PathAnswer(source_port=flow.source_port, outer_port=None)
        known = PathAnswer(
            source_port=flow.source_port, outer_port=traced.outer_port, hops=traced.hops
        )
        begun = self._adapters.tracer.begin_count(flow, count=count, size=size) if count else None
        if begun is None:
            return known
        while self._adapters.tracer.counting(begun):  # noqa: ASYNC110 - the tracer is stepped by a clock
            await asyncio.sleep(TRACE_TICK_S)
        sent, answered, rtt_ns = begun.totals()
        return structs.replace(
            known, hops=begun.routers, sent=sent, answered=answered, rtt_ns=rtt_ns
        )

    async def probe(self, request: ProbeRequest) -> ProbeReply:
        """Probe a target now, within the caps."""
        target = target_of(request, self._membership.pinglist.targets, self._membership.endpoints())
        count = min(request.count, 100)
        try:
            collect = self._adapters.probes.begin_burst(target, count)
        except KeyError:
            raise RemoteProtocolError(f"{request.source} is not probed from this host") from None
        deadline_ns = now_ns() + int(BURST_DEADLINE_S * 1e9)
        while (answers := collect()) is None and now_ns() < deadline_ns:  # noqa: ASYNC110 - the
            # prober settles probes from socket events, and knows no coroutine to wake
            await asyncio.sleep(0.01)
        return ProbeReply(probes=tuple(answers or ()))


def routed(
    questions: Sequence[Question],
    own: Mapping[EndpointId, str],
    namespace_of: Callable[[EndpointId], Namespace | None],
) -> tuple[Question, ...]:
    """Return questions with what containers know of their way: the router, if there is one.

    `own` are this host's endpoints with their addresses.
    """
    targets: defaultdict[EndpointId, dict[str, Hop]] = defaultdict(dict)
    for each in questions:
        if isinstance(each, EgressQuestion) and each.source in own:
            targets[each.source][each.target_address] = Hop()
    for source, hops in targets.items():
        namespace = namespace_of(source)
        if namespace is not None:
            hops.update(first_hops(namespace, own[source], list(hops)))

    def told(asked: Question) -> Question:
        if not isinstance(asked, EgressQuestion):
            return asked
        hop = targets[asked.source].get(asked.target_address, Hop())
        return structs.replace(asked, next_hop=hop.mac, untold=hop.untold)

    return tuple(map(told, questions))


def check_path(request: PathRequest) -> None:
    """Raise RemoteProtocolError for packets that no path is looked at with."""
    if not MIN_SIZE <= request.size <= MAX_SIZE:
        raise RemoteProtocolError(f"{request.size} bytes; {MIN_SIZE} to {MAX_SIZE} are sent")
    if not 0 <= request.over_ms <= MAX_OVER_MS:
        raise RemoteProtocolError(f"over {request.over_ms} ms; {MAX_OVER_MS} at most")


def vteps_of(
    request: PathRequest, targets: Iterable[Target], own: Iterable[Endpoint]
) -> tuple[str, str]:
    """Return the VTEPs of a pair that is probed from this host.

    Raises RemoteProtocolError where it is not: packets are sent to nobody else. Raises
    CapabilityMissing where no virtual switch carries either end: its packets have no outer header.
    """
    if bare := _bare_end(request, targets, own):
        raise CapabilityMissing("counting", f"{bare} has no tunnel to count along")
    source = next((each.underlay for each in own if each.id == request.source), "")
    listed = _listed(request, targets)
    target = listed.underlay if listed else ""
    if not (source and target):
        raise RemoteProtocolError(
            f"{request.target} is not on the ping list of {request.source} on this host"
        )
    return source, target


def _bare_end(
    request: PathRequest, targets: Iterable[Target], own: Iterable[Endpoint]
) -> EndpointId | None:
    """Return the end of a pair that no virtual switch carries; None where both have one."""
    if any(each.id == request.source and not each.bridge for each in own):
        return request.source
    listed = _listed(request, targets)
    # As of one that no virtual switch carries (`Endpoint`).
    return request.target if listed and listed.address == listed.underlay else None


def _listed(request: PathRequest, targets: Iterable[Target]) -> Target | None:
    pair = (request.source, request.target)
    return next((each for each in targets if (each.source, each.target) == pair), None)


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
    return Target(request.source, request.target, _address(request.address), "")


def _address(text: str) -> str:
    """Return an address as it is compared.

    Raises RemoteProtocolError unless one host has it: a name is looked up by nobody.
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise RemoteProtocolError(f"{text!r} is no IP address") from None
    known = canonical(text)
    none = address.is_multicast or address.is_unspecified or address.is_loopback
    if known is None or none or (address.version == 4 and int(address) == 2**32 - 1):
        raise RemoteProtocolError(f"{text} is no host's address")
    return known
