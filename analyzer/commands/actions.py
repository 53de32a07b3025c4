# SPDX-License-Identifier: Apache-2.0
"""Say what was done about incidents, and what could be; do it, undo it."""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection
from analyzer.commands.text import cut, instant, paragraph

EPILOG = """\
examples:
  netagent-analyzer actions
  netagent-analyzer actions dry-run i6b0005c6-c96d
  netagent-analyzer actions do i6b0005c6-c96d-3f2a91c0
  netagent-analyzer actions undo i6b0005c6-c96d-3f2a91c0
  netagent-analyzer actions close "the cable was loose"

dry-run asks the host what it would do, and changes nothing. do needs no two
confirmations and no closed breaker, but each action is done once, and limits
and the host's own permission hold. close lets the analyzer act again after
something failed or did not help. All but the list are for administrators.
exit status: 0; 1 where nothing can be done; 2 if it is refused or fails
"""

WORDS = {"dry-run": "INCIDENT", "do": "ID", "undo": "ID", "close": "[WHY]"}
"""What can be asked for, and of what."""
WAIT_S = 75.0
"""Seconds that something may take to be done. Chosen: above what the analyzer waits for a host."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    words = tuple(WORDS)
    parser.add_argument("what", choices=words, nargs="?", help="by default: list what was done")
    parser.add_argument(
        "of", metavar="ID", nargs="?", help="an incident's or an action's; or why to close"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=100, help="newest entries (default: %(default)s)"
    )
    connection.add_arguments(parser)
    parser.set_defaults(fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Print what was done, or have something done."""
    if args.what is not None and args.what != "close" and not args.of:
        args.fail(f"write {args.what} {WORDS[args.what]}")
    with Connection(args) as analyzer:
        answer = _asked(analyzer, args)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for line in _lines(args, answer):
            print(line)
    return 1 if args.what == "dry-run" and not answer["actions"] else 0


def _asked(analyzer: Connection, args: argparse.Namespace) -> Any:
    match args.what:
        case None:
            return analyzer.get("/v1/actions", limit=args.limit)
        case "dry-run":
            body = {"incident": args.of}
        case "close":
            body = {"why": args.of or ""}
        case _:
            body = {"id": args.of}
    return analyzer.post(f"/v1/actions/{args.what}", body, timeout_s=WAIT_S)


def _lines(args: argparse.Namespace, answer: dict[str, Any]) -> Iterator[str]:
    match args.what:
        case None:
            yield from report(answer)
        case "dry-run":
            yield from offers(answer["actions"])
        case "close":
            was = answer["was"]
            yield from paragraph(f"closed; it was open: {was}" if was else "it was not open")
        case _:
            yield f"{args.of}: {'done' if args.what == 'do' else 'undone'}"


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what is permitted, then two lines or more for each entry, newest last."""
    verbs = ", ".join(answer["verbs"]) or "nothing by itself"
    yield cut(f"mode {answer['mode']}" + (f": {verbs}" if answer["mode"] == "act" else ""))
    if answer["breaker"]:
        yield from paragraph(f"breaker open: {answer['breaker']}", hang="  ")
    if not answer["stored"]:
        yield "the disk refuses the trail: nothing is done by itself"
    if not answer["entries"]:
        yield "nothing was done or proposed"
    for entry in answer["entries"]:
        yield from _entry(entry)


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    action = entry["action"]
    about = f"{action['verb']} on {action['host']}" if action else "breaker"
    yield cut(f"{instant(entry['wall_ns'])[:19]}Z  {entry['step']:<12}  {about}")
    if action:
        yield f"  id {action['id']}"
    said = f"{entry['text']} (by {entry['by']})" if entry["text"] else f"by {entry['by']}"
    yield from paragraph(said, "  ", "    ")


def offers(actions: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what could be done: its id, the commands, what was read, why it may not."""
    found = list(actions)
    if not found:
        yield "nothing that netagent could do"
    for each in found:
        became = f"  ({each['became']})" if each["became"] else ""
        yield cut(f"{each['verb']} on {each['host']}{became}")
        yield f"  id       {each['id']}"
        for name in ("command", "undo"):
            if each[name]:
                yield from paragraph(each[name], f"  {name:<7}  ", " " * 11)
        for said in each.get("read", ()):
            yield from paragraph(said, "  read     ", " " * 11)
        if each["problem"]:
            yield from paragraph(each["problem"], "  may not  ", " " * 11)
