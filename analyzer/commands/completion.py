# SPDX-License-Identifier: Apache-2.0
"""Let a shell complete verbs, options, incidents, tasks and endpoints."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from netagent.model.errors import NetAgentError

EPILOG = """\
examples:
  source <(netagent-analyzer completion bash)
  netagent-analyzer completion bash > ~/.bash_completion.d/netagent-analyzer

Names of incidents, tasks and endpoints are asked of the analyzer, which the
environment names; where it does not answer at once, none is offered.
exit status: 0
"""

BASH = """\
_netagent_analyzer() {
    mapfile -t COMPREPLY < <(netagent-analyzer completion \\
        "--last=:${COMP_WORDS[COMP_CWORD]}" words -- \\
        "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
}
complete -o default -F _netagent_analyzer netagent-analyzer
"""
"""Names are hosts' and containers' own: `compgen -W` would run what stands in them as $(...)."""

WAIT_S = 2.0
"""Seconds that the analyzer may take. Chosen: who presses a key waits for no longer."""
MOST = 500
"""Most names that are offered. Chosen: more are no help."""

NAMES: dict[str, tuple[str, str]] = {
    "show": ("/v1/incidents", "incidents"),
    "feedback": ("/v1/incidents", "incidents"),
    "skeleton": ("/v1/tasks", "tasks"),
    "innocent": ("/v1/tasks", "tasks"),
    "declare": ("/v1/tasks", "tasks"),
    "diagnose": ("/v1/endpoints", "endpoints"),
    "history": ("/v1/endpoints", "endpoints"),
}
"""Verb -> what its arguments are the names of: path, and list of the answer."""
OPTIONS: dict[str, tuple[str, str] | None] = {
    "--task": ("/v1/tasks", "tasks"),
    "--endpoint": ("/v1/endpoints", "endpoints"),
    "--source": ("/v1/endpoints", "endpoints"),
    "--target": ("/v1/endpoints", "endpoints"),
    "--component": None,
    "--since": None,
    "--until": None,
}
"""Option -> the same of what follows it; None where nothing names that."""
WORDS = ("right", "wrong")
"""What follows the incident of `feedback`."""

ParserOf = Callable[[Sequence[str]], argparse.ArgumentParser]
Ask = Callable[[str, str], Iterable[str]]
"""Function that returns the names in the list at a path."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("what", choices=("bash", "words"), help="a script; or what it asks for")
    parser.add_argument("words", nargs="*", help="what was typed before")
    parser.add_argument("--last", metavar="WORD", default="", help="to be completed, after a colon")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the script, or the words that could follow."""
    if args.what == "bash":
        print(BASH, end="")
        return 0

    def ask(path: str, name: str) -> list[str]:
        try:
            with Connection(args, timeout_s=WAIT_S) as analyzer:
                found: list[dict[str, Any]] = analyzer.get(path, limit=MOST)[name]
        except NetAgentError:
            return []
        return [str(each["id"]) for each in found]

    with suppress(NetAgentError):  # of a verb whose needs are not installed
        for word in following([*args.words, args.last.removeprefix(":")], ask, args.parser_of):
            print(word)
    return 0


def following(words: Sequence[str], ask: Ask, parser_of: ParserOf) -> list[str]:
    """Return what the last word may become; `words` are those after the program's name.

    `parser_of` returns the program's parser, with the arguments of the verb among some words.
    """
    *before, last = words or [""]
    typed = [word for word in before if not word.startswith("-")]
    verbs = _verbs(parser_of(typed[:1]))
    if not typed:
        found: Iterable[str] = verbs
    elif typed[0] not in verbs:
        found = ()
    elif last.startswith("-"):
        actions = verbs[typed[0]]._actions  # noqa: SLF001 - argparse has no other way
        found = sorted(o for each in actions for o in each.option_strings if o.startswith("--"))
    elif typed[0] == "feedback" and len(typed) > 1 and not before[-1].startswith("-"):
        found = WORDS
    else:
        source = OPTIONS.get(before[-1], NAMES.get(typed[0]))
        found = ask(*source) if source else ()
    return [word for word in found if word.startswith(last) and _is_plain(word, last)]


def _is_plain(word: str, last: str) -> bool:
    """Return whether a word is one to a shell as it stands, and no option that nobody began."""
    return quote(word) == word and (last.startswith("-") or not word.startswith("-"))


def _verbs(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (choices,) = (a.choices for a in top._actions if isinstance(a.choices, dict))  # noqa: SLF001
    return choices
