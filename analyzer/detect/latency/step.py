# SPDX-License-Identifier: Apache-2.0
"""One window whose round trips left their flow's own baseline.

The mean of ln(RTT) of a window, and its least round trip, are compared with exponentially weighted
baselines of the same flow's healthy windows, and with how much those differed among themselves: a
flow whose stamps are the kernel's, on a busy host, has to leave its baseline by far more than one
that the RNIC stamps. A shift counts only if it is large as a factor and in time, too: with many
samples a test of significance rejects what operators call normal. The least of several round trips
met no queue and no busy host, so it says that the way itself got longer. A shifted window never
enters the baselines, or the anomaly would become the norm.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.latency.merged import longer
from analyzer.detect.latency.saved import Columns
from analyzer.intake.flows import WindowRows

BASELINE_WINDOWS = 4
"""Healthy windows needed before a flow may be called slow. Chosen: fewer make a baseline of one
burst, more leave young flows unjudged."""
WEIGHT = 0.05
"""Weight of the newest window in a baseline (EWMA). Chosen: twenty windows of memory, enough to
know how much windows differ."""
PRIOR_VAR = 0.25
"""Variance of ln(RTT) between windows that is assumed before any is known. Chosen: a standard
deviation of 0.5, as of kernel stamps on a busy host; it weighs as much as one window."""
DEVIATIONS = 5.0
"""Standard deviations by which a window must leave its baseline. Chosen: with tens of thousands of
flows fewer are passed by chance in every window."""
MIN_SAMPLES = 2
"""Least round trips in a window for its mean to count. Chosen: a single one may have met a
queue."""
LEAST_OF = 5
"""Least round trips in a window for the smallest to count. Chosen: one of five met no queue and no
busy host, in most windows."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(slots=True)
class Baseline:
    """Mean and variance between healthy windows of one quantity, by flow number."""

    mean: Floats = field(default_factory=lambda: np.zeros(1024))
    var: Floats = field(default_factory=lambda: np.zeros(1024))
    windows: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """How many healthy windows they are made of."""

    def grow(self, size: int) -> None:
        """Have room for `size` flows."""
        self.mean, self.var = longer(self.mean, size), longer(self.var, size)
        self.windows = longer(self.windows, size)

    def shifted(
        self, flow: Ints, now: Floats, factor: Floats, shift_ns: Floats
    ) -> NDArray[np.bool_]:
        """Return which of the flows left their baseline upwards; `now` is ln(ns)."""
        base, known = self.mean[flow], self.windows[flow]
        deviation = np.sqrt((PRIOR_VAR + known * self.var[flow]) / (1 + known))
        least = np.maximum(np.log(factor), DEVIATIONS * deviation)
        large = (now - base > least) & (known >= BASELINE_WINDOWS)
        few = np.flatnonzero(large)  # in health hardly any
        large[few] = np.exp(now[few]) - np.exp(base[few]) > shift_ns[few]
        return large

    def learn(self, flow: Ints, now: Floats) -> None:
        """Take a healthy window in."""
        weight = np.maximum(WEIGHT, 1.0 / (self.windows[flow] + 1))
        mean = self.mean[flow]
        off = now - mean
        self.mean[flow] = mean + weight * off
        self.var[flow] = (1 - weight) * (self.var[flow] + weight * off * off)
        self.windows[flow] += 1


@dataclass(slots=True)
class LatencyBaselines:
    """Baselines by flow number."""

    FORGOTTEN: ClassVar = frozenset({"_mean", "_least", "_windows", "_floor"})
    """Fields of earlier versions, which recordings may hold."""
    _of_mean: Baseline = field(default_factory=Baseline)
    _of_least: Baseline = field(default_factory=Baseline)
    _slow: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1024, np.bool_))
    """Whether a flow was slow when it was last measured."""

    def judge(self, rows: WindowRows, factor: Floats, shift_ns: Floats) -> tuple[Ints, Ints]:
        """Return the flows that were slow in this window, and those that were before as well.

        `factor` and `shift_ns`, (n_flows,), are the least rise that counts, as a ratio and in time.
        The other flows are learned.
        """
        self._grow(int(rows.flow.max()) + 1 if len(rows.flow) else 0)
        measured = rows.count >= MIN_SAMPLES
        flow, mean = rows.flow[measured], rows.mean_ln[measured].astype(np.float64)
        factor, shift_ns = factor[measured], shift_ns[measured]
        slow = self._of_mean.shifted(flow, mean, factor, shift_ns)
        many = np.flatnonzero(rows.count[measured] >= LEAST_OF)
        least = np.log(np.maximum(rows.min_ns[measured][many], 1).astype(np.float64))
        slow[many] |= self._of_least.shifted(flow[many], least, factor[many], shift_ns[many])
        self._of_mean.learn(flow[~slow], mean[~slow])
        well = ~slow[many]
        self._of_least.learn(flow[many][well], least[well])
        again = flow[slow & self._slow[flow]]
        self._slow[flow] = slow
        return flow[slow], again

    def forget(self, flows: Ints) -> None:
        """Begin anew with these numbers: they are other flows now."""
        known = flows[flows < len(self._slow)]
        self._of_mean.windows[known], self._of_least.windows[known] = 0, 0
        self._slow[known] = False

    def columns(self, flows: Ints) -> Columns:
        """Return what is known of these numbers."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        kinds = {"mean": self._of_mean, "least": self._of_least}
        known = {
            f"step.{kind}.{name}": getattr(of, name)[flows]
            for kind, of in kinds.items()
            for name in ("mean", "var", "windows")
        }
        return known | {"step.slow": self._slow[flows]}

    def put(self, flows: Ints, columns: Columns) -> None:
        """Take what `columns` returned, for numbers that are new."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        for kind, of in {"mean": self._of_mean, "least": self._of_least}.items():
            for name in ("mean", "var", "windows"):
                getattr(of, name)[flows] = columns[f"step.{kind}.{name}"]
        self._slow[flows] = columns["step.slow"]

    def shift_ns(self, flow: int, mean_ln: float, min_ns: float) -> tuple[float, float]:
        """Return a slow flow's round trip in healthy windows and in the one just judged, in ns.

        It is the mean or the least round trip, whichever rose more.
        """
        mean = (math.exp(self._of_mean.mean[flow]), math.exp(mean_ln))
        least = (math.exp(self._of_least.mean[flow]), min_ns)
        known = [mean, least] if self._of_least.windows[flow] else [mean]
        return max(known, key=lambda shift: shift[1] - shift[0])

    def _grow(self, size: int) -> None:
        self._of_mean.grow(size)
        self._of_least.grow(size)
        if (more := len(self._of_mean.mean) - len(self._slow)) > 0:
            self._slow = np.concatenate([self._slow, np.zeros(more, np.bool_)])
