# SPDX-License-Identifier: Apache-2.0
"""Skeletons of jobs whose hosts are in no order, of unequal rails, and of which some lack.

Seeds below 100 are for tuning, and the figures' seed is none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzer.simulate.scattered import Scatter, Scattered, scatter
from analyzer.simulate.shapes import draw_disturbance, draw_job, draw_template
from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton import cluster, spectrum
from analyzer.skeleton.infer import CONFIDENT, infer
from analyzer.skeleton.logged import Ends, logged
from analyzer.skeleton.positions import scattered
from analyzer.skeleton.series import Ints, TrafficSeries, basic_edges
from analyzer.skeleton.superset import superset
from netagent.model.task import Parallelism

SEED = 2026
LARGEST = 1024
"""Ranks of the largest job: it is about shapes, not sizes."""
HARSH_LARGEST = 512
PLACES = {
    "no order": Scatter(missing=0.0),
    "no order, a tenth missing": Scatter(missing=0.1),
    "and half of the rails on some": Scatter(missing=0.1, shared=0.3),
    "and two containers on some": Scatter(missing=0.1, paired=0.3),
}
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)


@dataclass(frozen=True, slots=True)
class Result:
    """One job. Shares are of the basic list's pairs."""

    places: str
    job: Parallelism
    used: bool
    recall: float
    share: float
    own: float
    """What the job uses."""
    logged: bool
    """Whether a log of its operators has its pairs exactly."""


def sweep(jobs: int, seed: int = SEED) -> Iterator[Result]:
    """Infer random jobs on random hosts, each kind of them in turn."""
    rng = np.random.default_rng(seed)
    for number in range(jobs):
        name = list(PLACES)[number % len(PLACES)]
        job = _drawn(rng, LARGEST, PLACES[name])
        made = _placed(job, draw_template(rng), draw_disturbance(rng), PLACES[name], rng)
        series, truth = made.work.series, made.work.truth.edges
        found = infer(series)
        told = logged(made.log, Ends(series.names, series.host, series.rail))
        basic = len(basic_edges(series.host, series.rail))
        yield Result(
            name, job, found.confident, recall(found.edges, truth, len(series)),
            len(found.edges) / basic, len(truth) / basic,
            logged=told.confident and np.array_equal(told.edges, truth),
        )  # fmt: skip


def _drawn(rng: np.random.Generator, largest: int, how: Scatter) -> Parallelism:
    while True:
        job = draw_job(rng)
        if job.ranks <= largest and (job.tp > 1 or not how.shared):
            return job


def _placed(
    job: Parallelism, template: Template, disturbance: Disturbance, how: Scatter,
    rng: np.random.Generator, ticks: int = 1200,
) -> Scattered:  # fmt: skip
    seed = int(rng.integers(1 << 32))
    work = generate(job, seed=seed, ticks=ticks, template=template, disturbance=disturbance)
    return scatter(work, how, seed=seed)


def recall(edges: Ints, truth: Ints, count: int) -> float:
    """Return the share of the pairs in `truth` that `edges` have."""
    mine, theirs = (each[:, 0] * count + each[:, 1] for each in (edges, truth))
    return len(np.intersect1d(mine, theirs)) / max(1, len(theirs))


def table(results: list[Result]) -> list[str]:
    """Return the sweep for a terminal. What is not used has the basic list for its pairs."""
    head = ("hosts", "jobs", "used", "worst recall", "pairs, % of basic", "by a log exact")
    lines = ["{:<31}{:>5}{:>7}{:>14}{:>19}{:>16}".format(*head)]
    for name in PLACES:
        each = [r for r in results if r.places == name]
        lines.append(
            f"{name:<31}{len(each):5}{100 * np.mean([r.used for r in each]):6.0f}%"
            f"{min(r.recall for r in each):14.4f}{100 * np.mean([r.share for r in each]):19.1f}"
            f"{sum(r.logged for r in each):16}"
        )
    return lines


def halves(results: list[Result]) -> list[str]:
    """Say how often the list is at most half of the basic one, by the number of stages."""
    head = ("DP of 4 or more", "jobs", "used", "at most half", "own pairs at most half")
    lines = ["{:<16}{:>5}{:>7}{:>14}{:>24}".format(*head)]
    for name, least, most in (
        ("1 to 3 stages", 1, 3), ("4 and 5", 4, 5), ("6 and more", 6, 99), ("all", 1, 99),
    ):  # fmt: skip
        each = [r for r in results if r.job.dp >= 4 and least <= r.job.pp <= most]
        if each:
            used, half, own = (
                100 * np.mean(rows)
                for rows in (
                    [r.used for r in each], [r.share <= 0.5 for r in each],
                    [r.own <= 0.5 for r in each],
                )
            )  # fmt: skip
            lines.append(f"{name:<16}{len(each):5}{used:6.0f}%{half:13.0f}%{own:23.0f}%")
    return lines


def harsh(jobs: int, seed: int = SEED) -> Iterator[tuple[float, float]]:
    """Yield the confidence of supersets, used or not, and their recall, in worse traffic.

    Up to 60 % noise, 4 to 15 iterations, stages 0.05 to 4 s apart, clocks that are off by up to
    0.1 s, a host that is late by up to 4 s, interleaved schedules, replicas in any haste.
    """
    rng = np.random.default_rng(seed)
    while jobs:
        how = list(PLACES.values())[jobs % len(PLACES)]
        job = _drawn(rng, HARSH_LARGEST, how)
        template = Template(
            stage_shift_s=float(np.exp(rng.uniform(np.log(0.05), np.log(4)))),
            chunks=int(rng.integers(1, 3)), period_s=float(rng.uniform(66, 90)),
        )  # fmt: skip
        disturbance = Disturbance(
            noise=float(rng.uniform(0, 0.6)), jitter_s=float(rng.uniform(0, 0.6)), clock_s=0.1,
            straggler_s=float(rng.uniform(0, 4)), missing=float(rng.uniform(0, 0.1)),
        )  # fmt: skip
        ticks = int(rng.integers(300, 1200))
        work = _placed(job, template, disturbance, how, rng, ticks).work
        found = _proposed(work.series)
        if found is None:
            continue
        jobs -= 1
        yield found[0], recall(found[1], work.truth.edges, len(work.series))


def _proposed(series: TrafficSeries) -> tuple[float, Ints] | None:
    """Return the confidence and the pairs of a superset; None where it is the basic list."""
    mine, absent = scattered(series)
    made = spectrum.features(mine.values)
    if absent:
        return None
    wide = superset(mine, made, cluster.candidates(made), series.tick_s)
    basic = basic_edges(series.host, series.rail)
    edges = wide.edges(mine, basic)
    return None if len(edges) == len(basic) else (wide.confidence, edges)


def calibration(made: list[tuple[float, float]]) -> list[str]:
    """Return, by confidence, how many supersets had all of their job's pairs."""
    lines = [
        "{:<12}{:>6}{:>18}{:>14}".format("confidence", "jobs", "nothing left out", "worst recall")
    ]
    for low, high in pairwise(BINS):
        each = [r for c, r in made if low <= c < high]
        if each:
            right = 100 * np.mean([r == 1 for r in each])
            mark = " used" if low >= CONFIDENT else ""
            lines.append(
                f"{low:.1f} to {min(high, 1):.1f}  {len(each):6}{right:17.1f}%{min(each):14.4f}"
                f"{mark}"
            )
    return lines
