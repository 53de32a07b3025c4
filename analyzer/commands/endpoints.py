# SPDX-License-Identifier: Apache-2.0
"""List endpoints."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import paragraph, since, table
from netagent.model.address import is_six

EPILOG = """\
examples:
  netagent-analyzer endpoints
  netagent-analyzer endpoints --task train-a --all
  netagent-analyzer endpoints --host h0 --json
  netagent-analyzer endpoints --unprobed --task train-a

--unprobed lists endpoints that nobody probes, ports of hosts' virtual switches
that are no endpoint, and logical ports that their controller put on a host
which has them not, each with why. Agents that are too old to say it are named.
exit status: 0; 3 if the analyzer cannot be reached
"""

_NAMED = 3
"""Endpoints, of several, that are named. Chosen: to be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--task", metavar="TASK", help="only those of TASK")
    parser.add_argument("--host", metavar="HOST", help="only those on HOST")
    parser.add_argument("--all", action="store_true", help="also those gone in the last 10 minutes")
    parser.add_argument("--unprobed", action="store_true", help="what is not probed, and why")
    again.add_arguments(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print endpoints."""
    vanished = "true" if args.all else None
    with Connection(args) as analyzer:
        if args.unprobed:
            path = "/v1/endpoints/unprobed"
            answer = analyzer.all(path, "unprobed", task=args.task, host=args.host)
            return _print(args, answer, report_unprobed(answer))
        answer = analyzer.all(
            "/v1/endpoints", "endpoints", task=args.task, host=args.host, vanished=vanished
        )
    of = " of that task or host" if args.task or args.host else ""
    return _print(args, answer, report(answer, of, now_ns=time.time_ns()))


def _print(args: argparse.Namespace, answer: dict[str, Any], lines: Iterable[str]) -> int:
    for line in [json.dumps(answer, indent=2)] if args.json else lines:
        print(line)
    return 0


def report(answer: dict[str, Any], of: str = "", *, now_ns: int = 0) -> Iterator[str]:
    """Yield a line per endpoint, then what does not add up, as far as it is among them.

    `of` says which were asked for, where that is not all. Instants of other days than `now_ns`, or
    than the newest, have their day.
    """
    now_ns = now_ns or max((_since_ns(each) for each in answer["endpoints"]), default=0)
    if not answer["endpoints"]:
        yield f"no endpoints{of} registered"
    else:
        header = ("ENDPOINT", "STATE", "SINCE UTC", "HOST", "RNIC", "OVERLAY", "TASK")
        yield from table(header, (_row(endpoint, now_ns) for endpoint in answer["endpoints"]))
    for conflict in answer["conflicts"]:
        yield from paragraph(
            f"{since(conflict['wall_ns'], now_ns=now_ns)} UTC: {conflict['endpoint']} was claimed "
            f"by {conflict['winner']} while {conflict['loser']} still had it",
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


_KINDS = {
    "endpoint": "endpoints that nobody probes",
    "port": "ports that are no endpoint",
    "intent": "logical ports that no host has",
}


def report_unprobed(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what is not probed, one paragraph each, by kind and reason; then who says nothing."""
    for kind, title in _KINDS.items():
        known = [each for each in answer["unprobed"] if each["what"] == kind]
        counts = Counter(each["why"] for each in known)
        whys = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
        yield from paragraph(f"{title}: {len(known)}" + (f" ({whys})" if whys else ""), hang="  ")
        for each in sorted(known, key=lambda each: each["why"]):
            yield from paragraph(_unprobed(each), "  ", "    ")
    for each in answer["unnamed"]:
        yield from paragraph(f"more ports that are no endpoint on {each['host']}: {each['count']}")
    for each in answer["unsaid"]:
        yield from paragraph(f"not said by {each['host']} ({each['version'] or 'version unknown'})")


def _unprobed(of: dict[str, Any]) -> str:
    whose = f" of {of['task']}" if of["task"] else ""
    called = of["logical_port"] or of["pod"] or (of["container"] if of["what"] == "port" else "")
    name = of["name"] + (f" ({called})" if called and called != of["name"] else "")
    return f"{of['host']} {name}{whose}: {of['why']}: {of['text']}"


def _mixed(endpoints: Iterable[dict[str, Any]]) -> set[tuple[str, int]]:
    """Return the groups, by task and rail, of which a part cannot probe another."""
    there = [each for each in endpoints if each["task"] and each["state"] != "gone"]
    four, six = (
        {(e["task"], e["rail"]) for e in there if is_six(e["address"]) == wanted}
        for wanted in (False, True)
    )
    return four & six


def _since_ns(endpoint: dict[str, Any]) -> int:
    at_ns: int = endpoint["deregistered_ns"] or endpoint["since_ns"]
    return at_ns


def _row(endpoint: dict[str, Any], now_ns: int) -> tuple[object, ...]:
    return (
        endpoint["id"],
        endpoint["state"],
        since(_since_ns(endpoint), now_ns=now_ns),
        endpoint["host"],
        endpoint["rnic"],
        endpoint["address"],
        endpoint["task"] or "-",
    )
