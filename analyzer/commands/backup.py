# SPDX-License-Identifier: Apache-2.0
"""Let a running analyzer copy all that it stores, but recordings."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import paragraph

EPILOG = """\
examples:
  netagent-analyzer backup
  netagent-analyzer backup before-update
  folder=$(netagent-analyzer backup --json | jq -er .folder) &&
      rsync -a "$folder" elsewhere:backups/

The backup is a folder on the analyzer's machine, in DATABASE.backups; all that
was acknowledged before is in it, history as well, but not the folder with the
recordings. Summaries are taken meanwhile. The three newest are kept, and
deleted where the disk runs out of room: copy what shall last to another disk.
`netagent-analyzer restore` puts one in place. It needs an admin's certificate.

exit status: 0 made; 2 the name cannot be used, or you may not; 3 it cannot be
made now, or the analyzer cannot be reached
"""

BACKUP_S = 1800.0
"""Seconds that a backup may take. Chosen: a database of some gigabytes on a slow disk."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "name", metavar="FOLDER-NAME", nargs="?", default="", help="(default: the time, UTC)"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for a backup, and print where it is."""
    with Connection(args) as analyzer:
        answer = analyzer.post("/v1/backup", {"name": args.name}, timeout_s=BACKUP_S)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for line in report(answer):
            print(line)
    return 0


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield where the backup is, and what is in it."""
    yield from paragraph(answer["folder"], hang="  ")
    yield f"  {answer['summaries']} summaries, {answer['bytes'] >> 20} MiB"
    for name in answer["dropped"]:
        yield from paragraph(f"{name} was deleted: it was older than those kept", "  ", "  ")
