# SPDX-License-Identifier: Apache-2.0
"""Which ranks take longer over their own work than others with the same work.

Everybody waits for whoever is late, so the late one waits least, and what is left of its step is
its own (C4D; Holmes; Aegis). Own time is measured rather than waiting: in a pipeline, ranks far
from the late one wait for others' reasons too. Ranks of one stage do the same work, so each is
compared with its stage's median, step by step.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.case import Case
from analyzer.detect.operators.votes import BY_CHANCE, Flags, elected, going_with, spread
from analyzer.operators.rows import Floats, Ints

LATE = 0.02
"""What a rank takes longer than others, as a share of the step, from which it counts. Chosen: the
jitter of a step's sum is below 1 %."""
HELD_UP = 0.01
"""What a rank costs of a step, from which it holds the job up. Chosen: half of `LATE`. Who is late
by less than its stage has to spare holds nobody up."""
STANDING_OUT = 4.0
"""Standard deviations between ranks from which one stands out in a step. Chosen: of a normal
distribution, one of thirty thousand does."""
CONSTANT = 7.0
"""Standard deviations between ranks' own medians over all steps, from which a rank is slow though
steps differ so much that it stands out in none. Chosen: uneven work gives 4 in ten thousand
ranks."""
UNLIKE = 5.0
"""Standard deviations between ranks' averages over all steps, from which one is unlike them.
Chosen: processors of one make differ by a percent or two for good, and somebody is the last."""
TAILED = 1.2
"""Times the deviations at which a normal distribution has anybody of so many ranks with odds of
`votes.BY_CHANCE`, which count where they are more than `UNLIKE`. Chosen: what is not quite normal
has longer tails; of 2,048 ranks the last was 5.1 deviations off."""
MIXED = 0.12
"""What a rank takes longer than ranks that may be of another stage, as a share of their work, from
which it is not the stage that is longer. Chosen: as `partition.UNEVEN`."""
_STEADY = 0.75
"""Share of steps in which such a rank is above its peers' median. Chosen: of others half are."""
_MOSTLY = 0.5
_PAIR = 2  # of two peers, the quicker one shows what the work takes


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that hold a job up, slowest first."""

    places: Ints
    """Into the case's ranks."""
    effect: Floats
    """What each costs of a step: how much longer it takes than the stage with the most work."""
    share: Floats
    """In how many of the steps it stood out."""
    with_time: Floats
    """How its lateness goes with the iterations' time, 0 to 1."""
    excess_us: Floats
    """(steps, ranks): of all ranks, over what their peers took."""


def slow(case: Case, said: Flags | None = None) -> Slow:
    """Return who takes longer over its own work than its peers, in more steps than by chance.

    `said` are (steps, ranks) that stand out, where another rule than the one here says so.
    """
    excess = excess_us(case)
    time, known = case.step_us, case.known
    late = excess / time[:, None]
    wide = np.maximum(STANDING_OUT * spread(late, axis=1), LATE)
    outstanding = (late > wide[:, None] if said is None else said) & known
    middle = np.median(late, axis=0)
    named = elected(outstanding, known) | _constant(late, middle)
    # Whoever is slow at times shows in means; one step in which all are apart spreads only those.
    apart = max(UNLIKE, TAILED * -NormalDist().inv_cdf(BY_CHANCE / max(len(middle), 1)))
    unlike = [each > max(LATE, apart * float(spread(each))) for each in (late.mean(axis=0), middle)]
    named &= unlike[0] | unlike[1]
    if case.mixed is not None:
        own = np.maximum(case.own_us - excess, 0) / time[:, None]
        named &= ~case.mixed | (late.mean(axis=0) > MIXED * own.mean(axis=0))
    effect = np.where(named, _cost(case), 0)
    places = np.flatnonzero(effect > HELD_UP)
    places = places[np.argsort(-effect[places], kind="stable")]
    places = _without_echoes(case, places, excess, effect)
    share = outstanding.mean(axis=0)
    return Slow(
        places, effect[places], share[places], going_with(excess[:, places], time), excess
    )  # fmt: skip


def _constant(late: Floats, middle: Floats) -> NDArray[np.bool_]:
    """Return who is late in most steps, by more than ranks differ over all steps."""
    wide = max(float(spread(middle)), float(spread(late)) / np.sqrt(len(late)))
    steady = (late > 0).mean(axis=0) >= _STEADY
    named = np.asarray(steady & (middle > max(CONSTANT * wide, LATE)))
    places = np.flatnonzero(named).tolist()
    kept = [at for at in places if _by_chance(late, middle[at], at, named) < BY_CHANCE]
    return np.asarray(np.isin(np.arange(len(middle)), kept))


def _by_chance(late: Floats, usual: float, at: int, named: Flags) -> float:
    """Return how likely anybody is by chance half as late as this one so often.

    Garbage that is collected in three steps of five lifts a median, too.
    """
    over = late > _MOSTLY * usual
    rest = over[:, ~named]
    # By step, as in one that warms up all are apart. Of independent steps the votes' odds fold.
    odds = np.ones(1)
    overall = (float(rest.sum()) + 0.5) / (rest.size + 1.0)
    for rate in (rest.sum(axis=1) + overall) / (rest.shape[1] + 1.0):
        odds = np.convolve(odds, (1 - rate, rate))
    return float(odds[int(over[:, at].sum()) :].sum()) * len(over[0])


def _cost(case: Case) -> Floats:
    """Return (ranks,) by what share of a step each takes longer than any stage's usual work."""
    own = np.where(case.known, case.own_us, np.nan)
    stages = [np.flatnonzero(case.stage == n) for n in range(int(case.stage.max(initial=0)) + 1)]
    most = np.max([_usual(own[:, of]) for of in stages if len(of)], axis=0)
    over = np.maximum(np.nan_to_num(own - most[:, None]), 0)
    return np.asarray((over / case.step_us[:, None]).mean(axis=0))


def _without_echoes(case: Case, places: Ints, excess: Floats, effect: Floats) -> Ints:
    """Return the slow ranks, but for those that may have waited where nothing was logged.

    Where computing is logged, a rank that is late in what it did not log is no suspect beside one
    that is late in what it did: it may have waited for that one.
    """
    if len(case.sums.labels) == 1 or case.is_blind:
        return places
    idle = case.sums.own_us[:, :, -1]
    over = np.array([
        (idle[:, at] - np.median(idle[:, case.stage == case.stage[at]], axis=1)).mean()
        for at in places
    ])  # fmt: skip
    silent = over > _MOSTLY * excess[:, places].mean(axis=0)
    worst = effect[places[~silent]].max(initial=0)
    return np.asarray(places[~silent | (effect[places] > worst / _MOSTLY)])


def excess_us(case: Case) -> Floats:
    """Return (steps, ranks) by how much each took longer than its stage's median; 0 if unknown."""
    own, known = np.where(case.known, case.own_us, np.nan), case.known
    made = np.zeros(own.shape)
    for stage in range(int(case.stage.max(initial=0)) + 1):
        of = np.flatnonzero(case.stage == stage)
        if not len(of):
            continue
        with np.errstate(all="ignore"):
            usual = _usual(own[:, of])
        made[:, of] = own[:, of] - usual[:, None]
    return np.where(known & ~np.isnan(made), made, 0.0)


def _usual(own: Floats) -> Floats:
    """Return (steps,) what the work takes: the median, of two the less."""
    if own.shape[1] <= _PAIR:
        least: Floats = np.nanmin(own, axis=1) if own.shape[1] else np.zeros(len(own))
        return least
    return np.asarray(np.nanmedian(own, axis=1))
