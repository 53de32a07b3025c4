# SPDX-License-Identifier: Apache-2.0
"""``netagent flows sweep``: many packets at once through flow tables, by how they end."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from netagent.commands.asking import print_json
from netagent.commands.vswitch import add_place, rundir_of
from netagent.model.errors import ConfigError, Unreachable

EPILOG = """\
examples:
  netagent flows sweep br-int packets.txt
  seq -f 'in_port=veth3,udp,nw_dst=10.0.0.%g' 1 250 |
      netagent flows sweep br-int -
  netagent flows sweep br-int packets.txt --bundle h0.tar.gz --json

FILE has one packet a line, in the notation of flows; # begins a remark.
Packets that end alike are counted together: those that arrive by port or
tunnel, those that are lost by the entry that loses them, with the first line
that has it. What meets connection tracking, groups, NORMAL or patch ports, or
a tunnel over IPv6, is walked one by one, some thousands a second. Needs numpy
(python3-numpy), which a process of its own loads.

exit status: 0 all leave by a port or a tunnel; 1 some do not, or it cannot be
told, or a line was not understood; 2 the question is wrong; 3 Open vSwitch
does not answer
"""

_ARRIVES = {"output", "tunnelled"}
MAX_ENDS = 8
"""Ends of one packet that are shown; JSON has all. Chosen: a fate fits on a screen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("enters", metavar="BRIDGE", help="the bridge that the packets enter")
    parser.add_argument("file", metavar="FILE", help="a packet a line; - for stdin")
    add_place(parser, bundles="one", default=argparse.SUPPRESS)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print how the packets end; return 1 unless all are understood and arrive."""
    code, printed = _asked(arguments)
    if code:  # the worker has said why, to a program as well
        if arguments.json:
            sys.stdout.write(printed.decode())
        return code
    told = json.loads(printed)
    if not told["packets"] and not told["refused"]:
        raise ConfigError(arguments.file, "has no packets")
    if arguments.json:
        print_json(told)
    else:
        _show(told, "stdin" if arguments.file == "-" else arguments.file)
    lost = any(fate["kind"] not in _ARRIVES for fate in told["fates"])
    return int(lost or bool(told["refused"]))


def _asked(arguments: argparse.Namespace) -> tuple[int, bytes]:
    if arguments.file == "-":
        if sys.stdin is None:
            raise ConfigError("stdin", "is closed")
        return _ask(arguments, sys.stdin.buffer)
    try:
        with Path(arguments.file).open("rb") as packets:
            return _ask(arguments, packets)
    except OSError as e:
        raise ConfigError(arguments.file, e.strerror or str(e)) from e


def _ask(arguments: argparse.Namespace, packets: IO[bytes]) -> tuple[int, bytes]:
    place = ("--bundle", arguments.bundle) if arguments.bundle else (str(rundir_of(arguments)),)
    worker = ("-m", "ovs_checks.batch.worker", f"--parent={os.getpid()}")
    command = [sys.executable, *worker, *place, "--", arguments.enters]
    done = subprocess.run(command, stdin=packets, stdout=subprocess.PIPE, check=False)
    if done.returncode < 0:
        raise Unreachable("sweep worker", f"ended by signal {-done.returncode}")
    return done.returncode, done.stdout


def _show(told: Mapping[str, Any], source: str) -> None:
    for fate in told["fates"]:
        _show_fate(fate)
        if fate["kind"] not in _ARRIVES:
            print(f"{'':10}such as {source}:{fate['lines'][0]}")
    for line in told["malformed"]:
        print(f"{source}:{line['line']}:{line['column']}: {line['reason']}", file=sys.stderr)
    if more := told["refused"] - len(told["malformed"]):
        print(f"{source}: and {more} more lines", file=sys.stderr)
    for problem in told["problems"]:
        print(f"not read: {problem}", file=sys.stderr)
    arrive = sum(fate["count"] for fate in told["fates"] if fate["kind"] in _ARRIVES)
    refused = f", {told['refused']} lines not understood" if told["refused"] else ""
    print(f"{arrive} of {told['packets']} packets leave by a port or a tunnel{refused}")


def _show_fate(fate: Mapping[str, Any]) -> None:
    ends = fate["ends"]
    if fate["kind"] in _ARRIVES:
        by = dict.fromkeys(_ending(end) for end in ends if end["kind"] in _ARRIVES)
        print(f"{fate['count']:8}  {'; '.join(by)}")
        return
    if len(ends) == 1:
        print(f"{fate['count']:8}  {_ending(ends[0])}")
        _show_quotes(ends[0])
        return
    print(f"{fate['count']:8}  {fate['kind'].replace('_', ' ')}: {fate['reason']}")
    for end in ends[:MAX_ENDS]:
        print(f"{'':10}{end['case'] or 'in any case'}: {_ending(end)}")
        _show_quotes(end)
    if len(ends) > MAX_ENDS:
        print(f"{'':10}and {len(ends) - MAX_ENDS} more")


def _show_quotes(end: Mapping[str, Any]) -> None:
    for what in ("flow", "nearest", "shadowed"):
        if what in end:
            print(f"{'':12}{what} {end[what]['bridge']}: {end[what]['text']}")
    for quote in end["cycle"]:
        print(f"{'':12}round by {quote['bridge']}: {quote['text']}")
    if end["differs_in"]:
        print(f"{'':12}differs in {end['differs_in']}")


def _ending(end: Mapping[str, Any]) -> str:
    if end["kind"] == "output":
        return f"leave {end['bridge']} by {end['port']}"
    if end["kind"] == "tunnelled":
        return f"tunnelled by {end['port']} to {end['tun_dst']} with VNI {end['tun_id']}"
    where = f" in {end['bridge']}/table={end['table']}" if end["table"] >= 0 else ""
    return f"{end['kind'].replace('_', ' ')}{where}: {end['reason']}"
