# SPDX-License-Identifier: Apache-2.0
"""List endpoints."""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import clock, paragraph, table
from netagent.model.address import is_six

EPILOG = """\
examples:
  netagent-analyzer endpoints
  netagent-analyzer endpoints --task train-a --all
  netagent-analyzer endpoints --host h0 --json

exit status: 0
"""

_NAMED = 3
"""Endpoints, of several, that are named. Chosen: to be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--task", metavar="TASK", help="only those of TASK")
    parser.add_argument("--host", metavar="HOST", help="only those on HOST")
    parser.add_argument("--all", action="store_true", help="also those gone in the last 10 minutes")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print endpoints."""
    vanished = "true" if args.all else None
    with Connection(args) as analyzer:
        answer = analyzer.all(
            "/v1/endpoints", "endpoints", task=args.task, host=args.host, vanished=vanished
        )
    if args.json:
        print(json.dumps(answer, indent=2))
        return 0
    for line in report(answer):
        print(line)
    return 0


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a line per endpoint, then what does not add up, as far as it is among them."""
    if not answer["endpoints"]:
        yield "no endpoints registered"
    else:
        header = ("ENDPOINT", "STATE", "SINCE", "HOST", "RNIC", "OVERLAY", "TASK")
        yield from table(header, (_row(endpoint) for endpoint in answer["endpoints"]))
    for conflict in answer["conflicts"]:
        yield from paragraph(
            f"{clock(conflict['wall_ns'])} {conflict['endpoint']} was claimed by "
            f"{conflict['winner']} while {conflict['loser']} still had it",
            hang="  ",
        )
    for task, rail in sorted(_mixed(answer["endpoints"])):
        yield from paragraph(
            f"{task} rail {rail}: some endpoints have IPv4 addresses, others IPv6: these do not "
            "probe each other",
            hang="  ",
        )
    if bare := [each["id"] for each in answer["endpoints"] if not each["bridge"]]:
        more = f" and {len(bare) - _NAMED} more" if len(bare) > _NAMED else ""
        yield from paragraph(
            f"{', '.join(bare[:_NAMED])}{more}: paths are not traced, since no virtual switch "
            "carries them",
            hang="  ",
        )


def _mixed(endpoints: Iterable[dict[str, Any]]) -> set[tuple[str, int]]:
    """Return the groups, by task and rail, of which a part cannot probe another."""
    there = [each for each in endpoints if each["task"] and each["state"] != "gone"]
    four, six = (
        {(e["task"], e["rail"]) for e in there if is_six(e["address"]) == wanted}
        for wanted in (False, True)
    )
    return four & six


def _row(endpoint: dict[str, Any]) -> tuple[object, ...]:
    since_ns = endpoint["deregistered_ns"] or endpoint["since_ns"]
    return (
        endpoint["id"],
        endpoint["state"],
        clock(since_ns),
        endpoint["host"],
        endpoint["rnic"],
        endpoint["address"],
        endpoint["task"] or "-",
    )
