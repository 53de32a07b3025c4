# SPDX-License-Identifier: Apache-2.0
"""List incidents."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.instants import FORMS, instant_of
from analyzer.commands.text import paragraph, since, table
from netagent.model.errors import ConfigError
from netagent.terminal import add_color, is_colored, painted

EPILOG = """\
examples:
  netagent-analyzer incidents
  netagent-analyzer incidents --task train-a --since 2h
  netagent-analyzer incidents --state active --check || page-somebody
  netagent-analyzer incidents --json | jq '.incidents[0].evidence'

Of a task that has none, `netagent-analyzer innocent TASK` says how well it
was looked at.
exit status: 0; with --check 1 if any listed incident has not recovered, or the
analyzer itself is in trouble; masked ones, which cost no probe, do not count
"""

MASKED = "masked"
"""Symptom of what costs no probe: it may wait until morning."""
UNKNOWN = 404
STATES = ("active", "open", "confirmed", "recovered")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--state", choices=STATES, help="only these; active is open or confirmed (default: all)"
    )
    parser.add_argument("--task", metavar="TASK", help="only those that hit this task")
    parser.add_argument("--since", metavar="T", help=f"updated since then: {FORMS}")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if any has not recovered, for scripts"
    )
    again.add_arguments(parser)
    add_color(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print incidents."""
    now_ns = time.time_ns()
    since_ns = _since_ns(args.since, now_ns)
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/incidents", "incidents", state=args.state, since=since_ns)
        if args.task:
            answer["incidents"] = _of(analyzer, args.task, answer["incidents"])
    warnings = answer.get("warnings", [])
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        lines = report(answer["incidents"], warnings, now_ns=now_ns)
        for line in painted(lines, colored=is_colored(args)):
            print(line)
    urgent = any(
        incident["state"] != "recovered" and incident["symptom"] != MASKED
        for incident in answer["incidents"]
    )
    return 1 if args.check and (urgent or warnings) else 0


def _since_ns(text: str | None, now_ns: int) -> int | None:
    if text is None:
        return None
    if text.isdecimal():  # scripts give any nanosecond, 0 too
        return int(text)
    return instant_of(text, "--since", now_ns=now_ns)


def _of(analyzer: Connection, task: str, incidents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of a task. Raises ConfigError where nothing knows it: a slip is no answer."""
    found = [each for each in incidents if task in each["tasks"]]
    if not found:
        try:
            analyzer.get(f"/v1/tasks/{quote(task, safe='')}")
        except Refused as error:
            if error.status != UNKNOWN:
                raise
            raise ConfigError("--task", str(error)) from error
    return found


def report(
    incidents: list[dict[str, Any]], warnings: Sequence[str] = (), *, now_ns: int = 0
) -> Iterator[str]:
    """Yield a line per incident, the latest first, and what is wrong with the analyzer itself.

    Without `now_ns`, as of a recording, today is the day of the newest.
    """
    if incidents:
        header = ("INCIDENT", "STATE", "SINCE UTC", "LAYER", "CONF", "AT FAULT")
        now_ns = now_ns or max(each["detected_ns"] for each in incidents)
        first, *lines = table(header, (_row(incident, now_ns) for incident in incidents))
        yield first
        for line, incident in zip(lines, incidents, strict=True):
            yield line
            if not line.endswith(name := _at_fault(incident)):
                yield from paragraph(name, "  ")
    else:
        yield "no incidents"
    if unstored := sum(not each.get("stored", True) for each in incidents):
        yield f"{unstored} of them not stored: the analyzer's disk refuses them"
    for each in warnings:
        yield from paragraph(f"the analyzer itself: {each}", hang="  ")


def _row(incident: dict[str, Any], now_ns: int) -> tuple[object, ...]:
    return (
        incident["id"],
        "unobserved" if incident.get("unobserved_ns") else incident["state"],
        since(incident["detected_ns"], now_ns=now_ns),
        incident["layer"] or "-",
        f"{incident['confidence']:.3f}",
        _at_fault(incident),
    )


def _at_fault(incident: dict[str, Any]) -> str:
    component: str = incident["component"] or "insufficient evidence"
    return f"{component} (masked)" if incident["symptom"] == MASKED else component
