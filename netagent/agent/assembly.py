# SPDX-License-Identifier: Apache-2.0
"""The agent: wires its parts and supervises their work."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import structlog

from netagent.adapters.clock import now_ns
from netagent.adapters.host.watcher import Watcher
from netagent.agent.acting import Acting
from netagent.agent.adapters import VswitchRpc, build
from netagent.agent.answers import TRACE_TICK_S, Answers
from netagent.agent.membership import RETRY_S, Membership
from netagent.agent.renewal import Renewal
from netagent.agent.windows import Windows
from netagent.concurrency import TaskGroup
from netagent.config import AgentConfig
from netagent.host.figures import Reads

log = structlog.get_logger()

QUIET_TICK_S = 0.2
"""Seconds between two looks at what was traced, while nobody waits. Chosen: half of what a router
has to answer."""


class Agent:
    """A host's agent. `run` works until cancelled, and releases everything on its way out."""

    def __init__(self, config: AgentConfig, vswitch: VswitchRpc) -> None:
        self._config = config
        instance = secrets.token_hex(8)
        self._adapters = build(config, vswitch, self._on_rdma)
        self._membership = Membership(config, instance, self._adapters)
        vswitch.endpoints = self._membership.endpoints
        self._windows = Windows(config, instance, self._adapters, self._membership)
        self.renewal = Renewal(config, self._adapters)
        self._acting = Acting(config)
        self.answers = Answers(
            config, instance, self._adapters, self._membership, self._windows, self._acting
        )
        """What others may ask of it."""

    def read(self) -> Reads:
        """Return what metrics are made of."""
        windows, adapters = self._windows, self._adapters
        return Reads(
            self.answers.status,
            totals=lambda: windows.totals,
            devices=lambda: adapters.rdma.devices() if adapters.rdma is not None else (),
            rings=lambda: (adapters.rings.read, adapters.rings.missed),
            certificate_ends_s=lambda: adapters.trust.expires_s if adapters.trust else None,
        )

    def _on_rdma(self) -> None:
        self._membership.on_rdma()

    async def run(self) -> None:
        """Work until cancelled."""
        watcher, adapters, membership = Watcher(self._config), self._adapters, self._membership
        try:
            async with TaskGroup() as group:
                if adapters.rdma is not None:
                    group.create_task(_supervised("rdma", adapters.rdma.run))
                for name, work in (
                    ("discovery", lambda: watcher.run(membership.on_view)),
                    ("registration", membership.register),
                    ("pinglist", membership.follow_pinglist),
                    ("announcing", adapters.announcer.run),
                    ("probing", adapters.pace.run),
                    ("tracing", self._trace),
                    ("windows", self._windows.run),
                    ("trust", self.renewal.run),
                    ("shipping", adapters.shipper.run),
                    ("acting", self._acting.run),
                    ("reopening", membership.reopen),
                    ("operators", adapters.rings.run),
                    ("operator probes", adapters.operator_worker.run),
                    ("traffic", lambda: adapters.sampler.run(adapters.traffic.add)),
                ):
                    group.create_task(_supervised(name, work))
        finally:
            await self._acting.close()
            await membership.leave()
            adapters.close()
            await adapters.announcer.close()
            await adapters.uplink.close()

    async def _trace(self) -> None:
        adapters = self._adapters
        while True:
            if losing := adapters.prober.take_losing():
                adapters.tracer.prefer(losing)
                adapters.vswitch.warm()  # losses bring questions
            adapters.tracer.step()
            await asyncio.sleep(TRACE_TICK_S if adapters.tracer.is_counting else QUIET_TICK_S)


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
