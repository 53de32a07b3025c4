# SPDX-License-Identifier: Apache-2.0
"""Samples of how the analyzer itself is, and of whom it tells and listens to."""

from collections import defaultdict
from collections.abc import Iterator

import netagent
from analyzer.server.analyzer import Analyzer
from analyzer.server.metrics.families import Row

RECEIVED = (
    "summaries", "duplicates", "bad_summaries", "bad_inventories",
    "bad_controllers", "bad_unprobed", "bad_operators", "refused_summaries", "registrations",
    "unreadable_summaries",
)  # fmt: skip
"""Names of the analyzer's counters."""
Family = tuple[str, list[Row]]


def own(analyzer: Analyzer) -> Iterator[Family]:
    """Yield families without their prefix, each with its samples."""
    yield "build_info", [((netagent.__version__,), 1)]
    for name, number in _numbers(analyzer):
        yield name, [((), float(number))]
    asked = sorted(analyzer.asker.asked.items())
    yield "questions_total", [(labels, float(count)) for labels, count in asked]
    done = sorted(analyzer.acting.counts.items())
    yield "actions_total", [(labels, float(count)) for labels, count in done]
    refusals = analyzer.sessions.refused.items()
    yield "page_refused_total", [((why,), float(count)) for why, count in refusals]
    yield from _told(analyzer)
    yield from _intents(analyzer)


def _numbers(analyzer: Analyzer) -> Iterator[tuple[str, float]]:
    for name in RECEIVED:
        yield f"{name}_total", getattr(analyzer.counters, name)
    yield "received_bytes_total", analyzer.counters.summary_bytes
    judge, space = analyzer.judge, analyzer.space
    yield "claims_refused_total", analyzer.registry.refused_claims
    yield "stood_still_total", analyzer.asker.stood_still
    yield "judge_starts_total", judge.starts
    yield "jobs_not_judged_total", analyzer.jobs.failed
    yield "job_questions_unanswered_total", analyzer.jobs.unanswered
    yield "job_records_bytes_total", analyzer.jobs.asked_bytes
    yield "worker_crashes_total", analyzer.workers.crashes
    yield "summaries_trimmed_for_space_total", space.summaries
    yield "backups_deleted_for_space_total", space.backups
    yield "storing_seconds", analyzer.storing_ns() / 1e9
    yield "judge_late_seconds", judge.late_ns(analyzer.clock()) / 1e9
    yield "judge_backlog_bytes", judge.backlog_bytes
    yield "wall_clock_off_seconds", analyzer.steady.off_ns / 1e9
    yield "start_time_seconds", analyzer.started_ns / 1e9
    yield "long_polls", len(analyzer.waiters)
    yield "disk_refuses", not analyzer.disk.takes
    yield "disk_short", space.is_short
    if space.room is not None:
        yield "disk_free_bytes", space.room.free
    yield "rows_set_aside", analyzer.rows_aside
    yield "actions_breaker_open", bool(analyzer.acting.broker.opened)
    if (trust := analyzer.trust) is not None:
        yield "certificate_end_timestamp_seconds", trust.expires_s
        yield "certificates_revoked", len(trust.revoked)
        yield "certificates_not_taken", bool(trust.problem)
    if analyzer.authority is not None:
        yield "invitations_open", len(analyzer.authority.invitations)
    if (kubernetes := analyzer.kubernetes) is not None:
        yield "kubernetes_away", kubernetes.is_away
        yield "kubernetes_pods", kubernetes.book.pods
        yield "kubernetes_tasks", kubernetes.tasks
        yield "kubernetes_tasks_refused", len(kubernetes.clashes)
        yield "kubernetes_writes_total", kubernetes.written
        yield "kubernetes_writes_refused_total", kubernetes.refused + kubernetes.teller.dropped


def _told(analyzer: Analyzer) -> Iterator[Family]:
    wall_ns, receivers = analyzer.clock(), analyzer.mail.receivers.items()
    for what in ("sent", "retried", "refused", "dropped"):
        yield (
            f"webhook_events_{what}_total",
            [((name,), float(getattr(each.outbox.counts, what))) for name, each in receivers],
        )
    waiting: list[Row] = [((name,), float(each.outbox.waiting)) for name, each in receivers]
    yield "webhook_events_waiting", waiting
    oldest: list[Row] = [((name,), each.oldest_age_ns(wall_ns) / 1e9) for name, each in receivers]
    yield "webhook_oldest_seconds", oldest


def _intents(analyzer: Analyzer) -> Iterator[Family]:
    # Zones are many intents of one source: their number would be bounded by hosts alone.
    away, ports = defaultdict[str, list[bool]](list), defaultdict[str, int](int)
    for each in analyzer.intents():
        away[each.source].append(bool(each.away))
        ports[each.source] += len(each.ports)
    yield "intent_away", [((name,), sum(each) / len(each)) for name, each in away.items()]
    yield "intent_ports", [((name,), float(count)) for name, count in ports.items()]
    yield (
        "intent_pushed_total",
        [
            ((name, what), float(each.counts[what]))
            for name, each in analyzer.pushed.items()
            for what in ("whole", "changes", "refused")
        ],
    )
