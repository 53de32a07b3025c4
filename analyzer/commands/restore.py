# SPDX-License-Identifier: Apache-2.0
"""Put a backup in place, while no analyzer runs."""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

from analyzer import config
from analyzer.commands.text import instant, paragraph
from analyzer.store.restore import Restored, restore
from netagent.model.errors import RemoteProtocolError
from netagent.terminal import NEGATIVE

EPILOG = """\
examples:
  netagent-analyzer restore /mnt/20261126T040000Z --config analyzer.toml
  netagent-analyzer restore netagent.duckdb.backups/before-update \\
    --config analyzer.toml --replace

FOLDER is what `netagent-analyzer backup` made, or a copy of it. Its files are
verified, then put where the configuration says that the database is. Stop the
analyzer first. If the command is killed, run it again.
exit status: 0 restored, 1 the backup is damaged or none; 2 a database is in
use or there already, or it cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", metavar="FOLDER", help="the backup")
    parser.add_argument("--config", metavar="FILE", required=True, help="TOML file of the analyzer")
    parser.add_argument(
        "--replace", action="store_true", help="move the database aside that is there"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Restore."""
    database = Path(config.load(args.config).database)
    try:
        done = restore(Path(args.folder), database, replace=args.replace, now_ns=time.time_ns())
    except RemoteProtocolError as error:
        raise _Damaged(str(error)) from error
    if args.json:
        print(json.dumps(_plain(done), indent=2))
    else:
        for line in report(done):
            print(line)
    return 0


class _Damaged(RemoteProtocolError):
    """The backup is none, or is not whole: that is the answer."""

    exit_status = NEGATIVE


def report(done: Restored) -> Iterator[str]:
    """Yield what was put where."""
    yield from paragraph(f"{done.database}: as of {instant(done.manifest.made_ns)}", hang="  ")
    yield f"  {done.manifest.summaries} summaries, {done.manifest.bytes >> 20} MiB"
    if done.replaced is not None:
        yield from paragraph(f"what was there is now {done.replaced}", "  ", "  ")


def _plain(done: Restored) -> dict[str, object]:
    return {
        "database": str(done.database),
        "replaced": str(done.replaced) if done.replaced is not None else None,
        "made_ns": done.manifest.made_ns,
        "netagent": done.manifest.netagent,
        "summaries": done.manifest.summaries,
        "bytes": done.manifest.bytes,
    }
