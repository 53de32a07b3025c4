# SPDX-License-Identifier: Apache-2.0
"""Incidents as a caller of the page sees them."""

from collections.abc import Iterator
from itertools import islice

from analyzer.server.analyzer import Analyzer
from analyzer.server.places import tasks_at
from analyzer.server.sight import Sight
from netagent.model.ids import EndpointId
from netagent.model.path import Component
from netagent.model.verdict import Incident, IncidentState

MAX_LOOKED = 2_000
"""Most incidents that are looked at for one answer. Chosen: a year has more, and each takes
microseconds, of one that thousands of pairs fail in milliseconds."""

Plain = dict[str, object]


def seen(analyzer: Analyzer, sees: Sight, known: Incident) -> Incident | None:
    """Return what a caller may see of an incident; None where that is nothing."""

    def task_of(endpoint: EndpointId) -> str | None:
        record = analyzer.registry.endpoint(endpoint)
        return record.endpoint.task if record is not None else None

    return sees.incident(known, task_of, lambda of: tasks_at(analyzer, of))


def incidents(analyzer: Analyzer, sees: Sight, state: str | None = None) -> Iterator[Incident]:
    """Yield what a caller may see of incidents, latest first; `state` as the journal takes it.

    Of those that are over, among the newest.
    """
    newest = None if state == "active" else MAX_LOOKED
    for known in islice(analyzer.journal.incidents(state), newest):
        mine = seen(analyzer, sees, known)
        if mine is not None:
            yield mine


def short(analyzer: Analyzer, known: Incident) -> Plain:
    """Return an incident as a line of a list."""
    verdict = known.verdict
    component = verdict.component
    return {
        "id": known.id,
        "state": known.state.value,
        "component": str(component) if component else None,
        "kind": component.kind.value if component else None,
        "layer": verdict.layer.value if verdict.layer else None,
        "symptom": verdict.symptom.value,
        "confidence": verdict.confidence,
        "summary": verdict.summary,
        "detected_ns": known.detected_ns,
        "recovered_ns": known.recovered_ns,
        "unobserved_ns": known.unobserved_ns,
        "tasks": known.tasks,
        "pairs_failing": len(verdict.failing),
        "is_late": known.late_ns > 0,
        "stored": analyzer.journal.is_stored(known.id),
    }


def active(analyzer: Analyzer, sees: Sight) -> list[Incident]:
    """Return the incidents that are not over, latest first."""
    return list(incidents(analyzer, sees, "active"))


def recovered(analyzer: Analyzer, sees: Sight) -> list[Incident]:
    """Return those that are over, the one that ended last first."""
    found = incidents(analyzer, sees, IncidentState.RECOVERED.value)
    return sorted(found, key=lambda each: -(each.recovered_ns or 0))


def of_components(known: list[Incident]) -> dict[Component, list[str]]:
    """Return incidents' ids by what is at fault."""
    found: dict[Component, list[str]] = {}
    for each in known:
        if each.verdict.component is not None:
            found.setdefault(each.verdict.component, []).append(each.id)
    return found
