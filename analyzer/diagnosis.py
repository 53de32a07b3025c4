# SPDX-License-Identifier: Apache-2.0
"""The engine: closes windows, asks agents what only they can tell, and keeps the incidents.

Deciding is pure and elsewhere; here questions go out and answers come in. For each closed window:
silent hosts are asked for their status, facts are settled, pairs that cannot talk are walked
through both hosts' flow tables, and what is left is put to the vote.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from analyzer.detect.latency import LatencyBaselines
from analyzer.detect.loss import FlowView, unconnected_pairs, views
from analyzer.doubts import Doubts, Walked
from analyzer.incidents import IncidentBook
from analyzer.ingest import FlowNumbers, WindowRows, paths_of
from analyzer.localize import facts, overlay, story
from analyzer.localize.claims import differences, own_findings
from analyzer.localize.evidence import Evidence, OrderedPair, pair_of, unordered
from analyzer.localize.facts import settle, unexplained
from analyzer.localize.topology import LearnedTopology
from analyzer.registry import Registry
from analyzer.reports import Report, report_of
from analyzer.voting import Voting
from analyzer.walker import AgentsRpc, Walker
from analyzer.windows import Watermarks, WindowState
from netagent.model.endpoint import Endpoint
from netagent.model.errors import NetAgentError, RemoteProtocolError, Unreachable
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId, FlowId
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.messages import PathColumns, Summary

log = structlog.get_logger()

TICK_S = 0.1
RELEARN_NS = 60_000_000_000
"""Paths that stay the same are still learned this often: endpoints may have moved."""
SETTLE_NS = 3_000_000_000
"""An endpoint is judged only in windows that began this long after it registered."""
STALLED_MS = 250
"""An agent that stood still for longer may have answered after the probes' timeout."""
STATUS_DEADLINE_S = 2.0
"""A host that trains is busy: its agent may need a second for a TLS handshake."""
REFUSED = "refused"
"""How the RPC of an agent that does not run answers: nothing else needs a second look."""
TIMEOUT_WINDOWS = 2
"""A host that does not answer in time is told of after so many windows in a row without it."""
YOUNG_NS = 60_000_000_000
"""An agent that began so lately may still be busy with that."""
MUTE_WINDOWS = 3
"""A host that answers but whose summary so many windows in a row lack is worth an incident."""
FINDINGS_NS = 30_000_000_000
"""A host's findings of a window this much older than the newest say nothing any more."""
FORGET_NS = 600_000_000_000
"""Flows and routes unseen for so long are forgotten: restarted agents probe from other ports."""
SILENT_FOR_NS = 600_000_000_000
"""An agent unheard of for longer is gone, not silent: its incident has been standing since."""


class Engine:
    """Detection, localisation and the life of incidents."""

    def __init__(
        self,
        registry: Registry,
        topology: DeclaredTopology,
        *,
        window_s: int = 5,
        probe_port: int = 18515,
    ) -> None:
        self._registry = registry
        self._topology = LearnedTopology(topology)
        self._probe_port = probe_port
        self._numbers = FlowNumbers()
        self._baselines = LatencyBaselines()
        self._windows = Watermarks()
        self._width_ns = window_s * 1_000_000_000
        self._slow_before: frozenset[FlowId] = frozenset()
        self._missing: Counter[str] = Counter()
        """Windows in a row that lack a host's summary."""
        self._explained_before: set[OrderedPair] = set()
        self._book = IncidentBook(new_id=_incident_id)
        self._doubts = Doubts(probe_port)
        self._voting = Voting(self._topology)
        self._findings: dict[str, tuple[int, tuple[Finding, ...]]] = {}
        self._reports: dict[str, Report] = {}
        self._forgot_ns = 0
        self._paths: dict[str, tuple[tuple[tuple[EndpointId, ...], PathColumns], int]] = {}
        """Host -> path columns last learned, and from which window."""

    # --- in -----------------------------------------------------------------------------------

    def ingest(self, summary: Summary, wall_ns: int) -> None:
        """Take a stored summary, received at `wall_ns`. RemoteProtocolError where it is odd."""
        if summary.width_ns != self._width_ns or summary.start_ns % self._width_ns:
            raise RemoteProtocolError(
                f"window {summary.start_ns} of {summary.width_ns} ns; here all windows are of "
                f"{self._width_ns} ns and aligned: set window_s alike"
            )
        report = report_of(summary)
        rows = self._numbers.decode(summary)
        containers = {r.endpoint.id.container for r in self._registry.endpoints_of(summary.host)}
        findings = own_findings(summary, containers)
        self._windows.add(
            rows,
            findings,
            now_ns=wall_ns,
            stalled_ms=summary.health.stalled_ms,
        )
        self._learn(summary)
        if summary.start_ns >= self._findings.get(summary.host, (0, ()))[0]:
            self._findings[summary.host] = (summary.start_ns, findings)
            self._reports[summary.host] = report

    def _learn(self, summary: Summary) -> None:
        # Most windows bring the same paths as the one before; their bytes tell.
        known = self._paths.get(summary.host)
        block = (summary.endpoints, summary.paths)
        if known is not None and known[0] == block and summary.start_ns < known[1] + RELEARN_NS:
            return
        rows = paths_of(summary)
        if self._topology.learn(rows, self._underlay, wall_ns=summary.start_ns):
            self._paths[summary.host] = (block, summary.start_ns)

    def _underlay(self, endpoint: EndpointId) -> str | None:
        record = self._registry.endpoint(endpoint)
        return record.endpoint.underlay if record is not None else None

    def restore(self, incidents: list[Incident]) -> None:
        """Take the incidents that were stored before the restart."""
        self._book.restore(incidents)

    # --- out ----------------------------------------------------------------------------------

    def incidents(self) -> list[Incident]:
        """Return incidents, open and lately recovered, oldest first."""
        return self._book.all()

    def findings(self) -> list[Finding]:
        """Return what hosts state now, and where the fabric differs from its declaration."""
        newest_ns = max((start for start, _ in self._findings.values()), default=0)
        stated = [
            finding
            for start, findings in self._findings.values()
            for finding in findings
            if start > newest_ns - FINDINGS_NS
        ]
        declared = differences(self._topology, (r.endpoint for r in self._registry.endpoints()))
        return stated + declared

    def report(self, host: str) -> Report | None:
        """Return what the agent of `host` said of itself last."""
        return self._reports.get(host)

    def topology(self) -> object:
        """Return the fabric as learned and declared, as plain data."""
        return {
            "links": sorted(self._topology.links()),
            "leaves": self._topology.leaves(),
            "declared_links": sorted(self._topology.declared.links),
            "undeclared_links": sorted(self._topology.undeclared_links()),
            "unseen_links": sorted(self._topology.unseen_links()),
        }

    # --- the loop -----------------------------------------------------------------------------

    async def run(self, fleet: AgentsRpc, clock: Callable[[], int]) -> None:
        """Close windows as they complete, until cancelled."""
        windows = self._windows
        windows.begin(now_ns=clock())
        self._doubts.ask(fleet, clock)
        while True:
            now_ns = clock()
            if now_ns > self._forgot_ns + FORGET_NS:
                self._forget(now_ns)
            expected = self._expected(now_ns)
            if expected:
                windows.ensure(self._width_ns, now_ns=now_ns)
            for state in windows.close(expected, now_ns=now_ns):
                try:
                    await self._judge(state, expected, fleet, clock)
                except Exception:  # the next window is worth judging whatever this one was
                    log.exception("window_not_judged", start_ns=state.window.start_ns)
            await asyncio.sleep(TICK_S)

    def _forget(self, now_ns: int) -> None:
        self._forgot_ns = now_ns
        self._baselines.forget(self._numbers.recycle(before_ns=now_ns - FORGET_NS))
        self._topology.expire(before_ns=now_ns - FORGET_NS)
        self._reports = {
            host: report
            for host, report in self._reports.items()
            if report.start_ns > now_ns - FORGET_NS
        }

    def _expected(self, now_ns: int) -> set[str]:
        # A host without endpoints has nothing to probe; its agent may be on its way out.
        return {
            agent.host
            for agent in self._registry.agents()
            if now_ns - agent.last_seen_ns < SILENT_FOR_NS
            and any(record.live for record in self._registry.endpoints_of(agent.host))
        }

    async def _judge(
        self,
        state: WindowState,
        expected: set[str],
        fleet: AgentsRpc,
        clock: Callable[[], int],
    ) -> list[Incident]:
        known = {
            agent.host for agent in self._registry.agents()
            if agent.registered_ns <= state.window.start_ns
        }  # fmt: skip
        absent = (expected & known) - state.rows.keys()
        silent, undecided = await self._silent(absent, fleet, now_ns=clock())
        evidence = self._evidence(state, silent)
        lossy = {unordered(pair_of(v.flow)) for v in evidence.flows if v.lost}
        self._book.saw_loss(lossy, now_ns=clock())
        settled = settle(evidence, self._topology)
        rest = unexplained(evidence.flows, settled)
        unknown = self._doubts.walkable(evidence, rest, now_ns=clock())
        walked = await self._walk(evidence, unknown, fleet)
        settled += walked.explained
        rest = unexplained(evidence.flows, settled)
        mute = self._mute(state) | undecided
        tired = undecided | (expected - state.rows.keys())
        traced = self._doubts.settle(evidence, walked, rest, mute=tired, now_ns=clock())
        settled += traced
        rest = self._votable(mute, evidence, unexplained(rest, traced))
        rest = self._doubts.leave(evidence, rest, now_ns=clock())
        standing = self._book.standing()
        voted = await self._voting.on_loss(evidence, rest, standing, walked.missing, fleet)
        unread = bool(walked.missing)
        voted = self._doubts.tell(evidence, voted, unread=unread)
        voted += await self._voting.on_latency(evidence, unexplained(rest, voted), fleet)
        self._explained_before = {
            unordered(pair_of(view.flow)) for each in settled for view in each.flows
        }
        verdicts = [each.verdict for each in (*settled, *voted)]
        changed = self._book.apply(
            verdicts,
            tally=_tally(evidence),
            speaks=lambda host: host in state.rows or host not in expected,
            now_ns=clock(),
            task_of=self._task_of,
        )
        for incident in changed:
            _tell(incident)
        return changed

    def _mute(self, state: WindowState) -> set[str]:
        """Return the hosts whose agents stood still in the window, or began in it."""
        mute = {host for host, ms in state.stalled_ms.items() if ms > STALLED_MS}
        return mute | {
            agent.host
            for agent in self._registry.agents()
            if agent.registered_ns > state.window.start_ns
        }

    def _votable(
        self, mute: set[str], evidence: Evidence, flows: Sequence[FlowView]
    ) -> tuple[FlowView, ...]:
        # What was explained a window ago and is no more has just been healed, and the rest of its
        # losses are in this window. A mute agent could not answer.
        return tuple(
            view
            for view in flows
            if unordered(pair_of(view.flow)) not in self._explained_before
            and not mute & {evidence.endpoints[e].host for e in pair_of(view.flow)}
        )

    async def _silent(
        self, hosts: Iterable[str], fleet: AgentsRpc, *, now_ns: int
    ) -> tuple[dict[str, str], set[str]]:
        """Return how silent hosts answer, and those of which it is too early to tell."""

        async def ask(host: str) -> tuple[str, str | None]:
            try:
                await fleet.status(host, deadline_s=STATUS_DEADLINE_S)
            except Unreachable as error:
                return host, error.reason
            except NetAgentError as error:
                log.warning("status_odd", host=host, error=str(error))
            # It answers: merely late, or never in time.
            return host, facts.MUTE if self._missing[host] >= MUTE_WINDOWS else None

        hosts = sorted(hosts)
        self._missing = Counter({host: self._missing[host] + 1 for host in hosts})
        answers = await asyncio.gather(*(ask(host) for host in hosts))
        silent = {host: reason for host, reason in answers if reason is not None}
        young = {a.host for a in self._registry.agents() if now_ns < a.registered_ns + YOUNG_NS}
        patience = young | self._doubts.tracing
        undecided = {
            host
            for host, reason in silent.items()
            if reason not in {REFUSED, facts.MUTE}
            and (host in patience or self._missing[host] < TIMEOUT_WINDOWS)
        }
        return {host: how for host, how in silent.items() if host not in undecided}, undecided

    def _evidence(self, state: WindowState, silent: Mapping[str, str]) -> Evidence:
        settled_ns = state.window.start_ns - SETTLE_NS
        active = {
            record.endpoint.id: record.endpoint
            for record in self._registry.endpoints()
            if record.active and record.registered_ns <= settled_ns
        }
        crashed = {
            record.endpoint.id: record.endpoint
            for record in self._registry.endpoints()
            if record.live and not record.active
        }
        known = {**crashed, **active}
        flows = [
            view
            for rows in state.rows.values()
            for view in views(rows, self._numbers)
            if _among(view.flow, known) and known[view.flow.source].host == rows.host
        ]
        findings = tuple(f for found in state.findings.values() for f in found)
        return Evidence(state.window, known, tuple(flows), findings, silent, self._slow(state))

    def _slow(self, state: WindowState) -> dict[FlowId, tuple[float, float]]:
        # Two windows in a row: one may be a burst of the task itself.
        now: dict[FlowId, tuple[float, float]] = {}
        for rows in state.rows.values():
            slow = set(self._baselines.judge(rows).tolist())
            now.update(self._shifts(rows, slow))
        twice = {flow: shift for flow, shift in now.items() if flow in self._slow_before}
        self._slow_before = frozenset(now)
        return twice

    def _shifts(self, rows: WindowRows, slow: set[int]) -> dict[FlowId, tuple[float, float]]:
        columns = (rows.flow, rows.mean_ln, rows.min_ns)
        return {
            self._numbers.flow(number): self._baselines.shift_ns(number, mean, least)
            for number, mean, least in zip(*(c.tolist() for c in columns), strict=True)
            if number in slow
        }

    def _task_of(self, pair: OrderedPair) -> str | None:
        record = self._registry.endpoint(pair[0])
        return record.endpoint.task if record is not None else None

    # --- overlay walks ------------------------------------------------------------------------

    async def _walk(
        self, evidence: Evidence, flows: Sequence[FlowView], fleet: AgentsRpc
    ) -> Walked:
        dead = unconnected_pairs(flows)
        pairs = overlay.choose(dead, evidence.endpoints)
        if not pairs:
            return Walked()
        beside = overlay.siblings(pairs, flows)
        asker = Walker(fleet, self._registry, evidence.endpoints, self._probe_port)
        egress = await asker.egress([*pairs, *(p for p in beside if p not in pairs)])
        ingress = await asker.ingress(pairs, egress)
        reaches = overlay.judge(pairs, egress, ingress, evidence.endpoints)
        failing = [v for v in flows if v.lost]
        explained, missing = overlay.explain(reaches, failing, evidence.endpoints)
        return Walked(tuple(explained), (*asker.missing, *missing), reaches, egress)

    async def diagnose(
        self, source: EndpointId, target: EndpointId, fleet: AgentsRpc
    ) -> dict[str, object]:
        """Walk from `source` to `target` and back now; return the walk as plain data.

        Raises RemoteProtocolError where an endpoint is not known.
        """
        endpoints: dict[EndpointId, Endpoint] = {}
        for key in (source, target):
            record = self._registry.endpoint(key)
            if record is None or not record.live:
                raise RemoteProtocolError(f"no endpoint {key} is registered")
            endpoints[key] = record.endpoint
        asker = Walker(fleet, self._registry, endpoints, self._probe_port)
        pairs = [(source, target), (target, source)]
        egress = await asker.egress(pairs)
        reaches = overlay.judge(pairs, egress, await asker.ingress(pairs, egress), endpoints)
        flows = [
            view
            for state in self._windows.recent(1)
            for rows in state.rows.values()
            for view in views(rows, self._numbers)
            if pair_of(view.flow) == pairs[0]
        ]
        return story.tell(pairs, reaches, asker.missing, flows, self._topology, self._book.all())


def _tally(evidence: Evidence) -> Callable[[OrderedPair], tuple[int, int]]:
    sent: Counter[OrderedPair] = Counter()
    lost: Counter[OrderedPair] = Counter()
    for view in evidence.flows:
        pair = unordered(pair_of(view.flow))
        sent[pair] += view.sent
        lost[pair] += view.lost + (view.flow in evidence.slow)
    return lambda pair: (sent[pair], lost[pair])


def _among(flow: FlowId, endpoints: Mapping[EndpointId, Endpoint]) -> bool:
    return flow.source in endpoints and flow.target in endpoints


def _incident_id(now_ns: int) -> str:
    return f"i{now_ns // 1_000_000_000:x}-{secrets.token_hex(2)}"


def _tell(incident: Incident) -> None:
    log.info(
        "incident_changed",
        incident=incident.id,
        state=incident.state.value,
        component=str(incident.verdict.component or "insufficient evidence"),
        symptom=incident.verdict.symptom.value,
        confidence=incident.verdict.confidence,
    )
