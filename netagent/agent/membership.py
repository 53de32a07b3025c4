# SPDX-License-Identifier: Apache-2.0
"""Which endpoints are here, what others learn of them, and which targets are probed from them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.agent.adapters import Adapters
from netagent.collect.traffic import sources
from netagent.concurrency import timeout
from netagent.config import AgentConfig
from netagent.host import announcing
from netagent.host.announcing import RdmaState
from netagent.host.facts import HostView, Namespace
from netagent.model.encapsulation import KNOWN, VXLAN, Encapsulation
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, NetAgentError, RemoteProtocolError, Unreachable
from netagent.model.finding import Finding, FindingKey
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList
from netagent.probing.activation import Activation
from netagent.probing.roster import Roster
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory
from netagent.wire.messages import Announced, Announcement, Registration
from netagent.wire.unprobed import Unprobed

log = structlog.get_logger()

T = TypeVar("T")

LONG_POLL_S = 20.0
"""Seconds the analyzer may hold a poll for a new ping list. Chosen: three polls a minute, and a
dead connection is noticed soon."""
RETRY_S = (0.2, 5.0)
"""First and longest wait before a refused or lost request is sent again, in seconds. Chosen: a
restarted analyzer has its hosts back within seconds."""
REGISTER_AGAIN_S = 30.0
"""Seconds between two full registrations without a change. Chosen: an analyzer that lost its disk
relearns every host within half a minute."""
REGISTER_EVERY_S, REGISTER_AHEAD_S = 1.0, 30.0
"""Seconds that stand for one registration, and how many of them may be spent at once. Chosen: what
comes up in a crowd is told at once, and a tenant whose interface changes without end makes new
lists for those that probe it once a second."""
REOPEN_S = 0.5
"""Seconds between two attempts to open sockets that could not be opened. Chosen: an address that is
still missing appears within a second or so."""
FOLLOWED_S = 5.0
"""Seconds, at most, from a registration until its news are awaited no more. Chosen: the analyzer
sends them at once; without them, peers hear of what is new from it."""
ACTIVATE_S = 0.05
"""Seconds in which announcements gather that are acted on together. Chosen: a task's containers
come up in bursts."""


class Membership:
    """Opens this host's endpoints, registers them, and follows the ping list."""

    def __init__(self, config: AgentConfig, instance: str, adapters: Adapters) -> None:
        self._config = config
        self._instance = instance
        self._adapters = adapters
        self._generation = 0
        self._view = HostView()
        self._pinglist = PingList(0)
        self._activation = Activation()
        self._roster = Roster(config.host)
        self._followed = asyncio.Event()
        self._activating: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._unopened: dict[EndpointId, str] = {}
        self._said: tuple[tuple[Endpoint, ...], bool] = ((), False)
        """What others may probe, as of the last change, and whether that is all there is."""
        self._held: dict[FindingKey, Finding] = {}
        """Findings of the running window, including those that came and went."""

    @property
    def complete(self) -> bool:
        """Whether the host has been looked at as a whole."""
        return self._view.complete

    @property
    def inventory(self) -> Inventory | None:
        """What the host and its RNICs are; None until that was looked at."""
        return self._view.inventory

    @property
    def controller(self) -> ControllerState | None:
        """The host's part of the controller that drives its virtual switch; None without one."""
        return self._view.controller

    @property
    def unprobed(self) -> Unprobed:
        """What here is no endpoint that others may probe, and why."""
        return announcing.unprobed(self._view, self._unopened, self._rdma_state())

    @property
    def pinglist(self) -> PingList:
        """What is probed from this host now."""
        return self._pinglist

    def encapsulation(self, address: str) -> Encapsulation:
        """Return how what leaves from the tunnel's `address` is wrapped."""
        uplinks = (each for each in self._view.uplinks if each.address == address)
        found = next(uplinks, None)
        return found.encapsulation if found else VXLAN

    def tunnel_of(self, device: str) -> Encapsulation:
        """Return how what leaves by an RNIC's `device` is wrapped; "" stands for any of them.

        Raises CapabilityMissing where tunnels are not alike, or of a kind that is not traced.
        """
        uplinks = [
            u for u in self._view.uplinks if not device or device in (u.members or (u.device,))
        ]
        kinds = {each.encapsulation for each in uplinks} or {VXLAN}
        if len(kinds) > 1:
            raise CapabilityMissing("tracing tunnels of several kinds", "name one uplink")
        (found,) = kinds
        if found.kind not in KNOWN:
            remedy = f"tunnels of {', '.join(KNOWN)} are traced"
            raise CapabilityMissing(f"tracing {found.kind}", remedy)
        return found

    def namespace_of(self, endpoint: EndpointId) -> Namespace | None:
        """Return where an endpoint's container is; None where that is not known."""
        return self._view.namespaces.get(endpoint)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints of this host that others may probe."""
        return announcing.announced(self._view, self._unopened, self._rdma_state())

    def findings(self) -> tuple[Finding, ...]:
        """Return what is amiss with the parts of this host now."""
        return announcing.findings(
            self._view, self._unopened, self._rdma_state(), wall_ns=wall_ns()
        )

    def take_held(self) -> Collection[Finding]:
        """Return the findings since the last call, and hold those of now for the next."""
        taken, self._held = self._held, {}
        self._hold_findings()
        return taken.values()

    # --- discovery ---------------------------------------------------------------------------

    def on_view(self, view: HostView) -> None:
        """Take what this host is found to be."""
        known = {e.id for e in self._view.endpoints}
        for endpoint in view.endpoints:
            if endpoint.id not in known:
                log.info("endpoint_appeared", endpoint=str(endpoint.id), state=endpoint.state)
        self._view = view
        self._adapters.rings.place(view.namespaces)
        if self._adapters.rdma is not None:
            self._adapters.rdma.observe(view)
        self._open()
        self._adapters.tracer.set_uplinks(
            {d: u.encapsulation for u in view.uplinks for d in (u.members or (u.device,))}
        )

    def on_rdma(self) -> None:
        """Take what RDMA has to say of the endpoints."""
        self._open()

    async def reopen(self) -> None:
        """Open again what could not be opened or broke, until cancelled."""
        while True:
            await asyncio.sleep(REOPEN_S)
            if self._unopened or self._adapters.prober.broken():
                self._open()

    def _open(self) -> None:
        self._adapters.transports.place(self._view.namespaces)
        failed = self._adapters.probes.set_endpoints(self._view.endpoints)
        for endpoint, error in failed:
            if endpoint not in self._unopened:
                log.warning("endpoint_not_opened", endpoint=str(endpoint), error=str(error))
        self._unopened = {endpoint: str(error) for endpoint, error in failed}
        rdma = self._adapters.rdma
        self._adapters.sampler.set_sources(rdma.sources() if rdma else sources(self._view, {}, {}))
        self._hold_findings()
        self._note_change()

    def _hold_findings(self) -> None:
        self._held.update({f.key: f for f in self.findings()})

    def _rdma_state(self) -> RdmaState:
        return self._adapters.rdma.state() if self._adapters.rdma else RdmaState()

    def _note_change(self) -> None:
        said = self.endpoints(), self._view.complete
        if said == self._said:  # the words of a finding, which a container may change without end
            return
        self._said = said
        self._generation += 1
        self._changed.set()

    # --- registration ------------------------------------------------------------------------

    async def register(self) -> None:
        """Tell the analyzer and the peers what is here, whenever it changes, until cancelled."""
        while not self._view.complete:
            await self._wait_for_change()
        spent_s = 0.0
        while True:
            spent_s = max(spent_s, now_ns() / 1e9) + REGISTER_EVERY_S
            await _insist(self._register_once)
            await asyncio.sleep(spent_s - REGISTER_AHEAD_S - now_ns() / 1e9)
            await self._wait_for_change(timeout_s=REGISTER_AGAIN_S)

    async def _wait_for_change(self, timeout_s: float | None = None) -> None:
        try:
            async with timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _register_once(self) -> None:
        said = self._registration()
        reply = await self._adapters.uplink.register(said)
        await self._follows(reply.sources)
        self._adapters.announcer.announce(_announcement(said), self._roster.peers())

    async def _follows(self, sources: int) -> None:
        """Wait until the analyzer's news of what was registered are here: they say whom to tell."""
        with contextlib.suppress(TimeoutError):
            async with timeout(FOLLOWED_S):
                while self._roster.sources != sources:
                    self._followed.clear()
                    await self._followed.wait()

    def _registration(self, *, leaving: bool = False) -> Registration:
        return Registration(
            host=self._config.host,
            instance=self._instance,
            generation=self._generation,
            rpc_url=self._config.rpc_url,
            endpoints=() if leaving else self.endpoints(),
        )

    async def leave(self) -> None:
        """Say goodbye: a planned stop is no failure, and without endpoints nobody probes here."""
        if self._activating is not None:
            self._activating.cancel()
        self._generation += 1
        said = self._registration(leaving=True)
        try:
            async with timeout(2):
                await self._adapters.uplink.register(said)
                await self._adapters.announcer.tell(
                    _announcement(said), self._roster.peers(), tries=1
                )
        except (NetAgentError, TimeoutError) as error:
            log.warning("goodbye_not_heard", error=str(error))

    # --- the ping list -----------------------------------------------------------------------

    async def follow_pinglist(self) -> None:
        """Probe what the analyzer asks for, until cancelled."""
        while True:
            await _insist(self._poll_pinglist)

    async def _poll_pinglist(self) -> None:
        asked_ns = now_ns()
        news = await self._adapters.uplink.follow(self._roster.asks(LONG_POLL_S))
        if news is not None:
            if news.version == self._roster.version:
                # It says again what is here already: no haste, whoever of the two is mistaken.
                await asyncio.sleep(RETRY_S[1])
            self._roster.take(news)
            self._seal(self._roster.keys)
        # Not "greater": an analyzer that lost its disk begins again, and it decides.
        self._activation.use(self._roster.pinglist() if news else None, asked_ns=asked_ns)
        self._activate()
        self._followed.set()

    def _seal(self, keys: Mapping[EndpointId, bytes]) -> None:
        self._adapters.prober.keys = self._adapters.answering.seals.keys = keys
        if self._adapters.rdma is not None:
            self._adapters.rdma.seal(keys)

    def hear(self, said: Announcement) -> Announced:
        """Take what another host announces of its endpoints."""
        news = self._activation.hear(said, now_ns=now_ns())
        if news and self._activating is None:
            # Containers start in crowds; a list of thousands is not made anew for each.
            loop = asyncio.get_running_loop()
            self._activating = loop.call_later(ACTIVATE_S, self._activate)
        return Announced(news=news)

    def _activate(self) -> None:
        if self._activating is not None:
            self._activating.cancel()
            self._activating = None
        pinglist = self._activation.active(self.endpoints())
        if pinglist == self._pinglist:
            return
        self._pinglist = pinglist
        if self._adapters.rdma is not None:
            self._adapters.rdma.aim(pinglist)
        self._adapters.probes.set_pinglist(pinglist)
        ends = {t.source for t in pinglist.targets} | {t.target for t in pinglist.targets}
        self._adapters.tracer.keep(lambda flow: flow.source in ends and flow.target in ends)


def _announcement(said: Registration) -> Announcement:
    return Announcement(
        host=said.host,
        instance=said.instance,
        generation=said.generation,
        endpoints=said.endpoints,
    )


async def _insist(request: Callable[[], Awaitable[T]]) -> T:
    wait_s = RETRY_S[0]
    while True:
        try:
            return await request()
        except (Unreachable, RemoteProtocolError) as error:
            log.warning("analyzer_request_failed", error=str(error))
        await asyncio.sleep(wait_s)
        wait_s = min(RETRY_S[1], 2 * wait_s)
