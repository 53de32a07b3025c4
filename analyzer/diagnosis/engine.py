# SPDX-License-Identifier: Apache-2.0
"""The diagnosis as a value: summaries in, questions out, answers in, events out.

Theory of operation. `ingest` takes a stored summary. `step` closes the windows that are complete or
overdue, and judges one after the other. Detectors find what deviates. Localisers find what is at
fault; each works on what those before it left unexplained. The book of incidents follows verdicts
over time. Detectors and localisers are generators. One that needs to know more yields questions,
and `step` returns them. The window then waits until `answer` has brought all replies, or until its
deadline, which all of its questions share. Traces take longer than a window: the window does not
wait for them, and a later one uses them. `next_event` returns what changed, and `deadline` when to
step again.

Nothing here does I/O, reads a clock or logs; all instants are Unix nanoseconds of the analyzer.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Protocol

from analyzer.detect.arrival import AFTER_NS, Arrival
from analyzer.detect.contract import Detector, Seen
from analyzer.detect.delay import Delay
from analyzer.detect.flows import Flows, FlowView, unobserved
from analyzer.detect.held import Held, JobVerdict
from analyzer.detect.latency.floors import Floors, Sensitivity
from analyzer.detect.latency.saved import Saved
from analyzer.detect.latency.slowness import Slowness
from analyzer.detect.loss import Loss
from analyzer.detect.masked import Masked as MaskedFaults
from analyzer.detect.silence import Silence
from analyzer.diagnosis.holders import Holders
from analyzer.diagnosis.incidents import IncidentBook
from analyzer.diagnosis.learning import Learned, News, learn, news_of
from analyzer.diagnosis.rhythms import Rhythms
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathTable
from analyzer.intake.table import NOBODY, Owners, WindowTable, joined
from analyzer.intake.take import Taken, take, take_all
from analyzer.intake.windows import AHEAD_NS, GRACE_NS, Watermarks, WindowState
from analyzer.intent.differences.contract import Difference
from analyzer.localize import overlay, partial, story, walks
from analyzer.localize.absent import Absent
from analyzer.localize.case import Case, OrderedPair, pair_of, unordered
from analyzer.localize.claims import differences, own_findings
from analyzer.localize.contract import Context, Localizer
from analyzer.localize.controllers import Controllers
from analyzer.localize.dead_flows import DeadFlows
from analyzer.localize.facts import Facts
from analyzer.localize.jobs import Jobs
from analyzer.localize.latency import Latency
from analyzer.localize.masked import Masked
from analyzer.localize.observations import WAYS, Observation, Probed, Way, observe
from analyzer.localize.overlay import Overlay
from analyzer.localize.saved import SavedRoutes
from analyzer.localize.starved import Starved
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.traces import Traces
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.tracing.wants import DEADLINE_S as TRACE_DEADLINE_S
from analyzer.localize.tracing.wants import Token
from analyzer.localize.validating.wants import DEADLINE_S as COMPARISON_DEADLINE_S
from analyzer.localize.validating.wants import Look
from analyzer.localize.validation import Validation, comparing
from analyzer.localize.votes import Votes
from analyzer.questions import (
    Ask,
    Asking,
    Failed,
    Question,
    Reply,
    StatusRequest,
    Why,
)
from analyzer.roster.registry import Registry
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.endpoint import Endpoint
from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident, Symptom, Verdict
from netagent.wire.messages import CheckRequest, PathRequest, Service, Summary

LOCALIZERS: tuple[Callable[[Context], Localizer], ...] = (
    Facts, Absent, Masked, Starved, Controllers, Overlay, DeadFlows, Traces, Votes, Latency, Jobs,
    Validation,
)  # fmt: skip
"""In this order: what is stated before what is walked, that before what is traced, that before what
is inferred. What controllers say comes last of what is stated, as hosts know themselves best. Last
of all who asks for what disturbs hosts, where all that left trouble open."""

FEW_NEWS, LEARNED_AT_ONCE = 160, 64
"""Most new paths of a host that are learned together with others', and most hosts of these. Chosen:
of as many, what numpy takes for each call is most; they are learned by the next step in any case.
"""
SETTLE_NS = 3_000_000_000
"""Nanoseconds that an endpoint must be registered before a window to be judged in it. Chosen:
unfinished network stacks lose probes; longer leaves new endpoints unjudged."""
STALLED_MS = 250
"""Milliseconds that an agent stands still from which its lost probes prove nothing. Chosen: half of
the probes' timeout of 500 ms; its answers may then come too late."""
IMPAIRED_NS = 20_000_000_000
"""Nanoseconds after the analyzer's own trouble in which agents' silence tells nothing. Chosen:
twice the longest pause between two attempts of an agent to deliver."""
BACK_NS = 1_000_000_000
"""Nanoseconds by which time goes back, at least, where the analyzer's clock was set. Chosen: what
corrects a clock slowly stays below."""
STORING_NS = 10_000_000_000
"""Nanoseconds for which a window waits for what is being stored. Chosen: a disk that is only busy
is back by then; of one that takes longer it is known, and no silence is told meanwhile."""
STATUS_NS = 2_000_000_000
"""Nanoseconds that an agent may take to answer a status request. Chosen: a host that trains may
need a second for a TLS handshake."""
COUNTS_SHARE, LEAST_SHARE = 0.5, 0.25
"""Share of the time from the first walk of a window that is left to counts where walks took it
before, and of a window what counts need. Chosen: a count takes about a second, and hosts that are
slow to walk may be slow to count."""
HURRIED_NS = 60_000_000_000
"""Nanoseconds for which walks are given that much less. Chosen: what makes them slow lasts, and a
walk that needs the whole window comes to it again."""
YOUNG_NS = 60_000_000_000
"""Nanoseconds after its start for which an agent may be slow to answer. Chosen: a timeout then
means little; longer delays the report of a dead host."""
FINDINGS_NS = 30_000_000_000
"""Nanoseconds that a host's findings may be older than the newest window and still count. Chosen:
some windows, in which a late summary may come."""
FORGET_NS = 600_000_000_000
"""Nanoseconds after which a flow or route that no summary reports is forgotten. Chosen: restarted
agents probe from other ports, and memory stays bounded."""
MAX_NEW_FLOWS = 1 << 18
"""Most flows, endpoints, routes and routers that a host brings in FORGET_NS; its summaries are
refused beyond. Chosen: twice those of eight endpoints in a task of 8,192 whose ways all differ, as
the agent may restart; each takes memory."""
SILENT_FOR_NS = 600_000_000_000
"""Nanoseconds after which an unheard agent counts as gone and no longer as silent. Chosen: its
incident has then been open for minutes."""


@dataclass(frozen=True, slots=True)
class IncidentChanged:
    """An incident was opened, agreed with, revised, confirmed or is over."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class Remark:
    """Something for the log."""

    event: str
    """Name in the past tense."""
    values: Mapping[str, str | int | float] = field(default_factory=dict)
    error: Exception | None = None
    """A bug: a window could not be judged."""


Event = IncidentChanged | Remark


class Observer(Protocol):
    """Looks on while windows are judged; nothing that it does changes a verdict."""

    def wants(self, start_ns: int) -> bool:
        """Return whether to show a window, or a part of one, that was not judged just now."""

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """See a window's flows between `endpoints`, or what came of it once it was seen.

        Windows come in order. Those before a restart come, too, as far as they were read again.
        """

    def expire(self, before_ns: int) -> None:
        """Note that numbers of flows last seen before `before_ns` may soon be other flows'."""


@dataclass(slots=True)
class _Judging:
    """A window under judgement."""

    state: WindowState
    work: Generator[Sequence[Ask], Sequence[Reply], None]
    deadline_ns: int
    """Instant until which the window may wait for answers, to all of its questions together."""
    asked: list[int] = field(default_factory=list)
    """Ids of the questions it waits for, in order."""
    replies: dict[int, Reply] = field(default_factory=dict)
    until_ns: int = 0
    """Instant until which answers to the questions in `asked` count."""
    walks_until_ns: int | None = None
    """Instant until which walks may be answered where they are hurried; None before the first."""


@dataclass(frozen=True, slots=True)
class _Differed:
    """What is known of controllers."""

    differences: tuple[Difference, ...] = ()
    is_young: bool = True
    is_read: bool = False
    """Whether anybody reads one."""


class Diagnosis:
    """Detection, localisation and the life of incidents."""

    _hurried_until_ns = 0
    """Until when walks are given less time than a window has."""
    _to_learn: Mapping[str, News] = {}
    """Hosts with few news of paths, all of one window, which are learned together."""

    def __init__(
        self,
        roster: Registry,
        topology: DeclaredTopology,
        *,
        window_s: int = 5,
        probe_port: int = 18515,
        sensitivity: Sensitivity | None = None,
        missing_after_ns: int = AFTER_NS,
    ) -> None:
        self._roster = roster
        self._holders = Holders()
        self._numbers = FlowNumbers()
        self._topology = LearnedTopology(topology, self._numbers)
        self._width_ns = window_s * 1_000_000_000
        self._windows = Watermarks()
        self._doubts = Doubts(probe_port)
        self._learned = Learned()
        self._context = Context(roster, self._topology, self._doubts, probe_port)
        self._silence, self._slowness = Silence(), Slowness(Floors(sensitivity or Sensitivity()))
        self._delay, self._held = Delay(), Held()
        self._arrival = Arrival(roster, missing_after_ns)
        self._detectors = self._all_detectors()
        self._localizers = tuple(make(self._context) for make in LOCALIZERS)
        self._book = IncidentBook()
        self._masked = IncidentBook()
        """Incidents of masked faults, and of jobs: a component may have another one meanwhile."""
        self._rhythms = Rhythms()
        self._settled_before: frozenset[OrderedPair] = frozenset()
        """Unordered pairs whose losses a finding, walk or trace explained a window ago."""
        self._dead_before: frozenset[OrderedPair] = frozenset()
        """Unordered pairs that ended the newest window dead, and were explained the one before."""
        self._closed: deque[tuple[WindowState, frozenset[str]]] = deque()
        """Windows to judge, with the hosts expected when each was closed."""
        self._judging: _Judging | None = None
        self._wanted: dict[int, Token | Look] = {}
        """Id of a question that outlives its window -> the trace or comparison that it is for."""
        self._next_id = 0
        self._events: deque[Event] = deque()
        self._findings: dict[str, tuple[int, tuple[Finding, ...]]] = {}
        self._differed = _Differed()
        """Where hosts have not what their controllers want, as was said last."""
        self._forgot_ns = 0
        self._impaired_until_ns = 0
        """Instant until which missing summaries may be the analyzer's own fault."""
        self._closing_ns = 0
        """Instant before which no window is closed."""
        self._stepped_ns = 0
        """Instant of the newest step."""
        self._new_flows: Counter[str] = Counter()
        """Host -> flows that it was the first to report since flows were last forgotten."""
        self._arrived_ns: int | None = None
        """Instant since which what came may not be ingested, at the next step; None: all is."""
        self._ingested_ns = 0
        """Instant until which all that came was ingested at the newest step; 0 before it."""
        self.observer: Observer | None = None
        self._observed_ns = -1
        """Start of the newest window that the observer saw."""
        self._late: dict[int, WindowState] = {}
        """What came of such windows since the newest step, by their start."""

    def _all_detectors(self) -> tuple[Detector, ...]:
        return (
            self._silence, self._delay, Loss(), self._slowness, MaskedFaults(), self._arrival,
            self._held,
        )  # fmt: skip

    # --- in -------------------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """Judge only windows that end after `now_ns`; what was ingested before is history.

        Of history, only how long round trips took is learned.
        """
        for state in self._windows.begin(now_ns=now_ns):
            is_wanted = self._is_wanted(state.window.start_ns)
            # What was saved is in it already.
            is_news = state.window.start_ns >= self._slowness.until_ns
            if not is_wanted and not is_news:
                continue
            table = self._of_owners(state)
            if is_wanted:
                self._observe(state, table)
            if is_news:
                nobody = frozenset[str]()
                known = self._known(state)
                nothing = Flows.of((), self._numbers)
                seen = Seen(state, table, nothing, known, nobody, nobody, nobody)
                self._slowness.learn(seen)
        self._arrival.begin(now_ns)
        self._forgot_ns = now_ns
        self.refused(now_ns)  # nobody could deliver until now, and agents wait between two attempts

    def refused(self, now_ns: int) -> None:
        """Note that the analyzer could not store what an agent delivered: it is not silent."""
        self._impaired_until_ns = max(self._impaired_until_ns, now_ns + IMPAIRED_NS)

    def stood_still(self, now_ns: int) -> None:
        """Note that the analyzer did nothing for a while: what came meanwhile is not read yet."""
        self._impaired_until_ns = max(self._impaired_until_ns, now_ns + IMPAIRED_NS)
        self._closing_ns = now_ns + GRACE_NS

    def arriving(self, since_ns: int, now_ns: int) -> None:
        """Note, before a step, that what came since then may not be ingested yet.

        Nobody is late who waits to be stored; where that takes long, the analyzer is.
        """
        if since_ns < now_ns - STORING_NS:
            self.refused(now_ns)
        self._arrived_ns = since_ns

    def baselines(self) -> Saved | None:
        """Return what is known of round trips; None where this is no moment to save it."""
        return self._slowness.save(self._numbers)

    def adopt(self, saved: Saved, now_ns: int) -> None:
        """Take what was saved before a restart, before anything else; LocalProtocolError later."""
        if len(self._numbers):
            raise LocalProtocolError("baselines are adopted before the first summary")
        self._slowness.restore(saved, self._numbers.restore(saved.flows, seen_ns=now_ns))

    def routes_saved(self) -> SavedRoutes | None:
        """Return what traces showed; None before the first step.

        It is as of the newest step: what came later may lie before whoever ingests it.
        """
        self.learn_waiting()
        return self._topology.save(self._ingested_ns) if self._ingested_ns else None

    def adopt_routes(self, saved: SavedRoutes) -> None:
        """Take what traces showed before a restart, before the first summary.

        Raises RemoteProtocolError where it does not agree with itself; then nothing was taken.
        """
        self._topology.adopt(saved)

    def restore(self, incidents: Sequence[Incident], now_ns: int) -> None:
        """Take the incidents that were open before a restart."""
        for book, masked in ((self._book, False), (self._masked, True)):
            theirs = [each for each in incidents if _is_apart(each.verdict) == masked]
            book.restore(theirs, now_ns=now_ns)

    def decoded(self, coming: Sequence[tuple[Summary, int]]) -> list[Taken | None]:
        """Return what `ingest` will take of summaries that come next, and when they were received.

        At once they cost half. None of whom it has to look at by itself.
        """
        some = [
            n
            for n, (summary, now_ns) in enumerate(coming)
            if summary.start_ns <= now_ns + AHEAD_NS
            and self._new_flows[summary.host] <= MAX_NEW_FLOWS
        ]
        taken = take_all([coming[n][0] for n in some], self._numbers, width_ns=self._width_ns)
        found: list[Taken | None] = [None] * len(coming)
        for n, each in zip(some, taken, strict=True):
            found[n] = each
        return found

    def ingest(
        self, summary: Summary, now_ns: int, taken: Taken | None = None, *, may_wait: bool = False
    ) -> Taken:
        """Take a stored summary, received at `now_ns`; return it decoded, as it may be already.

        Its paths `may_wait`, to be learned with others' by `learn_waiting`. Raises
        RemoteProtocolError where it is odd; then nothing of it was taken.
        """
        if self._new_flows[summary.host] > MAX_NEW_FLOWS:
            raise RemoteProtocolError(
                f"more than {MAX_NEW_FLOWS} new flows or routes in ten minutes"
            )
        return self._ingest(summary, now_ns, taken, may_wait=may_wait)

    @contextmanager
    def _counting(self, hosts: Mapping[str, int]) -> Iterator[None]:
        """Charge these hosts with what becomes known meanwhile, each with so much at most."""
        known = self._numbers.known_parts + self._topology.known_parts
        try:
            yield
        finally:
            more = self._numbers.known_parts + self._topology.known_parts - known
            for host, most in hosts.items() if more > 0 else ():  # others may have been forgotten
                self._new_flows[host] += min(more, most)

    def _ingest(
        self, summary: Summary, now_ns: int, taken: Taken | None, *, may_wait: bool
    ) -> Taken:
        is_ahead = summary.start_ns > now_ns + AHEAD_NS
        if taken is None:
            # What such a summary says would outlive all that comes, its flows' numbers too.
            numbers = FlowNumbers() if is_ahead else self._numbers
            with self._counting({summary.host: MAX_NEW_FLOWS}):
                taken = take(summary, numbers, width_ns=self._width_ns)
        findings = self._own_findings(summary) if summary.findings else ()
        self._windows.add(
            taken.rows,
            findings,
            now_ns=now_ns,
            stalled_ms=summary.health.stalled_ms,
        )
        if is_ahead:
            return taken
        start_ns = taken.rows.window.start_ns
        if start_ns <= self._observed_ns and self._is_wanted(start_ns):
            state = self._late.setdefault(start_ns, WindowState(taken.rows.window))
            state.rows[summary.host] = taken.rows
        self._learn(summary.host, taken.paths, summary.start_ns, now_ns, may_wait=may_wait)
        # What a clock that went back since said of the future is no newer for that.
        if not summary.start_ns < self._findings.get(summary.host, (0, ()))[0] <= now_ns:
            self._findings[summary.host] = (summary.start_ns, findings)
        return taken

    def _learn(
        self, host: str, paths: PathTable, wall_ns: int, now_ns: int, *, may_wait: bool
    ) -> None:
        waiting = self._to_learn
        if host in waiting or any(each.wall_ns != wall_ns for each in islice(waiting.values(), 1)):
            self.learn_waiting()
        known = self._learned, self._topology, self._roster
        news = news_of(*known, host, paths, wall_ns=wall_ns, now_ns=now_ns)
        if news is None:
            return
        if (
            not may_wait
            or len(news.rows) > FEW_NEWS
            or self._topology.shows_leaf(news.paths, news.rows[news.mine], self._roster.vtep)
        ):
            self.learn_waiting()  # which others are charged with
            with self._counting({host: MAX_NEW_FLOWS}):
                learn(*known, [news])
            return
        self._to_learn = {**self._to_learn, host: news}
        if len(self._to_learn) >= LEARNED_AT_ONCE:
            self.learn_waiting()

    def learn_waiting(self) -> None:
        """Learn the paths of summaries that were to wait: a step does, too."""
        waiting, self._to_learn = self._to_learn, {}
        if waiting:
            # Who brought what is not known; nobody pays for more than he said himself.
            with self._counting({host: each.parts for host, each in waiting.items()}):
                learn(self._learned, self._topology, self._roster, list(waiting.values()))

    def _own_findings(self, summary: Summary) -> tuple[Finding, ...]:
        containers = {r.endpoint.id.container for r in self._roster.endpoints_of(summary.host)}
        return own_findings(summary, containers)

    def differed(self, differences: Sequence[Difference], *, is_young: bool = False) -> None:
        """Take all that stands between controllers and their hosts; it holds until it is told anew.

        `is_young` says that what is not among them may stand all the same. See
        `analyzer.intent.differences.lasting`.
        """
        self._differed = _Differed(tuple(differences), is_young=is_young, is_read=True)

    def held_up(self, jobs: Sequence[JobVerdict]) -> None:
        """Take all that operators of jobs say; it holds until it is told anew, or too old."""
        self._held.tell(jobs)

    def put_late(self, now_ns: int) -> None:
        """Note that the questions of the newest step were put to agents only now.

        Judging took so long: agents have as much time to answer as otherwise.
        """
        late_ns = max(0, now_ns - self._stepped_ns)
        if self._judging is not None:
            self._judging.until_ns += late_ns
            self._judging.deadline_ns += late_ns
            if self._judging.walks_until_ns is not None:
                self._judging.walks_until_ns += late_ns

    def answer(self, question: int, reply: Reply, now_ns: int) -> None:
        """Take the reply to a question; one that came after its deadline changes nothing."""
        judging = self._judging
        if judging is not None and question in judging.asked:
            judging.replies.setdefault(question, reply)
        elif isinstance(token := self._wanted.pop(question, None), Look):
            endpoints = {r.endpoint.id: r.endpoint for r in self._roster.endpoints()}
            self._context.comparisons.answer(token, reply, endpoints, now_ns=now_ns)
        elif token is not None:
            traced = self._doubts.wants.answer(token, reply, now_ns=now_ns)
            if traced is not None:
                pair = " -> ".join(map(str, traced.pair))
                values = {"pair": pair, "verdict": str(traced.verdict)}
                self._events.append(Remark("pair_traced", values))

    # --- a step ---------------------------------------------------------------------------------

    def step(self, now_ns: int) -> list[Question]:
        """Do what is due; return the questions to put to agents now."""
        if now_ns < self._stepped_ns - BACK_NS:
            self._set_back(now_ns)
        self._stepped_ns = now_ns
        self.learn_waiting()
        for state in self._late.values():
            self._observe(state, self._of_owners(state))
        self._late.clear()
        if now_ns >= self._forgot_ns + FORGET_NS:
            self._forget(now_ns)
        self._ingested_ns = now_ns if self._arrived_ns is None else min(now_ns, self._arrived_ns)
        self._arrived_ns = None
        if now_ns >= self._closing_ns:
            self._close(now_ns, max(self._ingested_ns, now_ns - STORING_NS))
        questions: list[Question] = []
        while self._judging is not None or self._closed:
            if self._judging is None:
                self._judging = self._begin(*self._closed.popleft(), now_ns)
                replies: Sequence[Reply] | None = None
            elif (replies := self._replies(self._judging, now_ns)) is None:
                break
            questions += self._advance(self._judging, replies, now_ns)
        return questions + self._lasting(now_ns)

    def _set_back(self, now_ns: int) -> None:
        """Let nothing wait for a time that was only the analyzer's wrong one."""
        self._windows.set_back(now_ns=now_ns)
        self._learned.set_back(now_ns)
        self._closing_ns = min(self._closing_ns, now_ns + GRACE_NS)
        self._impaired_until_ns = min(self._impaired_until_ns, now_ns + IMPAIRED_NS)
        self._hurried_until_ns = min(self._hurried_until_ns, now_ns + HURRIED_NS)
        self._forgot_ns = min(self._forgot_ns, now_ns)
        if self._judging is not None:
            latest_ns = now_ns + self._width_ns
            self._judging.until_ns = min(self._judging.until_ns, latest_ns)
            self._judging.deadline_ns = min(self._judging.deadline_ns, latest_ns)

    def deadline(self) -> int | None:
        """Return when `step` has something to do even without new input; None: never."""
        judging = [self._judging.until_ns] if self._judging is not None else []
        overdue = self._windows.overdue_ns(self._width_ns)
        closing = [] if overdue is None else [max(overdue, self._closing_ns)]
        return min((*judging, *closing), default=None)

    @property
    def flows(self) -> int:
        """Return the number of known flows."""
        return len(self._numbers)

    @property
    def routes(self) -> int:
        """Return the number of remembered routes, one per direction of a flow."""
        return self._topology.directions

    @property
    def judging(self) -> bool:
        """Whether a window is under judgement, or events wait to be taken."""
        return self._judging is not None or bool(self._events)

    def next_event(self) -> Event | None:
        """Return what changed, oldest first; None if nothing did."""
        return self._events.popleft() if self._events else None

    def _close(self, now_ns: int, arrived_ns: int) -> None:
        if not self._windows.may_close(self._width_ns, now_ns=now_ns):
            return
        expected = self._expected(now_ns)
        if expected:
            self._windows.ensure(self._width_ns, now_ns=now_ns)
        for state in self._windows.close(expected, now_ns=arrived_ns):
            self._closed.append((state, frozenset(expected)))

    def _expected(self, now_ns: int) -> set[str]:
        # A host without endpoints has nothing to probe; its agent may be on its way out.
        agents = map(self._roster.agent, self._roster.hosts_in_use())
        return {
            agent.host
            for agent in agents
            if agent is not None and now_ns - agent.last_seen_ns < SILENT_FOR_NS
        }

    def _begin(self, state: WindowState, expected: frozenset[str], now_ns: int) -> _Judging:
        self._windows.let_go(state.window.start_ns)  # those before it were judged
        return _Judging(state, self._judge(state, expected, now_ns), now_ns + self._width_ns)

    def _replies(self, judging: _Judging, now_ns: int) -> list[Reply] | None:
        """Return the replies that a window waits for; None while it has to wait longer."""
        unanswered = [each for each in judging.asked if each not in judging.replies]
        if unanswered and now_ns < judging.until_ns:
            return None
        late = Failed(Why.TIMEOUT, "timeout")
        return [judging.replies.get(each, late) for each in judging.asked]

    def _advance(
        self, judging: _Judging, replies: Sequence[Reply] | None, now_ns: int
    ) -> list[Question]:
        self._silence.impaired = now_ns < self._impaired_until_ns
        try:
            asks = judging.work.send(replies) if replies is not None else next(judging.work)
        except StopIteration:
            self._judging = None
            return []
        except Exception as error:  # noqa: BLE001 - the next window is worth judging whatever this was
            self._judging = None
            start_ns = judging.state.window.start_ns
            self._events.append(Remark("window_not_judged", {"start_ns": start_ns}, error))
            return []
        judging.until_ns = self._until_ns(judging, asks, now_ns)
        judging.replies = {}
        questions = [self._question(ask, judging.until_ns) for ask in asks]
        judging.asked = [question.id for question in questions]
        return questions if now_ns < judging.until_ns else []

    def _until_ns(self, judging: _Judging, asks: Sequence[Ask], now_ns: int) -> int:
        """Return until when answers to these questions count.

        Walks are asked for before counts, and alone they may take all the time there is: then what
        only counts can tell would stay undecided for as long as one host is slow.
        """
        kinds = {type(ask.request) for ask in asks}
        left_ns = judging.deadline_ns - now_ns
        if kinds <= {StatusRequest}:
            return now_ns + min(left_ns, STATUS_NS)
        if PathRequest in kinds and left_ns < LEAST_SHARE * self._width_ns:
            self._hurried_until_ns = now_ns + HURRIED_NS
        if CheckRequest not in kinds or now_ns >= self._hurried_until_ns:
            return judging.deadline_ns
        if judging.walks_until_ns is None:
            judging.walks_until_ns = judging.deadline_ns - round(COUNTS_SHARE * left_ns)
        return min(judging.walks_until_ns, judging.deadline_ns)

    def _question(self, ask: Ask, deadline_ns: int) -> Question:
        self._next_id += 1
        return Question(self._next_id, ask.host, ask.request, deadline_ns)

    def _lasting(self, now_ns: int) -> list[Question]:
        """Return the questions that outlive their window."""
        due: list[tuple[Token | Look, Ask, float]] = [
            *((token, ask, TRACE_DEADLINE_S) for token, ask in self._doubts.wants.due()),
            *((look, ask, COMPARISON_DEADLINE_S) for look, ask in self._context.comparisons.due()),
        ]
        questions: list[Question] = []
        for token, ask, deadline_s in due:
            questions.append(self._question(ask, now_ns + round(deadline_s * 1e9)))
            self._wanted[questions[-1].id] = token
        return questions

    def _forget(self, now_ns: int) -> None:
        self._forgot_ns = now_ns
        self._new_flows.clear()
        # Windows that wait or are remembered name their flows by numbers, whatever the clock does.
        kept = [state for state, _ in self._closed] + self._windows.recent(1)
        kept += [self._judging.state] if self._judging is not None else []
        oldest_ns = min((state.window.start_ns for state in kept), default=now_ns)
        before_ns = min(now_ns, oldest_ns) - FORGET_NS
        if self.observer is not None:
            self.observer.expire(before_ns)
        gone = self._numbers.recycle(before_ns=before_ns)
        for detector in self._detectors:
            detector.forget(gone)
        self._topology.expire(before_ns=now_ns - FORGET_NS)

    # --- one window -----------------------------------------------------------------------------

    def _judge(
        self, state: WindowState, expected: frozenset[str], now_ns: int
    ) -> Generator[Sequence[Ask], Sequence[Reply], None]:
        seen = self._seen(state, expected, now_ns)
        anomalies: list[Anomaly] = []
        for detector in self._detectors:
            anomalies += yield from detector.detect(seen)
        self._book.saw(_lossy(anomalies), now_ns=now_ns)
        case = self._case(seen, now_ns)
        settled: set[OrderedPair] = set()
        for localizer in self._localizers:
            found = yield from localizer.explain(case)
            case.explain(found)
            if localizer.settles:
                settled |= {unordered(pair_of(v.flow)) for each in found for v in each.flows}
        settled |= case.excused
        # A fault may be mended while its last window is being judged: what is asked then is well
        # already, and the next window begins with what was lost meanwhile.
        unconnected = case.flows.where(case.flows.unconnected)
        dead = {unordered(pair_of(view.flow)) for view in unconnected}
        self._dead_before = self._settled_before & dead - settled
        self._settled_before = frozenset(settled)
        verdicts = [partial.told(each, case, self._topology).verdict for each in case.explained]
        self._rhythms.note(verdicts, seen.flows)
        verdicts = [self._rhythms.told(verdict, state.window) for verdict in verdicts]
        for book, masked in ((self._book, False), (self._masked, True)):
            changed = book.apply(
                [verdict for verdict in verdicts if _is_apart(verdict) == masked],
                over=lambda symptom, subjects: (
                    not self._is_unread(subjects) and self._detector(symptom).over(subjects, seen)
                ),
                now_ns=self._stepped_ns,  # the answers took their time
                task_of=self._task_of,
                host_of=self._host_of,
                tasks_at=self._tasks_at,
                unseen=lambda subjects: (
                    self._is_unread(subjects)
                    or self._held.unread(subjects)
                    or unobserved(subjects, seen.flows, seen.endpoints)
                ),
            )
            self._events.extend(map(IncidentChanged, changed))

    def _is_unread(self, subjects: Collection[Subject]) -> bool:
        """Return whether these are parts of a controller that is not read now, or not yet."""
        parts = [
            each.name
            for each in subjects
            if isinstance(each, Component) and each.kind is Kind.CONTROLLER
        ]
        if self._differed.is_young:
            return bool(parts)
        away = [
            each.hosts
            for each in self._differed.differences
            if each.finding.kind is FindingKind.CONTROLLER_AWAY
        ]
        return any(not hosts or _may_be_of(part, hosts) for part in parts for hosts in away)

    def _detector(self, symptom: Symptom) -> Detector:
        return next(each for each in self._detectors if symptom in each.symptoms)

    def _seen(self, state: WindowState, expected: frozenset[str], now_ns: int) -> Seen:
        agents = self._roster.agents()
        there = {agent.host for agent in agents if agent.registered_ns <= state.window.start_ns}
        young = {agent.host for agent in agents if now_ns < agent.registered_ns + YOUNG_NS}
        known, table = self._known(state), self._of_owners(state)
        owners = self._owners(table)
        between = self._between(table, owners)
        self._show(between, known)
        absent = (expected & there) - state.rows.keys()
        return Seen(
            state,
            table,
            Flows.of_table(between),
            known,
            expected,
            absent=absent,
            delivering={
                agent.host
                for agent in agents
                if agent.host in absent
                # Of a clock that was far ahead for a while it says nothing.
                and state.window.start_ns - self._width_ns <= agent.last_window_ns <= now_ns
            },
            patience=young | self._doubts.wants.busy,
            now_ns=now_ns,
            owners=owners,
        )

    def _of_owners(self, state: WindowState) -> WindowTable:
        """Return a window without the flows that a host reports of another host's endpoints."""
        table = joined(state.window, state.rows, self._numbers)
        owners, _ = self._holders.places(self._roster, self._numbers, table.hosts)
        owner = owners[table.ends[0]]
        return table.only((owner == table.host) | (owner == NOBODY))

    def _known(self, state: WindowState) -> Mapping[EndpointId, Endpoint]:
        """Return the endpoints that were registered throughout the window, or crashed in it."""
        return self._holders.known(self._roster, state.window.start_ns - SETTLE_NS)

    def _owners(self, table: WindowTable) -> Owners:
        """Return the hosts of the endpoints that are known in the window."""
        at_ns = table.rows.window.start_ns - SETTLE_NS
        return self._holders.places(self._roster, self._numbers, table.hosts, at_ns=at_ns)

    def _between(self, table: WindowTable, owners: Owners) -> WindowTable:
        """Return the flows of hosts' known endpoints to known ones."""
        source, target = owners[0][table.ends]
        return table.only((source == table.host) & (target != NOBODY))

    def _is_wanted(self, start_ns: int) -> bool:
        return self.observer is not None and self.observer.wants(start_ns)

    def _observe(self, state: WindowState, table: WindowTable) -> None:
        """Show a window, or what came late of one, to the observer; `table` has its rows."""
        self._show(self._between(table, self._owners(table)), self._known(state))

    def _show(self, between: WindowTable, known: Mapping[EndpointId, Endpoint]) -> None:
        if self.observer is not None:
            self._observed_ns = max(self._observed_ns, between.rows.window.start_ns)
            self.observer.saw(between, known, self._topology)

    def _case(self, seen: Seen, now_ns: int) -> Case:
        state = seen.state
        undecided = self._silence.undecided
        stalled = {host for host, ms in state.stalled_ms.items() if ms > STALLED_MS}
        began = {a.host for a in self._roster.agents() if a.registered_ns > state.window.start_ns}
        return Case(
            state.window,
            seen.endpoints,
            seen.flows,
            tuple(finding for found in state.findings.values() for finding in found),
            self._numbers,
            self._silence.silent,
            self._slowness.slow,
            self._delay.late,
            shared_silence=self._silence.shared,
            clocks=self._silence.clocks,
            absent=self._arrival.missing,
            differences=self._differed.differences,
            jobs=self._held.current,
            is_driven=self._differed.is_read,
            now_ns=now_ns,
            standing=self._book.standing(),
            mute=stalled | began | undecided | self._delay.starved.keys(),
            tired=undecided | (seen.expected - state.rows.keys()),
            healing=self._settled_before | self._dead_before,
        )

    def _task_of(self, pair: OrderedPair) -> str | None:
        record = self._roster.endpoint(pair[0])
        return record.endpoint.task if record is not None else None

    def _tasks_at(self, component: Component) -> set[str]:
        """Return whose a container is, or an endpoint; other parts are many tasks'."""
        if component.kind in {Kind.RANK, Kind.TASK}:
            name = component.name
            return {name if component.kind is Kind.TASK else name.rpartition("/")[0]}
        if component.kind not in {Kind.CONTAINER, Kind.ENDPOINT}:
            return set()
        container = component.name.partition("/")[0]
        known = self._roster.endpoints(vanished=True)
        return {r.endpoint.task for r in known if r.endpoint.id.container == container} - {""}

    def _host_of(self, endpoint: EndpointId) -> str | None:
        record = self._roster.endpoint(endpoint)
        return record.endpoint.host if record is not None else None

    # --- out ------------------------------------------------------------------------------------

    def incidents(self) -> list[Incident]:
        """Return the incidents that are not over, oldest first."""
        known = (*self._book.open(), *self._masked.open())
        return sorted(known, key=lambda incident: (incident.detected_ns, incident.id))

    def findings(self) -> list[Finding]:
        """Return hosts' current findings, those on controllers, and on an undeclared fabric."""
        newest_ns = max((start for start, _ in self._findings.values()), default=0)
        stated = [
            finding
            for start, findings in self._findings.values()
            for finding in findings
            if start > newest_ns - FINDINGS_NS
        ]
        declared = differences(self._topology, (r.endpoint for r in self._roster.endpoints()))
        lasting = [each.finding for each in self._differed.differences if each.lasts]
        return stated + lasting + declared

    def topology(self) -> object:
        """Return the fabric as learned and declared, as plain data."""
        return {
            "links": sorted(self._topology.links()),
            "leaves": self._topology.leaves(),
            "declared_links": sorted(self._topology.declared.links),
            "undeclared_links": sorted(self._topology.undeclared_links()),
            "unseen_links": sorted(self._topology.unseen_links()),
        }

    def diagnose(
        self,
        source: EndpointId,
        target: EndpointId,
        *,
        layers: bool = False,
        service: Service | None = None,
    ) -> Asking[dict[str, object]]:
        """Walk from `source` to `target` and back now; return the walk as plain data.

        What is walked is a probe, or of a `service` the first packet and its reply.

        With `layers` both hosts also compare the copies of their flow tables. `observations` of it
        are those of `analyzer.localize.observations`, of the way there, then of the way back.

        Raises RemoteProtocolError where an endpoint is not known.
        """
        endpoints: dict[EndpointId, Endpoint] = {}
        for key in (source, target):
            record = self._roster.endpoint(key)
            if record is None or not record.live:
                raise RemoteProtocolError(f"no endpoint {key} is registered")
            endpoints[key] = record.endpoint
        pairs = [(source, target), (target, source)]
        packets = (
            {}
            if service is None
            else {pairs[0]: walks.Packet(service), pairs[1]: walks.Packet(service, is_reply=True)}
        )
        reaches, *walked, missing = yield from overlay.reaches_of(
            pairs, (), endpoints, self._context, packets=packets
        )
        compared = (
            (yield from comparing(pairs[0], endpoints, self._context.probe_port)) if layers else ()
        )
        flows = self._newest(() if service else pairs, endpoints)
        bare = [key for key, end in endpoints.items() if not end.bridge]
        incidents = self._book.open()
        told = story.tell(
            pairs,
            reaches,
            missing,
            flows.get(pairs[0], ()),
            self._topology,
            incidents,
            compared,
            bare,
        )
        seen: list[Observation] = []
        for name, pair in zip(WAYS, pairs, strict=True):
            egress, ingress = (ways.get(pair) for ways in walked)
            ends = endpoints[pair[0]], endpoints[pair[1]]
            why, probed = "; ".join(missing), self._probed(flows.get(pair, ()))
            reach, is_probe = reaches.get(pair), service is None
            way = Way(name, *ends, egress, ingress, reach, why, probed, is_probe)
            seen += observe(way, incidents)
        return told | {"observations": list(map(asdict, seen))}

    def _newest(
        self, pairs: Sequence[OrderedPair], endpoints: Mapping[EndpointId, Endpoint]
    ) -> dict[OrderedPair, list[FlowView]]:
        """Return the flows of each pair in the newest window, as its source's host tells them."""
        found: dict[OrderedPair, list[FlowView]] = {pair: [] for pair in pairs}
        hosts = {endpoints[source].host for source, _ in pairs}
        for state in self._windows.recent(1):
            rows = {host: state.rows[host] for host in hosts & state.rows.keys()}
            flows = Flows.of_table(joined(state.window, rows, self._numbers))
            for view in flows.where(flows.between(pairs, ordered=True)):
                found[pair_of(view.flow)].append(view)
        return found

    def _probed(self, flows: Sequence[FlowView]) -> list[Probed]:
        routes = (self._topology.hops(view.flow, reply=False) for view in flows)
        return [
            Probed(view.sent, view.lost, route or ())
            for view, route in zip(flows, routes, strict=True)
        ]


def _is_apart(verdict: Verdict) -> bool:
    return verdict.symptom in {Symptom.MASKED, Symptom.HELD_UP}


def _lossy(anomalies: Sequence[Anomaly]) -> list[Subject]:
    symptoms = Loss.symptoms
    return [anomaly.subject for anomaly in anomalies if anomaly.symptom in symptoms]


def _may_be_of(part: str, hosts: Collection[str]) -> bool:
    """Return whether a part of a controller may be one of these hosts', of which it has a zone."""
    kind, _, name = part.rpartition(" ")
    return kind in {"port", "chassis"} or name in hosts
