# SPDX-License-Identifier: Apache-2.0
"""What both programs' command lines share: exit statuses, errors, colours, and that one waits."""

import argparse
import errno
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from netagent.model.errors import ConfigError, NetAgentError, plain_of, status_of

NEGATIVE, USAGE, UNAVAILABLE = 1, 2, 3
"""Exit statuses: the answer is negative; the question cannot be asked so; there is no answer."""
INTERRUPTED, PIPE = 130, 141
"""As a shell reports a command killed by SIGINT, or by SIGPIPE: 128 and the signal."""

PATIENCE_S = 1.0
"""Seconds after which somebody at a terminal is told that one waits. Chosen: longer looks dead."""

STYLES = {
    "open": "33", "opened": "33", "revised": "33", "confirmed": "31", "recovered": "32",
    "unobserved": "35", "observed": "33",
}  # fmt: skip
"""Word of an incident's state -> its colour: yellow, red, green, magenta."""
_STATE = re.compile(rf"^((?:incident )?\S+ +)({'|'.join(STYLES)})\b")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are JSON as well, where that is asked for."""

    as_json = False

    def parse_known_args(  # type: ignore[override] # argparse's has overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse what is left over here, where the verb's own usage is known."""
        known, rest = super().parse_known_args(args, namespace)
        if rest and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with USAGE."""
        if self.as_json:
            remedy = f"see {self.prog} --help"
            print(json.dumps({"error": message, "remedy": remedy}))
        super().error(message)


def parser_class(words: Sequence[str]) -> type[Parser]:
    """Return the class of the parser of these words."""
    as_json = "--json" in words
    return type("_Parser", (Parser,), {"as_json": as_json})


def add_json(verb: argparse.ArgumentParser) -> None:
    """Let a verb that prints no JSON itself print its errors so."""
    if "--json" not in verb._option_string_actions:  # noqa: SLF001 - argparse has no other way
        verb.add_argument("--json", action="store_true", help="print an error as JSON, too")


def ended(program: str, as_json: bool, run: Callable[[], int]) -> int:  # noqa: FBT001
    """Return the exit status of `run()`; what it raises is said on stderr, and as JSON on stdout.

    Bugs are raised.
    """
    try:
        status = _ended(program, as_json, run)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EPIPE}:
            raise
        # Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # the reader (head, grep -q) had enough
            return PIPE
        print(f"{program}: cannot write: {error.strerror}", file=sys.stderr)
        return UNAVAILABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def unusable(error: ConfigError) -> dict[str, object]:
    """Return what a program reads of a configuration file that cannot be used."""
    remedy = f"correct line {error.line}" if error.line is not None else ""
    told = {"ok": False, "file": error.path, "line": error.line}
    return {**told, "error": error.message, "remedy": remedy}


def _ended(program: str, as_json: bool, run: Callable[[], int]) -> int:  # noqa: FBT001
    try:
        return run()
    except NetAgentError as error:
        print(f"{program}: {error}", file=sys.stderr)
        if as_json:
            print(json.dumps(plain_of(error)))
        return status_of(error)


# --- colours ------------------------------------------------------------------------------------


def add_color(parser: argparse.ArgumentParser) -> None:
    """Declare when states are coloured."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour states; auto: at a terminal, without NO_COLOR (default)",
    )


def is_colored(args: argparse.Namespace) -> bool:
    """Return whether standard output gets colours (https://no-color.org)."""
    if args.color != "auto":
        return bool(args.color == "always")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def painted(lines: Iterable[str], *, colored: bool) -> Iterator[str]:
    """Yield lines, with the state of the incident that one begins with in its colour."""
    for line in lines:
        yield _STATE.sub(_in_color, line) if colored else line


def _in_color(found: re.Match[str]) -> str:
    before, state = found.groups()
    return f"{before}\x1b[{STYLES[state]}m{state}\x1b[0m"


# --- waiting ------------------------------------------------------------------------------------


class Waiting:
    """Says on stderr, at a terminal, for how long one waits, until something is printed."""

    def __init__(self, program: str) -> None:
        self._program, self._over = program, threading.Event()
        self._is_shown, self._thread = False, threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> "Waiting":  # noqa: PYI034 - Self is of 3.11
        if sys.stdout is not None and sys.stderr is not None and sys.stderr.isatty():
            self._stdout, self._write = sys.stdout, sys.stdout.write
            self._stdout.write = self._first  # type: ignore[method-assign] # print() looks it up
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _first(self, text: str) -> int:
        self._end()
        return self._write(text)

    def _end(self) -> None:
        if not self._thread.is_alive():
            return
        self._over.set()
        self._thread.join()
        self._stdout.write = self._write  # type: ignore[method-assign] # as it was
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _tell(self) -> None:
        seconds = 0
        while not self._over.wait(PATIENCE_S):
            seconds += 1
            self._is_shown = True
            sys.stderr.write(f"\r{self._program}: {seconds} s ...")
            sys.stderr.flush()


def patiently(program: str, run: Callable[[Any], int], args: Any) -> int:
    """Return `run(args)`, while somebody at a terminal is told that one waits."""
    with Waiting(program):
        return run(args)
