# SPDX-License-Identifier: Apache-2.0
"""A parallelism that somebody declared, held against the traffic.

It is never trusted: its groups must be separated in the traffic as well as the best that the
traffic itself suggests. What it adds is what no signal tells, who is in whose replica.
"""

from dataclasses import dataclass, replace

import numpy as np

from analyzer.skeleton import cluster, infer, parallelism, spectrum
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.positions import Positions, positions
from analyzer.skeleton.series import Ints, TrafficSeries
from netagent.model.task import Parallelism

FITS = 0.5
"""Least separation of declared groups."""
SPLIT = 0.4
"""One group of all does not fit where others are separated better than so."""
UNSEEN = 0.85
"""The same, where experts cannot be told from replicas."""
TRUSTED = 0.9
"""Confidence in what was declared and fits: the traffic agrees, and did not say it by itself."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What was declared of a task."""

    parallelism: Parallelism
    rank: Ints
    """(n_endpoints,): rank of each row; ranks of a host lie rail by rail."""


def infer_with(series: TrafficSeries, hint: Hint | None) -> Skeleton:
    """Return the skeleton of one task, by its traffic and what was declared of it."""
    found = infer.infer(series)
    if hint is None:
        return found
    job = hint.parallelism
    if found.confident:
        # What the traffic says by itself counts.
        same = (found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep)
        return found if same else replace(found, reason=f"declared is {job}, which does not fit")
    declared = _declared(series, hint)
    if declared is None:
        return replace(found, reason=f"{found.reason}; the declared {job} does not fit either")
    return replace(declared, reason=f"as declared; from the traffic alone, {found.reason}")


def _declared(series: TrafficSeries, hint: Hint) -> Skeleton | None:
    """Return the skeleton that was declared, where the traffic bears it out."""
    job = hint.parallelism
    order, why = infer.by_host(series)
    if why or infer.untold(series):
        return None
    if sorted(hint.rank.tolist()) != list(range(job.ranks)):
        return None
    mine = positions(series, order)
    if job.tp > mine.tp:
        return None  # rails of a host send different things
    made = spectrum.features(mine.values)
    period_s = parallelism.lags(mine.values, np.zeros(len(mine.values), np.int64), series.tick_s)[1]
    periods = series.rate.shape[1] * series.tick_s / period_s
    if made.rhythm < infer.SURE_RHYTHM or periods < infer.MIN_PERIODS:
        return None
    distances, floor = made.squared_distances(), cluster.floor_of(made.pooled)
    best = max(c.separation for c in cluster.candidates(made))
    row = np.argsort(hint.rank)
    fitting: list[tuple[float, Ints]] = []
    for ranks in _layouts(job, row):
        stage = infer.stage_of(ranks)[mine.rows]
        if (stage != stage[:, :1]).any():
            continue  # a position of the traffic in two stages
        separation = cluster.separation(distances, stage[:, 0], floor=floor)
        if (best < SPLIT) if job.pp == 1 else separation >= max(FITS, best - cluster.TIE):
            fitting.append((separation, ranks))
    if not fitting:
        return None
    ranks = max(fitting, key=lambda each: each[0])[1]
    confidence = TRUSTED
    if job.ep > 1 and not _experts_show(mine, ranks):
        # Whose experts are whose is not seen: all of a stage, which leaves nothing out.
        ranks, confidence = ranks.reshape(job.pp, 1, -1, job.tp), UNSEEN
    return replace(infer.assembled(series, ranks, period_s=period_s), confidence=confidence)


def _experts_show(mine: Positions, ranks: Ints) -> bool:
    """Whether positions of one declared replica share their own haste."""
    replica = np.empty(ranks.size, np.int64)
    replica[ranks] = np.arange(ranks.shape[2])[:, None]
    first = mine.rows[:, 0]
    stage = infer.stage_of(ranks)[first]
    haste = parallelism.own_haste(mine.values, stage, mine.noise)
    return parallelism.share_haste(haste, stage, replica[first])


def _layouts(job: Parallelism, row: Ints) -> list[Ints]:
    """Return (pp, ep, dp, tp) rows: replicas slowest, as in Figure 9, or stages, as in Megatron."""
    replicas = row.reshape(job.dp, job.pp, job.ep, job.tp)
    stages = row.reshape(job.pp, job.dp, job.ep, job.tp)
    return [replicas.transpose(1, 2, 0, 3), stages.transpose(0, 2, 1, 3)]
