# SPDX-License-Identifier: Apache-2.0
"""``netagent trace``: where in the virtual switch packets are, wait, and end."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bpf.trace.flowspec import parse_flow
from bpf.trace.journey import diagnose_one, diagnose_upcalls, view_of
from bpf.trace.programs import KINDS
from bpf.trace.request import LIMITS, MAX_DURATION_S, Caps
from netagent.adapters.workers.trace import TraceWorker
from netagent.commands.asking import print_json
from netagent.model.encapsulation import KNOWN
from netagent.model.errors import ConfigError, RemoteProtocolError
from netagent.wire.trace import Hop, Journey, TraceCaps, TraceReply, TraceRequest

EPILOG = """\
examples:
  netagent trace drops udp,nw_dst=10.0.0.12,tp_dst=4791
  netagent trace latency udp,nw_src=10.0.0.10,nw_dst=10.0.0.12 --duration 10
  netagent trace upcalls ip,tun_id=1001 --json
  netagent trace path icmp,nw_dst=10.0.0.12,in_port=p0
  netagent trace drops udp6,ipv6_dst=fd00::12,tp_dst=4791

FLOW is in Open vSwitch's notation, as inside of the tunnel: ip, icmp, tcp,
udp, nw_src, nw_dst; ipv6, icmp6, tcp6, udp6, ipv6_src, ipv6_dst; nw_proto,
tp_src, tp_dst, tun_id, in_port (name of the switch's port). The VNI of a
packet that leaves is known only once its flow's actions begin; before, tell
tenants with equal addresses apart by in_port. Ctrl-C ends a trace early, with
what was seen.

  drops    where packets end, and why
  latency  from stage to stage, p50 and p99
  upcalls  packets without a flow: how many, how long, what failed
  path     single packets' ways as a tree, and their outer headers

Needs root (or CAP_BPF, CAP_PERFMON and a writable /run/netagent), bcc and
kprobes; netagent doctor says what is there.

exit status: 0 no packet vanished; 1 some did, or it cannot be told; 2 the
request is wrong; 3 this host cannot trace, or another trace is at work
"""

_CAPS = {
    "journeys": "packets followed at one time",
    "journeys_per_s": "packets followed per second",
    "events_per_s": "events per second, for path",
    "rows": "entries of each kernel map",
    "ring_pages": "pages of the ring buffer, a power of two",
}

WIDTH = 79
"""Columns of the text. Chosen: a terminal of 80 columns."""
MAX_ROWS = 20
"""Rows of one list that are shown; --json has all. Chosen: a list fits on a screen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("kind", choices=tuple(KINDS), help="what to show")
    parser.add_argument("flow", metavar="FLOW", help="packets to trace")
    parser.add_argument(
        "--duration", type=float, default=5.0, metavar="S", help="seconds, 60 at most (%(default)s)"
    )
    parser.add_argument("--netns", help="name or file of the switch's network namespace")
    parser.add_argument("--uplink", default="", help="count tunnel packets of this device only")
    parser.add_argument("--tunnel", choices=tuple(KNOWN), default="", help="their kind (vxlan)")
    parser.add_argument("--tunnel-port", type=int, default=0, metavar="N", help="their UDP port")
    defaults = Caps()  # a class with slots has descriptors where others have their defaults
    for name, (low, high) in LIMITS.items():
        option = f"--{name.replace('_', '-')}"
        text = f"{_CAPS[name]}, {low} to {high} ({getattr(defaults, name)})"
        parser.add_argument(option, type=int, metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="print all that was seen as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Trace and print; return 0 if no packet of the flow vanished, else 1."""
    request = _request(arguments)
    try:
        reply = asyncio.run(_trace(request, quiet=arguments.json))
    except RemoteProtocolError as error:  # the worker knows limits that argparse does not
        raise ConfigError("trace", str(error)) from error
    judge = diagnose_upcalls if arguments.kind == "upcalls" else diagnose_one
    verdict = judge(view_of(msgspec.to_builtins(reply)))
    if arguments.json:
        print_json({"trace": msgspec.to_builtins(reply), "verdict": msgspec.to_builtins(verdict)})
    else:
        for line in lines_of(reply):
            print(line)
        for line in (str(verdict), *(f"  {each}" for each in verdict.evidence)):
            print(line)
    return 0 if verdict.where is None and not verdict.missing else 1


def _request(arguments: argparse.Namespace) -> TraceRequest:
    if not 0 < arguments.duration <= MAX_DURATION_S:
        text = f"--duration is more than 0 and at most {MAX_DURATION_S:.0f} seconds"
        raise ConfigError("command line", text)
    return TraceRequest(
        kind=arguments.kind,
        flow=str(parse_flow(arguments.flow)),
        duration_s=arguments.duration,
        netns=_netns(arguments.netns),
        uplink=arguments.uplink,
        tunnel=arguments.tunnel,
        tunnel_port=arguments.tunnel_port,
        caps=TraceCaps(**{name: getattr(arguments, name) for name in LIMITS}),
    )


def _netns(name: str | None) -> int:
    if not name:
        return 0
    try:
        return (Path("/run/netns") / name).stat().st_ino  # an absolute `name` stands for itself
    except OSError as error:
        raise ConfigError("command line", f"--netns {name}: {error.strerror}") from error


async def _trace(request: TraceRequest, *, quiet: bool) -> TraceReply:
    stop = asyncio.Event()

    def say() -> None:
        if not quiet:
            print(f"tracing {request.flow} for {request.duration_s:g} s ...", file=sys.stderr)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await TraceWorker().trace(request, stop=stop, on_attached=say)


def lines_of(reply: TraceReply) -> Iterator[str]:
    """Return what a human reads, in lines of at most 79 characters."""
    if reply.kind == "path":
        yield from _tree(reply.journeys)
    else:
        yield from _stages(reply)
    if reply.kind in {"path", "drops"}:
        yield from _drops(reply)
    if reply.kind in {"path", "upcalls"}:
        yield from _rows(
            "upcalls", [f"{r.packets:>9}  {r.command}: {r.result}" for r in reply.upcalls]
        )
    if reply.kind == "path":
        yield from _outers(reply)
        yield from _roce(reply)
    yield from _caveats(reply)


def _stages(reply: TraceReply) -> Iterator[str]:
    yield f"{'STAGE':<16} {'PACKETS':>9} {'REPEATED':>9} {'OTHER VNI':>9} {'P50':>9} {'P99':>9}"
    for row in reply.stages:
        yield (
            f"{row.stage:<16} {row.packets:>9} {row.repeats:>9} {row.foreign:>9} "
            f"{duration_text(row.p50_ns):>9} {duration_text(row.p99_ns):>9}"
        )


def _drops(reply: TraceReply) -> Iterator[str]:
    if reply.drops:
        yield "drops"
    for row in reply.drops[:MAX_ROWS]:
        on = f" on {row.device}" if row.device else ""
        after = row.after or "(not followed)"
        yield _cut(f"{row.packets:>9}  {row.reason} after {after}{on}")
        yield _cut(f"           at {row.location}")


def _outers(reply: TraceReply) -> Iterator[str]:
    if reply.outers:
        yield "outer headers (inner flow, outer UDP source port)"
    for row in reply.outers[:MAX_ROWS]:
        way = f"{row.source} > {row.target}"
        yield _cut(f"{row.packets:>9}  {way} port {row.source_port} VNI {row.vni}")
        yield _cut(f"           {row.flow}")


def _roce(reply: TraceReply) -> Iterator[str]:
    rows = [
        f"{row.packets:>9}  {'sent' if row.transmitted else 'received'} by {row.device}"
        f"{', encapsulated' if row.encapsulated else ''}"
        for row in reply.roce
    ]
    yield from _rows("RoCE in software (not by the RNIC; Soft-RoCE always is)", rows)


def _rows(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield title
    yield from map(_cut, rows[:MAX_ROWS])


def _caveats(reply: TraceReply) -> Iterator[str]:
    lost = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in reply.lost.items())
    yield from _wrapped(f"not seen or told: {lost}")
    for each in reply.missing:
        yield _cut(f"{each.program} does not run: {each.reason}")
        yield _cut(f"  remedy: {each.remedy}")
    for note in reply.notes:
        yield from _wrapped(f"note: {note}")


@dataclass
class _Branch:
    """Packets that came the same way so far."""

    label: str
    packets: int = 0
    total_ns: int = 0
    branches: dict[str, "_Branch"] = field(default_factory=dict)


def _tree(journeys: Sequence[Journey]) -> Iterator[str]:
    """Return the packets' ways as a tree: at each stage, packets and mean time since the first."""
    root = _Branch("")
    for journey in journeys:
        here = root
        for hop in journey.hops:
            label = _label(hop)
            here = here.branches.setdefault(label, _Branch(label))
            here.packets += 1
            here.total_ns += hop.after_ns
    if not journeys:
        yield "no packet of this flow was seen"
        return
    yield f"{'WAY':<58} {'PACKETS':>9} {'AFTER':>9}"
    yield from _draw(root, "", top=True)


def _draw(branch: _Branch, indent: str, *, top: bool = False) -> Iterator[str]:
    below = list(branch.branches.values())
    # A way without forks goes straight down; only forks indent, so that it stays narrow.
    for index, each in enumerate(below):
        fork = len(below) > 1 and not top
        mark = "" if not fork else "└ " if index == len(below) - 1 else "├ "
        after = duration_text(each.total_ns // each.packets)
        way = _cut(f"{indent}{mark}{each.label}", 58)
        yield f"{way:<58} {each.packets:>9} {after:>9}"
        more = indent if not fork else indent + ("  " if index == len(below) - 1 else "│ ")
        yield from _draw(each, more)


def _label(hop: Hop) -> str:
    words = [hop.stage]
    if hop.device:
        words.append(hop.device)
    if hop.vni:
        words.append(f"VNI {hop.vni}")
    if hop.outer_port:
        words.append(f"port {hop.outer_port}")
    if hop.reason:
        words += [hop.reason, hop.location]
    return " ".join(words)


def duration_text(duration_ns: int | None) -> str:
    """Return a duration for humans, `-` for None."""
    if duration_ns is None:
        return "-"
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if duration_ns >= size:
            return f"{duration_ns / size:.3g} {unit}"
    return f"{duration_ns} ns"


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(text: str) -> Iterator[str]:
    import textwrap  # noqa: PLC0415 - beside its only use

    yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
