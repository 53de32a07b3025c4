# SPDX-License-Identifier: Apache-2.0
"""Walk from one endpoint to another, now."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import paragraph

EPILOG = """\
examples:
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0 --json
  netagent-analyzer diagnose train-a-0/rail0 train-a-1/rail0 --layers

--layers also has both hosts hold their datapath and the filters of their RNIC
against their flow tables. It dumps what forwards traffic, and takes seconds.

exit status: 0 if the walk delivers, 1 if it ends elsewhere or cannot tell
"""

TIMEOUT_S = 30.0
"""Seconds that a diagnosis may take. Chosen: above the two rounds of walks that the analyzer asks
of agents, 5 s each."""
LAYERS_S = 60.0
"""The same with `--layers`. Chosen: above the 30 s that hosts may take to compare besides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", metavar="SRC", help="endpoint, CONTAINER/railN")
    parser.add_argument("target", metavar="DST", help="endpoint, CONTAINER/railN")
    parser.add_argument(
        "--layers", action="store_true", help="also compare flow tables, datapath and RNIC"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the walk as a tree."""
    question: dict[str, object] = {"source": args.source, "target": args.target}
    if args.layers:  # an older analyzer knows no such field
        question["layers"] = True
    with Connection(args) as analyzer:
        timeout_s = LAYERS_S if args.layers else TIMEOUT_S
        diagnosis = analyzer.post("/v1/diagnose", question, timeout_s=timeout_s)
    if args.json:
        print(json.dumps(diagnosis, indent=2))
    else:
        for line in report(diagnosis):
            print(line)
    return 0 if diagnosis["outcome"] == "delivered" else 1


def report(diagnosis: dict[str, Any]) -> Iterator[str]:
    """Yield the tree, then the conclusion."""
    yield f"{diagnosis['source']} -> {diagnosis['target']}"
    yield from _branches(diagnosis["tree"], "")
    at = diagnosis.get("component")
    layer = diagnosis.get("layer")
    place = f" at {at}" if at else ""
    place += f" ({layer})" if layer else ""
    yield ""
    yield from paragraph(f"{diagnosis['outcome']}{place}", hang="  ")
    yield from paragraph(diagnosis["text"], "  ")


def _branches(nodes: list[dict[str, Any]], margin: str) -> Iterator[str]:
    for i, node in enumerate(nodes):
        last = i == len(nodes) - 1
        below = margin + ("   " if last else "|  ")
        text = node["text"]
        deeper = " " * (len(text) - len(text.lstrip()) + 2)
        yield from paragraph(text, margin + ("`- " if last else "|- "), below + deeper)
        yield from _branches(node.get("children") or [], below)
