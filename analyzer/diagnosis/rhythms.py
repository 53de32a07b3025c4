# SPDX-License-Identifier: Apache-2.0
"""What is lost of each accused component's pairs over time, and whether it comes and goes. Pure.

An incident about something that flaps is over whenever it is well, and opens again. So the series
belong to components, and outlive their incidents for a while.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from analyzer.detect.flows import Flows, between
from analyzer.localize.case import OrderedPair, subjects_of
from analyzer.localize.rhythm import rhythm_of
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component
from netagent.model.verdict import Symptom, Verdict
from netagent.model.window import Window

KEPT_WINDOWS = 360
"""Windows of a series that are kept. Chosen: half an hour of default windows; a period of five
minutes is seen five times."""
FORGET_WINDOWS = 120
"""Windows after which a component that nobody accuses any more is forgotten. Chosen: ten minutes;
what comes back later has no period that its series could show."""
MAX_SERIES = 32
"""Most components that are followed. Chosen: bounds memory and work; a vote names twelve at
most."""
MAX_PAIRS = 256
"""Most pairs of a series. Chosen: those of an incident."""
LOSSES = {Symptom.LOSS, Symptom.UNCONNECTIVITY}


@dataclass(slots=True)
class _Series:
    pairs: set[OrderedPair] = field(default_factory=set)
    sent: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    lost: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    idle: int = 0
    """Windows since it was accused."""


class Rhythms:
    """Series by component."""

    def __init__(self) -> None:
        self._series: dict[Component, _Series] = {}

    def note(self, verdicts: Iterable[Verdict], flows: Flows) -> None:
        """Take a window: who is accused in it, and what all flows lost."""
        for series in self._series.values():
            series.idle += 1
        for verdict in verdicts:
            self._accuse(verdict)
        self._series = {c: s for c, s in self._series.items() if s.idle < FORGET_WINDOWS}
        if self._series:
            self._count(flows)

    def _accuse(self, verdict: Verdict) -> None:
        component = verdict.component
        if component is None or verdict.symptom not in LOSSES:
            return
        if component not in self._series and len(self._series) >= MAX_SERIES:
            return
        series = self._series.setdefault(component, _Series())
        series.idle = 0
        pairs = sorted(each for each in subjects_of(verdict) if isinstance(each, tuple))
        series.pairs.update(pairs[: max(0, MAX_PAIRS - len(series.pairs))])

    def _count(self, flows: Flows) -> None:
        followed = {pair for series in self._series.values() for pair in series.pairs}
        sums: dict[OrderedPair, tuple[int, int]] = {}
        for pair, view in between(followed, flows):
            sent, lost = sums.get(pair, (0, 0))
            sums[pair] = sent + view.sent, lost + view.lost
        for series in self._series.values():
            mine = [sums[pair] for pair in series.pairs if pair in sums]
            series.sent.append(sum(sent for sent, _ in mine))
            series.lost.append(sum(lost for _, lost in mine))

    def told(self, verdict: Verdict, window: Window) -> Verdict:
        """Return the verdict with the period of its losses, if they have one."""
        series = self._series.get(verdict.component) if verdict.component is not None else None
        if series is None or verdict.symptom not in LOSSES:
            return verdict
        found = rhythm_of(series.sent, series.lost)
        if found is None:
            return verdict
        width_s = window.width_ns / 1e9
        values = {
            "period_s": found.period * width_s, "lasts_s": found.lasts * width_s,
            "cycles": found.cycles, "lossy": found.lossy, "windows": found.windows,
        }  # fmt: skip
        return replace(verdict, evidence=(*verdict.evidence, Evidence(EvidenceKind.RHYTHM, values)))


def carried(
    old: Sequence[Evidence | str], new: Sequence[Evidence | str]
) -> tuple[Evidence | str, ...]:
    """Return the evidence `old` with the period of the newest window, if there is one."""
    return (*(each for each in old if not _is_rhythm(each)), *filter(_is_rhythm, new))


def _is_rhythm(evidence: Evidence | str) -> bool:
    return isinstance(evidence, Evidence) and evidence.kind is EvidenceKind.RHYTHM
