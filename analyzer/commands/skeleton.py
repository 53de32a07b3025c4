# SPDX-License-Identifier: Apache-2.0
"""Infer which endpoint pairs a task uses, from a recording of its traffic."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.plot import draw
from analyzer.commands.text import clock, cut, paragraph, table
from analyzer.skeleton import recording
from analyzer.skeleton.hint import Hint, infer_with
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.recording import SHAPE
from analyzer.skeleton.series import TrafficSeries, basic_edges
from netagent.model.errors import CapabilityMissing, ConfigError
from netagent.model.task import Parallelism

EPILOG = f"""\
examples:
  netagent-analyzer skeleton train-a
  netagent-analyzer skeleton train-a --plot train-a.png --save train-a.npz
  netagent-analyzer skeleton series.npz --json

A task is asked of the analyzer: what its ping lists follow now, and what its
latest traffic says.

{SHAPE}
Groups are lists of rows of rate; edges are unordered pairs of rows, listed
once. Where the skeleton is not certain enough, edges is the basic list: all
pairs of one rail on different hosts. A superset (hosts in no order, or of
unequal rails) has all pairs within a stage and between stages that follow each
other.

In the table a star marks the size that was taken: the best separated, or of
those that are alike the larger; moved are members that equal sizes took from
the group they are nearest to.

exit status: 0 if the skeleton is certain enough to be used, 1 if not,
2 wrong usage, or a file cannot be read or written, 3 the analyzer cannot be
reached
"""

CANDIDATES_SHOWN = 6
"""Most groupings listed. Chosen: the best ones decide."""
GROUPS_SHOWN = 4
"""Most groups listed of each kind. Chosen: enough to see the pattern."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "series", metavar="SERIES.npz|TASK", help="a recording (*.npz), or a task of the analyzer"
    )
    parser.add_argument(
        "--tick-ms", type=int, metavar="MS", help="of a task's series (default: as it was inferred)"
    )
    parser.add_argument("--save", metavar="FILE.npz", help="keep a task's series as a recording")
    parser.add_argument("--plot", metavar="FILE.png", help="draw series, signatures and edges")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the skeleton."""
    followed: dict[str, Any] | None = None
    if args.series.endswith(".npz"):
        if args.save or args.tick_ms is not None:
            raise ConfigError(args.series, "--save and --tick-ms are for a task, not a recording")
        series = recording.load(args.series)
    else:
        series, followed = _ask(args)
    found = infer_with(series, _hint(series, followed))
    if args.plot:
        _plot(args.plot, series, found)
    if args.json:
        print(json.dumps(plain(found) | ({"list": followed} if followed else {})))
    else:
        if followed:  # what is probed rests on what was seen before
            print(*_followed(followed), "what its traffic shows now:", sep="\n")
        print(*report(found, series), sep="\n")
    return 0 if found.confident else 1


def _plot(path: str, series: TrafficSeries, found: Skeleton) -> None:
    try:
        draw(path, series, found)
    except CapabilityMissing as error:
        raise ConfigError("--plot", str(error)) from error


def _ask(args: argparse.Namespace) -> tuple[TrafficSeries, dict[str, Any]]:
    if not args.series or (args.tick_ms is not None and args.tick_ms <= 0):
        raise ConfigError("command line", "name a task, and ticks of more than 0 ms")
    path = f"/v1/tasks/{quote(args.series, safe='')}"
    with Connection(args) as analyzer:
        followed = analyzer.get(f"{path}/skeleton")
        followed["parallelism"] = analyzer.get(path).get("parallelism")
        content = analyzer.fetch(f"{path}/traffic", tick_ms=args.tick_ms)
    if args.save:
        try:
            Path(args.save).write_bytes(content)
        except OSError as error:
            raise ConfigError(args.save, f"cannot be written: {error.strerror}") from error
    return recording.unpack(content), followed


def _hint(series: TrafficSeries, followed: dict[str, Any] | None) -> Hint | None:
    """Return what was declared of the task, as the analyzer uses it: hosts are in ranks' order."""
    declared = followed["parallelism"] if followed else None
    if declared is None:
        return None
    rank = np.empty(len(series), np.int64)
    rank[np.lexsort((series.rail, series.host))] = np.arange(len(series))
    return Hint(Parallelism(**declared), rank)


def _followed(followed: dict[str, Any]) -> Iterator[str]:
    since = f"{clock(followed['since_ns'])} UTC"
    if followed["list"] == "skeleton":
        whose = ", as its operators state" if followed.get("source") == "operators" else ""
        yield f"probed along its skeleton since {since}, {followed['pairs']} pairs{whose}"
    else:
        yield from paragraph(
            f"probed by its basic list since {since}: {followed['reason']}", hang="  "
        )


def plain(found: Skeleton) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "confident": found.confident,
        "confidence": round(found.confidence, 3),
        "dp": found.dp,
        "pp": found.pp,
        "tp": found.tp,
        "ep": found.ep,
        "superset": found.superset,
        "groups": found.groups,
        "edges": found.edges.tolist(),
        "candidates": [
            {
                "size": each.size,
                "groups": each.groups,
                "separation": round(each.separation, 3),
                "moved": round(each.moved, 3),
            }
            for each in found.candidates
        ],
        "reason": found.reason,
    }


def report(found: Skeleton, series: TrafficSeries) -> Iterator[str]:
    """Yield the skeleton for people."""
    basic = len(basic_edges(series.host, series.rail))
    hosts = len(np.unique(series.host))
    ticks = series.rate.shape[1]
    yield (
        f"{len(series)} endpoints on {hosts} hosts,"
        f" {len(np.unique(series.rail))} rails, {ticks * series.tick_s:g} s of traffic"
    )
    if not found.confident:
        yield from paragraph(f"no skeleton: {found.reason}", hang="  ")
        yield f"  by this alone the basic list would be probed: {basic} pairs"
    else:
        degrees = f"DP {found.dp}  PP {found.pp}  TP {found.tp}  EP {found.ep}"
        if found.superset:
            degrees = f"a superset: {found.pp} stages of {found.dp} positions"
        yield f"{degrees}  (confidence {found.confidence:.2f})"
        share = 100 * len(found.edges) / max(1, basic)
        yield f"  {len(found.edges)} pairs, {share:.1f} % of the basic list's {basic}"
        if found.reason:
            yield from paragraph(f"but {found.reason}", "  ")
        for kind, groups in found.groups.items():
            for rows in groups[:GROUPS_SHOWN]:
                yield cut(f"  {kind}  {', '.join(_name(series, row) for row in rows)}")
            if len(groups) > GROUPS_SHOWN:
                yield f"  {kind}  and {len(groups) - GROUPS_SHOWN} more groups"
    if found.candidates:
        yield ""
        best = sorted(found.candidates, key=lambda each: -each.separation)[:CANDIDATES_SHOWN]
        taken = found.dp * found.ep
        cells = [
            (
                f"{c.size}{'*' if c.size == taken else ''}",
                str(c.groups),
                f"{c.separation:.2f}",
                f"{100 * c.moved:.0f} %",
            )
            for c in best
        ]
        yield from table(("members", "groups", "separation", "moved"), cells)


def _name(series: TrafficSeries, row: int) -> str:
    if series.names:
        # Whoever wrote the recording does not write to the terminal.
        return "".join(c if c.isprintable() else "?" for c in series.names[row])
    return f"h{series.host[row]}/rail{series.rail[row]}"
