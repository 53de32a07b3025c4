# SPDX-License-Identifier: Apache-2.0
"""Path summaries the analyzer takes in per second on one core, from bytes to judged state.

The baseline decodes the same bytes row by row and item by item, in the same run and alternating
with it, so that a noisy machine slows both.
"""

import random
import statistics
import time
from collections.abc import Callable

from analyzer.detect.latency import LatencyBaselines
from analyzer.ingest import FlowNumbers, paths_of
from analyzer.windows import Watermarks
from netagent.collect.windows import TracedPath, WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Health, Summary
from tests.oracles.rows import rows_of

HOSTS = 32
RAILS, TARGETS, PORTS = 8, 16, 4
ROUNDS = 7
WIDTH_NS = 5_000_000_000


def bodies(window: int, rng: random.Random) -> list[bytes]:
    """Return one window of every host, as agents send it."""
    made = []
    for host in range(HOSTS):
        tally = WindowTally(large_class=2)
        paths = []
        for rail in range(RAILS):
            for n in range(1, TARGETS + 1):
                target = EndpointId(f"c{(host + n) % HOSTS}", rail)
                for port in range(PORTS):
                    flow = FlowId(EndpointId(f"c{host}", rail), target, 40000 + port)
                    _probe(tally, flow, rng)
                    if window == 0:
                        hops = (f"10.0.{rail}.1", f"10.1.0.{port}", f"10.0.{rail}.2")
                        paths.append(TracedPath(flow, reply=False, outer_port=port, hops=hops))
        at = Window(window * WIDTH_NS, WIDTH_NS)
        summary = tally.close(
            at, host=f"h{host}", instance="i", paths=paths, findings=(), health=Health()
        )
        made.append(encode(summary))
    return made


def _probe(tally: WindowTally, flow: FlowId, rng: random.Random) -> None:
    for seq in range(3):
        if rng.random() < 0.001:
            tally.add(ProbeLost(flow, seq, seq, 0))
            continue
        tally.add(ProbeReplied(flow, seq, seq))
        tally.add(ProbeMeasured(flow, seq, round(rng.lognormvariate(11.7, 0.14)), 20_000, 30_000))


def take_in(body: bytes, numbers: FlowNumbers, marks: Watermarks, base: LatencyBaselines) -> None:
    """Do all that the analyzer does with a stored summary but for learning new paths."""
    summary = decode(body, Summary)
    rows = numbers.decode(summary)
    paths_of(summary)
    marks.add(rows, summary.findings, now_ns=summary.start_ns)
    base.judge(rows)


def _timed(work: Callable[[bytes], object], wave: list[bytes]) -> float:
    began = time.perf_counter()
    for body in wave:
        work(body)
    return time.perf_counter() - began


def run() -> list[dict[str, object]]:
    """Return one row: rates of both and their ratio, medians over rounds."""
    rng = random.Random(1)
    waves = [bodies(window, rng) for window in range(ROUNDS + 1)]
    numbers, marks, base = FlowNumbers(), Watermarks(), LatencyBaselines()
    rows = HOSTS * RAILS * TARGETS * PORTS
    _timed(lambda body: take_in(body, numbers, marks, base), waves[0])  # numbers its flows
    fast, slow = [], []
    for wave in waves[1:]:
        fast.append(_timed(lambda body: take_in(body, numbers, marks, base), wave))
        slow.append(_timed(lambda body: rows_of(decode(body, Summary)), wave))
    return [
        {
            "rows_per_message": rows // HOSTS,
            "bytes_per_row": round(sum(map(len, waves[1])) / rows, 1),
            "columns_rows_per_s": round(rows / statistics.median(fast)),
            "row_by_row_rows_per_s": round(rows / statistics.median(slow)),
            "ratio": round(statistics.median(s / f for f, s in zip(fast, slow, strict=True)), 1),
            "target_rows_per_s": 1_000_000,
        }
    ]
