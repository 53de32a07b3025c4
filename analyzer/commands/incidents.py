# SPDX-License-Identifier: Apache-2.0
"""List incidents."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import clock, paragraph, table
from netagent.terminal import add_color, is_colored, painted

EPILOG = """\
examples:
  netagent-analyzer incidents
  netagent-analyzer incidents --state active --check || page-somebody
  netagent-analyzer incidents --json | jq '.incidents[0].evidence'

exit status: 0; with --check 1 if any listed incident has not recovered, or the
analyzer itself is in trouble; masked ones, which cost no probe, do not count
"""

MASKED = "masked"
"""Symptom of what costs no probe: it may wait until morning."""
STATES = ("active", "open", "confirmed", "recovered")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--state", choices=STATES, help="only these; active is open or confirmed (default: all)"
    )
    parser.add_argument(
        "--since", metavar="NS", type=int, help="updated at this Unix nanosecond or later"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if any has not recovered, for scripts"
    )
    again.add_arguments(parser)
    add_color(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print incidents."""
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/incidents", "incidents", state=args.state, since=args.since)
    warnings = answer.get("warnings", [])
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        lines = report(answer["incidents"], warnings)
        for line in painted(lines, colored=is_colored(args)):
            print(line)
    urgent = any(
        incident["state"] != "recovered" and incident["symptom"] != MASKED
        for incident in answer["incidents"]
    )
    return 1 if args.check and (urgent or warnings) else 0


def report(incidents: list[dict[str, Any]], warnings: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line per incident, the latest first, and what is wrong with the analyzer itself."""
    if incidents:
        header = ("INCIDENT", "STATE", "DETECTED", "LAYER", "CONF", "AT FAULT")
        first, *lines = table(header, (_row(incident) for incident in incidents))
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


def _row(incident: dict[str, Any]) -> tuple[object, ...]:
    return (
        incident["id"],
        "unobserved" if incident.get("unobserved_ns") else incident["state"],
        clock(incident["detected_ns"]),
        incident["layer"] or "-",
        f"{incident['confidence']:.3f}",
        _at_fault(incident),
    )


def _at_fault(incident: dict[str, Any]) -> str:
    component: str = incident["component"] or "insufficient evidence"
    return f"{component} (masked)" if incident["symptom"] == MASKED else component
