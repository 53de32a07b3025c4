# SPDX-License-Identifier: Apache-2.0
"""What a window with eight faults at once costs the judge where switches have three tiers.

The fabric, its agents and the diagnosis are those of `scale`; 100,000 flows and more are observed.
"""

import gc
import multiprocessing
import statistics
from collections.abc import Iterator
from typing import Any

from analyzer.judge.__main__ import GARBAGE
from analyzer.simulate.clos import Shape
from tests.bench.scale import RAILS, WARM, Life

HOSTS = 384
PODS = 4
"""As in the campaign: links of one core can be told from each other."""
ROUNDS = 5
FAULTS = {"healthy": (), "links": (1,) * 8, "mixed": (1, 1, 1, 2, 2, 4, 3, 3)}
"""What fails, rows of Table 1: eight lossy links; or links that lose, die or flap, and a spine."""
SHAPE = Shape(
    HOSTS, RAILS, hosts_per_segment=16, spines=8, segments_per_pod=HOSTS // 16 // PODS,
    cores_per_group=8,
)  # fmt: skip


def measure(name: str) -> dict[str, Any]:
    """Return what each window costs in which this fails."""
    gc.set_threshold(*GARBAGE)  # as a judge has it
    life = Life(HOSTS * RAILS, SHAPE)
    life.windows(WARM)
    truths = life.fail(FAULTS[name])
    life.windows(ROUNDS)
    cpu_s = [judged_s for _, judged_s in life.took_s[WARM:]]
    return {
        "rnics": life.rnics,
        "tiers": 3,
        "flows": life.diagnosis.flows,
        "fails": name,
        "judge_cpu_s": round(statistics.median(cpu_s), 3),
        "judge_cpu_most_s": round(max(cpu_s), 3),
        "faults": len(FAULTS[name]),
        "named": len(life.named & truths),
        "others": sorted(life.named - truths),
    }


def run() -> Iterator[dict[str, object]]:
    """Yield one row for each kind of faults, of a process of its own."""
    for name in FAULTS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool.apply(measure, (name,))
