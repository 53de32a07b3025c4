# SPDX-License-Identifier: Apache-2.0
"""Half a minute whose seven numbers fit none of the five minutes before.

SkeletonHunter, section 5.2, short-term: quartiles, least, mean, deviation and most of a path's
round trips in 30 s, scored by their local outlier factor among the last ten such windows. It sees
what the mean of ln(RTT) hides, such as a queue that stands a quarter of the time. An outlier counts
only where much of the distribution rose, and by more than anybody would call normal; a window that
does not fit never enters what later ones are compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.latency.merged import (
    AT_ONCE,
    MAX,
    MEAN,
    P50,
    P75,
    STD,
    Floats,
    Ints,
    Merged,
    longer,
)
from analyzer.detect.latency.outlier import factors
from analyzer.detect.latency.saved import Columns

WIDTH_NS = 30_000_000_000
"""Nanoseconds of a window. The paper's, section 5.2."""
LOOK_BACK = 10
"""Windows that a new one is compared with: five minutes, as in the paper."""
LEAST_BACK = 5
"""Least of them before a flow is judged. Chosen: with fewer, each is far from the others."""
NEIGHBOURS = 3
"""Nearest windows that one is compared with. Chosen: a third of them, so that a burst that came
twice in five minutes is still rare."""
LEAST_COUNT = 8
"""Least round trips of a window. Chosen: of fewer, a quartile is one of the two ends."""
OUTLIER = 2.0
"""Local outlier factor from which a window fits none of those before. Chosen: of healthy windows
whose numbers rose as much, most have less; the size of the rise decides, and this one only takes
away what a flow shows all the time."""
REACH = 0.5
"""Least distance, in a flow's own deviations. Chosen: nearer windows are alike."""
LEAST_SCALE = np.array([0.03, 0.03, 0.03, 0.03, 0.05, 0.3, 0.3])
"""Least deviation of the logarithm of each number. Chosen: three buckets of the histogram; the
largest of a few round trips says little."""
STD_SHARE = 0.05
"""Share of the median that is added to the deviation before its logarithm is taken. Chosen: less
is the width of the histogram's buckets."""


# Of the seven numbers, those that rise with what a flow meets.
_RISING = [P50, P75, MEAN]


@dataclass(slots=True)
class Spread:
    """The last windows of each flow that fitted."""

    _windows: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((7, LOOK_BACK, 1024), np.float32)
    )
    """(7, windows, n_flows): logarithms of the seven numbers; the place of the oldest is the next
    one. Flows come last: what is looked at is some of the numbers, of all flows."""
    _fitted: Ints = field(default_factory=lambda: np.zeros(1024, np.int64))
    """Windows that fitted so far."""
    _odd: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1024, np.bool_))
    """Whether the flow's last window did not fit."""

    @classmethod
    def upgraded(cls, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return attributes as recordings have them, also of versions whose flows came first."""
        if "_past" not in attributes:
            return attributes
        kept = {name: value for name, value in attributes.items() if name != "_past"}
        return {"_windows": np.ascontiguousarray(attributes["_past"].T), **kept}

    def judge(self, merged: Merged, factor: Floats, shift_ns: Floats) -> tuple[Ints, Ints]:
        """Return places in `merged` of windows that do not fit, and of those after another such.

        `factor` and `shift_ns`, (n_flows,), are the least rise that counts, as a ratio and in time.
        The other windows are learned.
        """
        self._grow(int(merged.flow.max()) + 1 if len(merged.flow) else 0)
        judged = np.flatnonzero(merged.told >= LEAST_COUNT)
        odd, again = np.zeros((2, len(judged)), np.bool_)
        for first in range(0, len(judged), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            odd[some], again[some] = self._judge(merged, judged[some], factor, shift_ns)
        return judged[odd], judged[again]

    def _judge(
        self, merged: Merged, judged: Ints, factor: Floats, shift_ns: Floats
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which of these places do not fit, and which of them after another such."""
        flow = merged.flow[judged]
        new = _logarithms(merged.seven[:, judged])
        odd = np.zeros(len(judged), np.bool_)
        rose = np.flatnonzero(self._rose(merged, judged, factor[judged], shift_ns[judged]))
        odd[rose] = self._outliers(flow[rose], new[:, rose].T)
        again = odd & self._odd[flow]
        self._odd[flow] = odd
        fits = ~odd
        self._windows[:, self._fitted[flow[fits]] % LOOK_BACK, flow[fits]] = new[:, fits]
        self._fitted[flow[fits]] += 1
        return odd, again

    def before_ns(self, flow: int) -> Floats:
        """Return (7,) the median of what the flow's windows were that fitted."""
        past = self._windows[:, : min(LOOK_BACK, int(self._fitted[flow])), flow].astype(np.float64)
        made: Floats = np.exp(np.median(past, axis=1))
        return made

    def forget(self, flows: Ints) -> None:
        """Begin anew with these numbers: they are other flows now."""
        known = flows[flows < len(self._odd)]
        self._fitted[known], self._odd[known] = 0, False

    def columns(self, flows: Ints) -> Columns:
        """Return what is known of these numbers."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        known: Columns = {"past": self._windows.T, "fitted": self._fitted, "odd": self._odd}
        return {f"spread.{name}": of[flows] for name, of in known.items()}

    def put(self, flows: Ints, columns: Columns) -> None:
        """Take what `columns` returned, for numbers that are new."""
        self._grow(int(flows.max()) + 1 if len(flows) else 0)
        self._windows.T[flows] = columns["spread.past"]
        self._fitted[flows] = columns["spread.fitted"]
        self._odd[flows] = columns["spread.odd"]

    def _rose(
        self, merged: Merged, judged: Ints, factor: Floats, shift_ns: Floats
    ) -> NDArray[np.bool_]:
        """Return which windows are slower in their middle, upper quarter, or all but the slowest.

        One round trip among many is no rise, whatever it met.
        """
        flow, seven, told = merged.flow[judged], merged.seven[:, judged], merged.told[judged]
        rest = (seven[MEAN] * told - seven[MAX]) / np.maximum(told - 1, 1)
        now = np.stack([seven[P50], seven[P75], rest])
        known = np.minimum(self._fitted[flow], LOOK_BACK)
        # Nearly all are below what rises from the least of their past, let alone from its median.
        least = np.exp(self._least(flow, known).astype(np.float64))
        some = np.flatnonzero(
            _risen(now, least, factor, shift_ns).any(axis=0) & (known >= LEAST_BACK)
        )
        # The median of those that are there: places beyond them are taken as the greatest.
        past = self._windows[np.ix_(np.array(_RISING), np.arange(LOOK_BACK), flow[some])]
        past[:, np.arange(LOOK_BACK)[:, None] >= known[some]] = np.inf
        ordered = np.sort(past, axis=1)
        middle = np.maximum(known[some] - 1, 0) // 2
        before = np.exp(ordered[:, middle, np.arange(len(some))].astype(np.float64))
        rose = np.zeros(len(flow), np.bool_)
        rose[some] = _risen(now[:, some], before, factor[some], shift_ns[some]).any(axis=0)
        return rose

    def _least(self, flow: Ints, known: Ints) -> NDArray[np.float32]:
        """Return (3, n_flows) the least of what rises in the windows that are `known` of each."""
        least = np.full((len(_RISING), len(flow)), np.inf, np.float32)
        for window in range(LOOK_BACK):
            is_there = known > window
            for row, number in zip(least, _RISING, strict=True):
                mine = self._windows[number, window, flow]
                np.minimum(row, mine, out=row, where=is_there)
        return least

    def _outliers(self, flow: Ints, new: Floats) -> NDArray[np.bool_]:
        """Return which windows are outliers among those of their flow."""
        known = np.minimum(self._fitted[flow], LOOK_BACK)
        odd = np.zeros(len(flow), np.bool_)
        for count in np.unique(known).tolist():
            of = np.flatnonzero(known == count)
            past = self._windows[:, :count, flow[of]].T.astype(np.float64)
            off = np.abs(past - np.median(past, axis=1, keepdims=True))
            scale = np.maximum(LEAST_SCALE, 1.4826 * np.median(off, axis=1))
            score = factors(
                past / scale[:, None], new[of] / scale, neighbours=NEIGHBOURS, reach=REACH
            )
            odd[of] = score >= OUTLIER
        return odd

    def _grow(self, size: int) -> None:
        self._windows = longer(self._windows, size)
        self._fitted, self._odd = longer(self._fitted, size), longer(self._odd, size)


def _risen(now: Floats, then: Floats, factor: Floats, shift_ns: Floats) -> NDArray[np.bool_]:
    """Return where `now` exceeds `then` by the least rise that counts."""
    risen: NDArray[np.bool_] = (now >= factor * then) & (now - then >= shift_ns)
    return risen


def _logarithms(seven: Floats) -> Floats:
    """Return the logarithms of (7, n_flows) in ns."""
    made = np.maximum(seven, 1.0)
    made[STD] += STD_SHARE * made[P50]
    return np.log(made, out=made)
