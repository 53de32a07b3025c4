# SPDX-License-Identifier: Apache-2.0
"""Say how it stands with the receivers of events, or try one."""

import argparse
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import cut, instant
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer webhooks
  netagent-analyzer webhooks --json | jq '.webhooks[] | {name, waiting}'
  netagent-analyzer webhooks test pager

Receivers are [[webhooks]] in the analyzer's file: see docs/operating.md. They
are "ok" where nothing waits, "waiting" where something does that was not tried
yet, "retrying" where it was, and "down" where the newest attempts all failed.
`test` sends an event of the type netagent.test, once, and prints what came
back; it needs an administrator's certificate.
exit status: 0; 1 if the receiver did not take the test, or there is none of
that name; 3 if the analyzer cannot be reached
"""

TEST_S = 75.0
"""Seconds that the analyzer may take to test. Chosen: a receiver's longest timeout, and some."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    connection.add_arguments(parser)
    parser.add_argument("action", nargs="?", choices=["test"], help="send an event to try one")
    parser.add_argument("name", metavar="NAME", nargs="?", help="which one to try")


def run(args: argparse.Namespace) -> int:
    """List receivers, or test one."""
    if args.action and not args.name:
        raise ConfigError("command line", "test needs the NAME of a webhook")
    with Connection(args) as analyzer:
        if args.action is None:
            answer = analyzer.get("/v1/webhooks")
            status, lines = 0, report(answer)
        else:
            path = f"/v1/webhooks/{quote(args.name, safe='')}/test"
            answer = analyzer.post(path, {}, timeout_s=TEST_S)
            status, lines = 0 if answer["taken"] else 1, tried(answer)
    for line in [json.dumps(answer, indent=2)] if args.json else lines:
        print(line)
    return status


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a paragraph for each receiver."""
    if not answer["webhooks"]:
        yield "no [[webhooks]] in the analyzer's file"
    for each in answer["webhooks"]:
        yield cut(f"{each['name']}: {each['state']}, to {each['to']}")
        yield (
            f"  sent {each['sent']}, retried {each['retried']}, refused {each['refused']}, "
            f"dropped {each['dropped']}"
        )
        if each["waiting"]:
            yield (
                f"  waiting {each['waiting']} ({each['waiting_bytes'] >> 10} KiB), "
                f"the oldest for {each['oldest_s']:.0f} s"
            )
        if each["last_answer"] is not None:
            yield cut(f"  {instant(each['last_ns'])}: {each['last_answer']}")
        if not each["signed"]:
            yield "  not signed: no secret"


def tried(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what came back of a test."""
    taken = "taken" if answer["taken"] else "not taken"
    yield cut(f"{answer['webhook']}: {taken} after {answer['took_s']:.2f} s: {answer['answer']}")
    if answer["said"]:
        yield cut(f"  it says: {answer['said']}")
