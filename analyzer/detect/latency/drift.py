# SPDX-License-Identifier: Apache-2.0
"""Half an hour slower than a path's own reference: what creeps, and so enters shorter baselines.

SkeletonHunter, section 5.2, long-term: round trips of a healthy path are log-normal over a long
time, and a Z-test says whether half an hour still fits what it was once. With thousands of round
trips that test rejects what the paper itself calls normal (Figure 14: a quarter of a deviation), so
the mean also has to rise by a good part of the path's own deviation, by more than its half minutes
differ among themselves, and by more time than anybody would miss. The reference stays as it is,
however often a window fits: a path that gets slower little by little is compared with what it was.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.chance import deviations
from analyzer.detect.latency.merged import AT_ONCE, Floats, Ints, Merged, longer
from analyzer.detect.latency.saved import Columns

WIDTH_NS = 1_800_000_000_000
"""Nanoseconds of a window. The paper's, section 5.2."""
SIGNIFICANT = deviations(1e-6)
"""Standard errors by which the mean must rise. Chosen: with a hundred thousand flows chance passes
fewer every hour."""
DEVIATIONS = 0.5
"""Deviations of ln(RTT) by which it must rise. Between what Figure 14 calls normal (0.25) and its
first anomaly (1.54)."""
WANDERS = 1.5
"""The same in deviations of half a minute's mean. Chosen: a busy host's stamps wander for minutes,
and count for many round trips that are not independent."""
LEAST_COUNT = 200
"""Least round trips of a window. Chosen: of fewer a mean is not known to a tenth of a deviation."""
KEPT_NS = 24 * 3_600_000_000_000
"""Nanoseconds after which a window that fits becomes the reference. Chosen: ways of cables and
hosts change, and are slower for ever after."""

_COUNT, _MEAN, _VAR, _PARTS, _PARTS_MEAN, _PARTS_VAR = range(6)
_COLUMNS = ("_reference", "_since_ns", "_now", "_spoiled", "_shift_ns", "_slow_ln")


@dataclass(slots=True)
class Drift:
    """What each flow was once, and what comes in; columns by flow number.

    Rows of both: round trips, mean of ln(ns), variance around it; half minutes, mean and variance
    of their means.
    """

    _reference: Floats = field(default_factory=lambda: np.zeros((6, 1024)))
    _since_ns: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """When a reference was made."""
    _now: Floats = field(default_factory=lambda: np.zeros((6, 1024)))
    _spoiled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1024, np.bool_))
    """Flows that a shorter window showed to be slow meanwhile: they make no reference."""
    _shift_ns: Floats = field(default_factory=lambda: np.zeros(1024))
    """Least rise that counts."""
    _slow_ln: Floats = field(default_factory=lambda: np.zeros(1024))
    """Mean ln(ns) of the window in which a flow drifted; 0 for those that are well."""
    _window: int = -1
    """Number of the window that is being filled."""

    def add(self, merged: Merged, slow: Ints, shift_ns: Floats, *, start_ns: int) -> None:
        """Take half a minute, in which the flows `slow` were too slow to be a reference.

        `shift_ns` is (n_flows of `merged`,): the least rise that counts, in time.
        """
        flow = merged.flow
        self._grow(max(int(each.max()) + 1 if len(each) else 0 for each in (flow, slow)))
        window = start_ns // WIDTH_NS
        if window != self._window:
            self._judge(start_ns)
            self._window = window
        self._spoiled[slow], self._shift_ns[flow] = True, shift_ns
        halfway = (self._reference[_MEAN, flow] + self._slow_ln[flow]) / 2
        self._slow_ln[flow[merged.mean_ln < halfway]] = 0.0
        for first in range(0, len(flow), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            of = merged.count[some], merged.mean_ln[some], merged.var_ln[some]
            self._add(flow[some], *of)

    def _add(self, flow: Ints, counted: Ints, mean_ln: Floats, var_ln: Floats) -> None:
        now, count = self._now[:, flow], counted.astype(np.float64)
        # Parts into a whole: Chan, Golub & LeVeque, 1979.
        share = count / np.maximum(now[_COUNT] + count, 1)
        off = mean_ln - now[_MEAN]
        now[_VAR] += share * (var_ln - now[_VAR]) + share * (1 - share) * off * off
        now[_MEAN] += share * off
        now[_COUNT] += count
        now[_PARTS] += 1
        off = mean_ln - now[_PARTS_MEAN]
        now[_PARTS_MEAN] += off / now[_PARTS]
        now[_PARTS_VAR] *= 1 - 1 / now[_PARTS]
        now[_PARTS_VAR] += off * (mean_ln - now[_PARTS_MEAN]) / now[_PARTS]
        self._now[:, flow] = now

    def slow(self) -> Ints:
        """Return the flows that no longer fit their reference."""
        return np.flatnonzero(self._slow_ln)

    def shift_ns(self, flow: int) -> tuple[float, float]:
        """Return a slow flow's round trip in its reference, and in the window that drifted (ns)."""
        return float(np.exp(self._reference[_MEAN, flow])), float(np.exp(self._slow_ln[flow]))

    @property
    def window(self) -> int:
        """Return the number of the half hour that is being filled; -1 before the first."""
        return self._window

    def columns(self, flows: Ints) -> Columns:
        """Return what is known of these numbers."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        return {f"drift.{name.lstrip('_')}": getattr(self, name)[..., flows].T for name in _COLUMNS}

    def put(self, flows: Ints, columns: Columns, window: int) -> None:
        """Take what `columns` returned, for numbers that are new, as of the half hour `window`."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        for name in _COLUMNS:
            getattr(self, name)[..., flows] = columns[f"drift.{name.lstrip('_')}"].T
        self._window = window

    def forget(self, flows: Ints) -> None:
        """Begin anew with these numbers: they are other flows now."""
        known = flows[flows < len(self._slow_ln)]
        self._reference[:, known], self._now[:, known] = 0.0, 0.0
        self._spoiled[known], self._slow_ln[known] = False, 0.0

    def _judge(self, now_ns: int) -> None:
        reference, now = self._reference, self._now
        enough, known = now[_COUNT] >= LEAST_COUNT, reference[_COUNT] > 0
        drifted = enough & known & drifts(reference, now, self._shift_ns)
        self._slow_ln[enough] = 0.0
        self._slow_ln[drifted] = now[_MEAN, drifted]
        old = now_ns - self._since_ns >= KEPT_NS
        fit = enough & ~drifted & ~self._spoiled & (~known | old)
        reference[:, fit], self._since_ns[fit] = now[:, fit], now_ns
        self._now, self._spoiled = np.zeros_like(now), np.zeros_like(self._spoiled)

    def _grow(self, size: int) -> None:
        for name in _COLUMNS:
            setattr(self, name, longer(getattr(self, name), size))


def drifts(reference: Floats, now: Floats, shift_ns: Floats) -> NDArray[np.bool_]:
    """Return (n_flows,): who no longer fits; rows of both (6, n_flows) as in `Drift`."""
    rise = now[_MEAN] - reference[_MEAN]
    error = np.sqrt(sum(each[_VAR] / np.maximum(each[_COUNT], 1) for each in (reference, now)))
    own = np.sqrt(reference[_VAR])
    wander = np.sqrt(np.maximum(reference[_PARTS_VAR], now[_PARTS_VAR]))
    made: NDArray[np.bool_] = (
        (rise > SIGNIFICANT * error)
        & (rise > DEVIATIONS * own)
        & (rise > WANDERS * wander)
        & (np.exp(now[_MEAN]) - np.exp(reference[_MEAN]) > shift_ns)
    )
    return made
