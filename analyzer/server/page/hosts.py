# SPDX-License-Identifier: Apache-2.0
"""Hosts: one, with what its agent says of itself and of its parts; and names that begin so."""

from typing import Any

from msgspec import to_builtins

from analyzer.intake.reports import Report
from analyzer.roster.coverage import SILENT_NS
from analyzer.server import views
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.page import Page
from analyzer.server.page.shown import incidents, short
from analyzer.server.page.unwatched import hosts_of
from analyzer.server.places import places_of
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.finding import Finding
from netagent.model.path import Component, Kind
from netagent.model.verdict import Incident

MAX_LISTED = 200
"""Most names of an answer. Chosen: a list to choose from."""
MAX_INCIDENTS, MAX_ENDPOINTS, MAX_FINDINGS = 50, 512, 256
"""Most of a host that are told. Chosen: more than hosts have; bounds what one that lies costs."""
UNDONE = ("traces of paths", "walks of flow tables", "probes of rare pairs")
"""What an agent leaves undone near its limits, by the level from which on it does."""

Plain = dict[str, Any]


async def host(page: Page, sees: Sight, name: str) -> Plain:
    """Return one host; of what it says of itself, tenants are told nothing.

    Raises Problem where there is none that the caller may see.
    """
    analyzer = page.analyzer
    known = analyzer.registry.agent(name)
    if known is None or name not in hosts_of(analyzer, sees):
        raise Problem(404, f"no host {name!r}", "the list of hosts has those known")
    report = analyzer.reports.of(name)
    records = analyzer.registry.endpoints_of(name)
    mine = [record for record in records if sees.sees(record.endpoint.task) or sees.is_whole]
    concerned = [each for each in incidents(analyzer, sees) if _concerns(analyzer, each, name)]
    told: Plain = {
        "id": name,
        "state": _state(analyzer, name),
        "silent_ms": _silent_ms(analyzer, name),
        "version": None,
        "health": None,
        "limits": None,
        "cost": None,
        "rnics": [],
        "endpoints": [views.endpoint(each, report) for each in mine[:MAX_ENDPOINTS]],
        "findings": [],
        "incidents": [short(analyzer, each) for each in concerned[:MAX_INCIDENTS]],
    }
    if not sees.is_whole:
        return told
    findings = [each for each in await page.findings() if _host_of(each) == name]
    return told | {
        "version": analyzer.uniformity.version(name) or None,
        "health": to_builtins(report.health) if report else None,
        "limits": _limits(report) if report else None,
        "cost": _cost(analyzer, report) if report else None,
        "rnics": _rnics(analyzer, report) if report else [],
        "findings": [views.finding(each) for each in findings[:MAX_FINDINGS]],
    }


def hosts(page: Page, sees: Sight, q: str, limit: int) -> Plain:
    """Return the hosts whose names begin so, in order."""
    analyzer = page.analyzer
    mine = sorted(name for name in hosts_of(analyzer, sees) if name.startswith(q))
    return {
        "hosts": [
            {
                "id": name,
                "state": _state(analyzer, name),
                "silent_ms": _silent_ms(analyzer, name),
                "version": (analyzer.uniformity.version(name) or None) if sees.is_whole else None,
            }
            for name in mine[:limit]
        ],
        "omitted": max(0, len(mine) - limit),
    }


def endpoints(page: Page, sees: Sight, q: str, limit: int) -> Plain:
    """Return the endpoints whose names begin so, in order, to choose from."""
    registry = page.analyzer.registry
    if sees.is_whole:
        records = registry.endpoints()
    else:
        tasks = sorted(task.id for task in registry.tasks() if sees.sees(task.id))
        records = [record for task in tasks for record in registry.endpoints(task)]
    mine = sorted(
        (
            each.endpoint
            for each in records
            if each.endpoint.id.container.startswith(q) or (
                "/" in q and str(each.endpoint.id).startswith(q)
            )
        ),
        key=lambda end: end.id,
    )  # fmt: skip
    told = [{"id": str(end.id), "task": end.task, "host": end.host} for end in mine[:limit]]
    return {"endpoints": told, "omitted": max(0, len(mine) - limit)}


def _silent_ms(analyzer: Analyzer, name: str) -> int | None:
    agent = analyzer.registry.agent(name)
    return max(0, analyzer.clock() - agent.last_seen_ns) // 10**6 if agent is not None else None


def _state(analyzer: Analyzer, name: str) -> str:
    silent_ms = _silent_ms(analyzer, name)
    return "silent" if silent_ms is None or silent_ms * 10**6 >= SILENT_NS else "well"


def _concerns(analyzer: Analyzer, known: Incident, host: str) -> bool:
    component = known.verdict.component
    if component is not None and (
        host in places_of(analyzer, component, known) or _holds(analyzer, host, component)
    ):
        return True
    ends = {end for pair in known.verdict.failing for end in (pair.source, pair.target)}
    records = (analyzer.registry.endpoint(end) for end in ends)
    return any(record is not None and record.endpoint.host == host for record in records)


def _holds(analyzer: Analyzer, host: str, component: Component) -> bool:
    """Return whether a host has a container, of which no pair needs to fail: one that crashed."""
    if component.kind not in {Kind.CONTAINER, Kind.ENDPOINT}:
        return False
    container = component.name.partition("/")[0]
    held = analyzer.registry.endpoints_of(host)
    return any(record.endpoint.id.container == container for record in held)


def _host_of(finding: Finding) -> str:
    return finding.component.name.partition("/")[0]


def _limits(report: Report) -> Plain:
    undone = [what for level, what in enumerate(UNDONE, start=1) if report.health.shed >= level]
    return {"level": report.health.shed, "left_out": ", ".join(undone) or None}


def _cost(analyzer: Analyzer, report: Report) -> Plain:
    health, window_ms = report.health, analyzer.config.window_s * 1000
    return {"cpu_share": health.cpu_ms / window_ms, "rss_bytes": health.rss_kb * 1024}


def _rnics(analyzer: Analyzer, report: Report) -> list[Plain]:
    """Return counters by device: their increase in the newest window, and that by the second."""
    window_s = analyzer.config.window_s
    return [
        {
            "device": device,
            "state": None,
            "counters": {name: [value, value / window_s] for name, value in counters.items()},
        }
        for device, counters in sorted(report.counters.items())
    ]
