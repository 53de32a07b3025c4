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

exit status: 0 if the walk delivers, 1 if it ends elsewhere or cannot tell
"""

TIMEOUT_S = 30.0
"""Seconds that a diagnosis may take. Chosen: above the two rounds of walks that the analyzer asks
of agents, 5 s each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", metavar="SRC", help="endpoint, CONTAINER/railN")
    parser.add_argument("target", metavar="DST", help="endpoint, CONTAINER/railN")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the walk as a tree."""
    pair = {"source": args.source, "target": args.target}
    with Connection(args) as analyzer:
        diagnosis = analyzer.post("/v1/diagnose", pair, timeout_s=TIMEOUT_S)
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
