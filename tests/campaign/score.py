# SPDX-License-Identifier: Apache-2.0
"""What episodes add up to: precision, recall, localisation, times, and whether confidence is true.

A failure is detected when an incident opens that names it, or that names nobody while no other
failure is left to explain it. It is localised (top 1) when an incident names it, or a component
that no evidence in reach tells from it; top 2 counts the first alternative as well. Precision is
the share of named incidents that name a failure. Intervals are Wilson's, at 95 %.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.campaign.episode import Outcome, Said, Truth

Z = 1.959964
BINS = (0.0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.98, 1.01)


@dataclass
class Tally:
    """Failures of one type."""

    failures: int = 0
    detected: int = 0
    first: int = 0
    second: int = 0
    seconds: list[float] = field(default_factory=list)
    """From the failure's start to its name, where it was named."""


@dataclass
class Score:
    """All episodes."""

    by_type: dict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))
    named: int = 0
    right: int = 0
    wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """"TYPES -> COMPONENT KIND" -> how often that was named wrongly."""
    verdicts: list[tuple[float, bool]] = field(default_factory=list)
    """Confidence of each named incident as it stood last, and whether it was right."""
    broken: int = 0
    beside: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    """Simpler methods by name; `detected` are failures among all that they blame."""
    blamed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many components they blame."""
    confusion: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Family of a failure, and kind of what was named for it."""

    @property
    def total(self) -> Tally:
        """Return all types together."""
        made = Tally()
        for each in self.by_type.values():
            made.failures += each.failures
            made.detected += each.detected
            made.first += each.first
            made.second += each.second
            made.seconds += each.seconds
        return made


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    share, denominator = hits / of, 1 + Z * Z / of
    centre = (share + Z * Z / (2 * of)) / denominator
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)


def poisson(count: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a count (Garwood, by Wilson and Hilferty)."""

    def bound(of: float, z: float) -> float:
        return of * (1 - 1 / (9 * of) + z / (3 * math.sqrt(of))) ** 3 if of else 0.0

    return bound(count, -Z), bound(count + 1, Z)


def score(outcomes: Iterable[Outcome]) -> Score:
    """Return what the outcomes add up to."""
    made = Score()
    for outcome in outcomes:
        made.broken += len(outcome.broken)
        _add(made, outcome)
    return made


def _add(made: Score, outcome: Outcome) -> None:
    last = {each.id: each for each in outcome.said if each.state != "recovered"}
    named = [each for each in last.values() if each.component]
    nobody = [each for each in last.values() if not each.component]
    every = {name for truth in outcome.truths for name in _names(truth)}
    for each in named:
        is_right = each.component in every
        made.named += 1
        made.right += is_right
        made.verdicts.append((each.confidence, is_right))
        if not is_right:
            types = "+".join(str(truth.number) for truth in outcome.truths)
            made.wrong[f"{types or 'health'} -> {each.component}"] += 1
    missed = 0
    for truth in outcome.truths:
        tally = made.by_type[truth.number]
        tally.failures += 1
        mine = [each for each in named if each.component in _names(truth)]
        near = [each for each in last.values() if _names(truth) & {*each.alternatives[:2]}]
        tally.first += bool(mine)
        tally.second += bool(mine or near)
        tally.detected += bool(mine)
        missed += not mine
        kind = mine[0].component.split(" ")[0] if mine and mine[0].component else "nobody"
        made.confusion[truth.family, kind] += 1
        if mine:
            first = min(said.at_s for said in outcome.said if said.component in _names(truth))
            tally.seconds.append(first - truth.start_s)
    for name, blamed in outcome.blamed.items():
        tally = made.beside[name]
        tally.failures += len(outcome.truths)
        made.blamed[name] += len(blamed)
        count = len(outcome.truths)
        for truth in outcome.truths:
            tally.first += bool(_names(truth) & {*blamed[:count]})
            tally.second += bool(_names(truth) & {*blamed[: count + 1]})
        # An RNIC and its endpoint are one thing, blamed twice.
        tally.detected += sum(each in every for each in blamed)
    # Incidents that name nobody detect as many of the failures that nobody named.
    for truth in outcome.truths:
        mine = [each for each in named if each.component in _names(truth)]
        if not mine and nobody:
            made.by_type[truth.number].detected += 1


def _names(truth: Truth) -> set[str]:
    return {truth.component, *truth.also}


def false_alarms(outcomes: Iterable[Outcome], rnics: int) -> tuple[int, float]:
    """Return how many incidents opened in health, and the RNIC-days that were watched."""
    alarms, days = 0, 0.0
    for outcome in outcomes:
        if not outcome.truths:
            alarms += len({each.id for each in outcome.said})
            days += rnics * outcome.seconds / 86_400
    return alarms, days


def reliability(verdicts: Sequence[tuple[float, bool]]) -> list[tuple[float, float, int]]:
    """Return mean confidence, share that was right, and count, by bins of confidence."""
    rows = []
    for low, high in pairwise(BINS):
        mine = [each for each in verdicts if low <= each[0] < high]
        if mine:
            mean = sum(p for p, _ in mine) / len(mine)
            rows.append((mean, sum(ok for _, ok in mine) / len(mine), len(mine)))
    return rows


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lie; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


__all__ = ["Said", "Score", "Tally", "false_alarms", "reliability", "score", "wilson"]
