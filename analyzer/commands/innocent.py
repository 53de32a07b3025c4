# SPDX-License-Identifier: Apache-2.0
"""Say whether a task's network was well, and how well it was looked at."""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.text import cut, instant, paragraph
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer innocent train-a
  netagent-analyzer innocent train-a --minutes 2 --ago 30
  netagent-analyzer innocent train-a --json | jq .against

Most collective operations that time out do so for reasons of their own. This
shows what the network did meanwhile: probes, losses, round trips, findings,
incidents, flow tables; and what nobody looked at. It needs an admin's
certificate.

exit status: 0 if the network was well; 1 if something was not; 4 if nothing
was found, and too little was looked at to tell; 3 if the analyzer cannot be
reached
"""

INNOCENT, SUSPECT, CANNOT_TELL = 0, 1, 4

SAID = {
    "innocent": "the network was innocent",
    "suspect": "the network was not innocent",
    "cannot tell": "cannot tell whether it was the network",
}
"""Answer -> what is printed, as the page says it."""

TIMEOUT_S = 60.0
"""Seconds that an inquiry may take. Chosen: the analyzer reads up to 20,000 summaries for it."""
MOST_LINES = 12
"""Most lines of one kind shown. Chosen: they fit a screen; --json has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("task", metavar="TASK", help="as `netagent-analyzer tasks` names it")
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="how long (default: 10)"
    )
    parser.add_argument(
        "--ago", type=float, default=0.0, metavar="N", help="until so many minutes ago (default: 0)"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer."""
    if args.minutes <= 0 or args.ago < 0:
        raise ConfigError("--minutes, --ago", "ask for some minutes that are over")
    until_ns = time.time_ns() - round(args.ago * 60e9)
    since_ns = until_ns - round(args.minutes * 60e9)
    # Without an end the analyzer takes its own clock's now.
    asked = {"since": since_ns, "until": until_ns if args.ago else None}
    with Connection(args) as analyzer:
        path = f"/v1/tasks/{quote(args.task, safe='')}/inquiry"
        try:
            found = analyzer.get(path, wait_s=TIMEOUT_S, **asked)
        except Refused as error:
            if error.status != 404:
                raise
            raise ConfigError("TASK", str(error)) from error  # a slip of the pen blames no network
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for line in report(found):
            print(line)
    return status(found)


def status(found: dict[str, Any]) -> int:
    """Return the exit status that says the answer."""
    if found["innocent"]:
        return INNOCENT
    return SUSPECT if found["against"] else CANNOT_TELL


def report(found: dict[str, Any]) -> Iterator[str]:
    """Yield the answer, what was looked at, and what was not."""
    yield cut(f"{found['task']}: {SAID.get(found['answer'], found['answer'])}")
    yield f"{instant(found['since_ns'])} to {instant(found['until_ns'])}"
    yield ""
    probed, unprobed = len(found["pairs"]), len(found["unprobed"])
    yield f"  pairs    {probed} of {probed + unprobed} probed"
    few = f"below {100 * found['lost_at_most']:.4f} %, 95 % sure" if found["sent"] else "unknown"
    yield f"  probes   {found['lost']:,} of {found['sent']:,} lost: {few}"
    if rtt := found["rtt_us"]:
        yield (
            f"  latency  median {rtt['median']:.1f} us, p99 {rtt['p99']:.1f} us, "
            f"longest {rtt['longest']:.0f} us"
        )
    whole = sum(count >= found["windows"] for count in found["hosts"].values())
    least = "" if whole == len(found["hosts"]) else f", the least {min(found['hosts'].values())}"
    yield f"  hosts    {whole} of {len(found['hosts'])} sent all {found['windows']} windows{least}"
    if walks := found["walks"]:
        ends = ", ".join(f"{count} {_ended(how)}" for how, count in sorted(walks.items()))
        yield cut(f"  tables   walked now: {ends}")
    yield from _list("not well:", found["against"])
    yield from _list("not looked at:", found["not_looked_at"])


def _ended(outcome: str) -> str:
    return "of pairs in an active incident" if outcome == "incident" else outcome.replace("_", " ")


def _list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield title
    for line in lines[:MOST_LINES]:
        yield from paragraph(line, "  ", "    ")
    if len(lines) > MOST_LINES:
        yield f"  and {len(lines) - MOST_LINES} more; --json has all"
