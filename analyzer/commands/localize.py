# SPDX-License-Identifier: Apache-2.0
"""Say which components are at fault by observations made elsewhere."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from analyzer.commands.connection import readable
from analyzer.commands.text import paragraph, table
from analyzer.localize.tomography import likelihood, maxcount, seven
from analyzer.localize.tomography.flowfile import (
    COLUMNS,
    LINK,
    Imported,
    Row,
    links_of,
    observed,
    rows_of_csv,
    rows_of_msgpack,
)
from analyzer.localize.tomography.observations import Observations
from analyzer.localize.tomography.ranking import Ranked, Ranking
from netagent.model.errors import ConfigError, RemoteProtocolError

EPILOG = f"""\
examples:
  netagent-analyzer localize flows.csv
  netagent-analyzer localize flows.csv --topology edges.txt --json
  netagent-analyzer localize flows.csv --baseline 007

FILE is CSV, one row a flow, with the columns
  {",".join(COLUMNS)}
path is the ids of what the flow crosses, joined by "|"; ways that it may have
taken instead follow after ";". Between two nodes beside each other there is a
link A->B; the two directions of a link are two components. sent and lost are
packets; the latencies may be empty. A file whose name ends in .msgpack is an
array of maps with the same keys. "-" is CSV from standard input.

EDGES has two ids a line, "A,B", or "A->B" for one direction only. A row with
an empty path takes one of the shortest ways from src to dst.

The likelihood ranking weighs lost and healthy packets of all flows, and finds
any number of faults together. The baselines are SkeletonHunter's Algorithm 1
(maxcount) and 007 (NSDI '18); both count lossy flows, and blame links only.
Their confidence is a share of votes, and they always name somebody where any
flow lost a packet.

exit status: 0 a component is named, 1 none is (see missing), 2 the file cannot
be read, or none of its flows has a path
"""

DECIDED, OPEN = 0, 1
SHOWN = 10
"""Most components in the table. Chosen: more than the faults of a bad day."""
KEPT = 1000
"""Most components in JSON. Chosen: a fabric's worth of suspects; more say nothing."""
NARROWER = 0.7
"""Nats by which a link is likelier than a node that the same flows cross. Chosen: it only decides
between equals."""

Method = Callable[[Observations[str]], Ranking[str]]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row of the answer."""

    symptom: str
    """`loss` or `latency`."""
    ranked: Ranked[str]

    @property
    def kind(self) -> str:
        """Return `link` or `node`."""
        return "link" if LINK in self.ranked.component else "node"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is at fault by a file of flows."""

    decided: bool
    suspects: tuple[Suspect, ...]
    """Best first."""
    missing: tuple[str, ...]
    """What would decide what is open."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="flows, as below")
    parser.add_argument("--topology", metavar="EDGES", help="what is cabled to what, as below")
    parser.add_argument(
        "--baseline", choices=("maxcount", "007"), help="rank by a published algorithm instead"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Read, rank and print."""
    imported = _imported(args.file, args.topology)
    found = answer(imported, METHODS[args.baseline or "likelihood"])
    if args.json:
        print(json.dumps(_plain(found), indent=2))
    else:
        for line in report(imported, found):
            print(readable(line))
    return DECIDED if found.decided else OPEN


def answer(imported: Imported, method: Method) -> Answer:
    """Rank what flows lost, and which of them are slow, by a method."""
    rankings = [("loss", method(imported.loss))]
    if imported.slow is not None:
        rankings.append(("latency", method(imported.slow)))
    suspects: dict[str, Suspect] = {}
    for blamed in (True, False):
        for symptom, ranking in rankings:
            for each in ranking.ranked:
                if each.blamed is blamed:
                    suspects.setdefault(each.component, Suspect(symptom, each))
    missing = [line for _, ranking in rankings for line in ranking.missing]
    if imported.pathless:
        missing.append(f"the paths of {imported.pathless} flows")
    decided = any(ranking.decided for _, ranking in rankings)
    return Answer(decided, tuple(suspects.values()), tuple(missing))


def report(imported: Imported, found: Answer) -> Iterator[str]:
    """Yield the answer for people."""
    seen = imported.loss
    lost, sent = int(seen.lost.sum()), int(seen.sent.sum())
    yield f"{seen.flows} flows, {lost} of {sent} packets lost, {len(seen.components)} components"
    if imported.ignored:
        yield from paragraph(f"columns that mean nothing here: {', '.join(imported.ignored)}")
    if not found.suspects and not lost:
        yield "no packet is lost" + (", and no flow is slow" if imported.slow is not None else "")
    elif not found.suspects:
        yield "no component stands out: what is lost is lost whatever flows cross"
    elif not found.decided:
        yield "insufficient evidence: no component is named"
    if found.suspects:
        yield ""
        yield from table(
            ("rank", "component", "kind", "symptom", "confidence", "explains"),
            [
                (
                    f"{rank}{'*' if each.ranked.blamed else ''}",
                    each.ranked.component,
                    each.kind,
                    each.symptom,
                    f"{each.ranked.confidence:.3f}",
                    f"{each.ranked.explains:.0f}",
                )
                for rank, each in enumerate(found.suspects[:SHOWN], start=1)
            ],
        )
        yield ""
        yield "* what is blamed; the others could be meant instead"
    for line in found.missing:
        yield from paragraph(line, "missing: ", "  ")


def _plain(found: Answer) -> dict[str, object]:
    return {
        "decided": found.decided,
        "ranked": [
            {
                "component": each.ranked.component,
                "kind": each.kind,
                "confidence": round(each.ranked.confidence, 4),
                "explains": round(each.ranked.explains, 1),
                "symptom": each.symptom,
                "blamed": each.ranked.blamed,
            }
            for each in found.suspects[:KEPT]
        ],
        "missing": list(found.missing),
    }


def _links(seen: Observations[str]) -> list[bool]:
    return [LINK in each for each in seen.components]


METHODS: dict[str, Method] = {
    "likelihood": lambda seen: likelihood.rank(
        seen, [0.0 if LINK in each else -NARROWER for each in seen.components]
    ),
    "maxcount": lambda seen: maxcount.rank(seen, _links(seen)),
    "007": lambda seen: seven.rank(seen, _links(seen)),
}


def _imported(name: str, topology: str | None) -> Imported:
    beside = None
    if topology is not None:
        try:
            beside = links_of(Path(topology).read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(topology, f"cannot be read: {error}") from error
        except RemoteProtocolError as error:
            raise ConfigError(topology, str(error)) from error
    try:
        if name == "-":
            return _observed(name, sys.stdin.buffer, beside)
        with Path(name).open("rb") as file:
            return _observed(name, file, beside)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(name, f"cannot be read: {error}") from error
    except RemoteProtocolError as error:
        raise ConfigError(name, str(error)) from error


def _observed(name: str, file: BinaryIO, beside: dict[str, set[str]] | None) -> Imported:
    ignored: list[str] = []
    if name.endswith(".msgpack"):
        rows: Iterator[tuple[int, Row]] = rows_of_msgpack(file.read())
    else:
        rows = rows_of_csv((line.decode() for line in file), ignored)
    made = observed(rows, beside)
    if made.pathless and not made.loss.flows:
        where = "" if beside is None else ", and the topology has no way between their ends"
        raise RemoteProtocolError(f"none of its {made.pathless} flows has a path{where}")
    return Imported(made.loss, made.slow, tuple(ignored), made.pathless)
