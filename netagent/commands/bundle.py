# SPDX-License-Identifier: Apache-2.0
"""``netagent bundle``: all that questions about the virtual switch need, in one file."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from netagent import __version__
from netagent.commands.asking import print_json
from netagent.commands.vswitch import add_place, rundir_of
from netagent.model.errors import CapabilityMissing, ConfigError, NetAgentError, Unreachable
from ovs_checks.sources import vswitchd
from ovs_checks.switch.assemble import assemble
from ovs_checks.switch.bundle import Bundle, Recorder, pack
from ovs_checks.switch.shows import parse_datapath_ports

EPILOG = """\
examples:
  netagent bundle
  netagent bundle --output h0.tar.gz --samples 5 --interval 10
  netagent flows trace --bundle h0.tar.gz br-int in_port=3,udp

Asks Open vSwitch, tc and ip once each for what they hold, and writes the
answers to one archive: OVSDB (bridges, ports, interfaces, mirrors), flows,
groups, meters, learned addresses, tunnels, the datapath's flows, filters of
tc, routes, neighbours, versions. It holds names, addresses and headers that
flows match, but no packet's content. --samples repeats what changes.

exit status: 0 written; 2 the command is wrong; 3 Open vSwitch does not answer
"""

TIMEOUT_S = 10.0
"""Seconds one tool may take. Chosen: a frozen ovs-vswitchd does not hold up the rest of the bundle
for long."""
MAX_TOOL_BYTES = 64 * 1024 * 1024
"""Bytes of one tool's output that are kept. Chosen: a dump of several hundred thousand flows
fits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--output", metavar="FILE", help="(netagent-bundle-HOST-TIME.tar.gz)")
    parser.add_argument("--host", help="what to call this host (its own name)")
    add_samples(parser, 1)
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_samples(parser: argparse.ArgumentParser, count: int) -> None:
    """Declare how often to ask for what changes with traffic."""
    parser.add_argument(
        "--samples", type=int, default=count, help="of the datapath and tc (%(default)s)"
    )
    parser.add_argument(
        "--interval", type=float, default=10.0, metavar="S", help="between samples (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle."""
    bundle = collect(arguments)
    data = pack(bundle, version=__version__)
    made = datetime.fromtimestamp(bundle.wall_ns / 1e9, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = Path(arguments.output or f"netagent-bundle-{bundle.host}-{made}.tar.gz")
    _write(path, data)
    if arguments.json:
        print_json(
            {
                "file": str(path),
                "bytes": len(data),
                "host": bundle.host,
                "wall_ns": bundle.wall_ns,
                "answers": len(bundle.answers),
                "refused": dict(bundle.refused),
            }
        )
        return 0
    print(f"{path}: {len(bundle.answers)} answers, {len(data)} bytes")
    for command, reason in bundle.refused:
        print(f"  no answer to {command}: {reason}")
    return 0


def collect(arguments: argparse.Namespace) -> Bundle:
    """Ask this host for all that a bundle holds."""
    if not (1 <= arguments.samples <= 1000 and 0 < arguments.interval <= 3600):
        raise ConfigError("command line", "--samples 1 to 1000, --interval up to 3600 s")
    host = getattr(arguments, "host", None) or os.uname().nodename
    recorder = Recorder(vswitchd.Vswitchd(rundir_of(arguments)), host, time.time_ns)
    snapshot = assemble(recorder, host)
    bridges = [bridge.name for bridge in snapshot.bridges]
    datapaths = sorted({bridge.datapath for bridge in snapshot.bridges})
    for name in ("ofproto/list-tunnels", "tnl/neigh/show", "ovs/route/show", "upcall/show"):
        _ovs(recorder, name)
    for command in ("ip -j -s -d link", "ip -j addr", "ip -j route show table all", "ip -j neigh"):
        _tool(recorder, command)
    _tool(recorder, "uname -r")
    devices = {name for datapath in datapaths for name in devices_of(recorder, datapath)}
    for sample in range(arguments.samples):
        if sample:
            time.sleep(arguments.interval)
        _progress(f"sample {sample + 1} of {arguments.samples}")
        look(recorder, bridges, datapaths, sorted(devices))
    return recorder.bundle()


def look(
    recorder: Recorder, bridges: Iterable[str], datapaths: Iterable[str], devices: Iterable[str]
) -> None:
    """Ask for what changes with traffic: one sample of the tables' copies."""
    for bridge in bridges:
        _ovs(recorder, "bridge/dump-flows", "--offload-stats", bridge)
    for datapath in datapaths:
        _ovs(recorder, "dpctl/dump-flows", "-m", datapath)
    for device in devices:
        _tool(recorder, f"tc -s filter show dev {device} ingress")


def _ovs(recorder: Recorder, name: str, *arguments: str) -> str:
    """Ask Open vSwitch for what nothing depends on; the recorder notes a refusal."""
    with suppress(NetAgentError):
        return recorder.command(name, *arguments)
    return ""


def _tool(recorder: Recorder, command: str) -> None:
    with suppress(NetAgentError):
        recorder.keep(command, _running(command))


def devices_of(recorder: Recorder, datapath: str) -> list[str]:
    """Return the network devices that are ports of the kernel's datapath."""
    shown = _ovs(recorder, "dpctl/show", "-s", datapath)
    names = parse_datapath_ports(shown) if datapath.startswith("system@") else {}
    return [name for name in names if Path("/sys/class/net", name).exists()]


def _running(command: str) -> Callable[[], str]:
    """Return a function that runs a command, bounded in time and output."""

    def run() -> str:
        try:
            done = subprocess.run(
                command.split(), capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except FileNotFoundError as e:
            raise CapabilityMissing(command.split(maxsplit=1)[0], "it is not installed") from e
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Unreachable(command, str(e)) from e
        if done.returncode or len(done.stdout) > MAX_TOOL_BYTES:
            reason = done.stderr.decode(errors="replace").strip()[:200] or "too much to keep"
            raise Unreachable(command, reason)
        return done.stdout.decode(errors="replace")

    return run


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
        part.replace(path)
    except OSError as e:
        raise ConfigError(str(path), e.strerror or str(e)) from e
