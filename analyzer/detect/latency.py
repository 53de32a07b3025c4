# SPDX-License-Identifier: Apache-2.0
"""Latency shift: a flow whose round trips left their own baseline.

The mean of ln(RTT) of a window, and its least round trip, are compared with exponentially weighted
baselines of the same flow's healthy windows, and with how much those differed among themselves: a
flow whose stamps are the kernel's, on a busy host, has to leave its baseline by far more than one
that the RNIC stamps. A shift counts only if it is large as a factor and in time, too: with many
samples a test of significance rejects what operators call normal. The least of several round trips
met no queue and no busy host, so it says that the way itself got longer. A shifted window never
enters the baselines, or the anomaly would become the norm.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

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

Shift = tuple[float, float]
"""A slow flow's round trip (ns) in healthy windows, and now."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ShiftFloor:
    """The least shift that counts, however little a flow's windows differ."""

    FORGOTTEN: ClassVar = frozenset({"least_factor"})
    """Fields of earlier versions, which recordings may hold."""
    factor: float = 1.3
    """Least ratio of a window's geometric mean RTT, or of its least RTT, to the baseline's."""
    shift_ns: float = 4_000.0
    """Least increase of either, in nanoseconds. Chosen: 10 us more cost a training task a fifth
    (SkeletonHunter, section 1), and a hop less than half of that."""


@dataclass(slots=True)
class Baseline:
    """Mean and variance between healthy windows of one quantity, by flow number."""

    mean: Floats = field(default_factory=lambda: np.zeros(1024))
    var: Floats = field(default_factory=lambda: np.zeros(1024))
    windows: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """How many healthy windows they are made of."""

    def grow(self, size: int) -> None:
        """Have room for `size` flows."""
        if size > len(self.mean):
            more = np.zeros(max(size, 2 * len(self.mean)) - len(self.mean))
            self.mean = np.concatenate([self.mean, more])
            self.var = np.concatenate([self.var, more])
            self.windows = np.concatenate([self.windows, more.astype(np.int64)])

    def shifted(self, flow: Ints, now: Floats, floor: ShiftFloor) -> NDArray[np.bool_]:
        """Return which of the flows left their baseline upwards; `now` is ln(ns)."""
        base, known = self.mean[flow], self.windows[flow]
        deviation = np.sqrt((PRIOR_VAR + known * self.var[flow]) / (1 + known))
        least = np.maximum(math.log(floor.factor), DEVIATIONS * deviation)
        large = (now - base > least) & (np.exp(now) - np.exp(base) > floor.shift_ns)
        return large & (known >= BASELINE_WINDOWS)

    def learn(self, flow: Ints, now: Floats) -> None:
        """Take a healthy window in."""
        weight = np.maximum(WEIGHT, 1.0 / (self.windows[flow] + 1))
        off = now - self.mean[flow]
        self.mean[flow] += weight * off
        self.var[flow] = (1 - weight) * (self.var[flow] + weight * off * off)
        self.windows[flow] += 1


@dataclass(slots=True)
class LatencyBaselines:
    """Baselines by flow number."""

    FORGOTTEN: ClassVar = frozenset({"_mean", "_least", "_windows"})
    """Fields of earlier versions, which recordings may hold."""
    _floor: ShiftFloor = field(default_factory=ShiftFloor)
    _of_mean: Baseline = field(default_factory=Baseline)
    _of_least: Baseline = field(default_factory=Baseline)
    _slow: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1024, np.bool_))
    """Whether a flow was slow when it was last measured."""

    def judge(self, rows: WindowRows) -> tuple[Ints, Ints]:
        """Return the flows that were slow in this window, and those that were before as well.

        The others are learned.
        """
        self._grow(int(rows.flow.max()) + 1 if len(rows.flow) else 0)
        measured = rows.count >= MIN_SAMPLES
        flow, mean = rows.flow[measured], rows.mean_ln[measured].astype(np.float64)
        least = np.log(np.maximum(rows.min_ns[measured], 1).astype(np.float64))
        many = rows.count[measured] >= LEAST_OF
        slow = self._of_mean.shifted(flow, mean, self._floor)
        slow |= many & self._of_least.shifted(flow, least, self._floor)
        self._of_mean.learn(flow[~slow], mean[~slow])
        self._of_least.learn(flow[~slow & many], least[~slow & many])
        again = flow[slow & self._slow[flow]]
        self._slow[flow] = slow
        return flow[slow], again

    def forget(self, flows: Ints) -> None:
        """Begin anew with these numbers: they are other flows now."""
        known = flows[flows < len(self._slow)]
        self._of_mean.windows[known], self._of_least.windows[known] = 0, 0
        self._slow[known] = False

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


class Slowness:
    """Sees flows that are slow twice in a row: once, a burst of the task may be why."""

    symptoms = frozenset({Symptom.LATENCY})

    def __init__(self) -> None:
        self._baselines = LatencyBaselines()
        self.slow: Mapping[FlowId, Shift] = {}
        """Slow flows of the newest window -> their shift."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the ends_of pairs with slow flows, and learn from all others."""
        yield from ()  # no question is needed
        now: dict[FlowId, Shift] = {}
        for rows in seen.state.rows.values():
            now.update(self._shifts(rows, seen.numbers))
        self.slow = now
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
        _, again = self._baselines.judge(rows)
        if not len(again):
            return {}
        place = np.flatnonzero(np.isin(rows.flow, again))
        columns = (rows.flow[place], rows.mean_ln[place], rows.min_ns[place])
        return {
            numbers.flow(number): self._baselines.shift_ns(number, mean, least)
            for number, mean, least in zip(*(c.tolist() for c in columns), strict=True)
        }

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether none of these pairs has a slow flow, though they were probed."""
        slow = any(ends_of(flow) in subjects for flow in self.slow)
        return not slow and not unobserved(subjects, seen.flows, seen.endpoints)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._baselines.forget(flows)
