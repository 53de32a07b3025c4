# SPDX-License-Identifier: Apache-2.0
"""How well skeletons are inferred from simulated traffic: `make eval-skeleton`."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from analyzer.simulate.shapes import draw_disturbance, draw_job, draw_template
from analyzer.simulate.workload import Disturbance, Workload, generate
from analyzer.skeleton.fidelity import fingerprint, misfit
from analyzer.skeleton.infer import Skeleton, infer
from analyzer.skeleton.series import Floats, Ints, TrafficSeries, basic_edges
from netagent.model.task import Parallelism
from tests.eval import ablations, scattered

RECIPES: dict[str, Callable[[TrafficSeries], Skeleton]] = {
    "netagent": infer,
    "magnitude only": partial(infer, describe=ablations.magnitude_only),
    "correlation": partial(infer, describe=ablations.plain),
    "literal": ablations.literal,
}
FIGURE_9 = {
    "dense 512": (Parallelism(8, 8, 8), 4480, {8, 9}),
    "MoE 512": (Parallelism(4, 4, 8, 4), 3840, {7, 8}),
}
HISTORY = 1200
FIDELITY_RANKS = 1024
"""Larger jobs are left out there: it is about stretches, not sizes."""
PAPER = {
    # RNICs -> probes of a round, full mesh and skeleton, and seconds of a round, basic and skeleton
    32: (284, 154, 5.2, 1.6), 64: (1230, 276, 10.4, 2.4), 128: (5942, 415, 23.2, 3.6),
    256: (10984, 600, 35.2, 4.1), 512: (18536, 1399, 64.85, 8.23),
    1024: (32987, 1785, 122.54, 16.91), 2048: (60430, 2593, 240.54, 25.09),
}  # fmt: skip
"""Figures 15 and 16; its counts are averages of production, its seconds follow the lists."""


@dataclass(frozen=True, slots=True)
class Result:
    """One job, one recipe."""

    recall: float
    precision: float
    right: bool
    """All four degrees."""
    confident: bool
    reason: str


def judge(workload: Workload, found: Skeleton) -> Result:
    """Compare a skeleton with the truth."""
    truth, job = workload.truth, workload.truth.parallelism
    count = len(workload.series)
    mine, theirs = keys(found.edges, count), keys(truth.edges, count)
    both = len(np.intersect1d(mine, theirs))
    return Result(
        recall=both / max(1, len(theirs)),
        precision=both / max(1, len(mine)),
        right=(found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep),
        confident=found.confident and not found.superset,
        reason=found.reason,
    )


def keys(edges: Ints, count: int) -> Ints:
    """Return a number for each edge among `count` endpoints."""
    return edges[:, 0] * count + edges[:, 1]


def figure_9(seeds: int) -> list[str]:
    """Infer both of the paper's examples, over and over."""
    lines = []
    for name, (job, edges, degrees) in FIGURE_9.items():
        exact = 0
        for seed in range(seeds):
            work = generate(job, seed=seed, disturbance=Disturbance(noise=0.1, jitter_s=0.2))
            found = infer(work.series)
            degree = np.bincount(found.edges.ravel(), minlength=job.ranks)
            same = np.array_equal(found.edges, work.truth.edges)
            exact += same and 2 * len(found.edges) == edges and set(degree.tolist()) == degrees
            progress(f"{name}: {seed + 1}/{seeds}")
        lines.append(f"{name:<10} {job!s:<17} {edges} ordered edges: exact in {exact} of {seeds}")
    return lines


def sweep(jobs: int, ablated: int, seed: int) -> dict[str, list[Result]]:
    """Infer random jobs, the first `ablated` by every recipe."""
    rng = np.random.default_rng(seed)
    results: dict[str, list[Result]] = {name: [] for name in RECIPES}
    for number in range(jobs):
        work = generate(
            draw_job(rng),
            seed=int(rng.integers(1 << 32)),
            template=draw_template(rng),
            disturbance=draw_disturbance(rng),
        )
        for name, recipe in RECIPES.items():
            if name == "netagent" or number < ablated:
                results[name].append(judge(work, recipe(work.series)))
        progress(f"random jobs: {number + 1}/{jobs}")
    return results


def table(results: dict[str, list[Result]]) -> list[str]:
    """Return the sweep for a terminal. What is not confident has the basic list, or a superset."""
    head = ("recipe", "jobs", "recall", "worst", "precision", "confident", "right")
    lines = ["{:<15}{:>5}{:>8}{:>8}{:>10}{:>10}{:>8}".format(*head)]
    for name, each in results.items():
        if not each:
            continue
        sure = [r for r in each if r.confident]
        recall = np.asarray([r.recall for r in each])
        precision = np.mean([r.precision for r in sure]) if sure else np.nan
        right = np.mean([r.right for r in sure]) if sure else np.nan
        lines.append(
            f"{name:<15}{len(each):5}{recall.mean():8.4f}{recall.min():8.4f}{precision:10.4f}"
            f"{100 * len(sure) / len(each):9.1f}%{100 * right:7.1f}%"
        )
    return lines


def fidelity(jobs: int, seed: int) -> list[str]:
    """Hold skeletons against the traffic that follows: of the same job, and of another shape."""
    rng = np.random.default_rng(seed)
    same: list[bool] = []
    other: list[bool] = []
    while jobs:
        job, template = draw_job(rng), draw_template(rng)
        shape = _reshaped(job, rng)
        if job.ranks > FIDELITY_RANKS or shape is None:
            continue
        disturbance = replace(draw_disturbance(rng), clock_s=0.1)
        seeds = [int(each) for each in rng.integers(1 << 32, size=2)]
        made: dict[str, Any] = {"seed": seeds[0], "template": template, "disturbance": disturbance}
        rate = (work := generate(job, ticks=2 * HISTORY, **made)).series.rate
        past = replace(work.series, rate=rate[:, :HISTORY])
        found = infer(past)
        if not found.confident or found.superset:
            continue
        mine = fingerprint(past, found)
        same += [bool(misfit(each, mine)) for each in _stretches(rate[:, HISTORY:], mine.ticks)]
        after = generate(shape, ticks=HISTORY, **(made | {"seed": seeds[1]})).series.rate
        other += [bool(misfit(each, mine)) for each in _stretches(after, mine.ticks)]
        jobs -= 1
        progress(f"fidelity: {jobs} to go")
    return [
        f"same job: {sum(same)} of {len(same)} stretches taken for another",
        f"another shape on the same hosts: {sum(other)} of {len(other)} stretches told",
    ]


def _reshaped(job: Parallelism, rng: np.random.Generator) -> Parallelism | None:
    """Return another split of the same ranks, with as many of them within a host."""
    positions = job.ranks // job.tp
    shapes = [
        Parallelism(positions // pp, pp, job.tp)
        for pp in (1, 2, 3, 4, 5, 6, 8, 12, 16)
        if positions % pp == 0 and pp != job.pp and (pp > 1 or job.tp == 8)
    ]
    return shapes[int(rng.integers(len(shapes)))] if shapes else None


def _stretches(rate: Floats, ticks: int) -> list[Floats]:
    ends = range(ticks, rate.shape[1] + 1, ticks)
    return [rate[:, end - ticks : end] for end in ends]


def probes() -> list[str]:
    """Count ordered pairs of full mesh, basic list and skeleton, by the task's size."""
    lines = [
        "                                         skeleton, % of     the paper's, % of",
        " RNICs  full mesh    basic skeleton       full    basic      full    basic",
    ]
    for ranks in (32, 64, 128, 256, 512, 1024, 2048, 4096):
        pp = min(8, ranks // 16)
        work = generate(Parallelism(ranks // 8 // pp, pp), seed=ranks)
        full = ranks * (ranks - 1)
        basic = 2 * len(basic_edges(work.series.host, work.series.rail))
        mine = 2 * len(infer(work.series).edges)
        line = f"{ranks:6}{full:11}{basic:9}{mine:9}"
        line += f"{100 * mine / full:11.2f}{100 * mine / basic:9.1f}"
        if theirs := PAPER.get(ranks):
            line += f"{100 * theirs[1] / theirs[0]:10.1f}{100 * theirs[3] / theirs[2]:9.1f}"
        lines.append(line)
    return lines


def unequal(jobs: int, harsh: int) -> Iterator[str]:
    """Infer jobs on unequal hosts in no order, and see what confidences of supersets are worth."""
    results = []
    for result in scattered.sweep(jobs):
        results.append(result)
        progress(f"hosts in no order: {len(results)}/{jobs}")
    yield from (*scattered.table(results), "", *scattered.halves(results), "")
    made = []
    for proposal in scattered.harsh(harsh):
        made.append(proposal)
        progress(f"harsh traffic: {len(made)}/{harsh}")
    yield from scattered.calibration(made)


def progress(text: str) -> None:
    """Tell how far it is, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{text:<40}", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, help="random jobs (default %(default)s)")
    parser.add_argument("--ablated", type=int, help="of them by other recipes too (default: all)")
    parser.add_argument("--seeds", type=int, default=50, help="of Figure 9 (default %(default)s)")
    parser.add_argument("--seed", type=int, default=2025, help="of the random jobs")
    parser.add_argument(
        "--scattered", type=int, default=200, help="on unequal hosts (default %(default)s)"
    )
    parser.add_argument(
        "--harsh", type=int, default=300, help="of those in worse traffic (default %(default)s)"
    )
    args = parser.parse_args(argv)
    began = time.monotonic()
    for line in (*figure_9(args.seeds), ""):
        print(line, flush=True)
    for line in (*unequal(args.scattered, args.harsh), ""):
        print(line, flush=True)
    results = sweep(args.jobs, args.jobs if args.ablated is None else args.ablated, args.seed)
    for line in (*table(results), "", *fidelity(args.jobs // 4, args.seed), "", *probes(), ""):
        print(line, flush=True)
    print(f"{args.jobs} random jobs, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
