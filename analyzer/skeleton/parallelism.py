# SPDX-License-Identifier: Apache-2.0
"""From groups that send alike to pipeline stages, replicas and experts.

The stage that shows a burst before the others comes first (section 5.1). While replicas behave
alike, no signal shows which members of two stages belong to one replica. But ranks lie regularly
over hosts, and where the groups show such a layout it decides. Between gradient exchanges each
replica has a haste of its own, which its experts share. That distinguishes experts from replicas.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.skeleton.cluster import divisors
from analyzer.skeleton.series import Floats, Ints

MIN_PERIODS = 5
"""Iterations below which the confidence falls in proportion. Chosen: fewer repeat by chance."""
SURE = 6.0
"""Standard errors by which experts of a replica must be more alike than other members of their
stage. Chosen: many block sizes are tried, and wrong experts leave used pairs out."""
SHARED = 0.5
"""Least share of the positions' own signal, without noise, that experts of one replica share.
Chosen: experts share most of it, and nobody else should."""
INSISTS = 0.5
"""Share of the squared distance between two stages by which a member must be nearer the other stage
to refute a layout. Chosen: half is beyond noise, and a whole stage's shift is 1."""
AGREES = 0.6
"""Share of the best autocorrelation that the first repetition must reach to be the period. Chosen:
less takes an echo within an iteration for the period, more a multiple of it."""
BURST = math.log(3)
"""Compressed rate, ln(1 + rate / mean), above which a stage exchanges gradients: twice the mean.
Chosen. Bursts are left out because a ring or tree makes some replicas' bursts more alike than
others', which looks like experts."""
BETWEEN = 0.2
"""Least share of the traffic that must lie between bursts to look for experts. Chosen: with less,
noise outweighs it."""
EFFECTIVE = 0.25
"""Share of the ticks that count as independent in a standard error. Chosen: haste shows only where
plateaus begin and end, which is in few ticks."""


def lags(values: Floats, label: Ints, tick_s: float) -> tuple[Floats, float]:
    """Return (n_groups,) lags behind group 0, and the period, both in seconds.

    Lags lie within half a period before or after group 0, to a fraction of a tick.
    """
    groups = int(label.max()) + 1
    means = np.stack([values[label == number].mean(axis=0) for number in range(groups)])
    means -= means.mean(axis=1, keepdims=True)
    ticks = means.shape[1]
    size = 1 << (2 * ticks - 1).bit_length()
    spectra = np.fft.rfft(means, size, axis=1)
    period = period_ticks(means, size)
    reach = int(min(period / 2, ticks / 4))
    made = np.empty(groups)
    for number in range(groups):
        full = np.fft.irfft(spectra[number] * spectra[0].conj(), size)
        around = np.concatenate([full[-reach - 1 :], full[: reach + 2]])
        made[number] = _peak(around) - reach - 1
    return made * tick_s, period * tick_s


def period_ticks(means: Floats, size: int) -> float:
    """Return the period, in ticks, that (n, ticks) series share: the first high autocorrelation."""
    power = np.sum(np.abs(np.fft.rfft(means, size, axis=1)) ** 2, axis=0)
    ticks = means.shape[1]
    own = np.fft.irfft(power, size)[: ticks // 2]
    own = own / np.maximum(1 - np.arange(len(own)) / ticks, 0.25)
    below = np.flatnonzero(own < 0.2 * own[0])
    start = int(below[0]) if len(below) else 0
    later = own[start:]
    if not start or not later.max() > 0:
        return float(ticks / 2)
    # Whole multiples of the period agree as well, and by chance better where iterations differ a
    # little. So the first lag that agrees well is the period.
    alike = np.flatnonzero(later > AGREES * later.max())
    ends = alike[np.flatnonzero(np.diff(alike, append=len(own) + 1) > 1)]
    return start + _peak(later[: int(ends[0]) + 2])


def _peak(values: Floats) -> float:
    """Return the index of the largest value, refined by a parabola through its neighbours."""
    at = int(np.argmax(values))
    if not 0 < at < len(values) - 1:
        return float(at)
    before, top, after = values[at - 1 : at + 2].tolist()
    bend = before - 2 * top + after
    beside: float = 0.5 * (before - after) / bend if bend else 0.0
    return at + beside


def in_order(lag_s: Floats, period_s: float) -> Ints:
    """Return the groups from the first stage to the last: the largest pause is before the first."""
    if len(lag_s) < 2:
        return np.arange(len(lag_s))
    phase = np.mod(lag_s, period_s)
    order = np.argsort(phase, kind="stable")
    gaps = np.diff(np.concatenate([phase[order], [phase[order[0]] + period_s]]))
    return np.roll(order, -(int(np.argmax(gaps)) + 1))


@dataclass(frozen=True, slots=True)
class Layout:
    """How stages lie over positions that are sorted by host and rail."""

    stage: Ints
    """(n,): stage of each position."""
    agreement: float
    """Share of the positions that the signal alone put into the layout's stage."""


def regular(stage: Ints, stages: int) -> Layout:
    """Return the layout that most positions follow.

    Stages alternate in runs. A run is one position (replicas one after the other, as in Figure 9),
    all replicas (stages one after the other), or a number between, such as a replica's experts.
    A chain has the same edges backwards. Where stages spread over a whole period, the signal alone
    does not show which stage is first, so every rotation is tried.
    """
    count = len(stage)
    best = Layout(stage, 0.0)
    for run in divisors(count // stages):
        label = np.arange(count) // run % stages
        for forwards in (stage, stages - 1 - stage):
            behind = np.bincount((forwards - label) % stages, minlength=stages)
            agreement = float(behind.max()) / count
            if agreement > best.agreement:
                best = Layout(label, agreement)
    return best


def insisting(early: Floats, late: Floats, stage: Ints) -> NDArray[np.bool_]:
    """Return (n,): which positions clearly send what another stage sends than their own.

    Squared distances between the two halves of the windows (`spectrum.Features`) are taken, from
    which noise cancels: to the mean of the own stage, and of every other. A position insists where
    it is nearer another stage by more than INSISTS of the distance between the two stages. Stages
    of one position have nothing to compare with.
    """
    stages = int(stage.max()) + 1
    size = len(stage) // stages
    if size == 1 or stages == 1:
        return np.zeros(len(stage), np.bool_)
    member = np.arange(len(stage))
    halves = (early, late)
    sums = [np.stack([half[stage == s].sum(axis=0) for s in range(stages)]) for half in halves]
    one, two = (total / size for total in sums)
    own = np.sum(early * late, axis=1)[:, None]
    apart = own - early @ two.T - late @ one.T + np.sum(one * two, axis=1)
    # The distance to its own stage is taken without the position itself.
    rest_early, rest_late = (
        (total[stage] - half) / (size - 1) for total, half in zip(sums, halves, strict=True)
    )
    mine = np.sum((early - rest_early) * (late - rest_late), axis=1)
    apart[member, stage] = np.inf
    nearest = np.argmin(apart, axis=1)
    between = np.sum((one[stage] - one[nearest]) * (two[stage] - two[nearest]), axis=1)
    nearer_by = mine - apart[member, nearest]
    insists: NDArray[np.bool_] = (nearer_by > INSISTS * between) & (between > 0)
    return insists


@dataclass(frozen=True, slots=True)
class Haste:
    """What positions send unlike their stage, between gradient exchanges."""

    residual: Floats
    """(n, ticks): deviations from the stage's mean. A tick with less noise weighs more; each row
    has length 1."""
    share: float
    """Share of a residual that is signal, not noise: the likeness of two positions with the same
    haste. NaN: unknown."""


def own_haste(values: Floats, stage: Ints, noise: Floats) -> Haste:
    """Return how positions differ from their stage's mean; `noise` is each tick's variance."""
    stages = int(stage.max()) + 1
    member = np.zeros((stages, len(stage)))
    member[stage, np.arange(len(stage))] = 1
    means = member @ values / member.sum(axis=1, keepdims=True)
    between = _between_bursts(means)
    traffic = np.expm1(means)
    if np.sum(traffic * between) < BETWEEN * np.sum(traffic):
        return Haste(np.zeros_like(values), 0.0)
    residual = (values - means[stage]) * between[stage]
    known = not np.isnan(noise).any()
    per_tick = noise if known else np.full(values.shape[1], residual.var())
    floor = max(float(np.median(per_tick)), 1e-12) * 0.1
    weighted = residual / np.sqrt(per_tick + floor)
    expected = float(np.mean(per_tick / (per_tick + floor) * between[stage]))
    seen = max(float(np.mean(weighted**2)), expected, 1e-12)
    share = 1 - expected / seen if known else math.nan
    norm = np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)
    return Haste(weighted / norm, share)


def _between_bursts(means: Floats) -> NDArray[np.bool_]:
    """Return (stages, ticks): False in each stage's bursts and one tick around them."""
    burst = means > BURST
    burst[:, 1:] |= means[:, :-1] > BURST
    burst[:, :-1] |= means[:, 1:] > BURST
    return ~burst


@dataclass(frozen=True, slots=True)
class Experts:
    """Which positions of a stage are one replica's experts."""

    ep: int
    """Experts per replica; 1 where there are none or they do not show."""
    sure: float
    """Standard errors by which experts of one replica are more alike than others; 0 with `ep` 1."""
    replica: Ints
    """(n,): number of the replica within the stage."""
    expert: Ints
    """(n,): number of the expert within the replica."""


def experts(haste: Haste, stage: Ints) -> Experts:
    """Return whether positions of a stage come in blocks that share their own haste.

    Experts of a replica lie one after the other, or each in another block of the stage.
    """
    members = _members(stage)
    size = members.shape[1]
    alike = [haste.residual[rows] @ haste.residual[rows].T for rows in members]
    rank = np.empty(len(stage), np.int64)
    rank[members] = np.arange(size)
    none = Experts(1, 0.0, rank, np.zeros_like(rank))
    found = [none]
    least = _least(haste)
    error = _error(haste)
    for ep in divisors(size)[1:-1]:
        blocks = size // ep
        for replica, expert in ((rank // ep, rank % ep), (rank % blocks, rank // blocks)):
            within, apart, pairs = _contrast(alike, replica[members])
            if within > max(least, 0):
                sure = (within - apart) * math.sqrt(pairs) / error
                found.append(Experts(ep, sure, replica, expert))
    best = max(found, key=lambda each: each.sure)
    return best if best.sure > SURE else none


def share_haste(haste: Haste, stage: Ints, replica: Ints) -> bool:
    """Whether positions of one stage and `replica` are more alike than others of their stage."""
    members = _members(stage)
    alike = [haste.residual[rows] @ haste.residual[rows].T for rows in members]
    within, apart, pairs = _contrast(alike, replica[members])
    sure = (within - apart) * math.sqrt(pairs) / _error(haste)
    return within > max(_least(haste), 0) and sure > SURE


def _least(haste: Haste) -> float:
    return SHARED * haste.share if not math.isnan(haste.share) else SHARED


def _error(haste: Haste) -> float:
    return 1 / math.sqrt(EFFECTIVE * haste.residual.shape[1])


def _members(stage: Ints) -> Ints:
    """Return (stages, size): the positions of each stage, in order."""
    return np.argsort(stage, kind="stable").reshape(int(stage.max()) + 1, -1)


def _contrast(alike: list[Floats], replica: Ints) -> tuple[float, float, int]:
    """Return the mean likeness within replicas, that between them, and the pairs within."""
    sums, counts = np.zeros(2), np.zeros(2)
    for one, block in zip(alike, replica, strict=True):
        together = block[:, None] == block[None, :]
        away = ~np.eye(len(block), dtype=bool)
        for kind, mask in enumerate((together & away, ~together)):
            sums[kind] += one[mask].sum()
            counts[kind] += mask.sum()
    means = sums / np.maximum(counts, 1)
    return float(means[0]), float(means[1]), int(counts[0] // 2)
