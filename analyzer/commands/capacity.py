# SPDX-License-Identifier: Apache-2.0
"""Say how many RNICs the running analyzer could take."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from analyzer.commands import again, connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import table

EPILOG = """\
examples:
  netagent-analyzer capacity
  netagent-analyzer capacity --json | jq .takes

What the analyzer used in the newest minutes is taken to grow with the number
of RNICs. LIMIT leaves room for what comes at once: 70 % of a core, 80 % of
memory and of open files.
exit status: 0; 1 where it takes no more, or nothing can be said yet; 3 if the
analyzer cannot be reached
"""

SCALES = {"bytes": (1 << 20, "MiB")}
"""How units are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    again.add_arguments(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what it could take."""
    with Connection(args) as analyzer:
        answer = analyzer.get("/v1/capacity")
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for line in report(answer):
            print(line)
    return 0 if answer["takes"] is not None and answer["takes"] > answer["rnics"] else 1


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence, and a line per resource, the scarcest first."""
    if answer["takes"] is None:
        yield f"cannot tell for {answer['rnics']} RNICs: {answer['missing']}"
        return
    yield (
        f"{answer['rnics']} RNICs; it could take {answer['takes']}, by {answer['by']} "
        f"(measured over {answer['over_s']:.0f} s)"
    )
    yield from table(("RESOURCE", "USED", "LIMIT", "TAKES"), map(_row, answer["resources"]))
    hours = answer["history_s"] / 3600
    rate = answer["stored_bytes_per_s"] / 1e3
    yield f"summaries: {rate:.1f} kB/s stored; history reaches back {hours:.1f} h"


def _row(of: dict[str, Any]) -> tuple[object, ...]:
    by, unit = SCALES.get(of["unit"], (1, of["unit"]))
    used, limit = of["used"] / by, of["limit"] / by
    digits = 3 if unit == "cores" else 0
    return of["name"], f"{used:.{digits}f} {unit}", f"{limit:.{digits}f} {unit}", of["takes"]
