# SPDX-License-Identifier: Apache-2.0
"""One incident: its verdict with all evidence, how it went, and what to look at next."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analyzer.localize.sentences import sentences
from analyzer.runbooks.pages import PAGES, Runbooks, runbook_of
from analyzer.server import actions, uniformity, views
from analyzer.server.analyzer import Analyzer
from analyzer.server.page.page import Page
from analyzer.server.page.shown import seen
from analyzer.server.places import hit, places_of
from analyzer.server.problems import Problem
from analyzer.server.sight import Sight
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Layer
from netagent.model.verdict import Incident

MAX_PAIRS = 500
"""Most failing, and healthy, pairs that are told. Chosen: 100 KB."""
MAX_QUOTED = 200
"""Most lines of one walk or trace. Chosen: more than a walk has; bounds what a host says."""
PIECE = 1 << 18
"""Bytes of a recording sent at a time. Chosen: bounds memory per download."""
MAX_TEXT = 2_000
"""Most characters of one line. Chosen: a flow's text fits."""

Plain = dict[str, Any]
Steps = Sequence[tuple[int, str]]
"""How deep each line of a walk stands, and the line."""


def incident(page: Page, sees: Sight, name: str, *, may_fetch: bool = False) -> Plain:
    """Return what a caller may know of an incident. Raises Problem where that is nothing.

    `may_fetch`: the caller may have its recording, which has what hosts said of all tasks.
    """
    analyzer = page.analyzer
    known = analyzer.journal.get(name)
    mine = seen(analyzer, sees, known) if known is not None else None
    if mine is None:
        raise Problem(404, f"no incident {name!r}", "what is not over is in `now`")
    stored, remarks = analyzer.journal.is_stored(name), uniformity.remarks(analyzer, sees, mine)
    pages = analyzer.config.runbooks.pages
    told: Plain = views.incident(mine, stored=stored, remarks=remarks, runbooks=pages)
    omitted = {key: max(0, len(told[key]) - MAX_PAIRS) for key in ("failing", "healthy")}
    return {
        **told,
        **{key: told[key][:MAX_PAIRS] for key in omitted},
        "omitted": omitted,
        "evidence": [text[:MAX_TEXT] for text in sentences(_others(mine))[:MAX_QUOTED]],
        "hit": hit(analyzer, sees, mine),
        "kind": mine.verdict.component.kind.value if mine.verdict.component else None,
        "actions": actions.offered(analyzer, name) if sees.is_whole else [],
        "timeline": _timeline(analyzer, mine),
        "walks": [_walk(each) for each in _of(mine, EvidenceKind.WALK)],
        "traces": [_trace(analyzer, each) for each in _of(mine, EvidenceKind.TRACE)],
        "decide": list(_decide(mine)),
        "commands": list(_commands(analyzer, sees, mine)),
        "runbook": _runbook(runbook_of(mine.verdict), pages),
        "recording": _recording(analyzer, mine, may_fetch=may_fetch) if sees.is_whole else None,
    }


def _timeline(analyzer: Analyzer, known: Incident) -> list[Plain]:
    """Return what happened when, in order, as far as that is kept."""
    found = [
        (known.detected_ns, "something deviated"),
        (known.localized_ns, "what is at fault was told"),
        *(
            (event.seq, f"{event.event}, and announced")
            for event in analyzer.journal.events(0)
            if event.incident.id == known.id
        ),
    ]
    if known.unobserved_ns is not None:
        found.append((known.unobserved_ns, "nothing is measured of it any more"))
    if known.recovered_ns is not None:
        found.append((known.recovered_ns, "it was over"))
    return [{"at_ns": at_ns, "what": what} for at_ns, what in sorted(found)]


def _of(known: Incident, kind: EvidenceKind) -> Iterator[Evidence]:
    for each in known.verdict.evidence:
        if isinstance(each, Evidence) and each.kind is kind:
            yield each


def _others(known: Incident) -> list[Evidence | str]:
    """Return the evidence but for walks and traces, which have places of their own."""
    apart = {EvidenceKind.WALK, EvidenceKind.TRACE}
    return [
        each
        for each in known.verdict.evidence
        if not (isinstance(each, Evidence) and each.kind in apart)
    ]


def _walk(found: Evidence) -> Plain:
    """Return a walk as it was kept: lines, those that stand deeper below their step.

    The last line at the margin is how it ends, and what stands below it explains that.
    """
    values = found.values
    steps = [(int(level), str(text)[:MAX_TEXT]) for level, text in values["steps"]][:MAX_QUOTED]
    last = max((n for n, (level, _) in enumerate(steps) if level == 0), default=0)
    ends = str(values["source"]), str(values["target"])
    return {
        "source": ends[0],
        "target": ends[1],
        "hops": _hops(values, steps, last) if "hops" in values else _bare(steps, last),
        "text": steps[last][1] if steps else "",
        "command": _command("", "diagnose", *ends)["command"],
    }


def _hops(values: Mapping[str, Any], steps: Steps, last: int) -> list[Plain]:
    """Return what the packet met; what explains the end stands with the part that is at fault."""
    met = [(int(line), host, part, action) for line, host, part, action in values["hops"]]
    ends = [*(line for line, *_ in met[1:]), last]
    why = [text for _, text in steps[last + 1 :]]
    return [
        {
            "component": component,
            "action": action,
            "host": host or None,
            "layer": Component.parse(component).layer.value,
            "quote": [text for _, text in steps[line : min(end, last)]]
            + (why if action in {"dropped", "unknown"} else []),
        }
        for (line, host, component, action), end in zip(met, ends, strict=True)
    ][:MAX_QUOTED]


def _bare(steps: Steps, last: int) -> list[Plain]:
    """Return the steps of a walk that was kept without the parts that they are."""
    quotes: list[list[str]] = []
    for n, (level, text) in enumerate(steps):
        if n != last:
            if level == 0 or not quotes:
                quotes.append([])
            quotes[-1].append("  " * max(0, level - 1) + text)
    nothing = {"component": None, "action": None, "host": None, "layer": Layer.OVERLAY.value}
    return [{**nothing, "quote": quote} for quote in quotes]


def _trace(analyzer: Analyzer, found: Evidence) -> Plain:
    """Return what kernels counted of a pair's packets, by stage, and how to count again."""
    values = found.values
    hosts = {
        end: _host_of(analyzer, values[of])
        for end, of in (("sender", "source"), ("receiver", "target"))
    }
    return {
        "source": values["source"],
        "target": values["target"],
        "text": str(values["text"])[:MAX_TEXT],
        "lines": [str(line)[:MAX_TEXT] for line in values["lines"]][:MAX_QUOTED],
        "stages": [
            {"end": end, "host": hosts.get(end), "stage": stage, "packets": packets,
             "p50_ns": took_ns or None}
            for end, stage, packets, took_ns in values.get("stages", [])
        ][:MAX_QUOTED],
        "commands": [
            {"text": f"on {hosts.get(end) or f'the host of the {end}'}: {what}",
             "command": shlex.join(
                 ["netagent", "trace", kind, flow, "--duration", f"{duration_s:g}"]
             )}
            for end, flow, duration_s in values.get("flows", [])
            for kind, what in (("drops", "count again"), ("latency", "how long each stage takes"))
        ],
    }  # fmt: skip


def _host_of(analyzer: Analyzer, name: str) -> str | None:
    """Return where an endpoint is, as far as that is still known."""
    try:
        record = analyzer.registry.endpoint(EndpointId.parse(name))
    except ValueError:
        return None
    return record.endpoint.host if record is not None else None


def _decide(known: Incident) -> Iterator[str]:
    """Yield what would decide between what may be at fault."""
    yield from known.verdict.missing
    suspects = [each.component for each in known.verdict.alternatives[:3]]
    if known.verdict.component is not None:
        suspects = [known.verdict.component, *suspects]
        pairs = [(suspects[0], other) for other in suspects[1:]]
    else:
        pairs = list(combinations(suspects, 2))
    for one, other in pairs:
        yield f"probes that cross {one} and not {other}, and the other way round: which are lost"


def _commands(analyzer: Analyzer, sees: Sight, known: Incident) -> Iterator[Plain]:
    """Yield what a person would run next; names are quoted, as hosts chose some of them."""
    verdict = known.verdict
    yield _command("all that is known of it", "show", known.id)
    if not sees.is_whole:
        return  # the others need an administrator's certificate
    yield _command("say whether the verdict was right, or wrong", "feedback", known.id, "right")
    if verdict.failing:
        worst = max(verdict.failing, key=lambda pair: pair.lost / max(1, pair.sent))
        ends = str(worst.source), str(worst.target)
        yield _command("walk the pair that lost most, now", "diagnose", *ends)
        yield _command("its last hour", "history", "--source", ends[0], "--target", ends[1])
    component = verdict.component
    if component is None:
        return
    yield _command("the component's last hour", "history", "--component", str(component))
    for host in sorted(places_of(analyzer, component, known)):
        if analyzer.registry.agent(host) is None:
            continue
        if component.layer is Layer.OVERLAY:
            yield {"text": f"on {host}: what is wrong with its flow tables",
                   "command": "netagent flows lint"}  # fmt: skip
        if component.layer is Layer.RNIC:
            yield {"text": f"on {host}: its RNICs", "command": "netagent rnics"}
        yield {"text": f"on {host}: what its agent can and cannot do", "command": "netagent doctor"}


def _command(text: str, *words: str) -> Plain:
    return {"text": text, "command": shlex.join(["netagent-analyzer", *words])}


def _recording(analyzer: Analyzer, known: Incident, *, may_fetch: bool) -> Plain | None:
    """Return how to run again what the diagnosis was given, where that was kept."""
    path = recording_of(analyzer, known)
    if not path.is_file():
        return None
    return {
        "command": shlex.join(["netagent-analyzer", "replay", str(path), "--show"]),
        "href": f"/v1/views/incident/{quote(known.id, safe='')}/recording" if may_fetch else None,
        "bytes": path.stat().st_size,
    }


def recording_of(analyzer: Analyzer, known: Incident) -> Path:
    """Return where a recording of an incident is, if there is one."""
    return Path(analyzer.config.database).parent / "recording" / f"{known.id}.recording"


async def recorded(page: Page, name: str) -> AsyncIterator[bytes]:
    """Return what the diagnosis of an incident was given, in pieces. Raises Problem."""
    known = page.analyzer.journal.get(name)
    path = recording_of(page.analyzer, known) if known is not None else None
    try:
        file = await asyncio.to_thread(path.open, "rb") if path is not None else None
    except OSError:
        file = None
    if file is None:
        raise Problem(404, f"no recording of {name!r}", "one is kept of what was certain lately")

    async def pieces(file: BufferedReader) -> AsyncIterator[bytes]:
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece

    return pieces(file)


def _runbook(name: str, pages: Runbooks) -> Plain:
    """Return what to do about it: where the operator has it, or as this analyzer has it."""
    url = pages.of(name)
    is_elsewhere = url.startswith(("https://", "http://"))
    return {
        "title": PAGES[name],
        "href": url if is_elsewhere else f"/static/runbooks/{name}.md",
    }
