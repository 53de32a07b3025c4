# SPDX-License-Identifier: Apache-2.0
"""Slow flows: against their last windows, their last minutes, and what they were once.

Three tests, of which each sees what the others do not: a window of seconds against the windows
before it (`step`, at once), half a minute's distribution against five minutes (`spread`, tails),
half an hour against a frozen reference (`drift`, what creeps). All leave alone what is no more than
a floor, which a task may set for itself (`floors`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.detect.flows import ends_of, unobserved
from analyzer.detect.latency.drift import Drift
from analyzer.detect.latency.floors import Floors
from analyzer.detect.latency.merged import MEAN, P50, P75, Ints, Merged, merge, needed
from analyzer.detect.latency.saved import Columns, Saved
from analyzer.detect.latency.spread import WIDTH_NS, Spread
from analyzer.detect.latency.step import LatencyBaselines
from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.verdict import Symptom

MAX_SAVED = 131_072
"""Most flows whose baselines are saved. Chosen: half a kilobyte each, so 64 MiB at most."""

LASTING_NS = 10_000_000_000
"""Nanoseconds at the end of half a minute in which it must still be slow. Chosen: two windows by
default; a queue that stands a quarter of the time stands in them."""
LASTING = 0.25
"""Share of the rise that the mean round trip must show then. Chosen: that of such a queue."""

Shift = tuple[float, float]
"""A slow flow's round trip (ns) in healthy windows, and now."""


@dataclass(slots=True)
class Slowness:
    """Sees flows that are slow twice in a row: once, a burst of the task may be why."""

    symptoms: ClassVar = frozenset({Symptom.LATENCY})
    FORGOTTEN: ClassVar = frozenset({"_before"})
    """Fields of earlier versions, which recordings may hold."""

    _floors: Floors = field(default_factory=Floors)
    _baselines: LatencyBaselines = field(default_factory=LatencyBaselines)
    _spread: Spread = field(default_factory=Spread)
    _drift: Drift = field(default_factory=Drift)
    _half_minute: list[WindowRows] = field(default_factory=list)
    """Windows of the half minute that is not over."""
    _odd: dict[int, Shift] = field(default_factory=dict)
    """Flows whose last half minute, and the one before, did not fit -> their shift."""
    slow: Mapping[FlowId, Shift] = field(default_factory=dict)
    """Slow flows of the newest window -> their shift."""
    until_ns: int = 0
    """End of the newest window that was learned, Unix nanoseconds."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the ends_of pairs with slow flows, and learn from all others."""
        yield from ()  # no question is needed
        self.learn(seen)
        return self._anomalies(seen)

    def learn(self, seen: Seen) -> None:
        """Take a window."""
        rows = seen.table.rows
        slow, again = self._baselines.judge(rows, *self._floor(rows.flow, seen))
        now = self._shifts(rows, again)
        self._merge(seen, np.unique(slow))
        longer = {n: self._drift.shift_ns(n) for n in self._drift.slow().tolist()}
        self.slow = dict(_named(longer | self._odd | now, seen.table.numbers))
        self.until_ns = max(self.until_ns, seen.state.window.end_ns)

    def save(self, numbers: FlowNumbers) -> Saved | None:
        """Return what is known of flows, MAX_SAVED at most; None within a half minute.

        Its windows cannot be divided: whoever takes this up again needs those after `until_ns`.
        """
        if self._half_minute:
            return None
        named = numbers.items(MAX_SAVED)
        columns = self.columns(np.array([number for number, _ in named], np.int64))
        names = tuple(flow for _, flow in named)
        return Saved(self.until_ns, self._drift.window, names, columns)

    def columns(self, flows: Ints) -> Columns:
        """Return what is known of these numbers."""
        odd = np.array([self._odd.get(number, (0.0, 0.0)) for number in flows.tolist()])
        odd = odd.reshape(len(flows), 2)
        known: dict[str, NDArray[Any]] = {"odd.shift_ns": odd}
        for each in (self._baselines, self._spread, self._drift):
            known |= each.columns(flows)
        return known

    def restore(self, saved: Saved, flows: Ints) -> None:
        """Take what `save` returned; its flows have the numbers `flows` now, which are new."""
        self._baselines.put(flows, saved.columns)
        self._spread.put(flows, saved.columns)
        self._drift.put(flows, saved.columns, saved.drift_window)
        odd = saved.columns["odd.shift_ns"]
        for place in np.flatnonzero(odd[:, 1]).tolist():
            self._odd[int(flows[place])] = (float(odd[place, 0]), float(odd[place, 1]))
        self.until_ns = saved.until_ns

    def _floor(self, flow: Ints, seen: Seen) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._floors.at(flow, seen.table.numbers, seen.endpoints)

    def _shifts(self, rows: WindowRows, flows: Ints) -> dict[int, Shift]:
        place = np.flatnonzero(np.isin(rows.flow, flows))
        columns = (rows.flow[place], rows.mean_ln[place], rows.min_ns[place])
        return {
            number: self._baselines.shift_ns(number, mean, least)
            for number, mean, least in zip(*(c.tolist() for c in columns), strict=True)
        }

    def _merge(self, seen: Seen, slow: Ints) -> None:
        """Add the window to its half minute; judge that one when it is over."""
        window = seen.state.window
        half = window.start_ns // WIDTH_NS
        waiting = self._half_minute
        if waiting and waiting[0].window.start_ns // WIDTH_NS != half:
            self._judge(seen, slow)  # its last windows never came
        self._half_minute.append(needed(seen.table.rows))
        if window.end_ns // WIDTH_NS != half:
            self._judge(seen, slow)

    def _judge(self, seen: Seen, slow: Ints) -> None:
        rows, self._half_minute = self._half_minute, []
        if not rows:
            return
        merged = merge(rows)
        factor, shift_ns = self._floor(merged.flow, seen)
        odd, again = self._spread.judge(merged, factor, shift_ns)
        self._odd = self._lasting(merged, again, rows)
        spoiled = np.union1d(slow, merged.flow[odd])
        self._drift.add(merged, spoiled, shift_ns, start_ns=rows[0].window.start_ns)

    def _lasting(
        self, merged: Merged, odd: Ints, windows: Sequence[WindowRows]
    ) -> dict[int, Shift]:
        """Return the shifts of these places of which the last LASTING_NS show a part on average.

        What ended within the half minute was told by its own windows, and is over.
        """
        end_ns = max((rows.window.end_ns for rows in windows), default=0)
        flows = merged.flow[odd]
        late = merge(
            [
                rows.only(np.isin(rows.flow, flows))
                for rows in windows
                if len(flows) and rows.window.end_ns > end_ns - LASTING_NS
            ]
        )
        place = {number: n for n, number in enumerate(late.flow.tolist())}
        lasting: dict[int, Shift] = {}
        for n, number in zip(odd.tolist(), flows.tolist(), strict=True):
            before_ns, now_ns = self._odd_shift(merged, n)
            least_ns = before_ns + LASTING * (now_ns - before_ns)
            if number in place and late.seven[MEAN, place[number]] >= least_ns:
                lasting[number] = before_ns, now_ns
        return lasting

    def _odd_shift(self, merged: Merged, place: int) -> Shift:
        """Return what of the distribution rose most: its middle, upper quarter, or mean."""
        before, now = self._spread.before_ns(int(merged.flow[place])), merged.seven[:, place]
        rose = [(float(before[row]), float(now[row])) for row in (P50, P75, MEAN)]
        return max(rose, key=lambda shift: shift[1] / max(1.0, shift[0]))

    def _anomalies(self, seen: Seen) -> list[Anomaly]:
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

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether none of these pairs has a slow flow, though they were probed."""
        slow = any(ends_of(flow) in subjects for flow in self.slow)
        return not slow and not unobserved(subjects, seen.flows, seen.endpoints)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._half_minute = []  # its rows have the old numbers
        for each in (self._floors, self._baselines, self._spread, self._drift):
            each.forget(flows)
        for number in flows.tolist():
            self._odd.pop(number, None)


def _named(shifts: Mapping[int, Shift], numbers: FlowNumbers) -> Iterator[tuple[FlowId, Shift]]:
    for number, shift in shifts.items():
        yield numbers.flow(number), shift
