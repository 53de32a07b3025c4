# SPDX-License-Identifier: Apache-2.0
"""The adapters that an agent works with, built once and wired to each other."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netagent.adapters.clock import wall_ns
from netagent.adapters.host.rings import Rings
from netagent.adapters.host.traffic import TrafficSampler
from netagent.adapters.host.zone import ZoneDoor, folders_of
from netagent.adapters.paths.outer import Sighting
from netagent.adapters.paths.tracer import Tracer
from netagent.adapters.peers.announcer import Announcer
from netagent.adapters.peers.spool import Spool
from netagent.adapters.peers.uplink import Shipper, Uplink
from netagent.adapters.probes.loop import ProbeLoop
from netagent.adapters.probes.opener import TransportOpener
from netagent.adapters.probes.pace import Pace
from netagent.adapters.probes.udp_transport import Answering
from netagent.adapters.rdma.host import REPLIES_PER_PROBE_CAP, RdmaHost
from netagent.adapters.workers.operators import SOCKET as PROBER
from netagent.adapters.workers.operators import OperatorWorker
from netagent.adapters.workers.trace import SOCKET, TraceWorker
from netagent.collect.traffic import TrafficRecorder
from netagent.collect.windows import WindowTally
from netagent.config import AgentConfig
from netagent.model.endpoint import Endpoint
from netagent.model.ids import FlowId
from netagent.probing.prober import Prober
from netagent.trust import Trust
from netagent.wire.messages import CheckReply, CheckRequest, FlowsReply
from netagent.wire.validate import ValidateReply, ValidateRequest


class VswitchRpc(Protocol):
    """Answers that need a worker process."""

    endpoints: Callable[[], tuple[Endpoint, ...]]
    """Returns the host's endpoints."""

    async def check(self, request: CheckRequest) -> CheckReply:
        """Walk the host's flow tables."""

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        """Dump the flows of a bridge."""

    async def validate(self, request: ValidateRequest) -> ValidateReply:
        """Compare the copies of the flow tables for the packets of a pair."""

    def warm(self) -> None:
        """Be ready to answer soon."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """What the parts of one agent share."""

    vswitch: VswitchRpc
    trace_worker: TraceWorker
    trust: Trust | None
    """None where there is no TLS."""
    uplink: Uplink
    announcer: Announcer
    shipper: Shipper
    tally: WindowTally
    answering: Answering
    rdma: RdmaHost | None
    """None where the configuration wants UDP only."""
    transports: TransportOpener
    probes: ProbeLoop
    prober: Prober
    """What decides in that loop."""
    pace: Pace
    tracer: Tracer
    sampler: TrafficSampler
    traffic: TrafficRecorder
    zone: ZoneDoor
    rings: Rings
    operator_worker: OperatorWorker

    def close(self) -> None:
        """Close sockets, end helper processes; the clients of HTTP are closed by who awaits it."""
        self.probes.close()
        if self.rdma is not None:
            self.rdma.close()
        self.tracer.close()


def build(config: AgentConfig, vswitch: VswitchRpc, on_rdma: Callable[[], None]) -> Adapters:
    """Build an agent's adapters; they call `on_rdma` when RDMA has something new."""
    probe, tick_ns = config.probe, config.traffic.tick_ms * 1_000_000
    tally = WindowTally(large_class=len(probe.sizes) - 1)
    answering = Answering(probe.rate_per_host * REPLIES_PER_PROBE_CAP)
    wanted = probe.transport != "udp"
    rdma = RdmaHost(config, answering.askers, on_rdma) if wanted else None
    transports = TransportOpener(probe, answering, rdma)
    probes = ProbeLoop(probe, tally, transports)
    prober = probes.prober

    def flow_seen(sighting: Sighting) -> FlowId | None:
        return prober.flow_of(sighting.frame, sighting.target)

    trust = Trust(config.tls) if config.tls is not None else None
    uplink, sampler = Uplink(config, trust), TrafficSampler(tick_ns)
    spool = Spool(Path(config.state_dir) / "spool", limit_bytes=config.limits.spool_mib << 20)
    return Adapters(
        vswitch=vswitch,
        trace_worker=TraceWorker(os.environ.get(SOCKET)),
        trust=trust,
        uplink=uplink,
        announcer=Announcer(config, trust),
        shipper=Shipper(uplink, spool, sampler.zoom),
        tally=tally,
        answering=answering,
        rdma=rdma,
        transports=transports,
        probes=probes,
        prober=prober,
        pace=Pace(probes),
        tracer=Tracer(config.trace, flow_seen),
        sampler=sampler,
        traffic=TrafficRecorder(tick_ns),
        zone=ZoneDoor(config.host, folders_of(config.ovs.ovn_databases, config.ovs.ovn_rundir)),
        rings=Rings(config.operators, wall_ns),
        operator_worker=OperatorWorker(config.operators, os.environ.get(PROBER)),
    )
