# SPDX-License-Identifier: Apache-2.0
"""Path summaries the analyzer takes in per second on one core, from bytes to judged latency.

Every message carries its flows' traced paths both ways, as agents' messages do.

The baseline decodes the same bytes row by row and item by item, in the same run and alternating
with it, so that a noisy machine slows both.
"""

import random
import statistics
import time
from collections.abc import Callable

from analyzer.diagnosis import Engine
from analyzer.registry import Registry
from netagent.collect.windows import TracedPath, WindowTally
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.topology import DeclaredTopology
from netagent.model.window import Window
from netagent.probing.session import ProbeLost, ProbeMeasured, ProbeReplied
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Health, Registration, Summary
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
                    for reply in (False, True):
                        way = (host, (host + n) % HOSTS)
                        first, last = (
                            f"10.0.{rail}.{h % 4}" for h in (way[::-1] if reply else way)
                        )
                        hops = (first, f"10.1.0.{port}", last)
                        paths.append(TracedPath(flow, reply=reply, outer_port=port, hops=hops))
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


def registry() -> Registry:
    """Return a registry that knows every endpoint."""
    made = Registry()
    for host in range(HOSTS):
        endpoints = tuple(
            Endpoint(
                EndpointId(f"c{host}", rail), "t", f"h{host}", f"10.{rail}.0.{host}", "",
                f"172.{16 + rail}.0.{host}", f"rnic{rail}", "br-int", f"p{host}-{rail}",
            )
            for rail in range(RAILS)
        )  # fmt: skip
        registration = Registration(
            host=f"h{host}", instance="i", generation=1, rpc_url="", endpoints=endpoints
        )
        made.apply(registration, 0)
    return made


def take_in(engine: Engine, body: bytes) -> None:
    """Do all that the analyzer does with a stored summary as it comes in."""
    summary = decode(body, Summary)
    engine.ingest(summary, summary.start_ns)


def judge(engine: Engine, window: int) -> None:
    """Close the window and compare every flow's latency with its baseline."""
    for state in engine._windows.close(set(), now_ns=(window + 2) * WIDTH_NS):
        engine._slow(state)


def _timed(work: Callable[[bytes], object], wave: list[bytes]) -> float:
    began = time.perf_counter()
    for body in wave:
        work(body)
    return time.perf_counter() - began


def run() -> list[dict[str, object]]:
    """Return one row: rates of both and their ratio, medians over rounds."""
    rng = random.Random(1)
    waves = [bodies(window, rng) for window in range(ROUNDS + 2)]
    engine = Engine(registry(), DeclaredTopology())
    rows = HOSTS * RAILS * TARGETS * PORTS
    fast, slow = [], []
    for window, wave in enumerate(waves):
        took = _timed(lambda body: take_in(engine, body), wave)
        began = time.perf_counter()
        judge(engine, window)
        fast.append(took + time.perf_counter() - began)
        slow.append(_timed(lambda body: rows_of(decode(body, Summary)), wave))
    del fast[:2], slow[:2]  # the first windows number the flows and learn their paths
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
