# SPDX-License-Identifier: Apache-2.0
"""List training tasks."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import cut, instant, table

EPILOG = """\
examples:
  netagent-analyzer tasks
  netagent-analyzer tasks --json
  netagent-analyzer tasks --watch 5

KNOWN: declared (netagent-analyzer declare), by kubernetes (docs/kubernetes.md)
or learned from what agents registered.
PROBED BY: skeleton where its traffic shows which pairs a task uses, and all
others are probed rarely; else basic: netagent-analyzer skeleton TASK says why.
missing: a container that was declared 20 minutes ago ([tasks] missing_after_s
in the analyzer's file), and that no agent ever registered.
exit status: 0; 3 if the analyzer cannot be reached
"""


MAX_MISSING = 8
"""Most missing containers of a task that are printed. Chosen: a screen holds several tasks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    again.add_arguments(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print every task."""
    with Connection(args) as analyzer:
        answer = analyzer.all("/v1/tasks", "tasks")
    if args.json:
        print(json.dumps(answer, indent=2))
        return 0
    for line in report(answer["tasks"]):
        print(line)
    return 0


def report(tasks: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per task."""
    if not tasks:
        yield "no tasks: none was declared, and no agent registered an endpoint"
        return
    header = ("TASK", "KNOWN", "CONTAINERS", "RAILS", "UP/EXPECTED", "PROBED BY")
    yield from table(header, (_row(task) for task in tasks))
    for task in tasks:
        yield from _missing(task)


def _missing(task: dict[str, Any]) -> Iterator[str]:
    missing = task.get("missing", [])
    for each in missing[:MAX_MISSING]:
        since = f"declared {instant(each['declared_ns'])[:19]}Z, never came"
        yield cut(f"missing: container {each['container']} of {task['id']}, {since}")
    if len(missing) > MAX_MISSING:
        yield f"missing: {len(missing) - MAX_MISSING} more of {task['id']}; --json lists them"


def up(task: dict[str, Any]) -> int:
    """Return how many endpoints are up; of an analyzer of before, registered, crashed or not."""
    found: int = task.get("endpoints_up", task["endpoints_registered"])
    return found


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    return (
        task["id"],
        task.get("source") or ("declared" if task["declared"] else "learned"),
        len(task["containers"]),
        ",".join(str(rail) for rail in task["rails"]) or "-",
        f"{up(task)}/{task['endpoints_expected']}",
        task["list"],
    )
