# SPDX-License-Identifier: Apache-2.0
"""A declared parallelism, compared with the traffic.

A declaration is never trusted: its groups must be as well separated in the traffic as the best
groups that the traffic itself suggests. It adds what no signal shows: which members of two stages
belong to one replica.
"""

from dataclasses import dataclass, replace

import numpy as np

from analyzer.skeleton import cluster, infer, parallelism, spectrum
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.positions import Positions, positions
from analyzer.skeleton.series import Ints, TrafficSeries
from netagent.model.task import Parallelism

FITS = 0.5
"""Least separation of declared groups, on the scale of `cluster.separation`. Chosen: the value at
which `infer` begins to trust groups."""
SPLIT = 0.4
"""Separation of the traffic's best groups from which one declared group of all does not fit.
Chosen: chance groups stay below it."""
UNSEEN = 0.85
"""Confidence in a declaration that fits, but whose experts do not show in the traffic. Chosen:
above CONFIDENT, since joining experts with their stage leaves no pair out."""
TRUSTED = 0.9
"""Confidence in a declaration that fits. Chosen: above CONFIDENT, and below 1, since the traffic
agrees with it but did not show it alone."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What a task's owner declared: its parallelism, and by row the ranks."""

    parallelism: Parallelism
    rank: Ints
    """(n_endpoints,): rank of each row; a host's ranks follow its rails."""


def infer_with(series: TrafficSeries, hint: Hint | None) -> Skeleton:
    """Return the skeleton of one task, from its traffic and its owner's declaration."""
    found = infer.infer(series)
    if hint is None or not series.ordered:  # without an order nobody knows who has which rank
        return found
    job = hint.parallelism
    if found.confident and not found.superset:
        # What the traffic shows by itself goes before the declaration.
        same = (found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep)
        return found if same else replace(found, reason=f"declared is {job}, which does not fit")
    declared = _declared(series, hint)
    if declared is None and found.confident:
        return replace(found, reason=f"{found.reason}; the declared {job} does not fit")
    if declared is None:
        return replace(found, reason=f"{found.reason}; the declared {job} does not fit either")
    return replace(declared, reason=f"as declared; from the traffic alone, {found.reason}")


def _declared(series: TrafficSeries, hint: Hint) -> Skeleton | None:
    """Return the declared skeleton; None where the traffic does not support it."""
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
    if made.rhythm < spectrum.SURE_RHYTHM or periods < parallelism.MIN_PERIODS:
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
        # The traffic does not show which experts belong together: join all of a stage, which
        # leaves no pair out.
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
