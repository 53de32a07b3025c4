# SPDX-License-Identifier: Apache-2.0
"""Was it the network? What probes and hosts of a task said, and what nobody looked at.

Most collective operations that time out do so for reasons of their own. An operator who is asked
has to show that the network was well, and how well it was looked at: silence of a monitor proves
nothing. So this counts what there is: windows of each host, probes of each pair, losses, round
trips, findings. It says *innocent* only where nearly all of what could be looked at was.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.chance import at_most, chances
from analyzer.intake.few import filled
from analyzer.intake.flows import MAX_BUCKET, FlowNumbers
from analyzer.localize.claims import own_findings
from netagent.model.errors import RemoteProtocolError
from netagent.model.finding import Finding, FindingKey, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Kind
from netagent.model.verdict import Incident, Symptom
from netagent.wire.histogram import value_of
from netagent.wire.messages import Summary

Pair = tuple[EndpointId, EndpointId]

LEAST_SHARE = 0.9
"""Least share of a host's windows, and of the pairs, that must have been looked at. Chosen: what
stalls a task for the seconds of its time-out lies in a window that was."""
SURE = 0.95
"""Probability with which the true loss is below what is told of it."""
USUAL_LOSS = 0.001
"""Loss that a pair may show and still be well. Chosen: ten times the background of healthy
fabrics."""
BY_CHANCE = 1e-4
"""Probability, over all pairs, that a well one is told as lossy. Chosen: one question in ten
thousand."""
FINDINGS_OF_A_HOST = 256
"""Most different findings of a host that are kept, the first ones. Chosen: four times those of one
window; whoever words each window's anew takes no more memory than that."""
STALLED_NAMED = 3
"""Most hosts that are told each with how long its agent stood still. Chosen: to be read."""
REMARKS = frozenset(
    {FindingKind.UNKNOWN_INPUT, FindingKind.TOPOLOGY_DIFFERS, FindingKind.MISCONFIGURED}
)
"""Findings that say nothing against a network: a setting was the same when the task was well."""


class Answer(StrEnum):
    """What an inquiry ends with."""

    INNOCENT = "innocent"
    """All was well, and nearly all was looked at."""
    SUSPECT = "suspect"
    """Something was not well."""
    CANNOT_TELL = "cannot tell"
    """Nothing was found, and too little was looked at."""


@dataclass(frozen=True, slots=True)
class PairSeen:
    """An ordered pair's probes."""

    pair: Pair
    sent: int
    lost: int
    windows: int
    """Windows in which it was probed."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at, and what it showed."""

    task: str
    since_ns: int
    until_ns: int
    windows: int
    """Windows that lie in that time."""
    hosts: dict[str, int]
    """The task's hosts -> how many of these windows have their summary."""
    unheard: int
    """Windows of which no host sent a summary, as before the task, or the analyzer, began."""
    stalled: dict[str, int]
    """Hosts whose agents stood still in a window -> milliseconds at most."""
    pairs: tuple[PairSeen, ...]
    unprobed: tuple[Pair, ...]
    """Pairs of the ping lists that no window has."""
    sent: int
    lost: int
    refused: int
    lost_at_most: float
    """Share of lost probes that the true one is below, at SURE; 1 where nothing was sent."""
    rtt_us: dict[str, float]
    """Median and p99 of all round trips, and the longest; empty where there is none."""
    findings: tuple[Finding, ...]
    incidents: tuple[Incident, ...]
    walks: dict[str, int]
    """How walks through the flow tables ended -> how many, now; empty where none was made."""
    unanswered: dict[str, int] = field(default_factory=dict)
    """Hosts whose agents were gone, as an incident says -> probes to them that were lost in windows
    of which they sent no summary. No pair's losses have these: nobody was there to answer."""


@dataclass(slots=True)
class Inquiry:
    """Takes the summaries of a time; all instants are Unix nanoseconds."""

    task: str
    since_ns: int
    until_ns: int
    width_ns: int
    endpoints: dict[EndpointId, str]
    """The task's endpoints -> their host."""
    expected: Collection[Pair] = ()
    """Pairs of its ping lists."""
    odd: int = 0
    """Summaries that made no sense."""
    _windows: dict[str, set[int]] = field(default_factory=dict)
    _stalled: dict[str, int] = field(default_factory=dict)
    _sent: Counter[Pair] = field(default_factory=Counter)
    _lost: Counter[Pair] = field(default_factory=Counter)
    _refused: int = 0
    _lossy: dict[Pair, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Probes sent and lost by window, of the windows with losses."""
    _seen: Counter[Pair] = field(default_factory=Counter)
    _histogram: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(MAX_BUCKET + 1, np.int64)
    )
    _longest_ns: int = 0
    _findings: dict[str, dict[FindingKey, Finding]] = field(default_factory=dict)
    """By host."""

    def add(self, summary: Summary) -> None:
        """Take one summary of a host of the task; one that makes no sense is counted."""
        numbers = FlowNumbers()
        try:
            rows = filled(numbers.decode(summary))
        except RemoteProtocolError:
            self.odd += 1
            return
        host = summary.host
        self._windows.setdefault(host, set()).add(summary.start_ns)
        if stalled_ms := summary.health.stalled_ms:
            self._stalled[host] = max(stalled_ms, self._stalled.get(host, 0))
        containers = {end.container for end, at in self.endpoints.items() if at == host}
        held = self._findings.setdefault(host, {})
        for finding in own_findings(summary, containers):
            if finding.key in held or len(held) < FINDINGS_OF_A_HOST:
                held[finding.key] = finding
        flows = [numbers.flow(number) for number in rows.flow.tolist()]
        mine = np.array(
            [self.endpoints.get(f.source) == host and f.target in self.endpoints for f in flows],
            np.bool_,
        )
        probed: set[Pair] = set()
        for n in np.flatnonzero(mine).tolist():
            pair = flows[n].source, flows[n].target
            self._sent[pair] += int(rows.sent[n])
            self._lost[pair] += int(rows.lost[n])
            self._refused += int(rows.refused[n])
            if rows.sent[n]:
                probed.add(pair)
            if rows.lost[n]:
                lossy = self._lossy.setdefault(pair, {})
                sent, lost = lossy.get(summary.start_ns, (0, 0))
                lossy[summary.start_ns] = sent + int(rows.sent[n]), lost + int(rows.lost[n])
        self._seen.update(probed)
        entries = np.repeat(mine, rows.hist_len)
        np.add.at(self._histogram, rows.hist_bucket[entries], rows.hist_count[entries])
        self._longest_ns = max(self._longest_ns, int(rows.max_ns[mine].max(initial=0)))

    def looked(self, incidents: Iterable[Incident], walks: dict[str, int]) -> Looked:
        """Return what was seen; `incidents` are any, of which those of the task and time are."""
        hosts = sorted(set(self.endpoints.values()))
        mine = [i for i in incidents if self._concerns(i, hosts)]
        gone = {_agent_gone(each) for each in mine}
        spared = {pair: self._spared(pair, gone) for pair in self._lossy}
        pairs = [
            PairSeen(pair, count - away[0], self._lost[pair] - away[1], self._seen[pair])
            for pair, count in sorted(self._sent.items())
            if count > (away := spared.get(pair, (0, 0)))[0]
        ]
        sent, lost = sum(each.sent for each in pairs), sum(each.lost for each in pairs)
        unanswered = Counter[str]()
        for (_, target), (_, count) in spared.items():
            unanswered[self.endpoints[target]] += count
        return Looked(
            self.task, self.since_ns, self.until_ns, self._count(),
            {host: len(self._windows.get(host, ())) for host in hosts},
            max(0, self._count() - len(set().union(*self._windows.values()))), self._stalled,
            tuple(pairs), tuple(sorted(p for p in self.expected if not self._sent[p])),
            sent, lost, self._refused,
            at_most(lost, sent, SURE),
            self._rtt(), tuple(f for held in self._findings.values() for f in held.values()),
            tuple(mine), walks, dict(sorted((+unanswered).items())),
        )  # fmt: skip

    def _spared(self, pair: Pair, gone: Collection[str]) -> tuple[int, int]:
        """Return how many probes of a pair were sent and lost while its target's agent was gone."""
        host = self.endpoints[pair[1]]
        if host not in gone:
            return 0, 0
        there = self._windows.get(host, set())
        away = [of for start_ns, of in self._lossy[pair].items() if start_ns not in there]
        return sum(sent for sent, _ in away), sum(lost for _, lost in away)

    def _count(self) -> int:
        """Return how many whole windows lie in the time."""
        return max(0, self.until_ns // self.width_ns - -(-self.since_ns // self.width_ns))

    def _rtt(self) -> dict[str, float]:
        total = int(self._histogram.sum())
        if not total:
            return {}
        below = np.cumsum(self._histogram)

        def quantile(share: float) -> float:
            return value_of(int(np.searchsorted(below, share * (total - 1), side="right"))) / 1e3

        return {
            "median": quantile(0.5), "p99": quantile(0.99), "longest": self._longest_ns / 1e3,
        }  # fmt: skip

    def _concerns(self, incident: Incident, hosts: Sequence[str]) -> bool:
        over_ns = incident.recovered_ns
        if incident.detected_ns > self.until_ns or (over_ns and over_ns < self.since_ns):
            return False
        if incident.verdict.symptom is Symptom.MISSING:
            return False  # a container that never came tells nothing of the network
        component = incident.verdict.component
        named = component is not None and component.name.partition("/")[0] in hosts
        return self.task in incident.tasks or named


def answer(looked: Looked) -> tuple[Answer, list[str], list[str]]:
    """Return what is to be said of it: the answer, what speaks against, what was not looked at."""
    against = [
        f"incident {i.id}: {i.verdict.component or 'insufficient evidence'}, {i.verdict.symptom}"
        + (", over by now" if i.recovered_ns else "")
        for i in looked.incidents
        if not _agent_gone(i)
    ]
    against += [
        f"{_said(each.pair)} lost {each.lost} of {each.sent} probes" for each in lossy(looked.pairs)
    ]
    against += [f"{f.component}: {f.text}" for f in looked.findings if f.kind not in REMARKS]
    against += [
        f"walks through the flow tables: {count} {how_ended(how)}{_BY.get(how, '')}"
        for how, count in sorted(looked.walks.items())
        if how not in ("delivered", "cannot_tell")
    ]
    missing = _missing(looked)
    if against:
        return Answer.SUSPECT, against, missing
    hosts = all(count >= LEAST_SHARE * looked.windows for count in looked.hosts.values())
    known = len(looked.pairs) + len(looked.unprobed)
    pairs = len(looked.pairs) >= LEAST_SHARE * known
    enough = looked.windows and looked.hosts and known and hosts and pairs
    return (Answer.INNOCENT if enough else Answer.CANNOT_TELL), [], missing


def _agent_gone(incident: Incident) -> str:
    """Return the host of which an incident says that its agent is gone, and no more than that.

    It accuses nobody's network: what was not looked at is not known.
    """
    component = incident.verdict.component
    if component is None or component.kind is not Kind.AGENT:
        return ""
    return component.name if incident.verdict.symptom is Symptom.SILENCE else ""


def how_ended(outcome: str) -> str:
    """Return how walks ended, in words."""
    return "of pairs in an active incident" if outcome == "incident" else outcome.replace("_", " ")


_BY = {"refused": "; somebody wants that, `netagent-analyzer diagnose` of the pair says who"}


def lossy(pairs: Sequence[PairSeen]) -> list[PairSeen]:
    """Return pairs that lost more than a well one does by chance."""
    if not pairs:
        return []
    sent, lost = (np.array([getattr(p, name) for p in pairs]) for name in ("sent", "lost"))
    chance = chances(lost, sent, USUAL_LOSS)
    odd = np.flatnonzero((lost > 0) & (chance < BY_CHANCE / len(pairs)))
    return [pairs[n] for n in odd.tolist()]


def _missing(looked: Looked) -> list[str]:
    missing = []
    if not looked.windows:
        missing.append("no whole window lies in that time")
    if not looked.hosts:
        missing.append("no host has an endpoint of the task")
    missing += _unheard(looked)
    missing += [
        f"incident {each.id}: the agent of {host} was gone, and with it who answers probes there"
        for each in looked.incidents
        if (host := _agent_gone(each))
    ]
    missing += [
        f"{count} probes to {host} that were lost meanwhile prove nothing"
        for host, count in looked.unanswered.items()
    ]
    missing += [f"{_said(pair)} was not probed" for pair in looked.unprobed]
    missing += _stalled({host: ms for host, ms in looked.stalled.items() if ms > 0})
    if not looked.walks:
        missing.append("flow tables as they were then: they are read only when asked")
    elif unknown := looked.walks.get("cannot_tell"):
        missing.append(f"flow tables of {unknown} pairs: their hosts could not say")
    return missing


def _unheard(looked: Looked) -> list[str]:
    """Return which windows are missing: those of all hosts once, then what else hosts lack."""
    missing = []
    if looked.hosts and looked.unheard:
        missing.append(
            f"no host sent a summary of {looked.unheard} of the windows: the task, or the "
            "analyzer, may not have been there"
        )
    for host, count in looked.hosts.items():
        if lacks := looked.windows - looked.unheard - count:
            of = "the others" if looked.unheard else "the windows"
            missing.append(f"{host} sent no summary of {lacks} of {of}")
    return missing


def _stalled(stalled: Mapping[str, int]) -> list[str]:
    if len(stalled) <= STALLED_NAMED:
        return [
            f"{host}'s agent stood still for {ms} ms: what it lost meanwhile proves nothing"
            for host, ms in sorted(stalled.items())
        ]
    host = max(sorted(stalled), key=stalled.__getitem__)
    worst = f"that of {host} the longest, for {stalled[host]} ms"
    proves = "what they lost meanwhile proves nothing"
    return [f"agents of {len(stalled)} hosts stood still, {worst}: {proves}"]


def _said(pair: Pair) -> str:
    return f"{pair[0]} -> {pair[1]}"
