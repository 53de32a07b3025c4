# SPDX-License-Identifier: Apache-2.0
"""What each eBPF program costs a packet: flood pings with it, and without it just before and after.

Two containers on two hosts' switches in one kernel, so a ping and its reply pass each program of
the datapath four times. `ns_per_packet` is the kernel's own account of a program's run time
(`kernel.bpf_stats_enabled`); the ratio is that of the smallest round trips of paired floods. Needs
root, kprobes and openvswitch.ko: `make bench-vm` has such a machine.
"""

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bpf.kernel.host import read_facts
from bpf.kernel.loader import Sizes, load
from bpf.trace.abi import Event
from bpf.trace.flowspec import parse_flow
from bpf.trace.programs import KernelFacts, Program, choose
from bpf.trace.request import Caps, Request
from tests.conftest import KERNEL
from tests.kernel.overlay import ADDRESSES, Overlay
from tests.ovs.host import run as command

PINGS, ROUNDS = 1_000, 3
CHOSEN, OTHER = f"icmp,nw_src={ADDRESSES[4][0]}", "udp,tp_dst=9"
"""The flood's flow, one direction of it, and one that nobody sends."""
_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


def run() -> list[dict[str, object]]:
    """Return a row for each program, alone, then one for all of them together."""
    if not KERNEL.present():
        raise SystemExit(f"kernel: {KERNEL.remedy}")
    facts = read_facts()
    programs, _ = choose("path", facts)
    with ExitStack() as stack:
        overlay = Overlay()
        stack.callback(overlay.close)
        stack.enter_context(_accounting())
        _flood(overlay)  # the datapath has its flows, and caches are warm
        rows = [_measure(overlay, facts, [program]) for program in programs]
        return [*rows, _measure(overlay, facts, programs)]


def _measure(
    overlay: Overlay, facts: KernelFacts, programs: Sequence[Program]
) -> dict[str, object]:
    if facts.layout is None:
        raise RuntimeError(facts.layout_problem)
    before = [_flood(overlay) for _ in range(ROUNDS)]
    row: dict[str, object] = {
        "program": programs[0].name if len(programs) == 1 else "all of them",
        "pings": PINGS,
    }
    with_it: dict[str, list[float]] = {OTHER: [], CHOSEN: []}
    caps = Caps()
    with load(programs, facts, facts.layout, Sizes(caps.journeys, caps.rows, 64)) as tracer:
        taken: list[Event] = []
        tracer.start(Request("path", parse_flow(OTHER), 1, 1).filter(), taken.append)
        tracer.stop()
        for flow in (OTHER, CHOSEN):
            request = Request("path", parse_flow(flow), overlay.hosts[0].netns, 10**9)
            ran = _ran()
            tracer.start(request.filter(), None)
            with_it[flow] = [_flood(overlay) for _ in range(ROUNDS)]
            tracer.stop()
            tracer.consume()
            spent_ns, packets = (now - then for now, then in zip(_ran(), ran, strict=True))
            name = "chosen" if flow == CHOSEN else "other_flow"
            row[f"runs_{name}"] = packets
            row[f"ns_per_packet_{name}"] = round(spent_ns / packets) if packets else 0
        counters = tracer.read().counters
    without = [*before, *(_flood(overlay) for _ in range(ROUNDS))]
    base = statistics.median(without)
    return row | {
        "rtt_us_without": base,
        "ratio_other_flow": round(statistics.median(with_it[OTHER]) / base, 2),
        "ratio_chosen": round(statistics.median(with_it[CHOSEN]) / base, 2),
        "events": len(taken),
        **{name: counters[name] for name in ("events_lost", "not_followed", "not_sampled")},
    }


def _flood(overlay: Overlay) -> float:
    """Return the smallest round trip of a flood, in microseconds."""
    inside = overlay.hosts[0].inside("a")
    words = ("ip", "netns", "exec", inside, "ping", "-f", "-q", "-c", str(PINGS), ADDRESSES[4][1])
    said = command(*words)
    found = re.search(r"= ([0-9.]+)/", said)
    if found is None or " 0% packet loss" not in said:
        raise RuntimeError(said)
    return float(found[1]) * 1000


@contextmanager
def _accounting() -> Iterator[None]:
    before = _STATS.read_text(encoding="ascii")
    _STATS.write_text("1", encoding="ascii")
    try:
        yield
    finally:
        _STATS.write_text(before, encoding="ascii")


def _ran() -> tuple[int, int]:
    """Return (nanoseconds, runs) of our programs so far."""
    shown = json.loads(command("bpftool", "-j", "prog", "show"))
    ours = [each for each in shown if each.get("name", "").startswith("on_")]
    return tuple(sum(each.get(key, 0) for each in ours) for key in ("run_time_ns", "run_cnt"))
