# SPDX-License-Identifier: Apache-2.0
"""Show how the cluster's network is, live."""

import argparse
import json
import os
import select
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from analyzer.commands import connection, incidents, tasks
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.text import clock, table
from netagent.model.errors import Unreachable
from netagent.terminal import add_color, is_colored, painted

EPILOG = """\
examples:
  netagent-analyzer top
  netagent-analyzer top --every 5
  netagent-analyzer top --once | head -20

q or Ctrl-C ends it, any other key looks at once. Incidents that are not over
come first, then tasks, those hit before others. Where standard output is no
terminal, or with --once or --json, it is shown once. Who may see some tasks
only sees those.
exit status: 0; 3 if the analyzer cannot be reached at the start
"""

HOME, CLEAR_REST, CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
ALTERNATE, NORMAL = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Another screen without a cursor, and back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    text = "seconds between two looks (default: %(default)s)"
    parser.add_argument("--every", metavar="S", type=_every, default=2.0, help=text)
    parser.add_argument("--once", action="store_true", help="show it once")
    add_color(parser)
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Show it until q, or once."""
    with Connection(args) as analyzer:
        told = look(analyzer)
        if args.json:
            print(json.dumps(told, indent=2))
            return 0
        if args.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            for line in painted(frame(told), colored=is_colored(args)):
                print(line)
            return 0
        with suppress(KeyboardInterrupt), _screen():
            _live(analyzer, told, args)
    return 0


def look(analyzer: Connection) -> dict[str, Any]:
    """Return all that is shown; `status` is None for who may not see the whole."""
    try:
        status = analyzer.get("/v1/status")
    except Refused as error:
        if error.status != 403:
            raise
        status = None
    active = analyzer.all("/v1/incidents", "incidents", state="active")
    return {
        "url": analyzer.url,
        "wall_ns": time.time_ns(),
        "status": status,
        "warnings": active.get("warnings", []),
        "incidents": active["incidents"],
        "tasks": analyzer.all("/v1/tasks", "tasks")["tasks"],
    }


def frame(told: dict[str, Any], error: str = "") -> Iterator[str]:
    """Yield all lines, however many the screen has."""
    status = told["status"]
    yield f"netagent {told['url']}  {clock(told['wall_ns'])} UTC" + (f"  {error}" if error else "")
    if status is not None:
        late_s = status["judge"]["late_ns"] / 1e9
        yield (
            f"{status['agents']} agents, {status['endpoints']} endpoints, {status['tasks']} tasks"
            + (f"; judging is {late_s:.1f} s late" if late_s >= 1 else "")
        )
    yield ""
    yield from incidents.report(told["incidents"], told["warnings"], now_ns=told["wall_ns"])
    hit = Counter(task for each in told["incidents"] for task in each["tasks"])
    if told["tasks"]:
        yield ""
        header = ("TASK", "UP/EXPECTED", "PROBED BY", "INCIDENTS")
        ordered = sorted(told["tasks"], key=lambda task: (-hit[task["id"]], task["id"]))
        yield from table(header, (_task(task, hit[task["id"]]) for task in ordered))


def _task(task: dict[str, Any], hit: int) -> tuple[object, ...]:
    up = f"{tasks.up(task)}/{task['endpoints_expected']}"
    return task["id"], up, task["list"], hit or "-"


def _live(analyzer: Connection, told: dict[str, Any], args: argparse.Namespace) -> None:
    error, colored = "", is_colored(args)
    while True:
        _draw(list(frame(told, error)), colored=colored)
        ready, _, _ = select.select([sys.stdin], [], [], args.every)
        # What was typed is read past Python's own buffer, which `select` does not see.
        if ready and os.read(sys.stdin.fileno(), 64)[:1] in {b"q", b"Q", b""}:
            return
        try:
            told, error = look(analyzer), ""
        except Unreachable:
            error = "does not answer; as it was"


def _draw(lines: list[str], *, colored: bool) -> None:
    """Show what fits; the last line says how many do not."""
    columns, rows = shutil.get_terminal_size()
    if len(lines) > rows - 1:
        lines = [*lines[: rows - 2], f"{len(lines) - rows + 2} lines more"]
    cut = (line[:columns] for line in lines)
    text = "".join(f"{line}{CLEAR_LINE}\n" for line in painted(cut, colored=colored))
    sys.stdout.write(f"{HOME}{text}{CLEAR_REST}")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[None]:
    """Let keys come at once and unseen, on a screen of its own."""
    import termios  # noqa: PLC0415 - only a terminal has it
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(ALTERNATE)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(NORMAL)
        sys.stdout.flush()


def _every(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("0.2 to 3600 seconds")
    return seconds
