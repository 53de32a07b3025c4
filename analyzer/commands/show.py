# SPDX-License-Identifier: Apache-2.0
"""Show one incident with its evidence."""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.actions import offers
from analyzer.commands.connection import Connection
from analyzer.commands.text import cut, instant, paragraph
from netagent.terminal import add_color, is_colored, painted

EPILOG = """\
examples:
  netagent-analyzer show i6b0005c6-c96d
  netagent-analyzer show i6b0005c6-c96d --pairs 100
  netagent-analyzer show i6b0005c6-c96d --json

exit status: 0; 1 if there is no such incident; 3 if the analyzer cannot be
reached
"""

DEEP = 20
"""Most columns by which a line of a walk is set in. Chosen: OVN has dozens of tables in a row, each
a step deeper, and a flow is to fit beside them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("incident", metavar="ID", help="as `incidents` lists it")
    parser.add_argument(
        "--pairs", metavar="N", type=int, default=8, help="pairs to print (default: %(default)s)"
    )
    add_color(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print one incident."""
    with Connection(args) as analyzer:
        incident = analyzer.get(f"/v1/incidents/{quote(args.incident, safe='')}")
    if args.json:
        print(json.dumps(incident, indent=2))
        return 0
    for line in painted(report(incident, pairs=args.pairs), colored=is_colored(args)):
        print(line)
    return 0


def report(incident: dict[str, Any], *, pairs: int) -> Iterator[str]:
    """Yield the incident in sections; those without content are left out."""
    yield from _head(incident)
    yield from _pairs("failing pairs", incident["failing"], pairs)
    yield from _pairs("healthy pairs next to it", incident["healthy"], pairs)
    yield from _items("evidence", incident["evidence"])
    yield from _items("what people say of it", map(_word, incident.get("feedback", [])))
    yield from _items("besides, now (no evidence)", incident.get("remarks", []))
    if incident.get("actions"):
        yield ""
        yield "what could be done (netagent-analyzer actions dry-run asks the host)"
        yield from offers(incident["actions"])
    yield from _alternatives(incident["alternatives"])
    yield from _items("missing evidence", incident["missing"])
    yield from _items("history", incident["notes"])


def _head(incident: dict[str, Any]) -> Iterator[str]:
    component = incident["component"] or "insufficient evidence"
    yield cut(f"incident {incident['id']}: {incident['state']}, {incident['symptom']}")
    yield from paragraph(
        f"{component}  (layer {incident['layer'] or 'unknown'}, "
        f"confidence {incident['confidence']:.3f})",
        "  at fault   ",
        " " * 13,
    )
    yield from paragraph(incident["summary"], "  verdict    ", " " * 13)
    if incident.get("runbook"):
        yield from paragraph(incident["runbook"], "  runbook    ", " " * 13)
    if incident["tasks"]:
        yield from paragraph(", ".join(incident["tasks"]), "  tasks      ", " " * 13)
    elif incident.get("hit"):
        there = (f"{each['task']} ({each['endpoints']} endpoints)" for each in incident["hit"])
        yield from paragraph(", ".join(there), "  hit        ", " " * 13)
    detected_ns = incident["detected_ns"]
    yield f"  detected   {instant(detected_ns)}"
    yield f"  localized  {instant(incident['localized_ns'])}{_after(incident, 'localized_ns')}"
    yield f"  updated    {instant(incident['updated_ns'])}"
    if incident.get("unobserved_ns"):
        yield f"  unobserved {instant(incident['unobserved_ns'])}: nothing is measured of it since"
    if incident.get("late_ns"):
        yield f"  late       told {incident['late_ns'] / 1e9:.1f} s late: the judge was behind"
    if not incident.get("stored", True):
        yield "  stored     no: the analyzer's disk refuses it, and a restart would lose it"
    if incident["recovered_ns"]:
        yield f"  recovered  {instant(incident['recovered_ns'])}{_after(incident, 'recovered_ns')}"


def _after(incident: dict[str, Any], key: str) -> str:
    return f"  (+{(incident[key] - incident['detected_ns']) / 1e9:.1f} s)"


def _pairs(title: str, pairs: list[dict[str, Any]], shown: int) -> Iterator[str]:
    if not pairs:
        return
    yield ""
    yield f"{title} ({len(pairs)})"
    for pair in pairs[:shown]:
        yield cut(f"  {pair['source']} -> {pair['target']}  lost {pair['lost']} of {pair['sent']}")
    if len(pairs) > shown:
        yield f"  and {len(pairs) - shown} more; --pairs {len(pairs)} prints them"


def _alternatives(suspects: list[dict[str, Any]]) -> Iterator[str]:
    if not suspects:
        return
    yield ""
    yield "alternatives (score, failing of all probes that cross it)"
    for suspect in suspects:
        tally = f"{suspect['score']:.2f}  {suspect['lost']}/{suspect['crossed']}"
        yield from paragraph(f"{tally}  {suspect['component']}", "  ", " " * 8)


def _word(said: dict[str, Any]) -> str:
    text = f"{'right' if said['right'] else 'wrong'}, {said['by'] or 'somebody'} said"
    text += f" {instant(said['wall_ns'])[:19]}Z"
    text += f"; at fault was {said['component']}" if said["component"] else ""
    return f"{text}: {said['note']}" if said["note"] else text


def _items(title: str, given: Iterable[str]) -> Iterator[str]:
    items = list(given)
    if not items:
        return
    yield ""
    yield title
    for item in items:
        text = item.lstrip()
        depth = min(len(item) - len(text), DEEP)
        yield from paragraph(" " * depth + text, "  - ", "    ")
