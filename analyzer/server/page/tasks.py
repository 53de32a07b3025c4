# SPDX-License-Identifier: Apache-2.0
"""Tasks, and one of them: what it is, what it uses, what was lost, whether it was well."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.detect.arrival import overdue
from analyzer.diagnosis.inquiry import Answer, how_ended
from analyzer.picture.asked import Matrix
from analyzer.server import inquiries, views
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.page import Page
from analyzer.server.page.shown import active, incidents, short
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from analyzer.skeleton.plans import Plan
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident

MAX_TASKS = 2_000
"""Most tasks that are listed. Chosen: 300 KB."""
MAX_NAMED = 4_096
"""Most endpoints that groups of a skeleton name, and containers of a task. Chosen: some 100 KB."""
MAX_INCIDENTS = 50
"""Most incidents of a task that are told, the newest. Chosen: they are read."""
ASKED_NS = 600 * 10**9
"""Nanoseconds for which the answer to an inquiry says something of now. Chosen: the time that it
looks at."""

INNOCENT: Mapping[Answer, bool | None] = {
    Answer.INNOCENT: True, Answer.SUSPECT: False, Answer.CANNOT_TELL: None,
}  # fmt: skip
SAID: Mapping[Answer, str] = {
    Answer.INNOCENT: "innocent", Answer.SUSPECT: "not innocent", Answer.CANNOT_TELL: "cannot tell",
}  # fmt: skip

Plain = dict[str, Any]


def tasks(page: Page, sees: Sight) -> Plain:
    """Return the tasks that a caller may see, in order."""
    analyzer = page.analyzer
    of_task: dict[str, list[Incident]] = defaultdict(list)
    for each in active(analyzer, sees):
        for task in each.tasks:
            of_task[task].append(each)
    mine = [task.id for task in analyzer.registry.tasks() if sees.sees(task.id)]
    told = []
    for task in mine[:MAX_TASKS]:
        records = analyzer.registry.endpoints(task)
        followed = analyzer.skeletons.plan(task)
        used = followed.used if followed is not None else None
        inquired = _inquiry(analyzer, sees, task)
        told.append(
            {
                "id": task,
                "hosts": len({record.endpoint.host for record in records}),
                "endpoints": len(records),
                "list": "basic" if used is None else "skeleton",
                "confidence": round(used.skeleton.confidence, 3) if used is not None else None,
                "incidents": [each.id for each in of_task[task]],
                "at_fault": [_at_fault(each) for each in of_task[task]],
                "innocent": _innocent(inquired),
            }
        )
    return {"tasks": told, "omitted": len(mine) - len(told)}


def _at_fault(known: Incident) -> str | None:
    component = known.verdict.component
    return str(component) if component is not None else None


async def task(page: Page, sees: Sight, name: str, *, may_inquire: bool = False) -> Plain:
    """Return one task. Raises Problem where there is none that the caller may see.

    `may_inquire` is whether the caller may ask whether its network was well.
    """
    analyzer = page.analyzer
    known = analyzer.registry.task(name) if sees.sees(name) else None
    if known is None:
        raise Problem(404, f"no task {name!r}", "the list of tasks has those known")
    records = analyzer.registry.endpoints(name)
    plan = analyzer.skeletons.plan(name)
    late = overdue(
        analyzer.registry.awaited(name),
        now_ns=analyzer.clock(),
        after_ns=analyzer.config.tasks.missing_after_s * 10**9,
    )
    facts = views.task(known, records, plan, late)
    mine = [each for each in incidents(analyzer, sees) if name in each.tasks]
    matrix, series = await asyncio.gather(  # of the judge, and of files
        _matrix(page, sees, name),
        page.series.of_task(name, [str(r.endpoint.id) for r in records]),
    )
    return {
        "id": name,
        "at_ns": analyzer.clock(),
        **{key: facts[key] for key in (
            "rnics_per_container", "rails", "source", "endpoints_expected", "endpoints_registered",
            "endpoints_up", "missing", "parallelism", "list",
        )},
        "declared": known.declared,
        "containers": known.containers[:MAX_NAMED],
        "hosts": sorted({record.endpoint.host for record in records}),
        "skeleton": _skeleton(views.plan(name, plan)) if plan is not None else None,
        "rhythm": _rhythm(plan),
        "matrix": matrix,
        "series": series,
        "incidents": [short(analyzer, each) for each in mine[:MAX_INCIDENTS]],
        "inquiry": _told(_inquiry(analyzer, sees, name)),
        "may_inquire": may_inquire,
    }  # fmt: skip


async def inquire(page: Page, name: str, minutes: int) -> Plain | None:
    """Return whether a task's network was well in the last minutes, as `task` tells it."""
    now_ns = page.analyzer.clock()
    await inquiries.inquire(page.analyzer, name, now_ns - minutes * 60 * 10**9, now_ns)
    return _told(_inquiry(page.analyzer, Sight(), name))


async def _matrix(page: Page, sees: Sight, name: str) -> Plain | None:
    try:
        return await page.looks.at(Matrix(tasks=sees.patterns, within=name))
    except CapabilityMissing:
        return None


def _skeleton(plan: views.Plain) -> Plain:
    """Return what a task's ping lists follow, with as many groups as may be told."""
    names = ("confidence", "dp", "pp", "tp", "ep", "period_s", "reason", "pairs")
    told: Plain = {name: plan.get(name) for name in names}
    if plan.get("superset"):  # who belongs to one replica is unknown, so degrees are, too
        told |= {"dp": None, "ep": None}
    left, groups = MAX_NAMED, dict[str, list[list[str]]]()
    known: Any = plan.get("groups", {})
    for kind, members in known.items():
        groups[kind] = []
        for each in members:
            if len(each) > left:
                break
            left -= len(each)
            groups[kind].append(each)
    omitted = sum(len(known[kind]) - len(groups[kind]) for kind in known)
    return told | {"groups": groups, "groups_omitted": omitted}


def _rhythm(plan: Plan | None) -> Plain | None:
    """Return how long an iteration takes, as its traffic showed; None where it did not."""
    if plan is None or plan.used is None or not plan.used.skeleton.period_s:
        return None
    found = plan.used.skeleton
    return {
        "period_s": round(found.period_s, 3),
        "confidence": round(found.confidence, 3),
        "since_ns": plan.since_ns,
    }


def _inquiry(analyzer: Analyzer, sees: Sight, task: str) -> tuple[int, views.Plain] | None:
    """Return what was answered lately; what it names is no tenant's alone."""
    found = analyzer.inquired.get(task) if sees.is_whole else None
    return found if found is not None and analyzer.clock() - found[0] < ASKED_NS else None


def _innocent(inquired: tuple[int, views.Plain] | None) -> bool | None:
    """Return whether a task was found innocent; None where nobody asked, or nobody can tell."""
    return None if inquired is None else INNOCENT[Answer(str(inquired[1]["answer"]))]


def _told(inquired: tuple[int, views.Plain] | None) -> Plain | None:
    if inquired is None:
        return None
    at_ns, of = inquired
    return {
        "at_ns": at_ns,
        "since_ns": of["since_ns"],
        "until_ns": of["until_ns"],
        "verdict": SAID[Answer(str(of["answer"]))],
        "looked_at": list(_looked_at(of)),
        "against": of["against"],
        "not_looked_at": of["not_looked_at"],
    }


def _looked_at(of: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `netagent-analyzer innocent` prints, too."""
    probed, hosts, windows = len(of["pairs"]), of["hosts"], of["windows"]
    whole = sum(count >= windows for count in hosts.values())
    yield f"{probed:,} of {probed + len(of['unprobed']):,} pairs were probed"
    least = "" if whole == len(hosts) else f", the least {min(hosts.values()):,}"
    yield f"{whole:,} of {len(hosts):,} hosts sent all {windows:,} windows{least}"
    few = f"; loss is below {100 * of['lost_at_most']:.4f} %, 95 % sure" if of["sent"] else ""
    yield f"{of['sent']:,} probes, of which {of['lost']:,} were lost{few}"
    if rtt := of["rtt_us"]:
        told = (f"{name} {rtt[name] / 1e3:.3f} ms" for name in ("median", "p99", "longest"))
        yield f"round trips: {', '.join(told)}"
    for how, count in _items(of["walks"]):
        yield f"{count:,} walks through flow tables: {how_ended(how)}"


def _items(counts: Any) -> list[tuple[str, int]]:
    return sorted(counts.items()) if isinstance(counts, dict) else []
