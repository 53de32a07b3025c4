# SPDX-License-Identifier: Apache-2.0
"""Lists that are printed again and again, as `watch` of procps does it."""

import argparse
import io
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout

from netagent.model.errors import Unreachable

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
"""Cursor home, and all that is shown and was scrolled away deleted."""
LEAST_S = 0.5
"""Least seconds between two lists. Chosen: an answer may have thousands of rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how often a list is printed."""
    text = "print it every N seconds, until Ctrl-C"
    parser.add_argument("--watch", metavar="N", type=_seconds, help=text)


def repeated(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Print what a verb prints, over and over, until interrupted; return 0.

    An analyzer that cannot be reached any more is waited for.
    """
    is_first, pause = True, threading.Event()
    try:
        while True:
            printed = io.StringIO()
            try:
                with redirect_stdout(printed):
                    run(args)
            except Unreachable as error:
                if is_first:
                    raise
                print(f"netagent-analyzer: {error}; trying again", file=sys.stderr)
            else:
                _show(printed.getvalue(), args, is_first=is_first)
            is_first = False
            pause.wait(args.watch)
    except KeyboardInterrupt:
        return 0


def _show(text: str, args: argparse.Namespace, *, is_first: bool) -> None:
    if args.json:
        before = ""
    elif sys.stdout.isatty():
        at = time.strftime("%H:%M:%SZ", time.gmtime())
        before = f"{CLEAR}every {args.watch:g} s: {args.verb}, {at}\n\n"
    else:
        before = "" if is_first else "\n"
    print(f"{before}{text}", end="", flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_S <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"seconds, {LEAST_S:g} at least")
    return seconds
