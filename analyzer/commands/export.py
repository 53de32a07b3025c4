# SPDX-License-Identifier: Apache-2.0
"""Copy history of a time to a folder, as Parquet."""

import argparse
import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.instants import FORMS, span_of
from analyzer.history.files import Piece, Tier
from analyzer.replay.frames import payloads
from analyzer.store.parquet import HALF, Parquet
from analyzer.store.raw import Windows, write_incidents
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.wire.codec import decode
from netagent.wire.messages import Summary

EPILOG = """\
examples:
  netagent-analyzer export --since 2d -o tuesday
  netagent-analyzer export --since 2026-11-01 --until 2026-11-08 -o week \\
      --only hour --only incidents
  duckdb -c "SELECT component, sum(lost)
             FROM 'week/hour/*/*.components.parquet'
             GROUP BY ALL ORDER BY 2 DESC LIMIT 9"

Into the folder go minute/DAY/*.parquet and hour/DAY/*.parquet as the analyzer
has them (an hour of minutes, or a day of hours, in one file; they may begin
before T), windows/*.parquet with a row for each flow of each window that it
still has, and incidents.parquet. Files named *_trips have histograms of round
trips; docs/operating.md says what the columns are. Times are Unix nanoseconds.
It needs an admin's certificate.

exit status: 0 written; 1 there is nothing of that time; 2 usage, or it cannot
be written; 3 the analyzer cannot be reached
"""

PARTS = ("minute", "hour", "windows", "incidents")
STREAM_S = 300.0
"""Seconds without a byte after which it is given up. Chosen: a slow disk may pause, a dead
connection never ends."""
READING_S = 60.0
"""Seconds that the analyzer may take to list files, or to read one. Chosen: a month of minutes is
listed in a second."""
LIMIT = 10_000
"""Files named at once."""
GONE = 404


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--since", metavar="T", required=True, help=FORMS)
    parser.add_argument("--until", metavar="T", help="likewise (default: now)")
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="where to")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="instead of all; may be given again"
    )
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the files; say how many there are of each kind."""
    since_ns, until_ns = span_of(args.since, args.until, now_ns=time.time_ns())
    wanted = args.only or PARTS
    with (
        _made(args.output) as folder,
        Connection(args) as analyzer,
        Parquet(folder / "spill") as parquet,
    ):
        span = since_ns, until_ns
        said: dict[str, int] = {}
        for tier in Tier:
            if tier in wanted:
                said[f"{tier}_files"] = _copy(analyzer, folder, tier, span)
        if "windows" in wanted:
            said |= _windows(analyzer, folder, parquet, span)
        if "incidents" in wanted:
            said["incidents"] = _incidents(analyzer, folder, parquet, span)
    print(json.dumps(said, indent=2) if args.json else _told(folder, said))
    return 0 if any(said.values()) else 1


@contextlib.contextmanager
def _made(output: str) -> Iterator[Path]:
    """Give the folder to write to; one that was not there, and is empty, goes again."""
    folder = Path(output)
    try:
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(output, f"cannot be made: {error.strerror}") from error
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # something was written
            for each in new:
                each.rmdir()


def _told(folder: Path, said: dict[str, int]) -> str:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in said.items())
    return f"{folder}: {counts}"


def _copy(analyzer: Connection, folder: Path, tier: Tier, span: tuple[int, int]) -> int:
    """Copy the files of a tier; return how many.

    One that is gone was put together with others, or deleted. So all are listed once more.
    """
    copied: set[Piece] = set()
    for _ in range(2):
        listed = _listed(analyzer, tier, span)
        got = {each for each in listed if each in copied or _fetched(analyzer, folder, each)}
        copied |= got
        if len(got) == len(listed):
            break
    for each in [each for each in copied if not each.packed and each.pack in copied]:
        (folder / each.path).unlink()
        copied.remove(each)
    return len(copied)


def _listed(analyzer: Connection, tier: Tier, span: tuple[int, int]) -> list[Piece]:
    asked = {"tier": tier.value, "since_ns": span[0], "until_ns": span[1], "limit": LIMIT}
    names = analyzer.all("/v1/history/files", "files", wait_s=READING_S, **asked)["files"]
    found = list[Piece]()
    for name in names:
        piece = Piece.of(Path(name))
        if piece is None:  # who answers does not say where to write
            raise RemoteProtocolError(f"{name!r} is no file of a history")
        found.append(piece)
    return found


def _fetched(analyzer: Connection, folder: Path, piece: Piece) -> bool:
    """Copy a file; return whether it was there."""
    try:
        body = analyzer.fetch(f"/v1/history/files/{piece.path}")
    except Refused as error:
        if error.status != GONE:
            raise
        return False
    _write(folder / piece.path, body)
    return True


def _write(path: Path, body: bytes) -> None:
    half = path.with_name(path.name + HALF)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half.write_bytes(body)
        half.chmod(0o600)
        half.replace(path)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from error


def _windows(
    analyzer: Connection, folder: Path, parquet: Parquet, span: tuple[int, int]
) -> dict[str, int]:
    """Write stored windows as they come; return how many rows there are, and odd summaries."""
    out, odd = Windows(folder / "windows", parquet), 0
    for payload in _payloads(analyzer, span):
        try:
            out.add(decode(payload, Summary))
        except RemoteProtocolError:
            odd += 1
    out.flush()
    found = {"window_files": out.files, "window_rows": out.rows}
    return found | ({"odd_summaries": odd} if odd else {})


class _Chunks(io.RawIOBase):
    """What comes piece by piece, as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def _payloads(analyzer: Connection, span: tuple[int, int]) -> Iterator[bytes]:
    asked = {"since_ns": span[0], "until_ns": span[1]}
    chunks = analyzer.chunks("/v1/history/windows", timeout_s=STREAM_S, **asked)
    for _, _, payload in payloads(io.BufferedReader(_Chunks(chunks))):
        yield payload


def _incidents(analyzer: Connection, folder: Path, parquet: Parquet, span: tuple[int, int]) -> int:
    """Write the incidents that were open at some time between; return how many."""
    known = analyzer.all("/v1/incidents", "incidents", since=span[0])["incidents"]
    mine = [each for each in known if _is_between(each, span)]
    rows = [each | {"body": json.dumps(each)} for each in mine]
    write_incidents(folder / "incidents.parquet", parquet, rows)
    return len(mine)


def _is_between(incident: dict[str, Any], span: tuple[int, int]) -> bool:
    over_ns = incident["recovered_ns"]
    return incident["detected_ns"] < span[1] and (over_ns is None or over_ns >= span[0])
