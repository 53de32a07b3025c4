# SPDX-License-Identifier: Apache-2.0
"""Random jobs as a cloud sees them."""

import numpy as np

from analyzer.simulate.workload import Disturbance, Template
from netagent.model.task import Parallelism

SIZES = {
    64: 0.028, 96: 0.009, 128: 0.041, 256: 0.047, 384: 0.012, 512: 0.065, 640: 0.047, 720: 0.031,
    960: 0.009, 1024: 0.078, 1080: 0.021, 1280: 0.039, 1600: 0.064, 1800: 0.027, 2000: 0.048,
    2048: 0.031, 2400: 0.027,
}  # fmt: skip
"""GPUs of a task -> relative frequency: the spikes of SkeletonHunter's Figure 12."""
MAX_PP = 16
"""Most pipeline stages of a job. Chosen: twice as many as in the paper's Figure 9."""
TENSOR = {8: 0.85, 4: 0.10, 2: 0.03, 1: 0.02}
"""Degree of tensor parallelism -> relative frequency. Chosen: most jobs use whole hosts."""
EXPERTS = (2, 4, 8)
"""Degrees of expert parallelism of a MoE job. Chosen: around the 4 of the paper's Figure 9."""
MOE_SHARE = 0.25
"""Share of MoE jobs among those with TP 8. Chosen. With a smaller TP, experts would share a host,
which no RNIC shows."""


def draw_job(rng: np.random.Generator) -> Parallelism:
    """Return a job: a size by Figure 12, its degrees by chance.

    With TP below 8 there are at least two stages; else a host would not show where positions end.
    """
    while True:
        ranks = int(_drawn(rng, SIZES))
        tp = int(_drawn(rng, TENSOR))
        pp = int(rng.choice([n for n in range(1, MAX_PP + 1) if ranks // tp % n == 0]))
        left = ranks // tp // pp
        ep = 1
        if tp == 8 and rng.random() < MOE_SHARE:
            ep = int(rng.choice([1, *(n for n in EXPERTS if left % n == 0)]))
        if left // ep >= 2 and (tp == 8 or pp > 1):
            return Parallelism(left // ep, pp, tp, ep)


def draw_template(rng: np.random.Generator) -> Template:
    """Return an iteration whose stages follow each other 0.3 to 4 s apart."""
    return Template(stage_shift_s=float(rng.uniform(0.3, 4.0)))


def draw_disturbance(rng: np.random.Generator) -> Disturbance:
    """Return up to 20 % noise, one straggling host and 1 % missing ticks."""
    return Disturbance(
        noise=float(rng.uniform(0, 0.2)), straggler_s=float(rng.uniform(0.5, 3.0)), missing=0.01
    )


def _drawn(rng: np.random.Generator, shares: dict[int, float]) -> int:
    weights = np.asarray(list(shares.values()))
    return int(rng.choice(list(shares), p=weights / weights.sum()))
