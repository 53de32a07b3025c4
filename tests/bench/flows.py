# SPDX-License-Identifier: Apache-2.0
"""Questions about flow tables per second, and what a snapshot of them costs.

For every size a fresh process loads the tables from the dump of a real Open vSwitch (dummy
datapath) and answers pairs of endpoints, one by one (`pipeline.walk`) and many at once (`batch`).
The baseline, in the same run, is `ofproto/trace` of that Open vSwitch over its control socket,
which is also asked whether its answers are ours. What the dump costs vswitchd is its own CPU time.

Every endpoint elsewhere is reached by one plain port: a dummy datapath builds tunnels itself.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from ovs_checks.batch.run import KINDS, Batch, Ends
from ovs_checks.batch.state import Column, Packets
from ovs_checks.openflow.kept import KeptTables
from ovs_checks.openflow.notation import format_header, ipv4, mac
from ovs_checks.openflow.parse import parse_header
from ovs_checks.sources.vswitchd import Vswitchd
from ovs_checks.switch.assemble import Row, assemble
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.datapath import text_of
from ovs_checks.translate.translation import translate
from ovs_checks.walk.host import walk
from tests.bench.tables import TUNNEL_PORT, VNIS, flows, peers
from tests.conftest import OVS
from tests.ovs_checks.live import LiveOvs, live_ovs

SIZES = (41, 9_355, 200_000)
"""Mean and maximum of flows per host in the paper (section 5.2); a report of OVN's users."""

MIN_PAIRS, MAX_PAIRS = 100_000, 1_000_000
ROUNDS = 5
ASKED = 300
"""Pairs that Open vSwitch is asked, and that are walked one by one."""


def run() -> list[dict[str, object]]:
    """Measure every size in a process of its own."""
    if not OVS.present():
        return [{"skipped": OVS.remedy}]
    rows = []
    for size in SIZES:
        command = [sys.executable, "-m", "tests.bench.flows", str(size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
        rows.append(json.loads(done.stdout))
    return rows


def measure(size: int) -> dict[str, object]:
    """Measure one size in this process."""
    with tempfile.TemporaryDirectory() as folder, live_ovs(Path(folder)) as live:
        _fill(live, size)
        patient = Vswitchd(live.rundir, timeout_s=60)
        before_s, began = _cpu_s(live), time.perf_counter()
        dumped = _Text(patient)
        assemble(dumped, "h0")
        asked_s, dump_s = _cpu_s(live) - before_s, time.perf_counter() - began
        return {
            **_answered(dumped, patient, size),
            "update_s": round(_updated(dumped), 2),
            "dump_wall_s": round(dump_s, 2),
            "vswitchd_cpu_s_per_dump": round(asked_s, 2),
        }


class _Text:
    """A source that remembers what it was told, so that loading can be timed without asking."""

    def __init__(self, source: Vswitchd) -> None:
        self._source = source
        self._told: dict[tuple[str, ...], str] = {}
        self._rows = source.rows()

    def rows(self) -> dict[str, list[Row]]:
        return self._rows

    def command(self, name: str, *arguments: str) -> str:
        words = (name, *arguments)
        if words not in self._told:
            self._told[words] = self._source.command(*words)
        return self._told[words]

    def ofctl(self, command: str, bridge: str) -> str:
        words = ("ofctl", command, bridge)
        if words not in self._told:
            self._told[words] = self._source.ofctl(command, bridge)
        return self._told[words]

    def go_on(self, every: int) -> None:
        """Let all flows have counted on, and one of so many be another than before."""
        key = ("ofctl", "dump-flows", "br0")
        lines = self._told[key].replace("n_packets=0", "n_packets=7").splitlines()
        lines[1::every] = [line.replace("cookie=0x", "cookie=0x9", 1) for line in lines[1::every]]
        self._told[key] = "\n".join(lines)


def _fill(live: LiveOvs, size: int) -> None:
    mine = {f"p{peer.port}": peer.port for peer in peers(size) if peer.port}
    live.add_bridge("br0", **mine, away=TUNNEL_PORT)
    live.set_flows("br0", list(flows(size)))


def _cpu_s(live: LiveOvs) -> float:
    """Return the CPU time that ovs-vswitchd has used."""
    pid = (live.rundir / "ovs-vswitchd.pid").read_text().strip()
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _answered(dumped: _Text, live: Vswitchd, size: int) -> dict[str, object]:
    began = time.perf_counter()
    snapshot, masks = _loaded(dumped)
    load_s = time.perf_counter() - began
    count = len(snapshot.by_name["br0"].flows)
    batch = Batch(snapshot, "br0")
    began = time.perf_counter()
    batch.prepare()
    prepare_s = time.perf_counter() - began
    sent = packets(size)
    rates, ends = [], batch.run(sent)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ends = batch.run(sent)
        rates.append(sent.count / (time.perf_counter() - began))
    asked = range(0, sent.count, max(1, sent.count // ASKED))
    began = time.perf_counter()
    texts = [live.trace("br0", format_header(sent.header(n))) for n in asked]
    trace_rate = len(asked) / (time.perf_counter() - began)
    began = time.perf_counter()
    for n in asked:
        walk(snapshot, "br0", sent.header(n))
    walk_rate = len(asked) / (time.perf_counter() - began)
    agreed = sum(
        _agrees(snapshot, sent, ends, n, text) for n, text in zip(asked, texts, strict=True)
    )
    return {
        "flows": count,
        "masks": masks,
        "load_s": round(load_s, 2),
        "bytes_per_flow": round(_kept_bytes(dumped) / count),
        "prepare_batch_s": round(prepare_s, 2),
        "pairs": sent.count,
        "batch_pairs_per_s": round(max(rates)),
        "walk_pairs_per_s": round(walk_rate),
        "ofproto_trace_per_s": round(trace_rate),
        "ratio": round(max(rates) / trace_rate),
        "agree_with_ofproto_trace": f"{agreed} of {len(asked)}",
        "left_to_walk": len(ends.walked),
    }


def _updated(dumped: _Text) -> float:
    """Return how long it takes to follow a dump in which one flow of a hundred is new."""
    kept: dict[str, KeptTables] = {}
    _loaded(dumped, kept)
    dumped.go_on(100)
    began = time.perf_counter()
    _loaded(dumped, kept)
    return time.perf_counter() - began


def _loaded(dumped: _Text, kept: dict[str, KeptTables] | None = None) -> tuple[Snapshot, int]:
    """Read all that was told, index every table, and return how many masks there are."""
    snapshot = assemble(dumped, "h0", kept=kept)
    tables = snapshot.by_name["br0"].tables
    return snapshot, sum(len(tables[number].subtables) for number in tables)


def _kept_bytes(dumped: _Text) -> int:
    """Return what Python holds of a loaded snapshot, the dump itself not included."""
    tracemalloc.start()
    try:
        snapshot, _ = _loaded(dumped)
        return tracemalloc.get_traced_memory()[0] if snapshot.bridges else 0
    finally:
        tracemalloc.stop()


def _agrees(snapshot: Snapshot, sent: Packets, ends: Ends, n: int, text: str) -> bool:
    """Tell whether Open vSwitch does what the batch and the translation say."""
    said = text.rpartition("Datapath actions: ")[2].splitlines()[0]
    done = translate(snapshot, "br0", sent.header(n))
    port = snapshot.by_name["br0"].by_number.get(int(ends.port[n]))
    sends = port is not None and KINDS[ends.kind[n]] == "output"
    return said == text_of(done.steps) and (said != "drop") == sends


def packets(size: int) -> Packets:
    """Return packets between endpoints of one tenant, from those of this host, by many ports."""
    everyone = peers(size)
    local = sum(1 for peer in everyone if peer.port)
    rng = np.random.default_rng(5)
    count = min(MAX_PAIRS, max(MIN_PAIRS, local * len(everyone)))
    source = rng.integers(0, local, count).astype(np.int32)
    target = source % VNIS + VNIS * rng.integers(0, len(everyone) // VNIS, count).astype(np.int32)
    macs = [mac(peer.mac) for peer in everyone]
    addresses = [ipv4(peer.address) for peer in everyone]
    return Packets(
        parse_header("udp,nw_ttl=64,udp_dst=4791"),
        {
            "tp_src": Column.of(range(1 << 16), rng.integers(0, 1 << 16, count).astype(np.int32)),
            "in_port": Column.of([peer.port for peer in everyone], source),
            "eth_src": Column.of(macs, source),
            "nw_src": Column.of(addresses, source),
            "eth_dst": Column.of(macs, target),
            "nw_dst": Column.of(addresses, target),
        },
    )


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
