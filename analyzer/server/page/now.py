# SPDX-License-Identifier: Apache-2.0
"""The state of it all, in one sentence and in lists."""

from dataclasses import dataclass
from typing import Any

from analyzer.picture.asked import Totals
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.page import Page
from analyzer.server.page.shown import active, recovered, short
from analyzer.server.page.unwatched import hosts_of, silent_hosts, unwatched
from analyzer.server.sight import Sight
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

MAX_INCIDENTS = 200
"""Most incidents that are told. Chosen: some hundred KB; the list of all is another view."""
RECOVERED = 10
STARTING_NS = 30 * 10**9
"""Nanoseconds after the start in which no window is no trouble, besides those it is late by.
Chosen: agents wait ten seconds at most before they come again."""
STALE = 4
"""Windows after which nothing is known of now. Chosen: one that closes late, and some more."""

Plain = dict[str, object]


@dataclass(frozen=True, slots=True)
class State:
    """How it stands."""

    state: str
    """`well`, `incidents`, `blind` (nothing is known of now) or `starting`."""
    line: str
    """One sentence."""


async def now(page: Page, sees: Sight) -> Plain:
    """Return what is wrong, and what is not watched."""
    analyzer, totals = page.analyzer, await _totals(page, sees)
    uncovered = await page.uncovered()
    open_now = active(analyzer, sees)
    found = state(analyzer, sees, totals)
    tasks = sum(sees.sees(task.id) for task in analyzer.registry.tasks())
    rnics = _rnics(analyzer, sees)
    return {
        "at_ns": analyzer.clock(),
        "line": found.line,
        "state": found.state,
        "counts": {
            "hosts": len(hosts_of(analyzer, sees)),
            "rnics": rnics,
            "tasks": tasks,
            "pairs": totals and totals["pairs"],
            "probes_per_s": totals and round(totals["sent"] / (totals["width_ns"] / 1e9)),
            "windows_behind": _behind(analyzer),
        },
        "incidents": [short(analyzer, each) for each in open_now[:MAX_INCIDENTS]],
        "incidents_omitted": max(0, len(open_now) - MAX_INCIDENTS),
        "unwatched": unwatched(analyzer, sees, uncovered, totals),
        "analyzer": analyzer.warnings() if sees.is_whole else [],
        "recovered": [short(analyzer, each) for each in recovered(analyzer, sees)[:RECOVERED]],
    }


async def tick(page: Page, sees: Sight) -> Plain:
    """Return how it stands, alone."""
    found = state(page.analyzer, sees, await _totals(page, sees))
    return {"at_ns": page.analyzer.clock(), "state": found.state, "line": found.line}


async def _totals(page: Page, sees: Sight) -> dict[str, Any] | None:
    try:
        return await page.looks.at(Totals(tasks=sees.patterns))
    except CapabilityMissing:
        return None


def state(analyzer: Analyzer, sees: Sight, totals: dict[str, Any] | None) -> State:
    """Return how it stands; `totals` is what the newest window shows, None where none does."""
    known = active(analyzer, sees)
    urgent = sorted((e for e in known if e.verdict.symptom is not Symptom.MASKED), key=_undecided)
    if known:
        masked = len(known) - len(urgent)
        parts = [f"{len(urgent)} active: {_headline(urgent[0].verdict)}"] if urgent else []
        parts += [f"{masked} masked, which cost no probe"] if masked else []
        return State("incidents", "; ".join(parts))
    width_ns = analyzer.config.window_s * 10**9
    if totals is None:
        young = analyzer.clock() - analyzer.started_ns < STALE * width_ns + STARTING_NS
        if young:
            return State("starting", "No window was judged yet.")
        return State("blind", "Nothing is judged: the judge is away, or no host reports.")
    late_ns = analyzer.clock() - totals["at_ns"] - width_ns
    if late_ns > STALE * width_ns:
        return State("blind", f"The newest window that was judged ended {late_ns // 10**9} s ago.")
    if not totals["pairs"]:
        return State("blind", "Nothing is probed.")
    silent = silent_hosts(analyzer, sees)
    but = f"; nothing is heard of {len(silent)} hosts" if silent else ""
    return State("well", f"All {totals['pairs']:,} pairs that are probed are well{but}.")


def _undecided(known: Incident) -> tuple[bool, bool]:
    """Return what puts an incident behind those that somebody can act on."""
    return known.verdict.component is None, known.state is not IncidentState.CONFIRMED


def _headline(verdict: Verdict) -> str:
    """Return what is at fault and how; a host's own sentence may not say whose it is."""
    part = verdict.component
    is_named = part is None or part.name in verdict.summary
    return verdict.summary if is_named else f"{part}: {verdict.summary}"


def _rnics(analyzer: Analyzer, sees: Sight) -> int:
    if sees.is_whole:
        return analyzer.registry.live()
    tasks = (task.id for task in analyzer.registry.tasks() if sees.sees(task.id))
    return sum(len(analyzer.registry.endpoints(task)) for task in tasks)


def _behind(analyzer: Analyzer) -> int:
    """Return by how many windows judging is late."""
    late_ns = analyzer.judge.late_ns(analyzer.clock()) or analyzer.asker.late_ns
    return late_ns // (analyzer.config.window_s * 10**9)
