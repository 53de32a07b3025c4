# SPDX-License-Identifier: Apache-2.0
"""Report what happened in some days."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.instants import FORMS, span_of
from analyzer.commands.text import cut, instant, paragraph, table
from analyzer.review.page import html_of
from analyzer.review.report import figures
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer report --since 7d
  netagent-analyzer report --since 2026-11-01 --until 2026-11-08 --json
  netagent-analyzer report --since 30d --html november.html

Incidents that people called wrong (`feedback`) are counted, and count for no
time. NAMED AFTER is from the first loss or slowness that was seen to the name
of the part at fault; when the fault itself began, nobody knows. The links
that lost most and the share of the time that was not judged come from the
history, and need an admin's certificate. What is not probed is as of now.
exit status: 0 there is a report; 2 usage; 3 the analyzer cannot be reached
"""

LEAST_JUDGED = 10
"""Verdicts that people judged below which no share is told. Chosen: of fewer, one is a lot."""
READING_S = 60.0
"""Seconds that the analyzer may take to read the history. Chosen: a quarter of a year is read in
that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--since", metavar="T", default="7d", help=f"{FORMS} (default: 7d)")
    parser.add_argument("--until", metavar="T", help="likewise (default: now)")
    parser.add_argument("--html", metavar="FILE", help="write it as one HTML file")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print or write the report."""
    since_ns, until_ns = span_of(args.since, args.until, now_ns=time.time_ns())
    with Connection(args) as analyzer:
        told = figures(
            analyzer.all("/v1/incidents", "incidents", since=since_ns)["incidents"],
            since_ns=since_ns,
            until_ns=until_ns,
            worst=_worst(analyzer, since_ns, until_ns),
            unprobed=analyzer.all("/v1/endpoints/unprobed", "unprobed")["unprobed"],
        )
    if args.html:
        try:
            Path(args.html).write_text(html_of(told), encoding="utf-8")
        except OSError as error:
            raise ConfigError(args.html, f"cannot be written: {error.strerror}") from error
    if args.json:
        print(json.dumps(told, indent=2))
    elif args.html:
        print(f"written to {args.html}")
    else:
        for line in report(told):
            print(line)
    return 0


def _worst(analyzer: Connection, since_ns: int, until_ns: int) -> Any:
    """Return the links that lost most; None for who may not read them, or of an older analyzer."""
    asked = {"since_ns": since_ns, "until_ns": until_ns}
    try:
        return analyzer.get("/v1/history/worst", wait_s=READING_S, **asked)
    except Refused as error:
        if error.status not in {403, 404}:
            raise
        return None


def report(told: dict[str, Any]) -> Iterator[str]:
    """Yield the report's lines."""
    yield f"from {instant(told['since_ns'])[:16]} to {instant(told['until_ns'])[:16]}, UTC"
    yield ""
    yield from _counted(told["incidents"])
    yield ""
    header = ("SECONDS", "COUNT", "LEAST", "MEDIAN", "P90", "MOST")
    rows = (("named after", told["named_after_s"]), ("recovered after", told["recovered_after_s"]))
    yield from table(header, ([name, *map(_number, each.values())] for name, each in rows))
    for title, name in (("PART AT FAULT", "component"), ("TASK", "task")):
        found = told["parts" if name == "component" else "tasks"]
        if found:
            yield ""
            lines = [(e["incidents"], _number(e["seconds"]), e[name]) for e in found]
            yield from table(("INCIDENTS", "SECONDS", title), lines)
    yield from _links(told["worst"])
    yield from _unwatched(told["unwatched"])
    if told["called_wrong"]:
        yield ""
        yield "called wrong:"
        for each in told["called_wrong"]:
            was = f"; it was {each['component']}" if each["component"] else ""
            note = f": {each['note']}" if each["note"] else ""
            yield from paragraph(f"{each['id']} {each['said']}{was}{note}", "  ", "    ")


def _counted(counts: dict[str, Any]) -> Iterator[str]:
    layers = ", ".join(f"{count} {layer}" for layer, count in counts["by_layer"].items())
    yield f"incidents  {counts['all']}, of which {counts['active']} are not over"
    if layers:
        yield from paragraph(layers, "by layer   ", " " * 11)
    share, judged = counts["right_share"], counts["called_right"] + counts["called_wrong"]
    said = f"{counts['called_right']} right, {counts['called_wrong']} wrong, "
    said += f"{counts['not_judged']} not judged"
    is_told = share is not None and judged >= LEAST_JUDGED
    yield f"by people  {said}" + (f" ({share:.0%} of {judged} right)" if is_told else "")


def _links(worst: list[dict[str, Any]] | None) -> Iterator[str]:
    yield ""
    if worst is None:
        yield "links that lost most: an admin's certificate is needed to read them"
    elif not worst:
        yield "links that lost most: none lost a probe, or nothing is known of that time"
    else:
        rows = (
            (e["lost"], e["sent"], f"{e['share']:.4%}", _us(e.get("rtt_p99_ns")), e["component"])
            for e in worst
        )
        yield from table(("LOST", "OF PROBES", "SHARE", "P99 us", "LINK"), rows)
        yield "(each lost probe counts on all links that it crossed, also on good ones;"
        yield "P99 is the longest of an hour)"


def _us(ns: int | None) -> str:
    return "-" if ns is None else f"{ns / 1e3:.1f}"


def _unwatched(told: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield "not watched:"
    yield from list(_blind(told)) or ["  nothing that is known of"]


def _blind(told: dict[str, Any]) -> Iterator[str]:
    if told["windows_share"] is not None:
        missed, expected = told["windows_missed"], told["windows_expected"]
        since_ns = told["windows_since_ns"]
        since = f" since {instant(since_ns)[:16]}" if since_ns is not None else ""
        share = f"{told['windows_share']:.1%} of the time"
        yield f"  {share}{since}: {missed} of {expected} windows were not judged"
    elif told["windows_expected"] == 0:
        yield "  no window was judged so far that is on disk: they are written after minutes"
    if lost := told["unobserved_incidents"]:
        yield f"  {lost} incidents of which nothing is measured any more"
    for each in told["unprobed_now"]:
        yield cut(f"  {each['count']} x {each['what']}, now: {each['why']}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
