# SPDX-License-Identifier: Apache-2.0
"""How long a job's operators take to judge on two cores, and how many bytes have to be fetched.

Two processes sum up the logs of a stage's ranks each, as hosts or readers do; one puts the sums
together and judges. Simulating the logs is not counted. `everything` is what all operators take as
columns, `fetched` the sums of all ranks and the operators of those who are named.
"""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyzer.detect.operators.case import Case
from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.slow import conclude
from analyzer.operators.aggregate import Aggregates, aggregate, together
from analyzer.operators.log import Group, Place
from analyzer.simulate.operators.clockwork import Run, run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import Source, log_of_stage

SIZES = (1024, 2048, 4096, 8192)
STAGES, TENSOR, MICROBATCHES, STEPS = 8, 8, 32, 56
SLOW = 77
"""The rank at fault."""
ROW_BYTES = 4 + 1 + 2 + 4 + 4 + 8 + 8 + 8
"""Step, kind, operation, group, peer, bytes, start and end of one operator, as columns."""
SOURCE = Source(compute=False, steps=False)

_run: Run | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    sums: Aggregates
    groups: tuple[Group, ...]
    places: dict[int, Place]
    rows: int
    wall_s: float
    cpu_s: float
    grown_mb: float
    """By how much the process grew while it summed up."""
    process: int


def run_all() -> Iterator[dict[str, object]]:
    """Measure every size in a process of its own."""
    for ranks in SIZES:
        command = [sys.executable, "-m", "tests.bench.operators", str(ranks)]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        yield json.loads(told.stdout)


def measure(ranks: int) -> dict[str, object]:
    """Judge the operators of one job of so many ranks."""
    global _run  # noqa: PLW0603 - what forked processes share
    job = Job(ranks // (STAGES * TENSOR), STAGES, TENSOR, 1, MICROBATCHES, steps=STEPS)
    rng = np.random.default_rng(1)
    _run = run(job, harm(job, [Injected(Fault.SLOW_RANK, SLOW, 1.5)], rng), rng)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        parts = pool.map(_part, range(STAGES), chunksize=1)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    sums = together([part.sums for part in parts])
    places = {rank: place for part in parts for rank, place in part.places.items()}
    stage = np.array([places[rank].pp for rank in sums.ranks.tolist()])
    verdict = conclude(Case(sums, stage, parts[0].groups, places))
    judged_s = time.perf_counter() - began_s
    rows = sum(part.rows for part in parts)
    busiest = max(
        sum(part.wall_s for part in parts if part.process == process)
        for process in {part.process for part in parts}
    )
    named = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    fetched = sums.nbytes + len(named) * (rows // ranks) * ROW_BYTES
    return {
        "ranks": ranks, "operators_a_rank": rows // ranks,
        "seconds": round(busiest + judged_s, 1),
        "cpu_seconds": round(
            sum(part.cpu_s for part in parts) + time.process_time() - began_cpu_s, 1
        ),
        "judging_seconds": round(judged_s, 2),
        "grown_mb": round(max(part.grown_mb for part in parts)),
        "judge_mb": round(sums.nbytes / 1e6, 1),
        "everything_mb": round(rows * ROW_BYTES / 1e6), "fetched_mb": round(fetched / 1e6, 1),
        "right": [culprit.ranks for culprit in verdict.culprits] == [(SLOW,)],
        "busy": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def _part(stage: int) -> _Part:
    assert _run is not None
    log = log_of_stage(_run, stage, SOURCE, np.random.default_rng(stage))
    before_mb, began_s, began_cpu_s = _resident_mb(), time.perf_counter(), time.process_time()
    found = iterations(log)
    sums = aggregate(log, found.step, found.steps)
    return _Part(
        sums, log.groups, dict(log.places), len(log), time.perf_counter() - began_s,
        time.process_time() - began_cpu_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb, os.getpid(),
    )  # fmt: skip


def _resident_mb() -> float:
    statm = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(statm.split()[1]) * resource.getpagesize() / 1e6


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
