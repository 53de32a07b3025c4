# SPDX-License-Identifier: Apache-2.0
"""Whether a skeleton still fits the traffic that follows it (section 7.3 of SkeletonHunter).

Five numbers describe a stretch of traffic: how much is sent, how steep its bursts are, how well it
repeats itself one iteration later, how far positions are from the others of their group, and how
many of them are nearest their own group. The history from which a skeleton was inferred shows how
far these numbers vary while it fits. A stretch clearly outside of that range no longer fits.
"""

import math
from dataclasses import dataclass

import numpy as np

from analyzer.skeleton.infer import MAX_UNKNOWN, Skeleton, by_host
from analyzer.skeleton.positions import mean_known, with_absent
from analyzer.skeleton.series import Floats, Ints, TrafficSeries
from analyzer.skeleton.spectrum import compress, features, filled

SHORTEST, LONGEST = 96, 480
"""Least and most ticks of a stretch. Chosen: fewer ticks make noisy features, more ticks delay the
discovery of a misfit."""
PERIODS = 3
"""Iterations in a stretch, within its least and most ticks. Chosen: one iteration to compare with
the next, and one to spare."""
QUIET_PERIODS = 1.5
"""Iterations without traffic that make a pause. Chosen: longer than any gap within an iteration."""
QUIET = 0.05
"""Share of the usual traffic below which a task counts as quiet. Chosen: a pause still carries some
packets, an iteration carries far more."""
VOLUME = 2.5
"""Factor above the history's median traffic, or below its least, that makes another phase. Chosen:
a lower one gives up skeletons at harmless changes, a higher one keeps them in another phase."""
CREST = 2.0
"""Factor by which, in a misfit, bursts are steeper than usual or flatter than ever. Chosen: traffic
without its gradient exchanges, or with others, differs by more."""
BUSIEST = 0.98
"""Quantile of the ticks by traffic that is taken as the height of bursts. Chosen: the maximum would
be one tick's noise."""
REPEATS = 0.5
"""Share of the history's least correlation with the iteration before, below which a stretch is a
misfit. Chosen: tolerates jitter, not another rhythm."""
DRIFT = 0.1
"""Share by which an iteration may become longer or shorter. Chosen: less gives up jobs whose
batches vary, more accepts another job."""
APART = 2.0
"""Factor on the history's largest distance from the own group, beyond which positions left it.
Chosen: tolerates noise, not another parallelism."""
NOISE = 0.05
"""Squared distance, as a share of the features' size, added to that limit. Chosen: where the
history has almost no distances, noise alone would exceed any factor."""
NEAREST = 0.25
"""Share of the positions by which, in a misfit, fewer than ever are nearest their own group.
Chosen: tolerates a few stragglers, not another parallelism."""


@dataclass(frozen=True, slots=True)
class Look:
    """One stretch of traffic, seen through a skeleton."""

    volume: float
    """Bytes per endpoint and tick."""
    crest: float
    """Bytes per endpoint in the busiest ticks, as a multiple of `volume`."""
    repeats: float
    """Correlation of the series with themselves one period later, at most 1."""
    apart: float
    """Mean squared distance of a position from its group, as a share of the features' size."""
    nearest: float
    """Share of the positions that are nearest their own group."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The part of a skeleton that traffic can confirm: stages and the period."""

    order: Ints
    """(n_positions, tp): rows of each position, or ABSENT."""
    label: Ints
    """(n_positions,): stage of each position; every stage has some."""
    period_ticks: float


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How traffic looks while a skeleton fits: the history's medians and its worst values."""

    groups: Groups
    usual: Look
    worst: Look
    """Least `volume`, `crest`, `repeats` and `nearest` of the history, and its largest `apart`."""
    ticks: int
    """Ticks in a stretch."""


def fingerprint(series: TrafficSeries, skeleton: Skeleton) -> Fingerprint:
    """Return how `series` looks, the history from which `skeleton` was inferred."""
    groups = _groups(series, skeleton)
    span = max(SHORTEST, math.ceil(PERIODS * groups.period_ticks))
    ticks = min(LONGEST, span, series.rate.shape[1])
    ends = range(ticks, series.rate.shape[1] + 1, max(1, ticks // 2))
    seen = [look(series.rate[:, end - ticks : end], groups) for end in ends]
    worst = Look(
        min(each.volume for each in seen),
        min(each.crest for each in seen),
        min(each.repeats for each in seen),
        max(each.apart for each in seen),
        min(each.nearest for each in seen),
    )
    usual = Look(*(float(np.median([getattr(s, name) for s in seen])) for name in Look.__slots__))
    return Fingerprint(groups, usual, worst, ticks)


def misfit(rate: Floats, mine: Fingerprint) -> str:
    """Return why (n_endpoints, ticks) `rate` does not fit; empty where it does."""
    unknown = np.isnan(rate).mean(axis=1) > MAX_UNKNOWN
    if unknown.any():
        return f"the series of {int(unknown.sum())} endpoints are missing"
    quiet_ticks = min(rate.shape[1], max(3, round(QUIET_PERIODS * mine.groups.period_ticks)))
    lately = _mean(rate[:, -quiet_ticks:])
    if lately < QUIET * mine.usual.volume:
        return "it sends next to nothing: idle, or at a checkpoint or an evaluation"
    now, usual, worst = look(rate, mine.groups), mine.usual, mine.worst
    share = 100 * now.volume / max(usual.volume, 1e-12)
    lost = f"only {100 * now.nearest:.0f} % of the endpoints still send with their group"
    outside = {
        f"it sends {share:.0f} % of what it did: another phase, or another job": (
            now.volume < worst.volume / VOLUME or now.volume > usual.volume * VOLUME
        ),
        "its bursts are not what they were: an evaluation, or another job": (
            now.crest < worst.crest / CREST or now.crest > usual.crest * CREST
        ),
        "its iterations no longer repeat as they did": now.repeats < REPEATS * worst.repeats,
        "endpoints no longer send what others of their group do": (
            now.apart > APART * worst.apart + NOISE
        ),
        lost: now.nearest < worst.nearest - NEAREST,
    }
    return next((why for why, is_so in outside.items() if is_so), "")


def look(rate: Floats, groups: Groups) -> Look:
    """Describe a stretch of traffic."""
    positions = filled(mean_known(with_absent(compress(rate))[groups.order]))
    features_of = features(positions).pooled
    apart, nearest = _fit(features_of, groups.label)
    volume, repeats = _mean(rate), _repeats(positions, groups.period_ticks)
    return Look(volume, _crest(rate) / max(volume, 1e-12), repeats, apart, nearest)


def _groups(series: TrafficSeries, skeleton: Skeleton) -> Groups:
    order = skeleton.rows if skeleton.superset else by_host(series)[0].reshape(-1, skeleton.tp)
    label: Ints = np.unique(skeleton.stage[order[:, 0]], return_inverse=True)[1].ravel()
    return Groups(order, label, skeleton.period_s / series.tick_s)


def _mean(rate: Floats) -> float:
    known = ~np.isnan(rate)
    return float(rate[known].mean()) if known.any() else 0.0


def _crest(rate: Floats) -> float:
    told = rate[:, ~np.isnan(rate).all(axis=0)]
    return float(np.quantile(np.nanmean(told, axis=0), BUSIEST)) if told.size else 0.0


def _repeats(positions: Floats, period_ticks: float) -> float:
    """Return the best correlation of series with themselves, at lags within DRIFT of a period."""
    ticks = positions.shape[1]
    best = 0.0
    first, last = (round(period_ticks * (1 + sign * DRIFT)) for sign in (-1, 1))
    for lag in range(max(1, first), min(last + 1, ticks // 2 + 1)):
        one, two = positions[:, :-lag], positions[:, lag:]
        one = one - one.mean(axis=1, keepdims=True)
        two = two - two.mean(axis=1, keepdims=True)
        norm = math.sqrt(float(np.sum(one**2)) * float(np.sum(two**2)))
        if norm > 1e-9 * positions.size:
            best = max(best, float(np.sum(one * two)) / norm)
    return best


def _fit(points: Floats, label: Ints) -> tuple[float, float]:
    """Return points' mean squared distance from their group, and the share nearest their own."""
    groups = int(label.max()) + 1
    size = np.bincount(label)
    if size.max() == 1:
        return 0.0, 1.0
    centres = np.zeros((groups, points.shape[1]))
    np.add.at(centres, label, points)
    centres /= size[:, None]
    own = np.sum(points**2, axis=1)
    squared = own[:, None] + np.sum(centres**2, axis=1)[None, :] - 2 * points @ centres.T
    member = np.arange(len(label))
    # Without the point itself, its group's centre is farther off.
    without = size / np.maximum(size - 1, 1)
    mine = squared[member, label] * without[label] ** 2
    others = squared.copy()
    others[member, label] = np.inf
    nearest = float(np.mean(mine <= others.min(axis=1))) if groups > 1 else 1.0
    return float(mine.mean() / max(float(own.mean()), 1e-12)), nearest
