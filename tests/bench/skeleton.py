# SPDX-License-Identifier: Apache-2.0
"""How long a skeleton takes to infer on one core, and how much memory: by the task's size.

Each size has a process of its own, so that its peak is its own. The baseline is the paper's recipe
taken literally (`tests.eval.ablations`), in the same process; its distances between all RNICs take
gigabytes beyond a few thousand, so it is left out there.
"""

import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

from analyzer.simulate.workload import Disturbance, generate
from analyzer.skeleton.infer import infer
from netagent.model.task import Parallelism
from tests.eval import ablations

SIZES = {1024: (16, 8), 16384: (128, 16)}
"""RNICs -> DP, PP; TP is 8."""
BASELINE_UP_TO = 1024
TICKS = 1200


def run() -> list[dict[str, object]]:
    """Measure every size."""
    core = str(min(os.sched_getaffinity(0)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows = []
    for rnics in SIZES:
        command = ["taskset", "-c", core, sys.executable, "-m", "tests.bench.skeleton", str(rnics)]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        rows.append(json.loads(told.stdout))
    return rows


def measure(rnics: int) -> dict[str, object]:
    """Infer one task of so many RNICs, in this process."""
    dp, pp = SIZES[rnics]
    work = generate(Parallelism(dp, pp), seed=1, ticks=TICKS, disturbance=Disturbance(noise=0.1))
    began = time.perf_counter()
    found = infer(work.series)
    took_s = time.perf_counter() - began
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row: dict[str, object] = {
        "rnics": rnics,
        "ticks": TICKS,
        "seconds": round(took_s, 3),
        "peak_mb": round(peak_kb / 1024),
        "exact": bool(found.confident and np.array_equal(found.edges, work.truth.edges)),
    }
    if rnics <= BASELINE_UP_TO:
        began = time.perf_counter()
        ablations.literal(work.series)
        literal_s = time.perf_counter() - began
        row |= {"literal_s": round(literal_s, 3), "ratio": round(literal_s / took_s, 2)}
    return row


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
