# SPDX-License-Identifier: Apache-2.0
"""Latency shift: a flow whose round trips left their own baseline.

The mean of ln(RTT) of a window is compared with an exponentially weighted baseline of the same
flow's healthy windows. A shift counts only if it is large as a factor and in time: an effect
floor, because a plain test of significance rejects what operators call normal once samples are
many. A shifted window never enters the baseline, or the anomaly would become the norm.
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


@dataclass(frozen=True, slots=True)
class ShiftFloor:
    """The least shift that counts."""

    factor: float = 3.0
    """Geometric mean RTT against the baseline's."""
    shift_ns: float = 500_000.0


class LatencyBaselines:
    """Baselines by flow number."""

    def __init__(self, floor: ShiftFloor | None = None) -> None:
        self._floor = floor or ShiftFloor()
        self._mean = np.zeros(1024)
        self._windows = np.zeros(1024, np.int64)

    def judge(self, rows: WindowRows) -> NDArray[np.int64]:
        """Return the numbers of the flows that were slow in this window, and learn the others."""
        self._grow(int(rows.flow.max()) + 1 if len(rows.flow) else 0)
        measured = rows.count >= MIN_SAMPLES
        flow, mean = rows.flow[measured], rows.mean_ln[measured].astype(np.float64)
        base, known = self._mean[flow], self._windows[flow] >= BASELINE_WINDOWS
        slow = (
            known
            & (mean - base > math.log(self._floor.factor))
            & (np.exp(mean) - np.exp(base) > self._floor.shift_ns)
        )
        healthy, learned = flow[~slow], mean[~slow]
        first = self._windows[healthy] == 0
        weight = np.maximum(WEIGHT, 1.0 / (self._windows[healthy] + 1))
        self._mean[healthy] += np.where(first, 1.0, weight) * (learned - self._mean[healthy])
        self._windows[healthy] += 1
        return flow[slow]

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._windows[flows[flows < len(self._windows)]] = 0

    def baseline_ns(self, flow: int) -> float:
        """Return the geometric mean RTT of a flow's healthy windows, in ns; 0.0 before any."""
        if flow >= len(self._mean) or not self._windows[flow]:
            return 0.0
        return float(math.exp(self._mean[flow]))

    def _grow(self, size: int) -> None:
        while size > len(self._mean):
            self._mean = np.concatenate([self._mean, np.zeros_like(self._mean)])
            self._windows = np.concatenate([self._windows, np.zeros_like(self._windows)])
