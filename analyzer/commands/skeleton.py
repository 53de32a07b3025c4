# SPDX-License-Identifier: Apache-2.0
"""Infer which endpoint pairs a task uses, from a recording of its traffic."""

import argparse
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.commands.text import cut, paragraph, table
from analyzer.skeleton.infer import Skeleton, infer
from analyzer.skeleton.series import TrafficSeries, basic_edges
from netagent.model.errors import ConfigError, RemoteProtocolError

HELP = "infer which endpoint pairs a task uses, from its traffic alone"

EPILOG = """\
examples:
  netagent-analyzer skeleton series.npz
  netagent-analyzer skeleton series.npz --json

series.npz is a NumPy archive of one task:
  rate      (endpoints, ticks) bytes that each endpoint sent in each tick; NaN
            where that is not known
  tick_s    seconds per tick
  host      (endpoints,) number of each endpoint's host
  rail      (endpoints,) number of its rail
  endpoint  (endpoints,) names; optional

Groups are lists of rows of rate; edges are unordered pairs of rows, listed
once. Where the skeleton is not certain enough, edges is the basic list: all
pairs of one rail on different hosts.
exit status: 0 if the skeleton is certain enough to be used, 1 if not,
2 the file cannot be read
"""

ARRAYS = ("rate", "tick_s", "host", "rail")
UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, NotImplementedError,
    RuntimeError, zipfile.BadZipFile, zlib.error, RemoteProtocolError,
)  # fmt: skip
"""What numpy and zipfile raise at files that are no such archive, and ours at what it holds."""
CANDIDATES_SHOWN = 6
GROUPS_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("series", metavar="SERIES.npz", help="recording of one task's traffic")
    parser.add_argument("--json", action="store_true", help="print the skeleton as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the skeleton."""
    series = load(args.series)
    found = infer(series)
    if args.json:
        print(json.dumps(plain(found)))
    else:
        for line in report(found, series):
            print(line)
    return 0 if found.confident else 1


def load(path: str) -> TrafficSeries:
    """Read a recording; ConfigError where it is none."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _series(archive)
    except UNREADABLE as error:
        raise ConfigError(path, str(error)) from error


def _series(archive: Mapping[str, Any]) -> TrafficSeries:
    missing = [name for name in ARRAYS if name not in archive]
    if missing:
        raise RemoteProtocolError(f"it lacks {', '.join(missing)}")
    return TrafficSeries(
        np.asarray(archive["rate"], np.float64),
        float(archive["tick_s"]),
        _whole(archive["host"]),
        _whole(archive["rail"]),
        tuple(map(str, archive["endpoint"].tolist())) if "endpoint" in archive else (),
    )


def _whole(numbers: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    whole = np.asarray(numbers).astype(np.int64)
    if not np.array_equal(whole, numbers):
        raise ValueError("host and rail are whole numbers")
    return whole


def plain(found: Skeleton) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "confident": found.confident,
        "confidence": round(found.confidence, 3),
        "dp": found.dp,
        "pp": found.pp,
        "tp": found.tp,
        "ep": found.ep,
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
        yield f"  the basic list stays: {basic} pairs"
    else:
        yield (
            f"DP {found.dp}  PP {found.pp}  TP {found.tp}  EP {found.ep}"
            f"  (confidence {found.confidence:.2f})"
        )
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
        cells = [
            (str(c.size), str(c.groups), f"{c.separation:.2f}", f"{100 * c.moved:.0f} %")
            for c in best
        ]
        yield from table(("members", "groups", "separation", "moved"), cells)


def _name(series: TrafficSeries, row: int) -> str:
    if series.names:
        return series.names[row]
    return f"h{series.host[row]}/rail{series.rail[row]}"
