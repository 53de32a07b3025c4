# SPDX-License-Identifier: Apache-2.0
"""How long the diagnosis takes for a healthy window and for a lossy one, and to ingest either.

Windows hold what agents' schedules put into them; agents answer no question, so that only deciding
is timed. A ratio compares a lossy window with a healthy one of the same run.
"""

import statistics
import time

from analyzer.diagnosis.engine import Diagnosis
from analyzer.intake.tables import Tables
from analyzer.judge.bench import TOGETHER
from analyzer.questions import Failed, Why
from analyzer.replay.fed import read_ahead
from netagent.model.path import link
from netagent.model.topology import DeclaredTopology
from tests.bench.windows import WARM_WINDOWS, WIDTH_NS, Cluster

ROUNDS = 5
LOSSY = link("leaf-0-0", "spine-1")
LOSS = 0.05


def ingested_s(diagnosis: Diagnosis, tables: Tables, bodies: list[bytes], now_ns: int) -> float:
    """Ingest one window of every host, as a judge does; return seconds of CPU, of decoding, too."""
    began = time.process_time()
    for first in range(0, len(bodies), TOGETHER):
        coming = [(body, now_ns) for body in bodies[first : first + TOGETHER]]
        for read in read_ahead(diagnosis, tables, coming):
            assert read is not None
            diagnosis.ingest(read.summary, now_ns, read.taken, may_wait=True)
        diagnosis.learn_waiting()
    return time.process_time() - began


def judged_s(diagnosis: Diagnosis, now_ns: int) -> float:
    """Judge the windows that are complete; return seconds of CPU."""
    began = time.process_time()
    questions = diagnosis.step(now_ns)
    while questions:
        for question in questions:
            diagnosis.answer(question.id, Failed(Why.TIMEOUT, "timeout"), now_ns)
        questions = diagnosis.step(now_ns)
    took_s = time.process_time() - began
    while diagnosis.next_event() is not None:
        pass  # what it says is not timed
    return took_s


def run() -> list[dict[str, object]]:
    """Return one row: medians over rounds."""
    cluster = Cluster()
    diagnosis, tables = Diagnosis(cluster.registry(), DeclaredTopology()), Tables()
    ingest: list[float] = []
    judge: dict[str, list[float]] = {"healthy": [], "lossy": []}
    for window in range(WARM_WINDOWS + 2 * ROUNDS):
        kind = "healthy" if window < WARM_WINDOWS + ROUNDS else "lossy"
        cluster.loss = {LOSSY: LOSS} if kind == "lossy" else {}
        now_ns = (window + 1) * WIDTH_NS + 1
        took_s = ingested_s(diagnosis, tables, cluster.bodies(), now_ns)
        judged = judged_s(diagnosis, now_ns)
        if window >= WARM_WINDOWS:
            ingest.append(took_s)
            judge[kind].append(judged)
    named = [str(each.verdict.component) for each in diagnosis.incidents()]
    healthy_s, lossy_s = (statistics.median(judge[kind]) for kind in ("healthy", "lossy"))
    return [
        {
            "rnics": cluster.hosts * cluster.rails,
            "flows": diagnosis.flows,
            "ingest_s_per_window": round(statistics.median(ingest), 4),
            "healthy_window_s": round(healthy_s, 4),
            "lossy_window_s": round(lossy_s, 4),
            "ratio": round(lossy_s / healthy_s, 1),
            "named": named,
        }
    ]
