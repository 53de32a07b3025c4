# SPDX-License-Identifier: Apache-2.0
"""A safe superset of the pairs that a task uses, where its groups follow no layout.

Theory of operation. Who sends alike, at the same time, is one pipeline stage: its replicas and
experts exchange gradients and tokens. Which members of two stages belong to one replica shows
nowhere. So a superset has all pairs within a group, and all pairs between groups that follow each
other in time, the last and the first one too, as interleaved schedules have it.

Only time separates: groups whose lags are too close to be put in order are one block, within
which all pairs stay. Stages are of equal size. So where a position has to leave the group that it
sends like, for sizes to be equal, one of that group is of the other stage: a host that is late by
just one stage looks like the next stage. Who that is does not show, so all of the group have both
stages' pairs. One that sends like no group is late by something else: it belongs where a place is
left, and where there are several of them, each keeps all of its pairs.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzer.skeleton import cluster, parallelism, spectrum
from analyzer.skeleton.positions import ABSENT, Positions
from analyzer.skeleton.series import Floats, Ints

BLUR_S = 0.2
"""Seconds between two groups' lags up to which their order is open. Chosen: clocks of hosts are off
by a tenth of a second, and 0.3 s are the least between two stages that were tried."""
SPREADS = 6.0
"""Multiple of the spread of members of a group by which groups must be apart, where that is more.
Chosen: with less, groups are parts of several stages."""
SPREAD = 0.85
"""Quantile of positions, by their distance from their group's lag, that is its spread. Chosen: in
the smallest jobs one late host is a ninth of all."""
ODD_S = 0.25
"""Seconds from its group's lag from which a position is odd, or half of what groups are apart.
Chosen: beyond clocks that are off by a tenth of a second each way, below half a second's delay."""
DOUBT = 2.0
"""Multiple of that, by which an odd position may be off another group that it counts as being like.
Chosen: noise that moves it that far is rare, and a pair too many costs little."""
ERRORS = 5.0
"""Standard errors of a lag that must fit into that for full confidence. Chosen: hundreds of
positions are looked at."""
MANY = 0.15
"""Share of odd positions with which nothing is certain. Chosen: one host may straggle, and a few
series may be noisy; more are groups that are none."""
ANY = -1
"""In place of a group: any."""
MIN_SIZE = 3
"""Least positions of a group. Chosen: of two that differ nobody can say which one is odd."""


Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Superset:
    """Groups of a task in order of time. Positions are those that were given."""

    label: Ints
    """(n_positions,): group of each position, from 0 on in order of time; ANY: it has all pairs."""
    near: Bools
    """(n_groups, n_groups): whether the pairs between two groups are in."""
    size: int
    """Positions of each group, as the groups were made."""
    period_s: float
    parts: dict[str, float]
    """Reason -> factor of the confidence, 0 to 1."""

    @property
    def confidence(self) -> float:
        """Return the confidence that no pair is left out that the task uses."""
        return math.prod(self.parts.values())

    @property
    def lack(self) -> str:
        """Return the reason that lowers the confidence most; empty where none does."""
        worst = min(self.parts, key=lambda part: self.parts[part])
        return worst if self.parts[worst] < 1 else ""

    def stage(self, mine: Positions) -> Ints:
        """Return (n_endpoints,): group of each endpoint, or ANY; `mine` are the positions."""
        row, column = np.nonzero(mine.rows != ABSENT)
        found = np.empty(len(row), np.int64)
        found[mine.rows[row, column]] = self.label[row]
        return found

    def edges(self, mine: Positions, basic: Ints) -> Ints:
        """Return those pairs of the basic list, (n_edges, 2), that are in."""
        stage = self.stage(mine)
        one, two = stage[basic[:, 0]], stage[basic[:, 1]]
        kept: Ints = basic[self.near[one, two] | (one == ANY) | (two == ANY)]
        return kept


def superset(
    mine: Positions, made: spectrum.Features, found: Sequence[cluster.Candidate], tick_s: float
) -> Superset:
    """Return the groups of a task of which every position is there."""
    chosen = cluster.choose(list(found), made)
    lags = _lags(mine.values, chosen.label, tick_s)
    order = np.argsort(np.mod(lags.group_s, lags.period_s), kind="stable")
    forced = np.argsort(order)[chosen.label]
    lags = replace(lags, group_s=lags.group_s[order])
    apart_s = np.abs(_wrapped(lags.position_s[:, None] - lags.group_s[None], lags.period_s))
    off_s = np.take_along_axis(apart_s, forced[:, None], axis=1)[:, 0]
    near, limit_s = _near(lags, float(np.quantile(off_s, SPREAD)))
    odd = off_s > limit_s
    like = np.argmin(apart_s, axis=1)
    moved = odd & (apart_s.min(axis=1) <= DOUBT * limit_s) & (like != forced)
    label = np.where(moved, like, forced)
    suspect = _suspects(mine, label, odd & ~moved, single=bool(odd.sum() == 1))
    return Superset(
        np.where(suspect, ANY, label), _doubted(near, like[moved], forced[moved]),
        chosen.size, lags.period_s,
        _parts(chosen, made, lags, limit_s, odd | suspect),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Lags:
    """When positions and groups send, in seconds behind the mean of group 0, by the period."""

    position_s: Floats
    group_s: Floats
    """The median of each group's positions: one that is late does not move it."""
    period_s: float
    error_s: float
    """Standard error of one position's lag, as both halves of the time differ."""
    periods: float
    """Iterations that were seen."""


def _lags(values: Floats, label: Ints, tick_s: float) -> _Lags:
    half = values.shape[1] // 2
    position_s, period_s = _behind(values, label, tick_s)
    early_s, late_s = (
        _behind(part, label, tick_s)[0] for part in (values[:, :half], values[:, -half:])
    )
    # Of a difference of two halves, half is the error of the mean; 0.6745 is a normal median.
    error_s = float(np.median(np.abs(_wrapped(late_s - early_s, period_s)))) / 2 / 0.6745
    groups = int(label.max()) + 1
    middle_s = np.empty(groups)
    for number in range(groups):
        each = position_s[label == number]
        middle_s[number] = each[0] + np.median(_wrapped(each - each[0], period_s))
    return _Lags(position_s, middle_s, period_s, error_s, values.shape[1] * tick_s / period_s)


def _behind(values: Floats, label: Ints, tick_s: float) -> tuple[Floats, float]:
    both = np.concatenate([values[label == 0].mean(axis=0)[None], values])
    lag_s, period_s = parallelism.lags(both, np.arange(len(both)), tick_s)
    return lag_s[1:], period_s


def _wrapped(lag_s: Floats, period_s: float) -> Floats:
    """Return lags within half a period before or after."""
    wrapped: Floats = np.mod(lag_s + period_s / 2, period_s) - period_s / 2
    return wrapped


def _near(lags: _Lags, spread_s: float) -> tuple[Bools, float]:
    """Return which groups follow each other or cannot be put in order, and from where one is odd.

    Groups are in order of time.
    """
    phase_s = np.mod(lags.group_s, lags.period_s)
    gaps_s = np.diff(phase_s, append=phase_s[0] + lags.period_s)
    parted = gaps_s > max(BLUR_S, SPREADS * spread_s)
    block = np.cumsum(np.concatenate([[False], parted[:-1]]))
    blocks = int(block[-1]) + 1
    if not parted[-1] and blocks > 1:  # the last block goes on as the first one
        blocks -= 1
        block %= blocks
    steps = np.abs(block[:, None] - block[None, :])
    near: Bools = np.minimum(steps, blocks - steps) <= 1
    return near, min(ODD_S, float(gaps_s[parted].min(initial=np.inf)) / 2)


def _suspects(mine: Positions, label: Ints, strange: Bools, *, single: bool) -> Bools:
    """Return the positions that may be of any group, as their whole host may be late.

    A single one that sends like no group belongs where a place is left. Where a host has several
    positions, each is late: one may send like a group from which another one is gone. So all of
    them are suspect, and those of a machine whose groups come together on no other one.
    """
    host, machine = (
        np.unique(each, return_inverse=True)[1].ravel() for each in (mine.host, mine.machine)
    )
    late = np.bincount(host, weights=strange) > 0
    if single and (np.bincount(host)[host[strange]] == 1).all():
        late[:] = False
    together: dict[int, tuple[int, ...]] = {}
    for each, group in zip(machine.tolist(), label.tolist(), strict=True):
        together[each] = (*together.get(each, ()), group)
    seen = Counter(together.values())
    odd = [len(together[each]) > 1 and seen[together[each]] == 1 for each in sorted(together)]
    found: Bools = late[host] | np.asarray(odd)[machine]
    return found


def _doubted(near: Bools, full: Ints, short: Ints) -> Bools:
    """Return `near` where some of the groups in `full` belong to those in `short`, unknown which.

    So all of the former have the latter's pairs, too.
    """
    wider = near.copy()
    wider[full] |= near[short].any(axis=0)
    return wider | wider.T


def _parts(
    chosen: cluster.Candidate,
    made: spectrum.Features,
    lags: _Lags,
    limit_s: float,
    odd: Bools,
) -> dict[str, float]:
    share, seen = float(odd.mean()) if odd.sum() > 1 else 0.0, lags.periods
    parts = {
        "the groups are not well separated": (chosen.separation - 0.5) / 0.35,
        f"only {seen:.1f} iterations were seen": seen / parallelism.MIN_PERIODS,
        "the endpoints hardly share a rhythm": made.rhythm / spectrum.SURE_RHYTHM,
        "it does not show well enough when endpoints send": limit_s
        / max(ERRORS * lags.error_s, 1e-9),
        f"{int(odd.sum())} positions send at a time of their own": 1 - share / MANY / 5
        if share <= MANY
        else 0.0,
        f"its groups have {chosen.size} members only": float(chosen.size >= MIN_SIZE),
    }
    return {why: min(max(part, 0.0), 1.0) for why, part in parts.items()}
