# SPDX-License-Identifier: Apache-2.0
"""One analyzer: its parts, wired, restored after a restart, and its background work."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

import netagent
from analyzer import config as configuration
from analyzer.authority import Authority
from analyzer.config import Config
from analyzer.controllers.kubernetes import Api
from analyzer.fleet import Fleet
from analyzer.intake.controller import check_controller
from analyzer.intake.inventory import parts_of
from analyzer.intake.operators import reported
from analyzer.intake.reports import Reports
from analyzer.intake.take import keep
from analyzer.intake.totals import Totals
from analyzer.intake.traffic import TrafficBook
from analyzer.intake.unprobed import check_unprobed
from analyzer.intent.model import Intent
from analyzer.intent.ovn import SOURCE
from analyzer.judge import messages
from analyzer.judge.workers import Workers
from analyzer.operators.keeper import Keeper
from analyzer.replay import records
from analyzer.replay.tape import TapedRegistry, roster_of
from analyzer.review.words import Accuracy, Book, accuracy
from analyzer.roster.admission import Admission
from analyzer.roster.driven import DrivenHosts
from analyzer.roster.lists import Lists
from analyzer.roster.newest import Newest
from analyzer.roster.registry import Registry
from analyzer.roster.service import AnalyzerService
from analyzer.roster.uniformity import Uniformity
from analyzer.server import identity
from analyzer.server.acting import Acting, driven_bridge
from analyzer.server.asker import Asker
from analyzer.server.capacity import Meter
from analyzer.server.clock import Steady
from analyzer.server.comparing import DUMP_S, Comparisons
from analyzer.server.controllers import Controller
from analyzer.server.diagnosing import Diagnoses, Pair, Plain, waiting_for
from analyzer.server.differing import Differing
from analyzer.server.disk import SLOW_NS, Disk, why_late
from analyzer.server.intended import Intended
from analyzer.server.jobs import Jobs
from analyzer.server.journal import Journal
from analyzer.server.judge import BACKLOG_BYTES, Judge, Since
from analyzer.server.kubernetes import Kubernetes
from analyzer.server.link import Link, LinkClosed, ProcessLink
from analyzer.server.mail import Mail
from analyzer.server.meaning import Meanings
from analyzer.server.page.sessions import Sessions
from analyzer.server.planner import Planner
from analyzer.server.ports import Ports
from analyzer.server.pushing import PushedController
from analyzer.server.space import Space
from analyzer.server.waiters import Waiters
from analyzer.server.zones import Zones
from analyzer.skeleton.plans import Skeletons
from analyzer.skeleton.sampling import Sampling
from analyzer.store import trail
from analyzer.store.secret import kept_secret
from analyzer.store.tables import Store
from analyzer.store.trail import Trail
from netagent.model.errors import CapabilityMissing, LocalProtocolError, RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.trust import Trust
from netagent.wire.codec import decode
from netagent.wire.messages import Service, SummaryHead
from netagent.wire.unprobed import Unprobed

log = structlog.get_logger()

REPLAY_NS = 120 * 10**9
"""Nanoseconds of stored summaries that the diagnosis reads again after a restart. Chosen: enough
windows for baselines and paths; more delay the start."""

REPLAY_BYTES = 64 << 20
"""Bytes of those summaries, as stored, from which on it reads only what it does not hold. Chosen:
six thousand RNICs' of that time, read within ten seconds; of more, a start would take a minute."""

HOUSEKEEPING_S = 60.0
"""Seconds between two deletions of what is older than its retention. Chosen: retention is hours,
and a deletion shares the store's thread with summaries."""

TIME_S = 1.0
"""Seconds between two looks at whether the wall clock was set. Chosen: a window has five."""

INCIDENTS = " incidents"
"""Key of waiters for incidents; no host's name begins with a blank."""


Clock = Callable[[], int]
"""Unix time in nanoseconds."""
OpenLink = Callable[[], Awaitable[Link]]
"""Starts a judge."""


@dataclass(slots=True)
class Counters:
    """Numbers of events since the analyzer started."""

    summaries: int = 0
    duplicates: int = 0
    summary_bytes: int = 0
    bad_summaries: int = 0
    bad_inventories: int = 0
    bad_controllers: int = 0
    bad_unprobed: int = 0
    bad_operators: int = 0
    refused_summaries: int = 0
    registrations: int = 0
    replayed: int = 0
    unreadable_summaries: int = 0

    def unreadable(self) -> None:
        """Count a stored summary that was to be read and cannot be."""
        self.unreadable_summaries += 1


@dataclass(slots=True, kw_only=True)
class Analyzer:
    """The parts of a running analyzer."""

    config: Config
    registry: TapedRegistry
    topology: DeclaredTopology
    store: Store
    fleet: Fleet
    judge: Judge
    asker: Asker
    journal: Journal
    acting: Acting
    mail: Mail
    disk: Disk
    waiters: Waiters
    lists: Lists
    skeletons: Skeletons
    traffic: TrafficBook
    driven: DrivenHosts
    clock: Clock
    started_ns: int
    trust: Trust | None
    """None where there is no TLS."""
    authority: Authority | None
    rows_aside: int
    """Rows of the database that no start could read, kept in its table `aside`."""
    counters: Counters = field(default_factory=Counters)
    admission: Admission = field(default_factory=Admission)
    monotonic: Clock = time.monotonic_ns
    """Of `admission`."""
    sampling: Sampling = field(default_factory=Sampling)
    inquiring: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while an inquiry reads what is stored: one at a time."""
    inquired: dict[str, tuple[int, Plain]] = field(default_factory=dict)
    """Task -> when it was asked about last, and the answer."""
    signing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the authority's files change."""
    backing_up: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a backup is made: one at a time."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while history is read: others wait, so that one core and one memory do."""
    reviewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while somebody's word is stored: the next one is added to it."""
    words: Book = field(default_factory=Book)
    """What people said of incidents."""
    following: dict[str, object] = field(default_factory=dict)
    """Host -> the question after its ping list that is answered, of several the latest."""
    ends: dict[str, float] = field(default_factory=dict)
    """Host -> when the certificate ends that it showed last, in Unix time; empty without TLS."""
    reports: Reports = field(default_factory=Reports)
    totals: Totals = field(default_factory=Totals)
    uniformity: Uniformity = field(default_factory=Uniformity)
    unprobed: Newest[Unprobed] = field(default_factory=Newest)
    """What hosts said last of their ports that are no endpoint."""
    operators: Keeper = field(default_factory=Keeper)
    """What hosts said last of what jobs communicate."""
    jobs: Jobs = field(init=False)
    """Who of these holds its job up."""
    workers: Workers = field(default_factory=Workers)
    controller: Controller | Zones | None = None
    """None where none is configured."""
    pushed: dict[str, PushedController] = field(default_factory=dict)
    """Controllers that push, by name."""
    differing: Differing | None = None
    comparisons: Comparisons | None = None
    kubernetes: Kubernetes | None = None
    service: AnalyzerService = field(init=False)
    meter: Meter = field(init=False)
    space: Space = field(init=False)
    steady: Steady = field(init=False)
    diagnoses: Diagnoses = field(init=False)
    intended: Intended = field(default_factory=Intended)
    sessions: Sessions = field(default_factory=Sessions)
    page_at: tuple[str, int] | None = None
    """Address and port of the page; None where there is none."""
    _remembered: bool = False
    """Whether what was stored before the start is known here, as to the judge."""

    @classmethod
    async def start(
        cls,
        config: Config,
        path: str,
        *,
        trust: Trust | None = None,
        clock: Clock | None = None,
        open_link: OpenLink = ProcessLink.open,
    ) -> "Analyzer":
        """Return an analyzer that knows what it knew before. Raises ConfigError."""
        topology = (
            configuration.load_topology(config.topology) if config.topology else DeclaredTopology()
        )
        if trust is None and config.tls is not None:
            trust = identity.trust_of(config.tls, path)
        authority = Authority(Path(config.enrolment.authority)) if config.enrolment else None
        steady = Steady()
        clock = clock or steady
        counters = Counters()
        if config.controllers.kubernetes is not None:
            # That what it names can be read is known at the start.
            Api(config.controllers.kubernetes, path)
        mail = Mail(config.webhooks, path, clock, config.runbooks.pages)
        judge = Judge(open_link)
        disk = Disk(refused=lambda wall_ns: judge.give(records.Impaired(now_ns=wall_ns)))
        store = Store(config.database, clock, counters.unreadable, disk.synced.append)
        try:
            registry = TapedRegistry.restore(await store.hosts(), await store.tasks())
            stored = await store.incidents()
            letters = await store.letters()
            words = Book(await store.words())
            rows_aside = await store.aside()
        except BaseException:
            await store.close()
            raise
        skeletons = Skeletons(registry, window_s=config.window_s, enabled=config.skeletons.enabled)
        lists = Lists(
            registry,
            rare_share=config.skeletons.rare_share,
            used=skeletons.used,
            secret=kept_secret(Path(config.database).with_name("probes.key")),
        )
        waiters = Waiters()
        fleet = Fleet(lambda host: _url(registry, host), trust.client if trust else None)
        journal = Journal(
            stored,
            # After what waits, also where the clock was set back: letters go by number.
            wall_ns=max([clock(), *(letter.seq for letter in letters)]),
            announce=lambda: waiters.wake([INCIDENTS]),
            settled=lambda error, wall_ns: _settle(disk, "incidents", error, wall_ns),
            mail=mail,
        )
        mail.restore(letters, journal.get)
        driven = DrivenHosts()
        acting = _acting(config, registry, driven, fleet, journal, clock)

        def tell(incident: Incident) -> None:
            journal.note(incident)
            acting.take(incident)

        analyzer = cls(
            config=config,
            registry=registry,
            topology=topology,
            store=store,
            fleet=fleet,
            judge=judge,
            asker=Asker(judge, fleet, clock, tell),
            journal=journal,
            acting=acting,
            mail=mail,
            disk=disk,
            waiters=waiters,
            lists=lists,
            skeletons=skeletons,
            traffic=TrafficBook(),
            driven=driven,
            clock=clock,
            started_ns=clock(),
            trust=trust,
            authority=authority,
            rows_aside=rows_aside,
            counters=counters,
            words=words,
        )
        analyzer._follow()
        analyzer.meter = Meter(analyzer.load)
        analyzer.space = Space(store, disk, clock)
        analyzer.steady = steady
        analyzer.service = AnalyzerService(
            registry,
            lists,
            store,
            observe=analyzer.observe,
            changed=waiters.wake,
            settled=analyzer.settled,
        )
        analyzer.diagnoses = Diagnoses(
            analyzer.walks, lambda name: waiters.wake([waiting_for(name)])
        )
        analyzer.asker.arriving_ns = analyzer.service.arriving_ns
        await analyzer._declare(path)
        try:
            await judge.begin(analyzer.history, analyzer.refused)
        except (OSError, LinkClosed, LocalProtocolError) as error:
            log.warning("judge_gone", error=str(error) or "it ended")
        log.info("replayed", summaries=analyzer.counters.replayed)
        registry.tape = judge.give
        analyzer._work()
        return analyzer

    async def history(self, since: Since) -> AsyncIterator[messages.Down]:
        """Yield what a judge is told first: who is there, and the newest minutes.

        Where these are many summaries, only those that a judge does not hold yet.
        """
        config = self.config
        header = records.Header(
            netagent=netagent.__version__,
            run=self.clock(),
            window_s=config.window_s,
            probe_port=config.probe_port,
            sensitivity=config.slowness.sensitivity,
            missing_after_ns=config.tasks.missing_after_s * 10**9,
            topology=self.topology,
        )
        yield messages.Open(
            header=header,
            recording=config.recording,
            database=config.database,
            history=config.history,
        )
        yield roster_of(self.registry)
        incidents = tuple(self.journal.active())
        yield records.Restored(incidents=incidents, now_ns=self.clock())
        since_ns, held_ns = self.clock() - REPLAY_NS, await since()
        if held_ns > since_ns and await self.store.bytes_since(since_ns) > REPLAY_BYTES:
            log.info("replay_shortened", skipped_s=round((held_ns - since_ns) / 1e9, 1))
            for host, start_ns, received_ns in await self.store.heard(since_ns):
                yield self._heard(host, start_ns, received_ns)
            since_ns = held_ns
        async for received_ns, payload in self.store.replay(since_ns):
            try:
                summary = decode(payload, SummaryHead)
            except RemoteProtocolError as error:
                log.warning("stored_summary_unreadable", error=str(error))
                self.counters.unreadable()
                continue
            heard = self._heard(summary.host, summary.start_ns, received_ns)
            if self._recalled(summary, received_ns):
                yield records.Ingested(payload=payload, now_ns=received_ns, heard=True)
            else:
                yield heard
        self._remembered = True
        yield records.Began(now_ns=self.clock())

    def _heard(self, host: str, start_ns: int, received_ns: int) -> records.Heard:
        if not self._remembered:
            self.registry.hear(host, start_ns, received_ns)
        return records.Heard(host=host, start_ns=start_ns, now_ns=received_ns)

    def _recalled(self, summary: SummaryHead, received_ns: int) -> bool:
        """Take what was stored before this start, once; return whether a judge is told of it."""
        if self._remembered:
            with contextlib.suppress(RemoteProtocolError):
                keep(summary, width_ns=self.config.window_s * 10**9)
                return True
            return False
        self.counters.replayed += 1
        return self._keep(summary, received_ns)

    def observe(self, summary: SummaryHead, payload: bytes, wall_ns: int) -> bool:
        """Hand a stored summary on, and return whether that was done.

        One that cannot be used stays stored and is logged.
        """
        self.steady.heard(summary.host, summary.start_ns + summary.width_ns)
        if not self._keep(summary, wall_ns):
            return False
        self.judge.give(records.Ingested(payload=payload, now_ns=wall_ns, heard=True))
        self.asker.news()
        return True

    def differed(self) -> None:
        """Have what a controller and its hosts say compared soon: one of them said something."""
        if self.differing is not None:
            self.differing.news()

    def sources(self) -> dict[str, tuple[Intent, ...]]:
        """Return what each controller says should be, by its name; one with zones, of each."""
        read = {} if self.controller is None else {SOURCE: self.controller.intents}
        return read | {name: (each.intent,) for name, each in self.pushed.items()}

    def intents(self) -> tuple[Intent, ...]:
        """Return what all controllers say should be."""
        return tuple(intent for each in self.sources().values() for intent in each)

    def _zones(self) -> Zones:
        """Return what follows the hosts that have databases of their own."""

        def hosts() -> list[str]:
            return [h for h, said in self.driven.said.items() if said.state.databases]

        def is_known(host: str) -> bool:
            # One whose words were forgotten is away; one that says that it has none has none.
            return host not in self.driven.said and self.registry.agent(host) is not None

        return Zones(hosts, is_known, self.fleet.zone, self.clock, on_intent=self.differed)

    def _follow(self) -> None:
        """Follow what controllers say should be, and what jobs say of themselves."""
        controllers, clock = self.config.controllers, self.clock
        self.jobs = Jobs(
            self.operators, self.registry, self.fleet.operators, self.judge.give, clock,
            self.skeletons,
            lambda ends, since_ns, until_ns: self.traffic.sent(
                [(each.id, each.host) for each in ends], since_ns, until_ns
            ),
            self._replan,
        )  # fmt: skip
        self.pushed = {
            name: PushedController(name, each, clock, self.differed)
            for name, each in sorted(controllers.pushed.items())
        }
        if (ovn := controllers.ovn) is not None:
            controller = (
                self._zones()
                if ovn.zones
                else Controller(ovn, clock, on_intent=lambda _intent: self.differed())
            )
            meaning = Meanings(controller, self.driven, self.fleet.flows)
            self.asker.meaning, self.intended.policies = meaning.read, meaning.policies
            self.controller = controller
            self.comparisons = Comparisons(
                controller,
                self.driven,
                lambda host, bridge: self.fleet.flows(host, bridge, deadline_s=DUMP_S),
                lambda host: driven_bridge(self.registry, self.driven, host),
                clock,
            )
        if ovn is None and not self.pushed:
            return
        differing = Differing(
            self.sources, self.driven, self.registry, self.judge.give, clock,
            zoned={SOURCE} if isinstance(self.controller, Zones) else (),
        )  # fmt: skip
        self.differing = differing
        self.intended.intents, self.intended.plugged = self.intents, differing.plugged

    def _replan(self, hosts: Collection[str]) -> None:
        self.service.replan(hosts)  # which is made after what follows jobs

    async def _declare(self, path: str) -> None:
        """Have Kubernetes declare its tasks; where it is not read, those from there go."""
        if (kubernetes := self.config.controllers.kubernetes) is not None:
            self.kubernetes = Kubernetes(
                kubernetes,
                path,
                registry=self.registry,
                service=self.service,
                journal=self.journal,
                clock=self.clock,
            )
            return
        for task in self.registry.tasks():
            if task.source:  # nobody would ever withdraw it
                await self.service.delete_task(task.id, self.clock(), source=task.source)

    def _keep(self, summary: SummaryHead, wall_ns: int) -> bool:
        """Take of a summary what is not the judge's; return whether it made sense."""
        try:
            kept = keep(summary, width_ns=self.config.window_s * 10**9)
            held = {each.endpoint.id for each in self.registry.endpoints_of(summary.host)}
            self.traffic.add(summary.host, summary.clock, kept.traffic, held, wall_ns)
        except RemoteProtocolError as error:
            self.refused(messages.Refused(host=summary.host, error=str(error)))
            return False
        except Exception:  # a bug, but it is stored: who sent it must not hear otherwise
            self.counters.bad_summaries += 1
            log.exception("ingest_failed", host=summary.host, start_ns=summary.start_ns)
            return False
        self.reports.take(summary.host, kept.report, wall_ns)
        if self._remembered:  # what was stored before the start was counted then
            self.totals.add(kept.report)
        self._compare(summary, wall_ns)
        self._drive(summary, wall_ns)
        self._leave_out(summary, wall_ns)
        self._record(summary, wall_ns)
        return True

    def _compare(self, summary: SummaryHead, wall_ns: int) -> None:
        """Take what a host says that it has; what makes no sense costs no window's probes."""
        if summary.inventory is None:
            return
        try:
            parts = parts_of(summary.host, summary.inventory)
        except RemoteProtocolError as error:
            self.counters.bad_inventories += 1
            log.warning("inventory_unusable", host=summary.host, error=str(error))
            return
        self.uniformity.take(summary.host, summary.start_ns, parts, wall_ns)

    def _drive(self, summary: SummaryHead, wall_ns: int) -> None:
        """Take what a host says of its part of a controller; else as `_compare`."""
        if summary.controller is None:
            return
        try:
            check_controller(summary.controller)
        except RemoteProtocolError as error:
            self.counters.bad_controllers += 1
            log.warning("controller_unusable", host=summary.host, error=str(error))
            return
        before = self.driven.said.get(summary.host)
        self.driven.take(summary.host, summary.start_ns, summary.controller, wall_ns)
        if before is None or before.state != summary.controller:
            self.differed()

    def _leave_out(self, summary: SummaryHead, wall_ns: int) -> None:
        """Take what a host says of ports that are no endpoint; else as `_compare`."""
        if summary.unprobed is None:
            return
        try:
            check_unprobed(summary.unprobed)
        except RemoteProtocolError as error:
            self.counters.bad_unprobed += 1
            log.warning("unprobed_unusable", host=summary.host, error=str(error))
            return
        self.unprobed.take(summary.host, summary.start_ns, summary.unprobed, wall_ns)

    def _record(self, summary: SummaryHead, wall_ns: int) -> None:
        """Take what a host says of jobs' operators; else as `_compare`."""
        if summary.operators is None:
            return
        try:
            said = reported(summary.operators)
        except RemoteProtocolError as error:
            self.counters.bad_operators += 1
            log.warning("operators_unusable", host=summary.host, error=str(error))
            return
        self.operators.take(summary.host, said, wall_ns)

    def refused(self, why: messages.Refused) -> None:
        """Note that a stored summary could not be used."""
        self.counters.bad_summaries += 1
        event = "ingest_failed" if why.bug else "summary_unusable"
        (log.error if why.bug else log.warning)(event, host=why.host, error=why.error)

    def may_send(self, caller: str | None, size: int) -> None:
        """Refuse what one caller sends too much of; raises CapabilityMissing."""
        if caller is not None:
            try:
                self.admission.take(caller, size, self.monotonic())
            except CapabilityMissing:
                self.counters.refused_summaries += 1
                raise

    def overrun(self, wall_ns: int) -> None:
        """Note that what hosts send does not fit into memory: who is silent may be refused."""
        self.counters.refused_summaries += 1
        self.judge.give(records.Impaired(now_ns=wall_ns))

    def admit(self, wall_ns: int) -> None:
        """Refuse what agents send while too much waits to be judged; raises CapabilityMissing.

        They keep it and come again; nobody is blamed for what is missing meanwhile.
        """
        if self.judge.backlog_bytes <= BACKLOG_BYTES:
            return
        self.judge.give(records.Impaired(now_ns=wall_ns))
        raise CapabilityMissing("judging", "it is behind: deliver this again later")

    async def walks(self, pairs: Sequence[Pair], services: Sequence[Service | None]) -> list[Plain]:
        """Walk several pairs; return what was found, without the tree that is for people."""
        found = await self.judge.walks(pairs, self.asker.put, services=services)
        walks = await self.explained(found)
        return [{name: each[name] for name in each if name != "tree"} for each in walks]

    async def explained(self, walks: list[Plain]) -> list[Plain]:
        """Return walks with who intends what keeps their packets back."""
        ends = {EndpointId.parse(str(walk[end])) for walk in walks for end in ("source", "target")}
        records = filter(None, map(self.registry.endpoint, sorted(ends)))
        return await self.intended.explained(walks, [record.endpoint for record in records])

    def accuracy(self) -> Accuracy:
        """Return how often verdicts were right, of all incidents kept, as people said."""
        return accuracy(self.journal.incidents(), self.words.of)

    def load(self) -> tuple[int, int | None, int]:
        """Return the RNICs that are there, the judge's pid, and bytes of summaries taken."""
        return self.registry.live(), self.judge.pid, self.counters.summary_bytes

    def warnings(self) -> list[str]:
        """Return what is wrong with the analyzer itself, in words."""
        off_s = round(self.steady.off_ns / 1e9)
        clock = [f"its wall clock is off by {off_s} s: most hosts go by another time"]
        told = [*self.space.warnings(), *(clock if off_s else ())]
        if (storing_ns := self.storing_ns()) >= SLOW_NS:
            told.append(f"it stores late: {why_late(storing_ns, self.sync_ns())}")
        return [*told, *(self.kubernetes.warnings() if self.kubernetes else ())]

    def storing_ns(self) -> int:
        """Return how long a summary waited at most, lately, until it was stored."""
        now_ns, arriving_ns = self.clock(), self.service.arriving_ns()
        waiting_ns = 0 if arriving_ns is None else now_ns - arriving_ns
        return max(waiting_ns, self.disk.storing.ns(now_ns))

    def sync_ns(self) -> int:
        """Return how long a sync of the disk took at most, lately."""
        return max(self.store.syncing_ns(), self.disk.sync_ns(self.clock()))

    def settled(self, error: str | None, wall_ns: int) -> None:
        """Note why a summary was not stored; None where it was."""
        self.counters.refused_summaries += error is not None
        self.disk.took(self.clock() - wall_ns, self.clock())
        _settle(self.disk, "summaries", error, wall_ns)

    async def stop(self) -> None:
        """End the background work and close the database."""
        self.waiters.stop()
        await self.diagnoses.stop()
        await self.workers.stop()
        await self.judge.stop()
        await self.journal.take(self.store, self.clock())
        await self.mail.close(self.store)
        await self.fleet.close()
        await self.store.close()

    def _work(self) -> None:
        planner = Planner(self.skeletons, self.traffic, self.service, self.sampling, self.clock)
        for name, run in (
            ("housekeeping", self._keep_house),
            ("meter", self.meter.run),
            ("space", self.space.run),
            ("clock", self._keep_time),
            ("judge", self.judge.run),
            ("asker", self.asker.run),
            ("acting", self.acting.run),
            ("planner", planner.run),
            ("journal", lambda: self.journal.follow(self.store, self.clock)),
        ):
            self.workers.start(name, run)
        if self.kubernetes is not None:
            self.kubernetes.work(self.workers)
        self.mail.work(self.workers, self.store)
        self.workers.start("jobs", self.jobs.run)
        if self.controller is not None:
            self.workers.start("controller", self.controller.run)
        if self.differing is not None:
            self.workers.start("differing", self.differing.run)

    async def _keep_time(self) -> None:
        was_off = False
        while True:
            set_ns, off_ns = self.steady.look(), self.steady.off_ns
            if set_ns:  # windows are missing, or there twice, and nobody is to blame
                log.warning("clock_set", seconds=round(set_ns / 1e9, 1))
                self.judge.give(records.Impaired(stood_still=True, now_ns=self.clock()))
            elif bool(off_ns) != was_off:
                log.warning("wall_clock_off", seconds=round(off_ns / 1e9, 1))
            was_off = bool(off_ns)
            await asyncio.sleep(TIME_S)

    async def _keep_house(self) -> None:
        keep = self.config.retention
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            wall_ns = self.clock()
            await self.service.expire(wall_ns)
            self.traffic.forget(wall_ns)
            self.reports.forget(wall_ns)
            self.uniformity.expire(wall_ns)
            self.driven.expire(wall_ns)
            self.unprobed.expire(wall_ns)
            self.operators.expire(wall_ns)
            self.admission.forget(self.monotonic())
            gone = await self.store.trim(
                before_ns=wall_ns - keep.age_s * 10**9, max_bytes=keep.bytes
            )
            await self.store.trim_incidents(wall_ns - keep.incidents_s * 10**9)
            self.journal.forget(wall_ns - keep.incidents_s * 10**9)
            self.words.forget(lambda incident: self.journal.get(incident) is not None)
            log.debug("house_kept", summaries_deleted=gone)


def _settle(disk: Disk, kind: str, error: str | None, wall_ns: int) -> None:
    if error is None:
        if disk.worked(kind):
            log.info("disk_takes_again")
    elif disk.failed(kind, error, wall_ns):
        log.error("disk_refuses", what=kind, error=error)


def _acting(
    config: Config,
    registry: Registry,
    driven: DrivenHosts,
    fleet: Fleet,
    journal: Journal,
    clock: Clock,
) -> Acting:
    acting = Acting(
        config.actions.limits,
        Trail(Path(config.database).with_name(trail.FILE)),
        fleet,
        clock,
        bridge_of=lambda host: driven_bridge(registry, driven, host),
        hosts=lambda: len(registry.agents()),
        ports=Ports(config.actions.northbound) if config.actions.northbound else None,
    )
    acting.begin(journal.incidents())
    return acting


def _url(registry: Registry, host: str) -> str | None:
    agent = registry.agent(host)
    return agent.rpc_url if agent else None
