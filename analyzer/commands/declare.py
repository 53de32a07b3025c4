# SPDX-License-Identifier: Apache-2.0
"""Declare a task, or withdraw a declaration."""

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.tasks import report
from netagent.model.errors import ConfigError

EPILOG = """\
examples:
  netagent-analyzer declare train-a --containers train-a-0,train-a-1 \\
      --rails 0-7 --parallelism dp=2,pp=1,tp=8
  netagent-analyzer declare train-a --file train-a.toml
  netagent-analyzer declare train-a --remove

FILE is TOML, or JSON where it is called so; - reads either from standard
input. Its keys are those of PUT /v1/tasks/TASK (/schema/openapi.json):
containers (in rank order), hosts (where each runs), rails,
rnics_per_container, parallelism (dp, pp, tp, ep), skeleton. An option takes
the place of a key. What Kubernetes or Slurm declares is changed there alone.
It needs an admin's certificate.
exit status: 0 declared; 1 with --remove, where it was not declared; 2 it
cannot be declared so; 3 the analyzer cannot be reached
"""

MAX_BYTES = 8 << 20
"""Most bytes of a file. Chosen: more than a hundred thousand containers."""
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
DEGREES = ("dp", "pp", "tp", "ep")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("task", metavar="TASK", help="its name")
    parser.add_argument("--containers", metavar="A,B", type=_names, help="in rank order")
    parser.add_argument("--hosts", metavar="H,I", type=_names, help="where each container runs")
    parser.add_argument("--rails", metavar="R", type=_rails, help="such as 0-7, or 0,1,4")
    parser.add_argument("--rnics", metavar="N", type=int, help="of each container (the rails)")
    parser.add_argument(
        "--parallelism", metavar="P", type=_parallelism, help="such as dp=2,pp=4,tp=8; a hint"
    )
    parser.add_argument("--no-skeleton", action="store_true", help="its traffic decides nothing")
    parser.add_argument("--file", metavar="FILE", help="all of it, as TOML or JSON")
    parser.add_argument("--remove", action="store_true", help="withdraw the declaration")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Declare it, or withdraw it."""
    path = f"/v1/tasks/{quote(args.task, safe='')}"
    said = _said(args)
    if args.remove:
        if said or args.file:
            raise ConfigError("--remove", "takes nothing but the task")
        with Connection(args) as analyzer:
            answer = analyzer.delete(path)
        known = bool(answer["known"])
        text = "withdrawn" if known else "was not declared"
        print(json.dumps(answer, indent=2) if args.json else f"{args.task}: {text}")
        return 0 if known else 1
    body = (_read(args.file) if args.file else {}) | said
    if not body.get("containers"):
        raise ConfigError("declare", "name --containers, or a --file that does")
    with Connection(args) as analyzer:
        answer = analyzer.put(path, body)
    if args.json:
        print(json.dumps(answer, indent=2))
        return 0
    for line in report([answer]):
        print(line)
    return 0


def _said(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say."""
    given = {
        "containers": args.containers, "hosts": args.hosts, "rails": args.rails,
        "rnics_per_container": args.rnics, "parallelism": args.parallelism,
        "skeleton": False if args.no_skeleton else None,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def _read(name: str) -> dict[str, Any]:
    """Return what a file declares. Raises ConfigError."""
    try:
        if name == "-":
            text = sys.stdin.read(MAX_BYTES + 1)
        else:
            with Path(name).open(encoding="utf-8") as file:
                text = file.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(name, f"cannot be read: {error}") from error
    if len(text) > MAX_BYTES:
        raise ConfigError(name, f"is larger than {MAX_BYTES} bytes")
    is_json = name.endswith(".json") or (name == "-" and text.lstrip().startswith("{"))
    try:
        told = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of both kinds
        raise ConfigError(name, f"cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise ConfigError(name, "is no object with containers, rails, ...")
    return told


def _names(text: str) -> list[str]:
    names = [each.strip() for each in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError("names with commas between")
    return names


def _rails(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{part!r} is no rail; write 0-7 or 0,1,4")
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1)
    return found


def _parallelism(text: str) -> dict[str, int]:
    degrees = dict.fromkeys(DEGREES, 1)
    for part in text.split(","):
        name, _, degree = part.strip().partition("=")
        if name not in degrees or not degree.isdecimal() or len(degree) > 6:
            raise argparse.ArgumentTypeError(f"{part!r}: write dp=2,pp=4,tp=8")
        degrees[name] = int(degree)
    return degrees
