# SPDX-License-Identifier: Apache-2.0
"""Nouns as people and scripts read them: flat, ids as text, instants in Unix nanoseconds."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from msgspec import to_builtins

from analyzer.config import Retention
from analyzer.intake.reports import Report
from analyzer.localize.sentences import sentences
from analyzer.roster.registry import Agent, Awaited, Conflict, EndpointRecord
from analyzer.roster.uniformity import Compared
from analyzer.runbooks.pages import Runbooks, runbook_of, runbook_of_finding
from analyzer.server.capacity import Capacity
from analyzer.server.journal import Event
from analyzer.server.receiver import Receiver
from analyzer.skeleton.plans import Plan
from netagent.model.finding import Finding
from netagent.model.task import Task
from netagent.model.verdict import Incident, Pair, Suspect

Plain = dict[str, object]
PAGES = Runbooks()
"""Pages as the repository has them."""


def endpoint(record: EndpointRecord, report: Report | None) -> Plain:
    """Return an endpoint with since when, and with who stamps its probes."""
    e = record.endpoint
    return {
        "id": str(e.id),
        "container": e.id.container,
        "rail": e.id.rail,
        "task": e.task,
        "host": e.host,
        "state": e.state.value if record.live else "gone",
        "address": e.address,
        "mac": e.mac,
        "underlay": e.underlay,
        "rnic": e.rnic,
        "bridge": e.bridge,
        "port": e.port,
        "mtu": e.mtu,
        "bond": e.bond,
        "rdma": asdict(e.rdma) if e.rdma else None,
        "stamps": report.stamps.get(e.id) if report else None,
        "registered_ns": record.registered_ns,
        "since_ns": record.since_ns,
        "deregistered_ns": record.deregistered_ns,
    }


def agent(known: Agent, report: Report | None, *, wall_ns: int) -> Plain:
    """Return an agent with how long it has been silent, and what its newest window says of it."""
    silent_ms = max(0, wall_ns - known.last_seen_ns) // 10**6
    return {
        **asdict(known),
        "silent_ms": silent_ms,
        "window_ns": report.start_ns if report else None,
        "health": to_builtins(report.health) if report else None,
        "rnic_counters": report.counters if report else {},
        "rnic_counters_omitted": report.omitted if report else 0,
    }


def task(
    known: Task,
    records: Sequence[EndpointRecord],
    followed: Plan | None,
    missing: Iterable[Awaited] = (),
) -> Plain:
    """Return a task, with how many of its endpoints are registered and up, and what is probed.

    `missing` are containers of it that should have come long ago.
    """
    return {
        "id": known.id,
        "containers": known.containers,
        "rnics_per_container": known.rnics_per_container,
        "rails": known.rails,
        "hosts": known.hosts,
        "declared": known.declared,
        "source": known.source,
        "endpoints_expected": len(known.containers) * known.rnics_per_container,
        "endpoints_registered": len(records),
        "endpoints_up": sum(record.active for record in records),
        "missing": [
            {"container": each.container, "declared_ns": each.declared_ns} for each in missing
        ],
        "skeleton": known.skeleton,
        "parallelism": asdict(known.parallelism) if known.parallelism else None,
        "list": _list(followed),
    }


def plan(task: str, followed: Plan | None) -> Plain:
    """Return what a task's ping lists follow; groups and edges are lists of endpoints."""
    told: Plain = {"task": task, "list": _list(followed)}
    if followed is None:
        return told | {"version": 0, "since_ns": None, "reason": "not looked at yet"}
    told |= {
        "version": followed.version, "since_ns": followed.since_ns, "reason": followed.reason,
        "source": followed.source,
    }  # fmt: skip
    if followed.used is None:
        return told
    used, found = followed.used, followed.used.skeleton
    names = [str(each) for each in used.ids]
    return told | {
        "confidence": round(found.confidence, 3),
        "dp": found.dp,
        "pp": found.pp,
        "tp": found.tp,
        "ep": found.ep,
        "superset": found.superset,
        "period_s": found.period_s,
        "tick_ms": used.tick_ns // 1_000_000,
        "groups": {
            kind: [[names[row] for row in rows] for rows in groups]
            for kind, groups in found.groups.items()
        },
        "pairs": len(found.edges),
        "edges": [[names[a], names[b]] for a, b in found.edges.tolist()],
    }


def _list(followed: Plan | None) -> str:
    return "skeleton" if followed is not None and followed.used is not None else "basic"


def incident(
    known: Incident,
    *,
    stored: bool = True,
    remarks: Iterable[str] = (),
    runbooks: Runbooks = PAGES,
) -> Plain:
    """Return an incident with its verdict and all evidence; `stored`: a restart would know it.

    `remarks` are what stands beside it, and is no part of the verdict.
    """
    verdict = known.verdict
    return {
        "id": known.id,
        "state": known.state.value,
        "stored": stored,
        "component": str(verdict.component) if verdict.component else None,
        "layer": verdict.layer.value if verdict.layer else None,
        "symptom": verdict.symptom.value,
        "confidence": verdict.confidence,
        "summary": verdict.summary,
        "runbook": runbooks.of(runbook_of(verdict)),
        "detected_ns": known.detected_ns,
        "localized_ns": known.localized_ns,
        "updated_ns": known.updated_ns,
        "recovered_ns": known.recovered_ns,
        "unobserved_ns": known.unobserved_ns,
        "late_ns": known.late_ns,
        "tasks": known.tasks,
        "failing": [_pair(pair) for pair in verdict.failing],
        "healthy": [_pair(pair) for pair in verdict.healthy],
        "alternatives": [_suspect(suspect) for suspect in verdict.alternatives],
        "evidence": sentences(verdict.evidence),
        "remarks": list(remarks),
        "missing": verdict.missing,
        "notes": known.notes,
    }


def event(
    known: Event,
    *,
    stored: bool = True,
    remarks: Iterable[str] = (),
    runbooks: Runbooks = PAGES,
) -> Plain:
    """Return what happened to an incident."""
    told = incident(known.incident, stored=stored, remarks=remarks, runbooks=runbooks)
    return {"seq": known.seq, "event": known.event, "incident": told}


def receiver(known: Receiver, *, wall_ns: int) -> Plain:
    """Return how it stands with a receiver; of its URL only whose it is, as paths hold secrets."""
    outbox, webhook, last = known.outbox, known.webhook, known.last
    return {
        "name": webhook.name,
        "to": known.to,
        "state": known.state,
        "signed": bool(webhook.secret),
        "waiting": outbox.waiting,
        "waiting_bytes": outbox.bytes,
        "oldest_s": round(known.oldest_age_ns(wall_ns) / 1e9, 3),
        **asdict(outbox.counts),
        "last_answer": last.text if last else None,
        "last_ns": known.last_ns,
        "taken_ns": known.taken_ns,
    }


def capacity(known: Capacity, kept: Retention) -> Plain:
    """Return what the analyzer could take, the scarcest resource first."""
    scarcest = known.resources[0] if known.resources else None
    return {
        "rnics": known.rnics,
        "takes": scarcest.takes if scarcest else None,
        "by": scarcest.name if scarcest else None,
        "missing": known.missing,
        "over_s": round(known.over_s, 1),
        "resources": [asdict(each) for each in known.resources],
        "stored_bytes_per_s": round(known.bytes_per_s),
        "history_s": round(known.history_s(most_bytes=kept.bytes, most_s=kept.age_s)),
    }


def compared(known: Compared) -> Plain:
    """Return how parts of one kind compare in one property."""
    kind, model, what = known.aspect
    return {
        "kind": kind.value,
        "model": model,
        "property": what,
        "state": known.state.value,
        "hosts": known.hosts,
        "parts": known.parts,
        "turned": known.turned,
        "values": [asdict(each) for each in known.values],
        "more_values": known.more_values,
        "odd": [asdict(each) for each in known.odd],
        "more_odd": known.more_odd,
    }


def finding(known: Finding, runbooks: Runbooks = PAGES) -> Plain:
    """Return what a host states about its own parts."""
    return {
        "kind": known.kind.value,
        "component": str(known.component),
        "layer": known.component.layer.value,
        "text": known.text,
        "runbook": runbooks.of(runbook_of_finding(known.kind)),
        "wall_ns": known.wall_ns,
        "evidence": known.evidence,
    }


def conflict(known: Conflict) -> Plain:
    """Return the report of an endpoint that two hosts claim."""
    return {**asdict(known), "endpoint": str(known.endpoint)}


def _pair(pair: Pair) -> Plain:
    return {
        "source": str(pair.source),
        "target": str(pair.target),
        "sent": pair.sent,
        "lost": pair.lost,
    }


def _suspect(suspect: Suspect) -> Plain:
    return {
        "component": str(suspect.component),
        "layer": suspect.component.layer.value,
        "score": suspect.score,
        "lost": suspect.lost,
        "crossed": suspect.crossed,
    }
