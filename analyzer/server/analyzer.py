# SPDX-License-Identifier: Apache-2.0
"""One analyzer: its parts, wired, restored after a restart, and its background work."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from analyzer import config as configuration
from analyzer.config import Config
from analyzer.diagnosis.engine import Diagnosis
from analyzer.fleet import Fleet
from analyzer.intake.traffic import TrafficBook
from analyzer.replay.tape import TapedRegistry
from analyzer.roster.pinglist import PingLists
from analyzer.roster.registry import Registry
from analyzer.roster.service import AnalyzerService
from analyzer.server import identity
from analyzer.server.asker import Asker
from analyzer.server.baselines import Keeper
from analyzer.server.disk import Disk
from analyzer.server.journal import Journal
from analyzer.server.planner import Planner
from analyzer.server.recorder import Recorder
from analyzer.server.waiters import Waiters
from analyzer.skeleton.plans import Skeletons
from analyzer.store.tables import Store
from netagent.model.errors import RemoteProtocolError
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.codec import decode
from netagent.wire.messages import Summary

log = structlog.get_logger()

REPLAY_NS = 120 * 10**9
"""Nanoseconds of stored summaries that the diagnosis reads again after a restart. Chosen: enough
windows for baselines and paths; more delay the start."""

HOUSEKEEPING_S = 60.0
"""Seconds between two deletions of what is older than its retention. Chosen: retention is hours,
and a deletion shares the store's thread with summaries."""

RETRY_MIN_S, RETRY_MAX_S = 0.1, 10.0
"""Shortest and longest pause, in seconds, before a crashed worker starts again; it doubles. Chosen:
a stray error costs nothing, and a lasting one does not fill the log."""

INCIDENTS = " incidents"
"""Key of waiters for incidents; no host's name begins with a blank."""


Clock = Callable[[], int]
"""Unix time in nanoseconds."""
Build = Callable[[TapedRegistry, DeclaredTopology, Config], Diagnosis]
"""Makes the diagnosis of one analyzer."""


@dataclass(slots=True)
class Counters:
    """Numbers of events since the analyzer started."""

    summaries: int = 0
    duplicates: int = 0
    summary_bytes: int = 0
    bad_summaries: int = 0
    refused_summaries: int = 0
    registrations: int = 0
    worker_crashes: int = 0
    replayed: int = 0


@dataclass(slots=True, kw_only=True)
class Analyzer:
    """The parts of a running analyzer."""

    config: Config
    registry: Registry
    topology: DeclaredTopology
    store: Store
    fleet: Fleet
    diagnosis: Diagnosis
    asker: Asker
    recorder: Recorder
    baselines: Keeper
    journal: Journal
    disk: Disk
    waiters: Waiters
    skeletons: Skeletons
    traffic: TrafficBook
    clock: Clock
    started_ns: int
    counters: Counters = field(default_factory=Counters)
    inquiring: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while an inquiry reads what is stored: one at a time."""
    service: AnalyzerService = field(init=False)
    _workers: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def start(
        cls,
        config: Config,
        path: str,
        *,
        clock: Clock = time.time_ns,
        build: Build | None = None,
    ) -> "Analyzer":
        """Return an analyzer that knows what it knew before. Raises ConfigError."""
        topology = (
            configuration.load_topology(config.topology) if config.topology else DeclaredTopology()
        )
        tls = identity.client_context(config.tls, path) if config.tls else None
        store = Store(config.database)
        try:
            registry = TapedRegistry.restore(await store.hosts(), await store.tasks())
            lists = PingLists(await store.versions(), rare_share=config.skeletons.rare_share)
            stored = await store.incidents()
        except BaseException:
            await store.close()
            raise
        waiters = Waiters()
        fleet = Fleet(lambda host: _url(registry, host), tls)
        recorder = Recorder(config, registry, topology, clock())
        built = build(registry, topology, config) if build else recorder.diagnosis
        disk = Disk(refused=built.refused)
        journal = Journal(
            stored,
            wall_ns=clock(),
            announce=lambda: waiters.wake([INCIDENTS]),
            settled=lambda error, wall_ns: _settle(disk, "incidents", error, wall_ns),
        )
        analyzer = cls(
            config=config,
            registry=registry,
            topology=topology,
            store=store,
            fleet=fleet,
            diagnosis=built,
            asker=Asker(built, fleet, clock, lambda incident: _tell(incident, journal, recorder)),
            recorder=recorder,
            baselines=Keeper(config.database, built, clock),
            journal=journal,
            disk=disk,
            waiters=waiters,
            skeletons=Skeletons(
                registry, window_s=config.window_s, enabled=config.skeletons.enabled
            ),
            traffic=TrafficBook(),
            clock=clock,
            started_ns=clock(),
        )
        analyzer.service = AnalyzerService(
            registry,
            lists,
            store,
            observe=analyzer.observe,
            changed=waiters.wake,
            uses=analyzer.skeletons.uses,
            settled=analyzer.settled,
        )
        await analyzer._recall()
        analyzer._work()
        return analyzer

    def observe(self, summary: Summary, wall_ns: int) -> None:
        """Hand a stored summary on; one that cannot be used stays stored and is logged."""
        try:
            taken = self.diagnosis.ingest(summary, wall_ns)
            held = {each.endpoint.id for each in self.registry.endpoints_of(summary.host)}
            self.traffic.add(summary.host, summary.clock, taken.traffic, held, wall_ns)
            self.asker.news()
        except RemoteProtocolError as error:
            self.counters.bad_summaries += 1
            log.warning("summary_unusable", host=summary.host, error=str(error))
        except Exception:
            self.counters.bad_summaries += 1
            log.exception("ingest_failed", host=summary.host, start_ns=summary.start_ns)

    def settled(self, error: str | None, wall_ns: int) -> None:
        """Note why a summary was not stored; None where it was."""
        self.counters.refused_summaries += error is not None
        _settle(self.disk, "summaries", error, wall_ns)

    async def stop(self) -> None:
        """End the background work and close the database."""
        self.waiters.stop()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self.journal.take(self.store, self.clock())
        await self.recorder.stop()
        await self.fleet.close()
        await self.store.close()

    # Feeds the diagnosis what it had seen before the restart.
    async def _recall(self) -> None:
        await self.baselines.restore()  # first, so that a recording begins with them
        self.recorder.begin()
        self.diagnosis.restore(self.journal.incidents("active"), self.clock())
        async for received_ns, payload in self.store.replay(self.clock() - REPLAY_NS):
            try:
                summary = decode(payload, Summary)
            except RemoteProtocolError as error:
                log.warning("stored_summary_unreadable", error=str(error))
                continue
            self.registry.heard(summary.host, summary.start_ns, received_ns)
            self.observe(summary, received_ns)
            self.counters.replayed += 1
        log.info("replayed", summaries=self.counters.replayed)
        self.diagnosis.begin(self.clock())

    def _work(self) -> None:
        self._supervise("housekeeping", self._keep_house)
        self._supervise("diagnosis", self.asker.run)
        self._supervise("recorder", self.recorder.run)
        self._supervise("baselines", self.baselines.run)
        self._supervise(
            "planner",
            Planner(self.skeletons, self.traffic, self.service, self.fleet, self.clock).run,
        )
        self._supervise("journal", lambda: self.journal.follow(self.store, self.clock))

    def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._workers.append(asyncio.create_task(self._restart(name, run), name=name))

    async def _restart(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        pause_s = RETRY_MIN_S
        while True:
            began = time.monotonic()
            try:
                await run()
            except Exception:
                self.counters.worker_crashes += 1
                log.exception("worker_crashed", worker=name, retry_s=pause_s)
            else:
                log.warning("worker_ended", worker=name, retry_s=pause_s)
            if time.monotonic() - began > RETRY_MAX_S:
                pause_s = RETRY_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _keep_house(self) -> None:
        keep = self.config.retention
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            wall_ns = self.clock()
            await self.service.expire(wall_ns)
            self.traffic.forget(wall_ns)
            gone = await self.store.trim(
                before_ns=wall_ns - keep.age_s * 10**9, max_bytes=keep.bytes
            )
            await self.store.trim_incidents(wall_ns - keep.incidents_s * 10**9)
            self.journal.forget(wall_ns - keep.incidents_s * 10**9)
            log.debug("house_kept", summaries_deleted=gone)


def _settle(disk: Disk, kind: str, error: str | None, wall_ns: int) -> None:
    if error is None:
        if disk.worked(kind):
            log.info("disk_takes_again")
    elif disk.failed(kind, error, wall_ns):
        log.error("disk_refuses", what=kind, error=error)


def _tell(incident: Incident, journal: Journal, recorder: Recorder) -> None:
    journal.note(incident)
    recorder.saw(incident)


def _url(registry: Registry, host: str) -> str | None:
    agent = registry.agent(host)
    return agent.rpc_url if agent else None
