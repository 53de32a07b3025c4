# SPDX-License-Identifier: Apache-2.0
"""Run a recording again."""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analyzer.commands import incidents, show
from analyzer.commands.connection import readable
from analyzer.commands.text import instant, paragraph
from analyzer.replay import records
from analyzer.replay.player import Played, play, read
from analyzer.server import views
from netagent.model.errors import ConfigError, RemoteProtocolError

EPILOG = """\
examples:
  netagent-analyzer replay slow-tuesday.recording
  netagent-analyzer replay slow-tuesday.recording --show
  netagent-analyzer replay slow-tuesday.recording --until +120
  netagent-analyzer replay slow-tuesday.recording --until 2026-11-22T09:30:00Z
  netagent-analyzer replay slow-tuesday.recording --json | jq .incidents

exit status: 0 the same incidents as were told then, byte for byte; 1 others;
2 the recording is damaged (the message names the place) or cannot be read
"""

SAME, OTHER = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="as `record` wrote it")
    parser.add_argument(
        "--until",
        metavar="T",
        help="stop there: an instant (ISO 8601, or Unix nanoseconds), or +SECONDS from the start",
    )
    parser.add_argument("--show", action="store_true", help="print incidents with their evidence")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Replay, and print what it comes to."""
    began_s = time.monotonic()
    played = _played(args.file, lambda: _until(args, args.file))
    took_s = time.monotonic() - began_s
    told = [views.incident(each) for each in played.incidents.values()]
    if args.json:
        print(json.dumps(_plain(played, told, took_s), indent=2))
    else:
        for line in report(played, told, took_s, with_evidence=args.show):
            print(readable(line))  # a recording has what hosts said
    return SAME if not played.differences else OTHER


def replayed(name: str) -> list[dict[str, Any]]:
    """Return the incidents of a recording, as the API shows them. Raises ConfigError."""
    return [views.incident(each) for each in _played(name).incidents.values()]


def _played(name: str, until: Callable[[], int | None] = lambda: None) -> Played:
    try:
        with Path(name).open("rb") as file:
            return play(read(file), until_ns=until())
    except OSError as error:
        raise ConfigError(name, f"cannot be read: {error.strerror}") from error
    except RemoteProtocolError as error:
        raise ConfigError(name, str(error)) from error


def _until(args: argparse.Namespace, name: str) -> int | None:
    text = args.until
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    if re.fullmatch(r"\+\d+(\.\d+)?", text):
        return _first_ns(name) + round(float(text) * 1e9)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            "--until", f"{text!r} is no instant; write 2026-11-22T09:30Z or +SECONDS"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)


def _first_ns(name: str) -> int:
    with Path(name).open("rb") as file:
        instants = (getattr(record, "now_ns", 0) for record in read(file))
        return next((each for each in instants if each), 0)


def _plain(played: Played, told: list[Any], took_s: float) -> dict[str, Any]:
    return {
        "recorded_by": played.header.netagent,
        "first_ns": played.first_ns,
        "last_ns": played.last_ns,
        "summaries": played.summaries,
        "changes": played.told,
        "seconds": round(took_s, 3),
        "same": not played.differences,
        "differences": played.differences,
        "incidents": told,
    }


def report(
    played: Played, told: list[dict[str, Any]], took_s: float, *, with_evidence: bool
) -> Iterator[str]:
    """Yield what was replayed, the incidents, and whether they are those of then."""
    speed = played.seconds / took_s if took_s else 0.0
    yield f"recorded by netagent {played.header.netagent}, format {records.FORMAT}"
    yield f"from {instant(played.first_ns)} to {instant(played.last_ns)}"
    yield (
        f"{played.summaries} summaries of {played.seconds:.0f} s in {took_s:.1f} s: "
        f"{speed:.0f} times as fast"
    )
    yield ""
    if with_evidence:
        for each in told:
            yield from show.report(each, pairs=8)
            yield ""
    else:
        yield from incidents.report(told[::-1])
        yield ""
    if not played.whole:
        text = "what was learned before the recording begins is not known: it may differ at first"
        yield from paragraph(text)
    if not played.differences:
        yield f"the same as then: {played.told} changes of {len(told)} incidents"
    for difference in played.differences:
        yield from paragraph(f"not as then: {difference}", hang="  ")
