# SPDX-License-Identifier: Apache-2.0
"""Latency shift: a flow whose round trips left their own baseline.

The mean of ln(RTT) of a window, and its least round trip, are compared with exponentially weighted
baselines of the same flow's healthy windows. A shift counts only if it is large both as a factor
and in time. This effect floor is needed because with many samples a test of significance rejects
what operators call normal. The least of several round trips met no queue and no busy host. So a
smaller shift of it counts: the way itself got longer. A shifted window never enters the baselines,
or the anomaly would become the norm.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.detect.flows import ends_of, unobserved
from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.verdict import Symptom

BASELINE_WINDOWS = 4
"""Healthy windows needed before a flow may be called slow. Chosen: fewer make a baseline of one
burst, more leave young flows unjudged."""
WEIGHT = 0.2
"""Weight of the newest window in a baseline (EWMA). Chosen: five windows of memory."""
MIN_SAMPLES = 2
"""Least round trips in a window for its mean to count. Chosen: a single one may have met a
queue."""
LEAST_OF = 5
"""Least round trips in a window for the smallest to count. Chosen: one of five met no queue and no
busy host, in most windows."""

Shift = tuple[float, float]
"""A slow flow's round trip (ns) in healthy windows, and now."""


@dataclass(frozen=True, slots=True)
class ShiftFloor:
    """The least shift that counts."""

    factor: float = 3.0
    """Least ratio of a window's geometric mean RTT to the baseline's."""
    least_factor: float = 1.5
    """Least ratio of a window's smallest RTT to the baseline's."""
    shift_ns: float = 500_000.0
    """Least increase of either, in nanoseconds."""


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
        """Return a slow flow's round trip in healthy windows and in the one just judged, in ns.

        It is the mean or the least round trip, whichever rose more.
        """
        mean = (math.exp(self._mean[flow]), math.exp(mean_ln))
        least = (math.exp(self._least[flow]), min_ns)
        return max(mean, least, key=lambda shift: shift[1] - shift[0])

    def _grow(self, size: int) -> None:
        while size > len(self._mean):
            self._mean = np.concatenate([self._mean, np.zeros_like(self._mean)])
            self._least = np.concatenate([self._least, np.zeros_like(self._least)])
            self._windows = np.concatenate([self._windows, np.zeros_like(self._windows)])


class Slowness:
    """Sees flows that are slow for two windows in a row: in one, a burst of the task may be why."""

    symptoms = frozenset({Symptom.LATENCY})

    def __init__(self) -> None:
        self._baselines = LatencyBaselines()
        self._before: frozenset[FlowId] = frozenset()
        self.slow: Mapping[FlowId, Shift] = {}
        """Slow flows of the newest window -> their shift."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the ends_of pairs with slow flows, and learn from all others."""
        yield from ()  # no question is needed
        now: dict[FlowId, Shift] = {}
        for rows in seen.state.rows.values():
            now.update(self._shifts(rows, seen.numbers))
        self.slow = {flow: shift for flow, shift in now.items() if flow in self._before}
        self._before = frozenset(now)
        shifts: dict[tuple[EndpointId, EndpointId], list[Evidence]] = {}
        for flow, (before_ns, now_ns) in self.slow.items():
            ends = {"source": str(flow.source), "target": str(flow.target)}
            times = {"port": flow.source_port, "before_ns": before_ns, "now_ns": now_ns}
            shifts.setdefault(ends_of(flow), []).append(Evidence(EvidenceKind.SHIFT, ends | times))
        window = seen.state.window
        return [
            Anomaly(pair, Symptom.LATENCY, window, tuple(each))
            for pair, each in sorted(shifts.items())
        ]

    def _shifts(self, rows: WindowRows, numbers: FlowNumbers) -> dict[FlowId, Shift]:
        slow = set(self._baselines.judge(rows).tolist())
        if not slow:
            return {}
        columns = (rows.flow, rows.mean_ln, rows.min_ns)
        return {
            numbers.flow(number): self._baselines.shift_ns(number, mean, least)
            for number, mean, least in zip(*(c.tolist() for c in columns), strict=True)
            if number in slow
        }

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether none of these pairs has a slow flow, though they were probed."""
        slow = any(ends_of(flow) in subjects for flow in self.slow)
        return not slow and not unobserved(subjects, seen.flows, seen.endpoints)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._baselines.forget(flows)
