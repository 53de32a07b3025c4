# SPDX-License-Identifier: Apache-2.0
"""Say who holds a job up, by logs of its operators."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused, readable
from analyzer.commands.plot import draw_operators
from analyzer.commands.text import clock, paragraph, table
from analyzer.detect.operators.judging import judged
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who, as_json, verdict_of
from analyzer.operators.log import Log
from analyzer.operators.sources import table as imported
from analyzer.operators.sources.dump import MAX_BYTES
from analyzer.operators.sources.recognise import Files, left_out, some
from analyzer.store.operations import is_table, read_table, without_columns
from netagent.model.errors import CapabilityMissing, ConfigError, RemoteProtocolError

EPILOG = f"""\
examples:
  netagent-analyzer operators /var/log/job7/dumps
  netagent-analyzer operators nccl_trace_rank_3 --json
  netagent-analyzer operators operations.parquet --plot job7.png
  netagent-analyzer operators train-a

An operator is what a rank does: a collective, a send, a pass it computes.
A hang is told from one dump of all ranks; who is slow, from 5 steps on.

SOURCE is a task whose operators agents collect, of which the analyzer says
what it found last; or a file, or a folder with a file a rank, of one of these:
  dumps of PyTorch's flight recorder, pickles or JSON; the rank is what the
    file's name ends in, as in nccl_trace_rank_3, _dump_0, rank_h5_40
  NCCL Inspector's JSON lines
  what ncclras prints, as text or JSON
  rings that netagent_torch or uprobes wrote (*.ring)
  CSV or Parquet, a row an operation, with the columns
    {", ".join(imported.NEEDED)}
    and those known of
    {", ".join(imported.OPTIONAL)}
  kind is compute, collective, send, recv or other; group names the group of
  the collective at that rank, peer is a rank. Times are of the rank's own
  clock, and may begin anew in each step; CSV may be compressed (.gz, .zst).

Nothing in a file is run: of a pickle only plain values are read. Links in a
folder are not followed.

exit status: 0 nobody is named, 1 somebody is, 2 wrong usage, or a file cannot
be read or written, 3 the analyzer cannot be reached, 4 it cannot tell
"""

NOBODY, SOMEBODY, UNCLEAR = 0, 1, 4
NOT_FOUND = 404
SHOWN = 10
"""Most culprits in the table. Chosen: more than a job has."""
LINES = 5
"""Most lines of evidence, or of notes. Chosen: half a screen."""
MAX_FILES = 200_000
"""Most files of a folder, and of folders in it. Chosen: ten times the ranks of a large job."""
MANY = 50
"""Files from which on progress is shown. Chosen: fewer are read in some seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a file, a folder of a file a rank, or a task"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="draw who waits for whom, and when")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, judge and print; of a task, ask."""
    if not Path(args.source).exists() and Path(args.source).name == args.source:
        return _live(args)
    log = read(args.source)
    verdict = judged(log)
    if args.json:
        print(json.dumps(plain(log, verdict)))
    else:
        for line in report(log, verdict):
            print(readable(line))
    if args.plot:
        _plot(args.plot, log, verdict)
    return _status(verdict)


def _status(verdict: Verdict) -> int:
    if verdict.culprits:
        return SOMEBODY
    return UNCLEAR if verdict.holdup is Holdup.INSUFFICIENT else NOBODY


def _live(args: argparse.Namespace) -> int:
    """Print what the analyzer found last of a task."""
    if args.plot:
        raise ConfigError("--plot", f"is for files, and {args.source!r} is none")
    try:
        with Connection(args) as analyzer:
            said = analyzer.get(f"/v1/operators/{quote(args.source, safe='')}")
    except Refused as error:
        if error.status != NOT_FOUND:
            raise
        # 1, as elsewhere, would say that somebody is named.
        raise ConfigError(args.source, f"no such file, nor a task: {error}") from error
    found = said["verdict"]
    if args.json:
        print(json.dumps(said))
    elif found is None:
        print(f"{len(said['ranks'])} ranks are heard of, and nothing was found yet")
    else:
        for line in _found(said, verdict_of(found)):
            print(readable(line))
    return UNCLEAR if found is None else _status(verdict_of(found))


def _found(said: dict[str, Any], verdict: Verdict) -> Iterator[str]:
    yield from paragraph(f"{verdict.holdup.value}: {verdict.summary}", hang="  ")
    yield f"  {len(said['ranks'])} ranks, as of {clock(said['verdict']['at_ns'])} UTC"
    yield from _rest(verdict, ())


def read(source: str) -> Log:
    """Return the log in a file or a folder. Raises ConfigError."""
    paths, links = _paths(source)
    if links and not paths:
        raise ConfigError(source, f"no file in it but {links} links, which are not followed")
    try:
        log = _read(source, paths)
    except OSError as error:
        raise ConfigError(source, f"cannot be read: {error.strerror or error}") from error
    except RemoteProtocolError as error:
        # Files' own names and words are quoted in it.
        raise ConfigError(source, str(readable(str(error)))) from error
    return _noting(log, f"{links} links were not followed") if links else log


def _read(source: str, paths: Sequence[Path]) -> Log:
    tables = [path for path in paths if is_table(path, _head(path))]
    return _tabled(source, tables, paths) if tables else _untabled(source, paths)


def _tabled(source: str, tables: Sequence[Path], paths: Sequence[Path]) -> Log:
    """Return the log in tables; where none has operators, in what else is there."""
    others = sorted(set(paths).difference(tables))
    try:
        log = _imported(source, tables)
    except RemoteProtocolError as error:
        lacking = without_columns(tables)
        rest = [path for path in tables if path not in lacking]
        if not lacking or not (rest or others):
            raise
        log = _imported(source, rest) if rest else _beside(source, others, error)
        return _noting(log, *left_out({_name(source, n): why for n, why in lacking.items()}))
    if others:
        shown = some([_name(source, path) for path in others])
        log = _noting(log, f"{len(others)} files that are no tables were left out: {shown}")
    return log


def _imported(source: str, tables: Sequence[Path]) -> Log:
    log = imported.log(read_table(tables))
    if not len(log):
        raise ConfigError(source, "no row in it but the columns' names")
    return log


def _beside(source: str, others: Sequence[Path], error: RemoteProtocolError) -> Log:
    try:
        return _untabled(source, others)
    except RemoteProtocolError:
        raise error from None


def _name(source: str, path: Path) -> str:
    base = Path(source)
    return path.name if path == base else str(path.relative_to(base))


def _noting(log: Log, *notes: str) -> Log:
    return replace(log, notes=(*log.notes, *notes))


def _paths(source: str) -> tuple[list[Path], int]:
    """Return the files, and how many links were passed over."""
    path = Path(source)
    if path.is_file():
        return [path], 0
    if not path.is_dir():
        raise ConfigError(source, "no such file or folder")
    # Who writes there could have another file read, such as one that is waited for.
    entries = list(_entries(path))
    links = sum(each.is_symlink() for each in entries)
    return sorted(Path(each) for each in entries if each.is_file(follow_symlinks=False)), links


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder, and in the folders in it."""
    folders, looked = [path], 0
    while folders:
        try:
            listed = os.scandir(folders.pop())
        except OSError:
            continue  # it is deeper than a path can be, or not for us
        with listed:
            for each in listed:
                looked += 1
                if looked > MAX_FILES:
                    raise ConfigError(str(path), f"more than {MAX_FILES} files in it")
                if each.name.startswith("."):
                    continue
                if each.is_dir(follow_symlinks=False):
                    folders.append(Path(each))
                yield each


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(512)


def _untabled(source: str, paths: Sequence[Path]) -> Log:
    files = Files()
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            files.add(_name(source, path), file.read(MAX_BYTES + 1))
        _progress(number + 1, len(paths))
    return files.log(now_ns=time.time_ns())


def _progress(done: int, of: int) -> None:
    if of >= MANY and sys.stderr.isatty() and (done % MANY == 0 or done == of):
        end = "\n" if done == of else "\r"
        print(f"netagent-analyzer: read {done} of {of} files", end=end, file=sys.stderr)


def _plot(path: str, log: Log, verdict: Verdict) -> None:
    named = sorted({rank for each in verdict.culprits for rank in each.ranks})
    try:
        draw_operators(path, log, named, verdict.summary)
    except CapabilityMissing as error:
        raise ConfigError("--plot", str(error)) from error


def plain(log: Log, verdict: Verdict) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        **as_json(verdict),
        "source": log.source,
        "ranks": log.world,
        "operators": len(log),
        "notes": list(log.notes),
    }


def report(log: Log, verdict: Verdict) -> Iterator[str]:
    """Yield the verdict for people."""
    yield from paragraph(f"{verdict.holdup.value}: {verdict.summary}", hang="  ")
    unseen = f", {len(log.unseen)} without a log" if log.unseen else ""
    empty = f", {len(log.silent)} with an empty log" if log.silent else ""
    of = f" over {verdict.iterations} iterations" if verdict.iterations else ""
    yield from paragraph(
        f"{log.source}: {len(log)} operators of {log.world} ranks{unseen}{empty}{of}", "  "
    )
    yield from _rest(verdict, log.notes)


def _rest(verdict: Verdict, notes: Sequence[str]) -> Iterator[str]:
    if verdict.culprits:
        yield from _named(verdict.culprits)
    if verdict.holdup not in (Holdup.NOTHING, Holdup.INSUFFICIENT, Holdup.DISAGREEMENT):
        yield ""
        says = "innocent, as far as the log shows" if verdict.innocent else "it may be the cause"
        yield f"the network: {says}"
    for title, lines in (
        ("evidence", verdict.evidence),
        ("missing", verdict.missing),
        ("note", notes),
    ):
        for line in lines[:LINES]:
            yield from paragraph(line, f"{title}: ", "  ")
        if len(lines) > LINES:
            yield f"{title}: {len(lines) - LINES} more, in --json"


def _named(culprits: Sequence[Culprit]) -> Iterator[str]:
    yield ""
    yield from table(
        ("who", "confidence", "host"),
        [(_who(each), f"{each.confidence:.2f}", each.host or "-") for each in culprits[:SHOWN]],
    )
    if len(culprits) > SHOWN:
        yield f"and {len(culprits) - SHOWN} more, in --json"
    yield ""
    for each in culprits[:SHOWN]:
        yield from paragraph(each.why, "why: ", "  ")


def _who(culprit: Culprit) -> str:
    ranks = list(map(str, culprit.ranks))
    shown = ", ".join(ranks[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    match culprit.kind:
        case Who.EDGE:
            return f"from rank {' to '.join(ranks)}"
        case Who.GROUP:
            return f"the group of {shown}"
        case Who.HOST:
            return f"host of {shown}"
    return f"rank {shown}"
