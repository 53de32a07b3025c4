# SPDX-License-Identifier: Apache-2.0
"""Whether losses come and go with a period, from how much was lost in window after window.

A window is lossy or clean. Losses that begin, and end, at intervals as even as windows can show
have a period. Chance makes intervals of any length: of losses that begin and end at random, less
than one series in a hundred looks even (`tests/analyzer/localize/test_rhythm.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.25
"""Share of what lossy windows usually lose from which a window is lossy. Chosen: a stray loss is
none."""
LEAST_CYCLES = 5
"""Intervals in a row that must be alike. Chosen: by chance four are in one of a hundred series."""
EVEN = 0.12
"""Largest standard deviation of the intervals, as a share of their mean. Chosen: of losses that
begin and end at random it is 0.7 and more; a whole window is lost or won by rounding."""
LEAST_WINDOWS = 4
"""Least windows that a period takes. Chosen: of shorter ones, windows show only a beat."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Losses that come and go."""

    period: float
    """Windows from one beginning to the next, on average."""
    lasts: float
    """Windows that losses last, on average."""
    cycles: int
    """How many whole periods were seen."""
    lossy: int
    """Windows of these periods in which probes were lost."""
    windows: int
    """Windows of these periods."""


def rhythm_of(sent: Sequence[int], lost: Sequence[int]) -> Rhythm | None:
    """Return the period of the newest losses; None where they have none.

    One entry of both for each window, without gaps. A window in which nothing was sent tells
    nothing: only those after it are looked at.
    """
    rates = _observed(sent, lost)
    is_lossy = _lossy(rates)
    edges = np.diff(is_lossy.astype(np.int64))
    begins, ends = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1) + 1
    if len(begins) <= LEAST_CYCLES:
        return None
    # The longest row of newest intervals that are alike; what was before the fault has none.
    for first in range(len(begins) - LEAST_CYCLES):
        mine = begins[first:]
        over = ends[ends > mine[0]][: len(mine)]
        if _even(mine) and _even(over):
            return _told(is_lossy, int(mine[0]), int(mine[-1]), len(mine) - 1)
    return None


def _told(is_lossy: NDArray[np.bool_], first: int, last: int, cycles: int) -> Rhythm | None:
    lossy, windows = int(is_lossy[first:last].sum()), last - first
    if len(is_lossy) - last > 2 * windows / cycles:
        return None  # it has stopped, or has come to stay
    return Rhythm(windows / cycles, lossy / cycles, cycles, lossy, windows)


def _observed(sent: Sequence[int], lost: Sequence[int]) -> Floats:
    count = np.asarray(sent, np.float64)
    blind = np.flatnonzero(count == 0)
    first = int(blind[-1]) + 1 if len(blind) else 0
    rates: Floats = np.asarray(lost, np.float64)[first:] / count[first:]
    return rates


def _lossy(rates: Floats) -> NDArray[np.bool_]:
    some = rates[rates > 0]
    if not len(some):
        return np.zeros(len(rates), np.bool_)
    made: NDArray[np.bool_] = rates >= LEVEL * float(np.quantile(some, 0.75))
    return made


def _even(instants: NDArray[np.int64]) -> bool:
    between = np.diff(instants)
    if len(between) < LEAST_CYCLES - 1 or between.mean() < LEAST_WINDOWS:
        return False
    return bool(between.std() <= EVEN * between.mean())
