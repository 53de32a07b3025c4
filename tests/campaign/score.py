# SPDX-License-Identifier: Apache-2.0
"""What episodes add up to: precision, recall, localisation, times, and whether confidence is true.

A failure is detected when an incident opens that names it, or that names nobody and lists it, one
for one. It is localised (top 1) when an incident names it, or a component
that no evidence in reach tells from it, as it stood last; top 2 counts the first alternative as
well. Precision is the share of all components that were named at any moment. An episode is wholly
right when all of its failures are named, and nobody else ever. Intervals are Wilson's, at 95 %, as
if episodes were independent: those of one run share a fabric and its health.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.campaign.episode import Outcome, Said, Truth

Z = 1.959964
PLACES = ("link", "switch")
"""Families of failures whose place in the fabric has to be found."""
UNCONNECTED = frozenset({2, 4, 5, 7, 10, 11, 17})
"""Types whose symptom is unconnectivity, in SkeletonHunter's Table 1."""
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
    wrong_seeds: list[int] = field(default_factory=list)
    """Seeds of the episodes in which somebody was named wrongly."""
    harmless: dict[int, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """Number of what is no fault -> whether nobody was named wrongly, of each episode with it."""
    verdicts: list[tuple[float, bool]] = field(default_factory=list)
    """Confidence with which each component was named first, and whether it was right."""
    episodes: int = 0
    """Episodes with failures."""
    whole: int = 0
    """Those in which every failure was named, and nobody else."""
    places: Tally = field(default_factory=Tally)
    """Failures of links and switches alone."""
    aside: int = 0
    """Incidents that name nobody, beside failures that they do not list or that are named."""
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
        return self.of(self.by_type)

    def of(self, types: Collection[int]) -> Tally:
        """Return some types together."""
        made = Tally()
        for each in (self.by_type[number] for number in types if number in self.by_type):
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
    # Whatever was named at any moment counts, also if it was taken back.
    # An operator acts on what was stated first.
    named = {each.component: each for each in reversed(outcome.said) if each.component}
    faults = [each for each in outcome.truths if not each.harmless]
    every = {name for truth in faults for name in _names(truth)}
    allowed = every.union(*(truth.also for truth in outcome.truths))
    wrong = [name for name in named if name not in allowed]
    _add_named(made, outcome, list(named.values()), wrong)
    nameless = [each for each in last.values() if not each.component]
    missed = sum([_add_fault(made, outcome, truth, last, nameless, every) for truth in faults])
    if faults:
        made.aside += len(nameless)
    if outcome.truths:
        made.episodes += 1
        made.whole += not missed and not wrong
    for name, blamed in outcome.blamed.items():
        tally = made.beside[name]
        tally.failures += len(faults)
        made.blamed[name] += len(blamed)
        count = len(faults)
        for truth in faults:
            tally.first += bool(_names(truth) & {*blamed[:count]})
            tally.second += bool(_names(truth) & {*blamed[: count + 1]})
        # An RNIC and its endpoint are one thing, blamed twice.
        tally.detected += sum(each in every for each in blamed)


def _add_named(
    made: Score, outcome: Outcome, named: Sequence[Said], wrong: Sequence[str | None]
) -> None:
    made.named += len(named)
    made.right += len(named) - len(wrong)
    made.verdicts += [(each.confidence, each.component not in wrong) for each in named]
    health = "warming up" if outcome.warming else "health"
    types = "+".join(str(truth.number) for truth in outcome.truths) or health
    for component in wrong:
        made.wrong[f"{types} -> {component}"] += 1
        made.wrong_seeds.append(outcome.seed)
    for truth in outcome.truths:
        if truth.harmless:
            made.harmless[truth.number].append(not wrong)


def _add_fault(
    made: Score,
    outcome: Outcome,
    truth: Truth,
    last: Mapping[str, Said],
    nameless: list[Said],
    every: Collection[str],
) -> bool:
    """Count a failure; return whether nobody named it.

    One of the `nameless` incidents stands for one failure that nobody named, and that it lists; it
    is taken out of them. `every` are the names of all failures.
    """
    mine = [each for each in last.values() if each.component in _names(truth)]
    near = [
        each
        for each in last.values()
        if each.component not in every
        and _names(truth) & {*each.alternatives[: 1 if each.component else 2]}
    ]
    lists_it = [each for each in nameless if not mine and _names(truth) & {*each.alternatives}]
    for each in lists_it[:1]:
        nameless.remove(each)
    is_detected = bool(mine or lists_it)
    kind = mine[0].component.split(" ")[0] if mine and mine[0].component else "nobody"
    made.confusion[truth.family, kind] += 1
    at_s = [said.at_s for said in outcome.said if said.component in _names(truth)]
    for tally in _tallies(made, truth):
        tally.failures += 1
        tally.first += bool(mine)
        tally.second += bool(mine or near)
        tally.detected += is_detected
        if mine:
            tally.seconds.append(min(at_s) - truth.start_s)
    return not mine


def _tallies(made: Score, truth: Truth) -> list[Tally]:
    return [made.by_type[truth.number], *([made.places] if truth.family in PLACES else [])]


def _names(truth: Truth) -> set[str]:
    return {truth.component, *truth.also}


def false_alarms(outcomes: Iterable[Outcome], rnics: int) -> tuple[int, int, float]:
    """Return how many incidents opened in health, how many named somebody, and the RNIC-days."""
    alarms, named, days = 0, 0, 0.0
    for outcome in outcomes:
        if not outcome.truths:
            alarms += len({each.id for each in outcome.said})
            named += len({each.id for each in outcome.said if each.component is not None})
            days += rnics * outcome.seconds / 86_400
    return alarms, named, days


@dataclass(frozen=True)
class Bin:
    """Verdicts that state about the same confidence."""

    confidence: float
    """Mean of what they state."""
    right: int
    verdicts: int

    @property
    def share(self) -> float:
        """Share that was right."""
        return self.right / self.verdicts

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return wilson(self.right, self.verdicts)


def reliability(verdicts: Sequence[tuple[float, bool]]) -> list[Bin]:
    """Return the verdicts by bins of confidence."""
    rows = []
    for low, high in pairwise(BINS):
        mine = [each for each in verdicts if low <= each[0] < high]
        if mine:
            mean = sum(p for p, _ in mine) / len(mine)
            rows.append(Bin(mean, sum(ok for _, ok in mine), len(mine)))
    return rows


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lie; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
