# SPDX-License-Identifier: Apache-2.0
"""Counters and gauges in Prometheus' text exposition format 0.0.4."""

from collections import Counter
from collections.abc import Iterable

from analyzer.server.analyzer import Analyzer
from netagent.model.endpoint import EndpointState
from netagent.model.verdict import IncidentState

Sample = tuple[dict[str, str], float]
Gauge = tuple[str, str, list[Sample]]
"""Name, help and samples."""

COUNTERS = {
    "summaries": "Summaries stored.",
    "duplicates": "Summaries that were there already.",
    "summary_bytes": "Bytes of summaries received.",
    "bad_summaries": "Summaries that could not be used.",
    "bad_inventories": "Inventories of hosts that could not be used.",
    "bad_controllers": "What hosts said of controllers that could not be used.",
    "bad_unprobed": "What hosts said of ports that are no endpoint that could not be used.",
    "refused_summaries": "Summaries not taken: the disk refused, or judging was behind.",
    "registrations": "Registrations taken.",
    "unreadable_summaries": "Stored summaries that were to be read and could not be.",
}

EVENTS = {
    "sent": "Events that the receiver took.",
    "retried": "Attempts that failed, so that another one follows.",
    "refused": "Events that the receiver did not want.",
    "dropped": "Events given up for room, each superseded by a later one of its incident.",
}


def render(analyzer: Analyzer) -> str:
    """Return the analyzer's metrics."""
    lines: list[str] = []
    for name, text, number in _counters(analyzer):
        lines += _family(f"netagent_{name}_total", "counter", text, [({}, float(number))])
    lines += _family(*_actions(analyzer))
    for name, text, samples in _sent(analyzer):
        lines += _family(f"netagent_{name}_total", "counter", text, samples)
    lines += _family(*_pushed(analyzer))
    gauges = (
        *(*_fleet(analyzer), *_own(analyzer), *_waiting(analyzer), *_kubernetes(analyzer)),
        *_intents(analyzer),
    )
    for name, text, samples in gauges:
        lines += _family(f"netagent_{name}", "gauge", text, samples)
    return "\n".join(lines) + "\n"


def _counters(analyzer: Analyzer) -> list[tuple[str, str, int]]:
    return [
        *((name, text, getattr(analyzer.counters, name)) for name, text in COUNTERS.items()),
        (
            "worker_crashes", "Background workers that had to be started again.",
            analyzer.workers.crashes,
        ),
        ("judge_starts", "Judges started; the first one included.", analyzer.judge.starts),
        (
            "summaries_trimmed_for_space", "The oldest ones, deleted because the disk ran short.",
            analyzer.space.summaries,
        ),
        (
            "backups_deleted_for_space", "Backups deleted because the disk ran short.",
            analyzer.space.backups,
        ),
        *_told(analyzer),
    ]  # fmt: skip


def _actions(analyzer: Analyzer) -> tuple[str, str, str, list[Sample]]:
    """Return what became of actions, by verb and step."""
    counts = sorted(analyzer.acting.counts.items())
    samples = [({"verb": verb, "step": step}, float(n)) for (verb, step), n in counts]
    return "netagent_actions_total", "counter", "Steps of actions since the start.", samples


def _told(analyzer: Analyzer) -> list[tuple[str, str, int]]:
    """Return what became of what Kubernetes is told."""
    kubernetes = analyzer.kubernetes
    if kubernetes is None:
        return []
    return [
        ("kubernetes_writes", "Events and conditions that were taken.", kubernetes.written),
        (
            "kubernetes_writes_refused",
            "Events and conditions that were not, or were too many to wait.",
            kubernetes.refused + kubernetes.teller.dropped,
        ),
    ]


def _kubernetes(analyzer: Analyzer) -> list[Gauge]:
    """Return how it stands with Kubernetes."""
    kubernetes = analyzer.kubernetes
    if kubernetes is None:
        return []
    return [
        (
            "kubernetes_away",
            "Whether its API cannot be read, in part or at all.",
            [({}, float(kubernetes.is_away))],
        ),
        ("kubernetes_pods", "Pods of jobs that are there.", [({}, float(kubernetes.book.pods))]),
        ("kubernetes_tasks", "Tasks declared from there.", [({}, float(kubernetes.tasks))]),
        (
            "kubernetes_tasks_refused",
            "Tasks that cannot be declared, as when others declare their containers.",
            [({}, float(len(kubernetes.clashes)))],
        ),
    ]


def _pushed(analyzer: Analyzer) -> tuple[str, str, str, list[Sample]]:
    """Return what became of what controllers pushed."""
    samples = [
        ({"controller": name, "what": what}, float(each.counts[what]))
        for name, each in analyzer.pushed.items()
        for what in ("whole", "changes", "refused")
    ]
    return "netagent_intent_pushed_total", "counter", "What controllers pushed.", samples


def _intents(analyzer: Analyzer) -> list[Gauge]:
    """Return how it stands with what controllers say should be."""
    intents = analyzer.intents()
    away = [({"controller": each.source}, float(bool(each.away))) for each in intents]
    ports = [({"controller": each.source}, float(len(each.ports))) for each in intents]
    return [
        ("intent_away", "Whether what a controller wants now is not known.", away),
        ("intent_ports", "Logical ports that a controller says.", ports),
    ]


def _sent(analyzer: Analyzer) -> list[Gauge]:
    """Return what became of events for receivers."""
    return [
        (
            f"webhook_events_{name}",
            text,
            [
                ({"webhook": webhook}, float(getattr(receiver.outbox.counts, name)))
                for webhook, receiver in analyzer.mail.receivers.items()
            ],
        )
        for name, text in EVENTS.items()
    ]


def _waiting(analyzer: Analyzer) -> list[Gauge]:
    """Return what waits for receivers."""
    wall_ns = analyzer.clock()
    receivers = analyzer.mail.receivers.items()
    return [
        (
            "webhook_events_waiting",
            "Events that the receiver has not taken.",
            [({"webhook": name}, float(each.outbox.waiting)) for name, each in receivers],
        ),
        (
            "webhook_oldest_seconds",
            "Since the oldest of these happened; 0 where there is none.",
            [({"webhook": name}, each.oldest_age_ns(wall_ns) / 1e9) for name, each in receivers],
        ),
    ]


def _fleet(analyzer: Analyzer) -> list[Gauge]:
    """Return what there is of hosts, endpoints, incidents and tasks."""
    wall_ns = analyzer.clock()
    silent = [
        ({"host": agent.host}, max(0, wall_ns - agent.last_seen_ns) / 1e9)
        for agent in analyzer.registry.agents()
    ]
    states = Counter(r.endpoint.state for r in analyzer.registry.endpoints())
    lives = Counter(i.state for i in analyzer.journal.incidents())
    lists = Counter(
        "basic" if plan.used is None else "skeleton" for plan in analyzer.skeletons.plans().values()
    )
    return [
        ("agent_silence_seconds", "Since the agent was last heard.", silent),
        (
            "endpoints",
            "Registered endpoints.",
            [({"state": s.value}, float(states[s])) for s in EndpointState],
        ),
        (
            "incidents",
            "Incidents kept.",
            [({"state": s.value}, float(lives[s])) for s in IncidentState],
        ),
        (
            "tasks",
            "Tasks, by what is probed.",
            [({"list": kind}, float(lists[kind])) for kind in ("basic", "skeleton")],
        ),
    ]


def _own(analyzer: Analyzer) -> list[Gauge]:
    """Return how the analyzer itself is."""
    late_ns = analyzer.judge.late_ns(analyzer.clock())
    return [
        ("judge_late_seconds", "Of the step under way.", [({}, late_ns / 1e9)]),
        (
            "judge_backlog_bytes",
            "Records that wait for the judge.",
            [({}, float(analyzer.judge.backlog_bytes))],
        ),
        (
            "claims_refused",
            "Claims of endpoints that another host has.",
            [({}, float(analyzer.registry.refused_claims))],
        ),
        (
            "certificate_ends_seconds",
            "Unix time at which this analyzer's certificate ends.",
            [({}, trust.expires_s)] if (trust := analyzer.trust) else [],
        ),
        (
            "certificates_revoked",
            "Certificates in the list of what was revoked.",
            [({}, float(len(trust.revoked)))] if trust else [],
        ),
        (
            "certificates_not_taken",
            "1 while the files of certificates changed and cannot be used.",
            [({}, float(bool(trust.problem)))] if trust else [],
        ),
        (
            "invitations_open",
            "Hosts that were invited and did not enrol yet.",
            [({}, float(len(analyzer.authority.invitations)))] if analyzer.authority else [],
        ),
        (
            "actions_breaker_open",
            "1 while nothing is done by itself, until a person closes the breaker.",
            [({}, float(bool(analyzer.acting.broker.opened)))],
        ),
        (
            "rows_set_aside",
            "Rows of the database that no start could read.",
            [({}, float(analyzer.rows_aside))],
        ),
        (
            "disk_refuses",
            "Whether the disk refuses writes.",
            [({}, float(not analyzer.disk.takes))],
        ),
        (
            "disk_short",
            "Whether too little is free, and nothing stored may be deleted.",
            [({}, float(analyzer.space.is_short))],
        ),
        (
            "wall_clock_off_seconds",
            "Of the wall clock that was set, against the time that hosts go by.",
            [({}, analyzer.steady.off_ns / 1e9)],
        ),
        (
            "storing_seconds",
            "That a summary waited at most in the newest minutes until it was stored.",
            [({}, analyzer.storing_ns() / 1e9)],
        ),
        ("disk_free_bytes", "Free on the database's disk.", _free(analyzer)),
        ("long_polls", "Requests that wait for news.", [({}, float(len(analyzer.waiters)))]),
        ("start_time_seconds", "Unix time of the start.", [({}, analyzer.started_ns / 1e9)]),
    ]


def _free(analyzer: Analyzer) -> list[Sample]:
    room = analyzer.space.room
    return [({}, float(room.free))] if room is not None else []


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.17g}" if inside else f"{name} {value:.17g}")
    return lines


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
