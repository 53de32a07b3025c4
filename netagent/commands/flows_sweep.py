# SPDX-License-Identifier: Apache-2.0
"""``netagent flows sweep``: many packets at once through flow tables, by how they end."""

import argparse
import json
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

FILE has one packet a line, in the notation of flows trace. Packets that end
alike are counted together: those that arrive by port or tunnel, those that
are lost by the entry that loses them, with the first line that has it.
Needs numpy (python3-numpy), which a process of its own loads.

Exit code 0: all leave by a port or a tunnel; 1: some do not, or it cannot be
told, or a line was not understood; 2: the question is wrong.
"""

_ARRIVES = {"output", "tunnelled"}


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
    if code:  # the worker has said why
        return code
    told = json.loads(printed)
    if arguments.json:
        print_json(told)
    else:
        _show(told, "stdin" if arguments.file == "-" else arguments.file)
    lost = any(fate["kind"] not in _ARRIVES for fate in told["fates"])
    return int(lost or bool(told["refused"]))


def _asked(arguments: argparse.Namespace) -> tuple[int, bytes]:
    if arguments.file == "-":
        return _ask(arguments, sys.stdin.buffer)
    try:
        with Path(arguments.file).open("rb") as packets:
            return _ask(arguments, packets)
    except OSError as e:
        raise ConfigError(arguments.file, e.strerror or str(e)) from e


def _ask(arguments: argparse.Namespace, packets: IO[bytes]) -> tuple[int, bytes]:
    place = ("--bundle", arguments.bundle) if arguments.bundle else (str(rundir_of(arguments)),)
    command = [sys.executable, "-m", "ovs_checks.sweep_worker", *place, "--", arguments.enters]
    done = subprocess.run(command, stdin=packets, stdout=subprocess.PIPE, check=False)
    if done.returncode < 0:
        raise Unreachable("sweep worker", f"ended by signal {-done.returncode}")
    return done.returncode, done.stdout


def _show(told: Mapping[str, Any], source: str) -> None:
    for fate in told["fates"]:
        print(f"{fate['count']:8}  {_ending(fate)}")
        if fate["kind"] in _ARRIVES:
            continue
        for what in ("flow", "nearest", "shadowed"):
            if what in fate:
                print(f"          {what} {fate[what]['bridge']}: {fate[what]['text']}")
        if fate["differs_in"]:
            print(f"          differs in {fate['differs_in']}")
        print(f"          such as {source}:{fate['lines'][0]}")
    for line in told["malformed"]:
        print(f"{source}:{line['line']}:{line['column']}: {line['reason']}", file=sys.stderr)
    for problem in told["problems"]:
        print(f"not read: {problem}", file=sys.stderr)
    arrive = sum(fate["count"] for fate in told["fates"] if fate["kind"] in _ARRIVES)
    refused = f", {told['refused']} lines not understood" if told["refused"] else ""
    print(f"{arrive} of {told['packets']} packets leave by a port or a tunnel{refused}")


def _ending(fate: Mapping[str, Any]) -> str:
    if fate["kind"] == "output":
        return f"leave {fate['bridge']} by {fate['port']}"
    if fate["kind"] == "tunnelled":
        return f"tunnelled by {fate['port']} to {fate['tun_dst']} with VNI {fate['tun_id']}"
    where = f" in {fate['bridge']}/table={fate['table']}" if fate["table"] >= 0 else ""
    return f"{fate['kind'].replace('_', ' ')}{where}: {fate['reason']}"
