# SPDX-License-Identifier: Apache-2.0
"""What nothing can be said of, and why: as visible as what is broken."""

from collections.abc import Iterator, Sequence

from analyzer.detect.arrival import overdue
from analyzer.roster.coverage import SILENT_NS, Uncovered
from analyzer.server.analyzer import Analyzer
from analyzer.server.sight import Sight

EXAMPLES = 5
"""Most examples that are named. Chosen: to be read."""
TRACES, WALKS = 1, 2
"""Levels of `Health.shed` from which on paths are not traced, and flow tables not walked."""

Plain = dict[str, object]


def unwatched(
    analyzer: Analyzer, sees: Sight, coverage: Sequence[Uncovered] | None, totals: Plain | None
) -> list[Plain]:
    """Return what is not watched, as far as a caller may know.

    `coverage` are endpoints that nobody probes, None while they are looked for; `totals` what
    `picture` says, None: nothing.
    """
    mine = [each for each in coverage or () if sees.sees(each.record.endpoint.task)]
    found = [
        _silent(analyzer, sees),
        _unprobed(analyzer, sees, mine) if coverage is not None else _looked_for(),
        _missing(analyzer, sees),
        _paths(totals),
        *(_of_whole(analyzer) if sees.is_whole else ()),
    ]
    return [each for each in found if each is not None]


def hosts_of(analyzer: Analyzer, sees: Sight) -> set[str]:
    """Return the hosts that a caller may know: all, or those on which it has endpoints."""
    if sees.is_whole:
        return {agent.host for agent in analyzer.registry.agents()}
    tasks = [task.id for task in analyzer.registry.tasks() if sees.sees(task.id)]
    return {r.endpoint.host for task in tasks for r in analyzer.registry.endpoints(task)}


def silent_hosts(analyzer: Analyzer, sees: Sight) -> list[str]:
    """Return the hosts that nothing is heard of."""
    now_ns, mine = analyzer.clock(), hosts_of(analyzer, sees)
    return [
        agent.host
        for agent in analyzer.registry.agents()
        if agent.host in mine and agent.last_seen_ns + SILENT_NS <= now_ns
    ]


def _item(what: str, why: str, named: Sequence[str], of: int | None, count: int = -1) -> Plain:
    count = len(named) if count < 0 else count
    return {"what": what, "count": count, "of": of, "why": why, "examples": list(named[:EXAMPLES])}


def _silent(analyzer: Analyzer, sees: Sight) -> Plain | None:
    hosts = silent_hosts(analyzer, sees)
    if not hosts:
        return None
    why = f"nothing was heard of them for {SILENT_NS // 10**9} s"
    return _item("hosts silent", why, hosts, len(hosts_of(analyzer, sees)))


def _unprobed(analyzer: Analyzer, sees: Sight, mine: Sequence[Uncovered]) -> Plain | None:
    ports = [
        f"{each.port} on {host}: {each.text}"
        for host, said in (analyzer.unprobed.said.items() if sees.is_whole else ())
        for each in said.state.ports
    ]
    unnamed = sum(
        max(0, said.state.count - len(said.state.ports))
        for said in (analyzer.unprobed.said.values() if sees.is_whole else ())
    )
    named = [*(f"{each.record.endpoint.id}: {each.text}" for each in mine[:EXAMPLES]), *ports]
    if not named and not unnamed:
        return None
    why = "nobody probes these endpoints, or hosts take these ports for none"
    return _item("ports not probed", why, named, None, len(mine) + len(ports) + unnamed)


def _looked_for() -> Plain:
    return {**_item("ports not probed", "they are looked for just now", [], None), "count": None}


def _missing(analyzer: Analyzer, sees: Sight) -> Plain | None:
    after_ns = analyzer.config.tasks.missing_after_s * 10**9
    mine = (each for each in analyzer.registry.awaited() if sees.sees(each.task))
    late = overdue(mine, now_ns=analyzer.clock(), after_ns=after_ns)
    if not late:
        return None
    why = "these containers were declared, and no host has them"
    return _item("endpoints missing", why, [f"{e.container} of {e.task}" for e in late], None)


def _paths(totals: Plain | None) -> Plain | None:
    if totals is None:
        return _item("everything", "no window was judged so far, or the judge is away", [], None, 1)
    if not totals["unknown"]:
        return None
    why = (
        "each packet takes a way of its own in a fabric that sprays"
        if totals["sprays"]
        else "no trace has shown the whole way there and back of these flows"
    )
    examples = [str(each) for each in _list(totals["unknown_examples"])]
    return _item("paths unknown", why, examples, _int(totals["flows"]), _int(totals["unknown"]))


def _of_whole(analyzer: Analyzer) -> Iterator[Plain | None]:
    """Yield what concerns the cluster as a whole."""
    away = dict[str, str]()
    if analyzer.controller is not None:
        away |= analyzer.controller.away
    for name, pushed in analyzer.pushed.items():
        away |= {f"{name}: {part}": why for part, why in pushed.intent.away.items()}
    if away:
        named = [f"{name}: {why}" for name, why in sorted(away.items())]
        yield _item("controller unread", "what should be is not known there", named, None)
    yield from _shed(analyzer)
    silent = [
        agent.host
        for agent in analyzer.registry.agents()
        if analyzer.unprobed.said and agent.host not in analyzer.unprobed.said
    ]
    if silent:
        why = "these hosts do not say which of their ports are no endpoint: older agents"
        yield _item("ports untold", why, silent, len(analyzer.registry.agents()))


def _shed(analyzer: Analyzer) -> Iterator[Plain]:
    """Yield what agents leave undone for lack of CPU."""
    agents = analyzer.registry.agents()
    reports = {agent.host: analyzer.reports.of(agent.host) for agent in agents}
    shed = {host: report.health.shed if report else 0 for host, report in reports.items()}
    for what, least in (("paths not traced", TRACES), ("tables unread", WALKS)):
        named = [host for host, level in shed.items() if level >= least]
        if named:
            yield _item(what, "their agents are near their limits", named, len(agents))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
