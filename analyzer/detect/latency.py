# SPDX-License-Identifier: Apache-2.0
"""Latency shift: a flow whose round trips left their own baseline.

The mean of ln(RTT) of a window, and its least round trip, are compared with exponentially weighted
baselines of the same flow's healthy windows. A shift counts only if it is large as a factor and in
time: an effect floor, because a plain test of significance rejects what operators call normal once
samples are many. The least of some round trips met no queue and no busy host, so less of a shift is
needed of it: the way itself got longer. A shifted window never enters the baselines, or the anomaly
would become the norm.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.ingest import WindowRows

BASELINE_WINDOWS = 4
"""Healthy windows needed before a flow may be called slow."""
WEIGHT = 0.2
MIN_SAMPLES = 2
LEAST_OF = 5
"""Samples of which the least says something of the way itself."""


@dataclass(frozen=True, slots=True)
class ShiftFloor:
    """The least shift that counts."""

    factor: float = 3.0
    """Geometric mean RTT against the baseline's."""
    least_factor: float = 1.5
    """The same of the least RTT."""
    shift_ns: float = 500_000.0


class LatencyBaselines:
    """Baselines by flow number."""

    def __init__(self, floor: ShiftFloor | None = None) -> None:
        self._floor = floor or ShiftFloor()
        self._mean = np.zeros(1024)
        self._least = np.zeros(1024)
        self._windows = np.zeros(1024, np.int64)

    def judge(self, rows: WindowRows) -> NDArray[np.int64]:
        """Return the numbers of the flows that were slow in this window, and learn the others."""
        self._grow(int(rows.flow.max()) + 1 if len(rows.flow) else 0)
        measured = rows.count >= MIN_SAMPLES
        flow, mean = rows.flow[measured], rows.mean_ln[measured].astype(np.float64)
        least = np.log(np.maximum(rows.min_ns[measured], 1).astype(np.float64))
        many = rows.count[measured] >= LEAST_OF
        shifted = self._shifted(mean, self._mean[flow], self._floor.factor)
        shifted |= many & self._shifted(least, self._least[flow], self._floor.least_factor)
        slow = shifted & (self._windows[flow] >= BASELINE_WINDOWS)
        self._learn(flow[~slow], mean[~slow], least[~slow])
        return flow[slow]

    def _shifted(
        self, now: NDArray[np.float64], base: NDArray[np.float64], factor: float
    ) -> NDArray[np.bool_]:
        by_time = np.exp(now) - np.exp(base) > self._floor.shift_ns
        return (now - base > math.log(factor)) & by_time

    def _learn(
        self, flow: NDArray[np.int64], mean: NDArray[np.float64], least: NDArray[np.float64]
    ) -> None:
        seen = self._windows[flow]
        weight = np.where(seen == 0, 1.0, np.maximum(WEIGHT, 1.0 / (seen + 1)))
        self._mean[flow] += weight * (mean - self._mean[flow])
        self._least[flow] += weight * (least - self._least[flow])
        self._windows[flow] += 1

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._windows[flows[flows < len(self._windows)]] = 0

    def shift_ns(self, flow: int, mean_ln: float, min_ns: float) -> tuple[float, float]:
        """Return a slow flow's round trip in healthy windows and in one that was just judged, ns.

        Of the mean or of the least, whichever rose more.
        """
        mean = (math.exp(self._mean[flow]), math.exp(mean_ln))
        least = (math.exp(self._least[flow]), min_ns)
        return max(mean, least, key=lambda shift: shift[1] - shift[0])

    def _grow(self, size: int) -> None:
        while size > len(self._mean):
            self._mean = np.concatenate([self._mean, np.zeros_like(self._mean)])
            self._least = np.concatenate([self._least, np.zeros_like(self._least)])
            self._windows = np.concatenate([self._windows, np.zeros_like(self._windows)])
