# SPDX-License-Identifier: Apache-2.0
"""What jobs' operators say, looked at again and again, and given to the diagnosis.

Hosts send sums. Those show whether a job moves at all, and whose part in a group takes little time
beside others': who waits least is waited for. Records are asked for only where that says so, or
where a job is small (`choose`). A host that does not answer is nobody's fault: its ranks are
unseen.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from statistics import median

import structlog
from msgspec.structs import astuple

from analyzer.detect.held import EVERY_NS, STUCK_NS, JobVerdict
from analyzer.detect.operators import hang, slow
from analyzer.detect.operators.pauses import MOST_NS, Pause, patient, suspects
from analyzer.detect.operators.verdict import Holdup, Verdict
from analyzer.intake.operators import log_of_replies, told_apart
from analyzer.operators.agreeing import Pace, alone, paces, partial, quarrels, unended
from analyzer.operators.keeper import Keeper, Key, Known, settled
from analyzer.operators.log import Kind, Log, State
from analyzer.replay import records
from analyzer.roster.registry import Registry
from analyzer.skeleton.logged import Disagreement
from analyzer.skeleton.plans import Skeletons
from analyzer.skeleton.stated import Given, Pair, stated
from netagent.model.endpoint import Endpoint
from netagent.model.errors import NetAgentError, Unreachable
from netagent.model.ids import EndpointId
from netagent.wire.operators import MOST_ASKED, OperatorsReply, OperatorsRequest

LOOK_NS = 60_000_000_000
"""Nanoseconds of records that are asked for. Chosen: iterations take seconds, and several are
needed."""
PAUSES = 8
"""Most stand-stills of a job that ended by themselves which are remembered. Chosen."""
HEARD_NS = 15_000_000_000
"""Nanoseconds within which a host must have been heard of for its ranks to be judged. Chosen: three
windows; a collector that lags is no hang."""
SMALL = 64
"""Ranks of a job of which all records are asked for. Chosen: a question to each of eight hosts."""
WAITS_LEAST = 0.7
"""Most time in collectives of a rank that others wait for, as a share of its group's median.
Chosen: Aegis names at 0.8 of the mean, and being asked for records accuses nobody."""
MOST_RANKS = 512
"""Most ranks of a job that are asked for records at a time. Chosen: some megabytes."""
SHOWN = 8
"""Most ranks that several claim which a verdict tells of."""
AT_ONCE = 16
"""Most hosts that are asked at once."""
MOST_ENDS = 16
"""Most endpoints of a rank. Chosen: twice the RNICs of a server; a host may say that a container
has a thousand, and pairs of ranks have the square of that."""
PATIENCE_NS = 5_000_000_000
"""Nanoseconds for which a host's answers are waited for in a step. Chosen: as for one that gives
none; of many jobs, one slow host would hold all others up."""

NOTHING = Verdict(Holdup.NOTHING, "no rank waits less than its peers, and the job goes on")
UNTIMED = Verdict(Holdup.INSUFFICIENT, "no operator that ended was recorded in the last minute")
ENDLESS = Verdict(
    Holdup.INSUFFICIENT,
    "nothing moves, and of what all began last no end was ever seen: nobody may wait for it",
)
STILL_UNSEEN = "whether the job goes on is not known yet: it was not seen to move"
SOME_AWAY = "not all hosts answered with what their ranks recorded"

log = structlog.get_logger()

Sent = Callable[[Sequence[Endpoint], int, int], float]
"""Returns how many bytes endpoints sent between two instants; NaN where that is not known."""
Ask = Callable[[str, OperatorsRequest], Awaitable[OperatorsReply]]
"""Asks a host; raises Unreachable and the like."""


@dataclass(slots=True)
class _Followed:
    """How a job was when it was looked at last."""

    paces: Mapping[Key, Pace] = field(default_factory=dict)
    progress: Mapping[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    moved_ns: int = 0
    has_moved: bool = False
    """Whether it was seen to, since it is followed."""
    verdict: JobVerdict | None = None
    seen: set[Pair] = field(default_factory=set)
    """Who was seen to send to whom by the processes in `of`."""
    of: frozenset[Key] = frozenset()
    awaited: frozenset[int] = frozenset()
    """For whom it waits, while it stands still."""
    pauses: tuple[Pause, ...] = ()
    """What it went on from by itself, the newest last."""

    def moves(self, progress: Mapping[tuple[int, str], tuple[int, int]], now_ns: int) -> None:
        """Take how far ranks are now."""
        if progress == self.progress:
            return
        went_on = {key[0] for key, told in progress.items() if told > self.progress.get(key, told)}
        if self.awaited and self.awaited <= went_on:
            # Hosts say it at times, so a pause may have been a little shorter.
            ended = Pause(self.awaited, now_ns - self.moved_ns)
            self.pauses = (*self.pauses, ended)[-PAUSES:]
        self.has_moved = bool(self.progress)
        self.progress, self.moved_ns, self.awaited = progress, now_ns, frozenset()


@dataclass(slots=True)
class Jobs:
    """All jobs of which hosts send sums, and that are tasks of the roster."""

    keeper: Keeper
    registry: Registry
    ask: Ask
    give: Callable[[records.Record], None]
    clock: Callable[[], int]
    skeletons: Skeletons | None = None
    """Which follow what operators state."""
    sent: Sent = lambda _members, _since_ns, _until_ns: nan
    replan: Callable[[Collection[str]], None] = lambda _hosts: None
    """Has new ping lists made for hosts."""
    asked_bytes: int = 0
    """Bytes of records that hosts sent when they were asked."""
    unanswered: int = 0
    failed: int = 0
    """Jobs that could not be judged."""
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _told: tuple[JobVerdict, ...] = ()
    _unreached: set[str] = field(default_factory=set)
    """Hosts that did not answer in this step, or took too long to."""
    _waited_ns: Counter[str] = field(default_factory=Counter)
    """How long each host was waited for in this step."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(EVERY_NS / 1e9)

    async def step(self) -> None:
        """Look at each job once, and tell what is new."""
        tasks = {record.endpoint.task for record in self.registry.endpoints()}
        jobs = tasks.intersection(self.keeper.jobs)
        for job in self._followed.keys() - jobs:
            del self._followed[job]
        self._unreached.clear()
        self._waited_ns.clear()
        for job in sorted(jobs):
            followed = self._followed.setdefault(job, _Followed(moved_ns=self.clock()))
            try:
                followed.verdict = await self._look(job, followed) or followed.verdict
            except Exception:
                # A job that nobody can read keeps no other from being looked at.
                self.failed += 1
                log.exception("job_not_judged", job=job)
                followed.verdict = self._unread(job)  # what was found before may be long over
        told = tuple(f.verdict for f in self._followed.values() if f.verdict is not None)
        if told != self._told:
            self._told = told
            self.give(records.HeldUp(jobs=told, now_ns=self.clock()))

    def _unread(self, job: str) -> JobVerdict:
        why = "what is recorded of the job could not be judged: this is a fault of the analyzer"
        missing = ("the analyzer's log, which says what it failed of (job_not_judged)",)
        return JobVerdict(job, Verdict(Holdup.INSUFFICIENT, why, missing=missing), self.clock())

    def latest(self, job: str) -> JobVerdict | None:
        """Return the newest verdict about a job; None where there is none."""
        followed = self._followed.get(job)
        return followed.verdict if followed is not None else None

    async def _look(self, job: str, followed: _Followed) -> JobVerdict | None:
        """Return what a job says now; None where too little is heard of it to say anything."""
        now_ns = self.clock()
        known = [
            each
            for each in self.keeper.processes(job)
            if each.process.rank >= 0 and self.is_of(each, job)
        ]
        recent = [each for each in known if now_ns - each.heard_ns < HEARD_NS]
        if not recent:
            return None
        owners, contested = settled(recent)
        heard = [each for _, each in sorted(owners.items())]
        progress = {(k.process.rank, name): n for k in heard for name, n in k.progress.items()}
        followed.moves(progress, now_ns)
        followed.paces = paces(followed.paces, recent, now_ns)
        still_ns = now_ns - followed.moved_ns
        by_itself = alone(heard, followed.paces, now_ns, MOST_NS)
        if still_ns >= STUCK_NS:
            still = _as_now(recent)
            unlike = quarrels(still, followed.paces, now_ns, STUCK_NS)
            if unlike and still_ns < MOST_NS:
                verdict = disagreed(unlike)
            else:  # whose sources disagree hides what others do no longer than anybody may pause
                hung = await asyncio.to_thread(self._hung, job, still)
                verdict = without(hung, unlike)
            followed.awaited = suspects(verdict)
            gone = {rank for rank, each in owners.items() if each.process.gone}
            verdict = patient(verdict, still_ns, followed.pauses, gone)
        elif by_itself and suspects(hung := await self._hung_beside(job, recent, by_itself)):
            verdict = hung
        else:
            verdict = await self._slow(job, heard, followed, now_ns)
            if verdict.holdup is Holdup.NOTHING and not followed.has_moved:
                # As after a restart, while a job hangs: nobody is acquitted before that is known.
                verdict = replace(verdict, holdup=Holdup.INSUFFICIENT, summary=STILL_UNSEEN)
        verdict = without_contested(verdict, contested)
        ends = self._endpoints(heard)
        named = {rank for culprit in verdict.culprits for rank in culprit.ranks}
        return JobVerdict(job, verdict, now_ns, {r: ends[r] for r in sorted(named & ends.keys())})

    async def _hung_beside(
        self, job: str, recent: Sequence[Known], by_itself: Mapping[int, str]
    ) -> Verdict:
        """Return for whom all wait but those that go on by themselves, which it does not name."""
        return without(await asyncio.to_thread(self._hung, job, _as_now(recent)), by_itself)

    def _hung(self, job: str, still: Sequence[Known]) -> Verdict:
        owners, _ = settled(still)
        parts = partial(owners)
        whole = [each for each in still if each.process.rank not in parts]
        endless = unended(whole)
        whole = [
            replace(each, progress={n: p for n, p in each.progress.items() if n not in endless})
            for each in whole
        ]
        # What has not moved for so long is overdue, whatever the job's own watchdog says.
        found = hang.judge(replace(self.keeper.log(job, whole), overdue=1))
        if endless and (found is None or not found.culprits):
            found = ENDLESS
        return without(found or NOTHING, parts)

    async def _slow(
        self, job: str, heard: Sequence[Known], followed: _Followed, now_ns: int
    ) -> Verdict:
        ranks = choose(heard)
        if not ranks:
            return NOTHING
        replies = await self._records(job, heard, ranks, now_ns)
        asked = {
            (each.host, each.process.rank): told_apart(each.process)
            for each in heard
            if each.process.rank in ranks
        }
        found = await asyncio.to_thread(log_of_replies, replies, asked)
        verdict = await asyncio.to_thread(_judged, found)
        verdict = await self._state(job, heard, followed, found, verdict, now_ns)
        away = sorted({host for host, _ in asked} - {host for host, _ in replies})
        if not away or verdict.culprits:
            return verdict
        # Who was not heard may be who is waited for.
        missing = (*verdict.missing, f"records of {len(away)} hosts, such as {away[0]}")
        return replace(verdict, holdup=Holdup.INSUFFICIENT, summary=SOME_AWAY, missing=missing)

    async def _state(
        self, job: str, heard: Sequence[Known], followed: _Followed, records: Log,
        verdict: Verdict, now_ns: int,
    ) -> Verdict:  # fmt: skip
        """Have ping lists follow what operators state; return a verdict with what contradicts it.

        What only some ranks were asked about states nothing of the whole job.
        """
        if self.skeletons is None or {each.process.rank for each in heard} - records.places.keys():
            return verdict
        of = frozenset(each.key for each in heard)
        if of != followed.of:
            followed.of, followed.seen = of, set()
        members = tuple(self.registry.active_endpoints(job))
        given = Given(
            self.keeper.log(job, heard), records, self._endpoints(heard),
            transferring=frozenset(each.process.rank for each in heard if _transfers(each)),
            incomplete=frozenset(
                each.process.rank for each in heard
                if each.process.missed or each.process.left_out
            ),
            sent_bytes=self.sent(members, now_ns - LOOK_NS, now_ns), seconds=LOOK_NS / 1e9,
        )  # fmt: skip
        said = await asyncio.to_thread(stated, given, members, followed.seen)
        if touched := self.skeletons.state(job, said, self.clock()):
            self.replan(touched)
        return contradicted(verdict, self.skeletons.quarrel(job))

    async def _records(
        self, job: str, heard: Iterable[Known], ranks: Collection[int], now_ns: int
    ) -> list[tuple[str, OperatorsReply]]:
        by_host: dict[str, list[int]] = defaultdict(list)
        for each in heard:
            if each.process.rank in ranks:
                by_host[each.host].append(each.process.rank)
        gate = asyncio.Semaphore(AT_ONCE)

        async def of(host: str, mine: Sequence[int]) -> tuple[str, OperatorsReply] | None:
            request = OperatorsRequest(
                job=job, ranks=tuple(mine[:MOST_ASKED]), since_ns=now_ns - LOOK_NS
            )
            async with gate:
                try:
                    if host in self._unreached:  # else each job waited for it anew
                        raise Unreachable(host, "it did not answer just before, or slowly")
                    asked_ns = self.clock()
                    try:
                        reply = await self.ask(host, request)
                    finally:
                        self._waited_ns[host] += self.clock() - asked_ns
                        if self._waited_ns[host] > PATIENCE_NS:
                            self._unreached.add(host)
                except NetAgentError as error:
                    if isinstance(error, Unreachable):
                        self._unreached.add(host)
                    self.unanswered += 1
                    log.info("operators_not_answered", host=host, job=job, error=str(error))
                    return None
            self.asked_bytes += sum(len(each) for each in astuple(reply) if isinstance(each, bytes))
            return host, reply

        replies = await asyncio.gather(*(of(*each) for each in sorted(by_host.items())))
        return [each for each in replies if each is not None]

    def is_of(self, known: Known, job: str) -> bool:
        """Return whether a process is in a container of the task that it says it is of.

        Of one in no known container only where nobody else's task is on its host.
        """
        container = known.process.container
        ends = [r.endpoint for r in self.registry.endpoints_of(known.host)]
        tasks = {end.task for end in ends if not container or end.id.container == container}
        return tasks == {job}

    def _endpoints(self, known: Iterable[Known]) -> dict[int, tuple[EndpointId, ...]]:
        """Return the endpoints of each rank, those of its container.

        Where a container has as many ranks as endpoints, each rank has one, in order.
        """
        there: dict[tuple[str, str], list[int]] = defaultdict(list)
        for each in known:
            if each.process.container:
                there[each.host, each.process.container].append(each.process.rank)
        found: dict[int, tuple[EndpointId, ...]] = {}
        for (host, container), ranks in there.items():
            ends = sorted(
                r.endpoint.id
                for r in self.registry.endpoints_of(host)
                if r.endpoint.id.container == container
            )
            apart = len(ends) == len(ranks)
            for place, rank in enumerate(sorted(ranks)):
                found[rank] = (ends[place],) if apart else tuple(ends[:MOST_ENDS])
        return found


def _as_now(recent: Iterable[Known]) -> list[Known]:
    """Return processes as they are: what hosts say next changes them, while a thread judges."""
    return [
        replace(each, progress=dict(each.progress), groups=dict(each.groups)) for each in recent
    ]


def _transfers(of: Known) -> bool:
    return any(row.kind in {Kind.SEND, Kind.RECV} for row in of.rows)


def choose(heard: Sequence[Known]) -> set[int]:
    """Return the ranks whose records say more: all of a small job, else suspects and their groups.

    A rank that others wait for is itself in collectives for the least time.
    """
    if len(heard) <= SMALL:
        return {each.process.rank for each in heard}
    spent: dict[str, dict[int, int]] = defaultdict(dict)
    for each in heard:
        for row in each.rows:
            if row.kind is Kind.COLLECTIVE and row.group is not None:
                mine = spent[row.group.name]
                mine[each.process.rank] = mine.get(each.process.rank, 0) + row.told.sum_us
    chosen: set[int] = set()
    for times in spent.values():
        usual = median(times.values())
        if len(times) > 1 and min(times.values()) < WAITS_LEAST * usual:
            chosen |= times.keys()
        if len(chosen) > MOST_RANKS:
            break
    return set(sorted(chosen)[:MOST_RANKS])


def disagreed(unlike: Mapping[int, str]) -> Verdict:
    """Return the verdict where sources see one rank stand still and go on: nobody is named."""
    ranks = ", ".join(map(str, [*unlike][:SHOWN]))
    return Verdict(
        Holdup.DISAGREEMENT,
        f"sources disagree: whether rank {ranks} goes on is not known, so nobody is named",
        innocent=False,
        evidence=tuple(unlike.values())[:SHOWN],
        missing=("one of these sources, or its collector, put right",),
    )


def without_contested(verdict: Verdict, contested: Mapping[int, Sequence[Known]]) -> Verdict:
    """Return a verdict that says which ranks several claim, and names none of them."""
    told = {
        rank: f"rank {rank} is claimed on {' and '.join(sorted({each.host for each in many}))}: "
        "which of them it is"
        for rank, many in contested.items()
    }
    return without(verdict, told)


def without(verdict: Verdict, unsure: Mapping[int, str]) -> Verdict:
    """Return a verdict that says of which ranks nothing can be told, and names none of them."""
    if not unsure:
        return verdict
    told = [text for _, text in sorted(unsure.items())][:SHOWN]
    verdict = replace(verdict, missing=(*verdict.missing, *told))
    sure = tuple(each for each in verdict.culprits if unsure.keys().isdisjoint(each.ranks))
    if len(sure) == len(verdict.culprits) and (sure or verdict.holdup is not Holdup.NOTHING):
        return verdict
    if sure:
        return replace(verdict, summary=sure[0].why, culprits=sure, evidence=())
    summary = "whom the job waits for is not known: of some ranks too little is"
    return replace(verdict, holdup=Holdup.INSUFFICIENT, summary=summary, culprits=(), evidence=())


def contradicted(verdict: Verdict, differs: Disagreement | None) -> Verdict:
    """Return a verdict that says how a job's traffic contradicts its operators, where it does."""
    if differs is None:
        return verdict
    told = (f"sources disagree: {differs.text}", *differs.evidence)
    if verdict.culprits:
        return replace(verdict, evidence=(*verdict.evidence, *told))
    return replace(
        verdict, holdup=Holdup.DISAGREEMENT, summary=told[0], evidence=differs.evidence,
        innocent=False,
    )  # fmt: skip


def _judged(found: Log) -> Verdict:
    """Return who makes a job slow.

    Hosts answer one after the other, so what has not ended yet says nothing of who lags.
    """
    return slow.judge(found.take(found.state == State.ENDED)) or UNTIMED
