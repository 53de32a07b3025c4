# SPDX-License-Identifier: Apache-2.0
"""Follow incidents as they happen."""

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import clock, cut, paragraph
from netagent.model.errors import Unreachable
from netagent.terminal import add_color, is_colored, painted

EPILOG = """\
examples:
  netagent-analyzer watch
  netagent-analyzer watch --json | tee incidents.jsonl

Prints what is open first, then each change until Ctrl-C, over restarts of the
analyzer too; on stderr what is wrong with the analyzer itself.
exit status: 0 after Ctrl-C, 3 if the analyzer cannot be reached at the start
"""

WAIT_S = 20.0
"""Seconds that a long poll for events waits. Chosen: an interrupted connection is noticed soon."""

RETRY_S = 1.0
"""Seconds before a failed poll is repeated. Chosen: an analyzer's restart takes some."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_color(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print events until interrupted."""
    try:
        with Connection(args) as analyzer:
            for event in follow(analyzer):
                lines = [json.dumps(event)] if args.json else report(event)
                for line in painted(lines, colored=is_colored(args) and not args.json):
                    print(line, flush=True)
    except KeyboardInterrupt:
        return 0
    return 0


def follow(analyzer: Connection) -> Iterator[dict[str, Any]]:
    """Yield what is open, then each event, for ever."""
    answer = analyzer.get("/v1/incidents/events")
    seq, warned = answer["next"], warn(answer, [])
    for incident in reversed(
        analyzer.all("/v1/incidents", "incidents", state="active")["incidents"]
    ):
        yield {"seq": seq, "event": incident["state"], "incident": incident}
    away = False
    while True:
        try:
            answer = analyzer.get("/v1/incidents/events", wait_s=WAIT_S, after=seq)
        except Unreachable as error:
            if not away:
                print(f"netagent-analyzer: {error}; trying again", file=sys.stderr)
            away = True
            threading.Event().wait(RETRY_S)
            continue
        away = False
        seq, warned = answer["next"], warn(answer, warned)
        yield from answer["events"]


def warn(answer: dict[str, Any], before: list[str]) -> list[str]:
    """Print what is newly wrong with the analyzer itself, or that all is well; return it."""
    warnings: list[str] = answer.get("warnings", [])
    for each in warnings:
        if each not in before:
            print(f"netagent-analyzer: the analyzer itself: {each}", file=sys.stderr)
    if before and not warnings:
        print("netagent-analyzer: the analyzer itself is well again", file=sys.stderr)
    return warnings


def report(event: dict[str, Any]) -> Iterator[str]:
    """Yield an event's lines."""
    incident = event["incident"]
    component = incident["component"] or "insufficient evidence"
    when = clock(incident["updated_ns"])
    yield cut(
        f"{when}Z {event['event']:10} {component}  "
        f"({incident['layer'] or 'layer unknown'}, {incident['confidence']:.3f})"
    )
    if not incident.get("stored", True):
        yield f"{'':21}not stored: the analyzer's disk refuses it"
    if event["event"] == "recovered":
        seconds = ((incident["recovered_ns"] or 0) - incident["detected_ns"]) / 1e9
        yield f"{'':21}after {seconds:.1f} s; netagent-analyzer show {incident['id']}"
    else:
        yield from paragraph(f"{incident['summary']} (show {incident['id']})", " " * 20, " " * 20)
