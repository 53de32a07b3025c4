# SPDX-License-Identifier: Apache-2.0
"""The process that `netagent flows sweep` starts, since it holds numpy and what the tables take.

`python -m ovs_checks.batch.worker --parent PID PLACE BRIDGE` reads packets from stdin, a line each,
and prints one JSON document. PLACE is Open vSwitch's socket folder, or with `--bundle` what was
kept of one.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from netagent.model.errors import CapabilityMissing, ConfigError, NetAgentError, plain_of, status_of
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import MalformedLine, parse_packet
from ovs_checks.sources.answers import open_answers
from ovs_checks.sources.vswitchd import Vswitchd
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.ends import End

if TYPE_CHECKING:
    from .sweep import Fate, Sweep

TOGETHER = 20_000
"""Packets held at a time. Chosen: some 20 MB, and large enough for a batch to pay."""

MAX_MALFORMED = 100
"""Malformed lines that are reported with their error; all are counted. Chosen: the first hundred
show what is wrong."""

_PR_SET_PDEATHSIG = 1
"""Operation PR_SET_PDEATHSIG of linux/prctl.h."""

NICE = 5
"""Niceness of the process. Chosen: it yields to the training job."""


@dataclass
class Lines:
    """Packets as somebody wrote them: one a line, `#` begins a remark."""

    source: TextIO
    ports: Mapping[str, int]
    numbers: list[int] = field(default_factory=list)
    """The line of every packet that was understood."""

    malformed: list[dict[str, object]] = field(default_factory=list)
    refused: int = 0

    def __iter__(self) -> Iterator[Header]:
        for number, line in enumerate(self.source, start=1):
            text = line.partition("#")[0].rstrip()
            if not text:
                continue
            try:
                header = parse_packet(text, self.ports)
            except MalformedLine as e:
                self.refused += 1
                if self.refused <= MAX_MALFORMED:
                    where = {"line": number, "column": e.column}
                    self.malformed.append({**where, "reason": e.reason})
                continue
            self.numbers.append(number)
            yield header


def main() -> int:
    """Print what becomes of the packets on stdin; return 1 if that is not known, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m ovs_checks.batch.worker")
    parser.add_argument("--bundle", action="store_true", help="PLACE is a bundle or a sosreport")
    parser.add_argument("--parent", type=int, required=True, help="its process number")
    parser.add_argument("place", type=Path)
    parser.add_argument("bridge")
    arguments = parser.parse_args()
    _end_with(arguments.parent)
    os.nice(NICE)
    try:
        told = answer(_snapshot(arguments), arguments.bridge, sys.stdin)
    except NetAgentError as e:
        sys.stderr.write(f"netagent: {e}\n")
        sys.stdout.write(json.dumps(plain_of(e)) + "\n")
        return status_of(e)
    except KeyboardInterrupt:
        return 130
    json.dump(told, sys.stdout)
    return 0


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    if not arguments.bundle:
        return Vswitchd(arguments.place).snapshot(os.uname().nodename)
    answers = open_answers(arguments.place)
    return assemble(answers, answers.host, wall_ns=answers.wall_ns)


def answer(snapshot: Snapshot, name: str, source: TextIO) -> dict[str, Any]:
    """Return what becomes of the packets, as plain data.

    Raises
    ------
    ConfigError
        If there is no such bridge.
    CapabilityMissing
        If there is no numpy.
    """
    bridge = snapshot.by_name.get(name)
    if bridge is None:
        known = ", ".join(sorted(snapshot.by_name)) or "none"
        raise ConfigError("BRIDGE", f"no bridge {name!r} (there is: {known})")
    ports = {port.name: port.ofport for port in bridge.ports if port.ofport >= 0}
    sweep, lines = _sweep(snapshot, name), Lines(source, ports)
    packets = iter(lines)
    while some := list(islice(packets, TOGETHER)):
        sweep.add(some)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{sweep.count} packets\r")
    return {
        "host": snapshot.host,
        "bridge": name,
        "packets": sweep.count,
        "fates": [_data(fate, lines.numbers) for fate in sweep.fates],
        "refused": lines.refused,
        "malformed": lines.malformed,
        "problems": list(snapshot.problems),
    }


def _sweep(snapshot: Snapshot, bridge: str) -> "Sweep":
    try:
        from .sweep import Sweep  # noqa: PLC0415 - needs numpy, which a host may lack
    except ImportError as e:
        raise CapabilityMissing("many packets at once", f"install python3-numpy ({e})") from e
    return Sweep(snapshot, bridge)


def _data(fate: "Fate", numbers: list[int]) -> dict[str, Any]:
    end = fate.walk.end
    return {
        "kind": end.kind,
        "reason": end.reason,
        "count": len(fate.packets),
        "ends": [_end_data(one) for one in fate.walk.ends],
        "lines": sorted(numbers[place] for place in fate.packets),
    }


def _end_data(end: End) -> dict[str, Any]:
    quotes = {"flow": end.flow, "nearest": end.nearest, "shadowed": end.shadowed}
    return {
        "case": end.case,
        "kind": end.kind,
        "bridge": end.bridge,
        "table": end.table,
        "port": end.port,
        "tun_dst": end.tun_dst,
        "tun_id": end.tun_id,
        "reason": end.reason,
        **{name: asdict(quote) for name, quote in quotes.items() if quote},
        "cycle": [asdict(quote) for quote in end.cycle],
        "differs_in": end.field,
    }


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
