# SPDX-License-Identifier: Apache-2.0
"""Where a component is, and which tasks have endpoints there."""

from collections import Counter
from collections.abc import Iterable

from analyzer.server.analyzer import Analyzer
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident

MAX_HIT = 100
"""Most tasks that are named. Chosen: a host has a few, and a controller's port one."""

Plain = dict[str, object]


def places_of(analyzer: Analyzer, component: Component, known: Incident) -> Iterable[str]:
    """Return the switch, or the hosts, where a component is."""
    name = component.name
    if component.kind in {Kind.CONTAINER, Kind.ENDPOINT}:
        container = name.partition("/")[0]
        ends = {end for pair in known.verdict.failing for end in (pair.source, pair.target)}
        records = (
            analyzer.registry.endpoint(end) for end in sorted(ends) if end.container == container
        )
        return {record.endpoint.host for record in records if record is not None}
    if component.kind is Kind.CONTROLLER:
        last = name.rpartition(" ")[2]
        return [last] if analyzer.registry.agent(last) is not None else []
    return [name if component.kind is Kind.SWITCH else name.partition("/")[0]]


def hit(analyzer: Analyzer, sees: Sight, known: Incident) -> list[Plain]:
    """Return the tasks that now have endpoints where an incident's component is.

    A host whose agent says nothing has no failing pair, and so its incident names no task.
    """
    tasks = Counter(each for each in tasks_at(analyzer, known) if sees.sees(each))
    return [{"task": task, "endpoints": count} for task, count in sorted(tasks.items())[:MAX_HIT]]


def tasks_at(analyzer: Analyzer, known: Incident) -> list[str]:
    """Return the task of each endpoint that is now where an incident's component is."""
    component = known.verdict.component
    return [
        record.endpoint.task
        for host in (() if component is None else places_of(analyzer, component, known))
        for record in analyzer.registry.endpoints_of(host)
        if record.endpoint.task
    ]
