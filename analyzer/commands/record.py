# SPDX-License-Identifier: Apache-2.0
"""Fetch a recording of a running analyzer's recent input."""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.replay.anonymize import anonymized
from analyzer.replay.frames import frame
from analyzer.replay.player import read
from analyzer.replay.records import Record, pack
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer record -o slow-tuesday.recording
  netagent-analyzer record -o for-the-bug-report.recording --anonymize
  netagent-analyzer replay slow-tuesday.recording

A recording holds summaries of probes, answers of agents, registrations and
incidents; it holds no packet's content. --anonymize replaces the names of
hosts, tasks, containers, ports and switches, and addresses, each by the same
one everywhere, and leaves out what was learned before the recording begins.
The analyzer also keeps recordings of its newest incidents, in the folder
`recording` beside its database.
exit status: 0 written, 1 nothing is recorded, 2 it cannot be written
"""

DOWNLOAD_S = 300.0
"""Seconds without a byte after which a download is given up. Chosen: a slow disk may pause, a dead
connection never ends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write")
    parser.add_argument("--anonymize", action="store_true", help="replace names and addresses")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the recording."""
    to = Path(args.output)
    with Connection(args) as analyzer, _whole(to) as file:
        if args.anonymize:
            with tempfile.TemporaryFile(dir=to.parent) as raw:
                analyzer.download("/v1/recording", raw, timeout_s=DOWNLOAD_S)
                size = _rewrite(raw, file)
        else:
            size = analyzer.download("/v1/recording", file, timeout_s=DOWNLOAD_S)
    said = {"file": str(to), "bytes": size, "anonymized": args.anonymize}
    print(json.dumps(said, indent=2) if args.json else f"{to}: {size} bytes")
    return 0


def _rewrite(raw: BinaryIO, file: BinaryIO) -> int:
    def again() -> Iterator[Record]:
        raw.seek(0)
        return read(raw)

    return sum(file.write(frame(pack(each))) for each in anonymized(again))


@contextlib.contextmanager
def _whole(to: Path) -> Iterator[BinaryIO]:
    """Give a file that becomes `to` once it is whole. Raises ConfigError."""
    half = to.with_name(f"{to.name}.half")
    try:
        with half.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            yield file
        half.replace(to)
    except OSError as error:
        raise ConfigError(str(to), f"cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()
