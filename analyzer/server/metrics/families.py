# SPDX-License-Identifier: Apache-2.0
"""All metrics that there are, with their labels and the most series that each can have. Pure.

The bound holds whatever the size of the cluster: `docs/metrics.md` lists it, and is held against
this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from analyzer.actions.broker import Step
from analyzer.actions.verbs import Verb
from analyzer.history.figures import LE_S, MAX_GROUPS
from analyzer.intake.totals import MAX_COUNTERS, REASONS
from analyzer.questions import Why
from analyzer.server.asker import KINDS
from analyzer.server.page.sessions import REFUSALS
from netagent.model.endpoint import EndpointState
from netagent.model.finding import FindingKind
from netagent.model.path import Layer
from netagent.model.verdict import IncidentState

WORST = 20
"""Hosts that are named in a family of the worst ones. Chosen: as many as a person looks at."""
MAX_INCIDENTS = 100
"""Active incidents that are named, the newest ones. Chosen: with more, the alert is that there are
so many."""
WORDS = ("right", "wrong", "unjudged")
"""What people call verdicts."""
PERCENTILES = (50, 90, 99, 100)
"""Of what agents cost; the last one is the largest."""
BOUNDS = tuple(map(str, LE_S))
"""Upper bounds of the histogram's buckets but the last, in seconds."""

Kind = Literal["counter", "gauge", "histogram", "info"]
Per = Literal["webhook", "controller"]


@dataclass(frozen=True, slots=True)
class Buckets:
    """One histogram."""

    counts: Sequence[int]
    """By bucket, not cumulated; one more than `BOUNDS`."""
    total_s: float


Row = tuple[Sequence[str], float | Buckets]
"""Values of the labels, and the value; an info's labels are its value, which is 1."""
Samples = Mapping[str, Iterable[Row]]
"""By name of the family; one that is not there does not apply."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    most: int = 1
    """Most series; of a family with `per`, of each of these."""
    per: Per | None = None
    """What an administrator configures as many of as wanted."""


def _counters(**texts: str) -> tuple[Family, ...]:
    return tuple(Family(f"netagent_{name}_total", "counter", text) for name, text in texts.items())


def _gauges(**texts: str) -> tuple[Family, ...]:
    return tuple(Family(f"netagent_{name}", "gauge", text) for name, text in texts.items())


def _events(**texts: str) -> tuple[Family, ...]:
    return tuple(
        Family(f"netagent_webhook_events_{name}_total", "counter", text, ("webhook",), 1, "webhook")
        for name, text in texts.items()
    )


_GROUP = ("task", "source_rail", "target_rail")
_INCIDENT = ("incident", "layer", "severity", "symptom", "component", "runbook")

FAMILIES = (
    Family("netagent_build_info", "info", "The version that runs.", ("version",)),
    # --- what is wrong
    Family(
        "netagent_incident_info", "info",
        f"Active incidents, the newest {MAX_INCIDENTS}; the component is empty where nobody can "
        "tell.", _INCIDENT, MAX_INCIDENTS,
    ),
    Family("netagent_incidents", "gauge", "Incidents kept.", ("state",), len(IncidentState)),
    Family(
        "netagent_verdicts", "gauge", "Of these, how people called the verdict; the layer is empty "
        "where it named nobody.", ("layer", "word"), (len(Layer) + 1) * len(WORDS),
    ),
    Family(
        "netagent_findings", "gauge", "What hosts state about their own parts, and what differs "
        "from the intent of controllers.", ("kind",), len(FindingKind),
    ),
    # --- what probes saw
    Family(
        "netagent_rtt_seconds", "histogram", "Network round trips, both hosts' time taken off.",
        _GROUP, MAX_GROUPS * (len(LE_S) + 3),
    ),
    Family("netagent_probes_sent_total", "counter", "Probes that settled.", _GROUP, MAX_GROUPS),
    Family(
        "netagent_probes_lost_total", "counter", "Of these, those without an answer.", _GROUP,
        MAX_GROUPS,
    ),
    Family(
        "netagent_round_seconds", "gauge", "Mean time between two probes of a flow, in the newest "
        "window.", _GROUP, MAX_GROUPS,
    ),
    Family(
        "netagent_probes_impaired_total", "counter", "Probes that are none, or prove less, by the "
        "agents' own making.", ("reason",), len(REASONS),
    ),
    *_gauges(
        flows="Flows in the newest window judged.",
        flows_path_unknown="Of these, those of which it is not known which way they go.",
    ),
    Family(
        "netagent_rnic_hw_total", "counter", "Growth of RNICs' counters, of all hosts together, in "
        "the driver's unit.", ("counter",), MAX_COUNTERS,
    ),
    *_counters(rnic_hw_omitted="Counters that agents left out, as there were too many."),
    # --- agents
    Family(
        "netagent_agents", "gauge", "Agents: heard within three windows, late, or silent for more "
        "than twelve.", ("state",), 3,
    ),
    Family(
        "netagent_agent_silence_seconds", "gauge", f"Since an agent was last heard: the {WORST} "
        "worst of those that are late or silent.", ("host",), WORST,
    ),
    Family(
        "netagent_agent_cpu_ratio", "gauge", "Share of a core that agents use in a window.",
        ("percentile",), len(PERCENTILES),
    ),
    Family(
        "netagent_agent_resident_memory_bytes", "gauge", "Resident memory of agents.",
        ("percentile",), len(PERCENTILES),
    ),
    Family(
        "netagent_agent_stalled_seconds", "gauge", "Longest time that agents' loops stood still in "
        "a window.", ("percentile",), len(PERCENTILES),
    ),
    Family(
        "netagent_agent_worst_cpu_ratio", "gauge", f"The {WORST} agents that use the most.",
        ("host",), WORST,
    ),
    Family(
        "netagent_agent_worst_resident_memory_bytes", "gauge", f"The {WORST} agents that use the "
        "most.", ("host",), WORST,
    ),
    Family(
        "netagent_agents_shedding", "gauge", "Agents near their limits, by what they leave undone.",
        ("undone",), 3,
    ),
    *_gauges(
        agents_spool_dropped="Summaries that agents threw away since their start, as their spools "
        "were full; of agents that are heard.",
    ),
    # --- who is there
    Family("netagent_endpoints", "gauge", "Registered endpoints.", ("state",), len(EndpointState)),
    Family("netagent_tasks", "gauge", "Tasks, by what is probed.", ("list",), 2),
    *_counters(claims_refused="Claims of endpoints that another host has."),
    # --- what comes in
    *_counters(
        summaries="Summaries stored.",
        duplicates="Summaries that were there already.",
        received_bytes="Bytes of summaries received.",
        bad_summaries="Summaries that could not be used.",
        bad_inventories="Inventories of hosts that could not be used.",
        bad_controllers="What hosts said of controllers that could not be used.",
        bad_unprobed="What hosts said of ports that are no endpoint that could not be used.",
        bad_operators="What hosts said of jobs' operators that could not be used.",
        refused_summaries="Summaries not taken: the disk refused, or judging was behind.",
        registrations="Registrations taken.",
        unreadable_summaries="Stored summaries that were to be read and could not be.",
    ),
    # --- how far behind it is
    *_gauges(
        storing_seconds="That a summary waited at most in the newest minutes until it was stored.",
        judge_late_seconds="Of the step under way.",
        judge_backlog_bytes="Records that wait for the judge.",
        window_age_seconds="Since the newest window judged ended, by hosts' clocks.",
        figures_age_seconds="Since the judge last said what windows add up to.",
        wall_clock_off_seconds="Of the wall clock that was set, against the time that hosts go by.",
    ),
    *_counters(
        windows_judged="Windows judged since the judge started.",
        stood_still="Times that the analyzer stood still.",
        judge_starts="Judges started; the first one included.",
        worker_crashes="Background workers that had to be started again.",
        history_lost="Minutes of history that were not written.",
    ),
    *_gauges(
        start_time_seconds="Unix time of the start.",
        long_polls="Requests that wait for news.",
    ),
    # --- questions
    Family(
        "netagent_questions_total", "counter", "Questions put to agents, and what came of them.",
        ("question", "outcome"), len(KINDS) * (len(Why) + 1),
    ),
    # --- jobs' own operators
    *_counters(
        jobs_not_judged="Looks at a job's operators that failed, by a bug.",
        job_questions_unanswered="Hosts that did not answer with what their ranks recorded.",
        job_records_bytes="Bytes of records that hosts answered with.",
    ),
    # --- the disk
    *_gauges(
        disk_refuses="Whether the disk refuses writes.",
        disk_short="Whether too little is free, and nothing stored may be deleted.",
        disk_free_bytes="Free on the database's disk.",
        rows_set_aside="Rows of the database that no start could read.",
    ),
    *_counters(
        summaries_trimmed_for_space="The oldest ones, deleted because the disk ran short.",
        backups_deleted_for_space="Backups deleted because the disk ran short.",
    ),
    # --- certificates
    Family(
        "netagent_host_certificate_end_timestamp_seconds", "gauge", "When the certificate ends "
        f"that a host showed last, in Unix time: the {WORST} that end first.", ("host",), WORST,
    ),
    *_gauges(
        certificate_end_timestamp_seconds="When this analyzer's certificate ends, in Unix time.",
        certificates_revoked="Certificates in the list of what was revoked.",
        certificates_not_taken="1 while the files of certificates changed and cannot be used.",
        invitations_open="Hosts that were invited and did not enrol yet.",
    ),
    # --- actions
    Family(
        "netagent_actions_total", "counter", "Steps of actions since the start.", ("verb", "step"),
        (len(Verb) + 1) * len(Step),
    ),
    *_gauges(
        actions_breaker_open="1 while nothing is done by itself, until a person closes the breaker."
    ),
    # --- who looks
    Family(
        "netagent_page_refused_total", "counter", "What the page refused: no session, no such "
        "link, another site, too many requests of one name, too many connections.", ("why",),
        len(REFUSALS),
    ),
    # --- who is told
    *_events(
        sent="Events that the receiver took.",
        retried="Attempts that failed, so that another one follows.",
        refused="Events that the receiver did not want.",
        dropped="Events given up for room, each superseded by a later one of its incident.",
    ),
    Family(
        "netagent_webhook_events_waiting", "gauge", "Events that the receiver has not taken.",
        ("webhook",), 1, "webhook",
    ),
    Family(
        "netagent_webhook_oldest_seconds", "gauge", "Since the oldest of these happened; 0 where "
        "there is none.", ("webhook",), 1, "webhook",
    ),
    # --- controllers
    Family(
        "netagent_intent_away", "gauge", "Whether what a controller wants now is not known; of "
        "zones, the share of them.", ("controller",), 1, "controller",
    ),
    Family(
        "netagent_intent_ports", "gauge", "Logical ports that a controller says.", ("controller",),
        1, "controller",
    ),
    Family(
        "netagent_intent_pushed_total", "counter", "What controllers pushed.",
        ("controller", "what"), 3, "controller",
    ),
    *_gauges(
        kubernetes_away="Whether its API cannot be read, in part or at all.",
        kubernetes_pods="Pods of jobs that are there.",
        kubernetes_tasks="Tasks declared from there.",
        kubernetes_tasks_refused="Tasks that cannot be declared, as when others declare their "
        "containers.",
    ),
    *_counters(
        kubernetes_writes="Events and conditions that were taken.",
        kubernetes_writes_refused="Events and conditions that were not, or were too many to wait.",
    ),
)  # fmt: skip


def most_series(*, webhooks: int = 0, controllers: int = 0) -> int:
    """Return the most series that one scrape has, of any cluster."""
    times = {None: 1, "webhook": webhooks, "controller": controllers}
    return sum(family.most * times[family.per] for family in FAMILIES)


class _Gathered(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        for family in FAMILIES:
            if (rows := self._samples.get(family.name)) is not None:
                yield _metric(family, rows)


def registry_of(samples: Samples) -> CollectorRegistry:
    """Return a registry that holds these samples, and nothing of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered(samples))
    return registry


def _metric(family: Family, rows: Iterable[Row]) -> Metric:
    name, text, labels = family.name, family.text, family.labels
    match family.kind:
        case "info":
            info = InfoMetricFamily(name.removesuffix("_info"), text, labels=())
            for values, _ in rows:
                info.add_metric((), dict(zip(labels, values, strict=True)))
            return info
        case "histogram":
            histogram = HistogramMetricFamily(name, text, labels=labels)
            for values, value in rows:
                if isinstance(value, Buckets):
                    histogram.add_metric(values, _cumulated(value), value.total_s)
            return histogram
        case "counter" | "gauge":
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = make(name, text, labels=labels)
            for values, value in rows:
                if not isinstance(value, Buckets):
                    metric.add_metric(values, value)
            return metric


def _cumulated(buckets: Buckets) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*BOUNDS, "+Inf"), buckets.counts, strict=True):
        total += count
        found.append((bound, total))
    return found
