# SPDX-License-Identifier: Apache-2.0
"""Samples of hosts and incidents. However many there are, a scrape has as many series."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from math import ceil

from analyzer.intake.reports import Report
from analyzer.intake.totals import REASONS
from analyzer.review.words import Accuracy
from analyzer.runbooks.pages import runbook_of
from analyzer.server.analyzer import Analyzer
from analyzer.server.metrics.families import MAX_INCIDENTS, PERCENTILES, WORDS, WORST, Row
from netagent.model.endpoint import EndpointState
from netagent.model.verdict import Incident, IncidentState, Symptom

HEARD_WINDOWS, LATE_WINDOWS = 3, 12
"""Windows without a word up to which an agent is heard, and from which on it is silent. Chosen: a
summary comes within two; a minute of the usual windows is what `incidents` calls silent, too."""
UNDONE = ("traces", "walks", "rare-targets")
"""What an agent near its limits leaves undone, by `Health.shed`; each besides those before."""
SEVERITIES = {
    Symptom.UNCONNECTIVITY: "critical",
    Symptom.MASKED: "info",
}
"""Of incidents; of all others it is `warning`."""
Family = tuple[str, list[Row]]


def fleet(analyzer: Analyzer) -> Iterator[Family]:
    """Yield families without their prefix, each with its samples."""
    yield from _agents(analyzer)
    yield from _incidents(analyzer.journal.incidents())
    yield "verdicts", said(analyzer.accuracy())
    states = analyzer.registry.states()
    yield "endpoints", [((state.value,), float(states[state])) for state in EndpointState]
    plans = analyzer.skeletons.plans().values()
    lists = Counter("basic" if plan.used is None else "skeleton" for plan in plans)
    yield "tasks", [((kind,), float(lists[kind])) for kind in ("basic", "skeleton")]
    totals = analyzer.totals
    impaired: list[Row] = [((name,), float(totals.probes[name])) for name in REASONS]
    yield "probes_impaired_total", impaired
    grown = sorted(totals.counters.items())
    yield "rnic_hw_total", [((name,), float(growth)) for name, growth in grown]
    yield "rnic_hw_omitted_total", [((), float(totals.omitted))]


def _agents(analyzer: Analyzer) -> Iterator[Family]:
    wall_ns, width_ns = analyzer.clock(), analyzer.config.window_s * 10**9
    silent = [
        (max(0, wall_ns - agent.last_seen_ns), agent.host) for agent in analyzer.registry.agents()
    ]
    heard_ns, late_ns = HEARD_WINDOWS * width_ns, LATE_WINDOWS * width_ns
    states = Counter(
        "heard" if ns <= heard_ns else "late" if ns <= late_ns else "silent" for ns, _ in silent
    )
    yield "agents", [((state,), float(states[state])) for state in ("heard", "late", "silent")]
    worst = nlargest(WORST, (each for each in silent if each[0] > heard_ns))
    yield "agent_silence_seconds", [((host,), ns / 1e9) for ns, host in worst]
    first = nsmallest(WORST, ((end_s, host) for host, end_s in analyzer.ends.items()))
    yield "host_certificate_end_timestamp_seconds", [((host,), end_s) for end_s, host in first]
    found = ((host, analyzer.reports.of(host)) for ns, host in silent if ns <= late_ns)
    yield from costs({host: report for host, report in found if report is not None}, width_ns)


def costs(reports: dict[str, Report], width_ns: int) -> Iterator[Family]:
    """Yield what agents of hosts cost, by the reports of their newest windows."""
    cpu = {host: each.health.cpu_ms * 1e6 / width_ns for host, each in reports.items()}
    memory = {host: each.health.rss_kb * 1024.0 for host, each in reports.items()}
    stalled = [each.health.stalled_ms / 1e3 for each in reports.values()]
    yield "agent_cpu_ratio", _percentiles(list(cpu.values()))
    yield "agent_resident_memory_bytes", _percentiles(list(memory.values()))
    yield "agent_stalled_seconds", _percentiles(stalled)
    for name, of in (("cpu_ratio", cpu), ("resident_memory_bytes", memory)):
        worst = nlargest(WORST, of.items(), key=lambda item: (item[1], item[0]))
        yield f"agent_worst_{name}", [((host,), value) for host, value in worst]
    levels = Counter(each.health.shed for each in reports.values())
    shedding: list[Row] = [((what,), float(levels[n])) for n, what in enumerate(UNDONE, 1)]
    yield "agents_shedding", shedding
    dropped = sum(max(0, each.health.spool_dropped) for each in reports.values())
    yield "agents_spool_dropped", [((), float(dropped))]


def _percentiles(values: Sequence[float]) -> list[Row]:
    """Return the nearest ranks; none of nothing."""
    ranked = sorted(values)
    if not ranked:
        return []
    ranks = (max(1, ceil(percent * len(ranked) / 100)) for percent in PERCENTILES)
    values = [ranked[rank - 1] for rank in ranks]
    return [((str(p),), value) for p, value in zip(PERCENTILES, values, strict=True)]


def _incidents(incidents: Sequence[Incident]) -> Iterator[Family]:
    lives = Counter(incident.state for incident in incidents)
    yield "incidents", [((state.value,), float(lives[state])) for state in IncidentState]
    active = (each for each in incidents if each.state is not IncidentState.RECOVERED)
    newest = nlargest(MAX_INCIDENTS, active, key=lambda each: (each.detected_ns, each.id))
    yield "incident_info", [(info_of(incident), 1) for incident in newest]


def said(accuracy: Accuracy) -> list[Row]:
    """Return how many verdicts of each layer people called right, wrong, or nothing."""
    tallies = sorted(accuracy.layers.items())
    return [
        ((layer, word), float(getattr(tally, word))) for layer, tally in tallies for word in WORDS
    ]


def info_of(incident: Incident) -> tuple[str, ...]:
    """Return values of the labels of an incident."""
    verdict = incident.verdict
    return (
        incident.id,
        verdict.layer.value if verdict.layer else "",
        SEVERITIES.get(verdict.symptom, "warning"),
        verdict.symptom.value,
        str(verdict.component) if verdict.component else "",
        runbook_of(verdict),
    )
