# SPDX-License-Identifier: Apache-2.0
"""Path summaries the analyzer takes in per second on one core, from bytes to judged latency.

Windows hold what agents' schedules put into them, with their flows' traced paths both ways: no two
hold the same flows. The baseline decodes the same bytes row by row and item by item, in the same
run and alternating with it, so that a noisy machine slows both.
"""

import statistics
import time
from collections.abc import Iterator

from analyzer.diagnosis.engine import Diagnosis
from analyzer.intake.tables import Tables
from netagent.model.topology import DeclaredTopology
from netagent.wire.codec import decode
from netagent.wire.messages import Summary
from tests.bench.judging import ingested_s, judged_s
from tests.bench.windows import WARM_WINDOWS, WIDTH_NS, Cluster
from tests.oracles.rows import rows_of

ROUNDS = 7
HOSTS = (8, 32)
"""Of eight RNICs each, all of which probe all others of their rail. Those of larger fabrics have
fewer targets, and are in `scale`."""


def _row_by_row_s(wave: list[bytes]) -> float:
    began = time.process_time()
    for body in wave:
        rows_of(decode(body, Summary))
    return time.process_time() - began


def run() -> Iterator[dict[str, object]]:
    """Yield one row for each number of hosts."""
    yield from map(_measured, HOSTS)


def _measured(hosts: int) -> dict[str, object]:
    """Return rates of both and their ratio, medians over rounds, of seconds of CPU."""
    cluster = Cluster(hosts)
    diagnosis, tables = Diagnosis(cluster.registry(), DeclaredTopology()), Tables()
    fast: list[float] = []
    slow: list[float] = []
    rows = size = 0
    for window in range(WARM_WINDOWS + ROUNDS):
        wave = cluster.bodies()
        now_ns = (window + 1) * WIDTH_NS + 1
        took_s = ingested_s(diagnosis, tables, wave, now_ns) + judged_s(diagnosis, now_ns)
        if window < WARM_WINDOWS:
            continue  # the first windows number the flows and learn their paths
        fast.append(took_s)
        slow.append(_row_by_row_s(wave))
        rows = sum(len(decode(body, Summary).flows.source_port) // 2 for body in wave)
        size = sum(map(len, wave))
    return {
        "hosts": hosts,
        "rows_per_message": rows // cluster.hosts,
        "bytes_per_row": round(size / rows, 1),
        "columns_rows_per_s": round(rows / statistics.median(fast)),
        "row_by_row_rows_per_s": round(rows / statistics.median(slow)),
        "ratio": round(statistics.median(s / f for f, s in zip(fast, slow, strict=True)), 1),
        "target_rows_per_s": 1_000_000,
    }
