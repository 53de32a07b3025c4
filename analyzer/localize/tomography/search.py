# SPDX-License-Identifier: Apache-2.0
"""Which components are at fault, any number at once: greedy maximum a posteriori with second looks.

The component that explains most is blamed first, with the hazard that fits best; then the one that
explains most of what is left, and so on, while the gain is worth one fault more. After each, all
that are blamed are fitted anew, and each has to hold its own against the components that could take
its place: a switch with two lossy links is blamed first, because it explains both, and goes once
they are found. (Flock, CoNEXT '23, section 5, searches greedily without the second looks.)
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from analyzer.localize.tomography.landscape import Landscape
from analyzer.localize.tomography.observations import Floats, Ints, Observations
from analyzer.localize.tomography.tables import tables

K = TypeVar("K", bound=Hashable)

GRID = np.geomspace(3e-5, 7.0, 9)
"""Hazards that are tried first: loss rates from 0.003 % to 99.9 %. Chosen: steps of a factor of
five, between which the likelihood is smooth."""
REFINED = 8
"""Components whose hazard is looked for more closely. Chosen: the best one is among them."""
STEPS = tuple(np.geomspace(1 / step, step, 7) for step in (5.0, 1.7, 1.2))
"""Factors of the best hazard that are tried, one set after the other.
Chosen: leaves the rate known to three per cent."""
LOOKS = 64
"""Components that are looked at again first, once one is blamed. Chosen: the next best is among
them."""
RIVALS = 16
"""Most components that are weighed against one that is blamed. Chosen: those that explain the same
losses nearly as well are few."""

OPEN = 0.8
"""Confidence below which it is open whether a component or another one is at fault. Chosen: as in
`likelihood`."""
SHARED = 0.1
"""Share of the lost probes around a fault from which it rests on another one. Chosen."""
LEAST_PART = 0.2
"""Least share of a flow's losses that is a component's for these to count as its own. Chosen: of
four ways that are alike, one has a quarter."""
LEAST_SET = 1e-4
"""Probability below which a set that was met is not listed. Chosen: more evidence must not raise
what is excluded."""
LEAST_POSTERIOR = 0.001
"""Posterior below which a component that could take another's place is not listed. Chosen: odds of
1,000 to 1."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a fault must be."""

    cost: float = 10.0
    """Nats that blaming one more component must gain. Chosen: odds of 20,000 to 1 against it,
    since thousands of components are candidates."""
    spread: float = 3.0
    """Times the background that a component may lose beside it and still be healthy. Chosen:
    healthy links are not all alike."""
    least_rate: float = 0.0
    """Loss rate up to which a component counts as healthy."""
    background: float = 1e-7
    """Least background: lost probes for each component that one crosses."""
    most: int = 64
    """Most components blamed."""
    siblings: float = 0.0
    """Nats by which a whole is preferred to two of its parts, and again for each further one."""


@dataclass(frozen=True, slots=True)
class Blamed(Generic[K]):
    """A component at fault."""

    component: K
    rate: float
    """Share of the probes that it loses."""
    gain: float
    """Nats that it explains beyond all else that is blamed."""
    confidence: float
    """Posterior against the components that could take its place, and against none at all."""
    explains: float
    """Lost probes that it accounts for."""
    rivals: tuple[tuple[K, float], ...] = ()
    """Components that could take its place, with their posterior, best first; those that are one
    thing with it are none."""
    flows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows of the flows whose lost probes it most likely lost."""


@dataclass(frozen=True, slots=True)
class Found(Generic[K]):
    """What is at fault."""

    blamed: tuple[Blamed[K], ...]
    """Most gain first."""
    background: float
    alone: tuple[tuple[K, float], ...] = ()
    """Components with the nats that blaming each and nothing else would gain, best first."""
    rest: tuple[tuple[K, float], ...] = ()
    """Components that are not blamed, with the nats that blaming them as well would gain, best
    first; none that gains nothing."""
    sets: tuple[frozenset[K], ...] = ()
    """What was weighed against what is blamed, and that itself: most probable first, down to
    LEAST_SET."""


@dataclass(slots=True)
class _Fault:
    hazard: float
    gain: float
    rivals: Ints
    first: Mapping[int, float]
    """Its rivals and itself, with their posterior when it was blamed. What is blamed later rests on
    it, and may make it look surer than it is."""


def search(
    seen: Observations[K],
    settings: Settings | None = None,
    *,
    prior: Sequence[float] | None = None,
    things: Sequence[int] | None = None,
    wholes: Sequence[Collection[int]] | None = None,
    without: Collection[int] = (),
    among: Collection[frozenset[int]] = (),
) -> Found[K]:
    """Return what explains the losses.

    `prior` are nats for each component, added to its gain: they decide between components that the
    same probes cross. Components with the same number in `things` are one thing, such as a link
    and its two directions: only one of them is blamed, and their posteriors are added up.
    `wholes` are the components that each one is a part of, as a link is of two switches.
    Components in `without` are not blamed. Where sets are given in `among`, one of them is.
    """
    made = _Search(seen, settings or Settings(), prior, things, wholes, without)
    return made.choose(among) if among else made.run()


class _Search(Generic[K]):
    def __init__(
        self,
        seen: Observations[K],
        settings: Settings,
        prior: Sequence[float] | None,
        things: Sequence[int] | None,
        wholes: Sequence[Collection[int]] | None,
        without: Collection[int],
    ) -> None:
        self._seen, self._settings = seen, settings
        count = len(seen.components)
        self._prior = np.zeros(count) if prior is None else np.asarray(prior, np.float64)
        lost, sent = float(seen.lost.sum()), float(seen.sent.sum() + seen.arrived.sent)
        self._land = Landscape(tables(seen), max(settings.background, lost / max(1.0, sent)))
        self._candidates = self._land.suspects()
        """Rows of the components that lost probes crossed, or may have."""
        self._faults: dict[int, _Fault] = {}
        self._things = np.arange(count) if things is None else np.asarray(things, np.int64)
        self._wholes = wholes or [()] * count
        self._banned = frozenset(without)
        """Not to be blamed."""
        self._sets: dict[frozenset[int], float] = {}
        """What was blamed together at the end of each search -> what it is worth, in nats."""
        self._acquitted = Counter[int]()
        """How often a component was blamed and later not needed: so the search ends."""
        self._gains, self._hazards = np.full((2, count), -math.inf)
        """Of each component, as of the last look at it."""
        self._stale = np.zeros(count, np.bool_)
        """Whether anything was blamed or released since."""

    def run(self) -> Found[K]:
        land = self._land
        land.fit_background(self._settings.background)
        self._look(self._candidates)
        self._alone = self._gains.copy()
        self._fill(self._settings.most)
        self._retry()
        return self._found()

    def choose(self, among: Collection[frozenset[int]]) -> Found[K]:
        """Return the best of these sets."""
        self._land.fit_background(self._settings.background)
        self._look(self._candidates)
        self._alone = self._gains.copy()
        every = np.asarray(sorted(frozenset[int]().union(*among)), np.int64)
        best: dict[int, _Fault] = {}
        for each in sorted(among, key=sorted):
            self._faults = {c: _Fault(GRID[-1] / 2, 0.0, every, {c: 1.0}) for c in sorted(each)}
            self._land.blamed = {c: fault.hazard for c, fault in self._faults.items()}
            for _ in range(CHOICE_ROUNDS):
                self._land.fit_background(self._settings.background)
                for c, fault in self._faults.items():
                    gain, hazard = self._scan(np.asarray([c]), without=c)
                    fault.hazard = self._land.blamed[c] = float(hazard[0])
                    fault.gain = float(gain[0])
            self._note()
            if not best or self._worth(each) > self._worth(frozenset(best)):
                best = self._faults
        self._faults = best
        self._land.blamed = {c: fault.hazard for c, fault in best.items()}
        self._land.fit_background(self._settings.background)
        return self._found()

    def _fill(self, most: int) -> None:
        """Blame one component after the other, up to so many, while one more explains enough.

        While nothing is blamed, all losses make the background, which may hide what is at fault
        where little else is seen: then the first one is looked for as if nothing else lost.
        """
        bold = False
        while len(self._faults) < min(most, self._settings.most, len(self._candidates)):
            best = self._next()
            if best is None and not self._faults and not bold:
                bold = True
                self._land.background = self._settings.background
                self._look(self._candidates)
                best = self._next()
            if best is None:
                return
            order = _ranked(self._gains, RIVALS)
            rivals = order[self._gains[order] > 0.0]
            first = self._chances(rivals, self._gains[rivals])
            hazard, gain = float(self._hazards[best]), float(self._gains[best])
            self._blame(best, _Fault(hazard, gain, rivals, first))
            self._settle()

    def _retry(self) -> None:
        """Search on without each fault in turn; keep what explains more.

        One component may stand for two that lose less each: only both together explain more. And
        where another one explains what it does nearly as well, both have to go.
        """
        value = self._note()
        untried = self._excluding()
        size = len(self._land.tables.maybe.prior) + len(self._land.tables.certain.group)
        least = LEAST_RETRIES if len(self._faults) <= FEW else 0
        tries = WORK // max(1, size * len(self._faults) ** 2)
        for _ in range(max(least, min(RETRIES, tries))):
            if not untried:
                return
            component, excluded = untried.pop(0)
            kept = dict(self._faults), dict(self._land.blamed), self._land.background
            banned, self._banned = self._banned, self._banned | excluded
            self._release(component)
            self._settle()
            self._look(self._candidates)  # what the fault explained is open again
            self._fill(len(kept[0]) + MORE)
            found = self._note()
            self._banned = banned
            better = self._worth(frozenset(self._faults)) - self._worth(frozenset(kept[0]))
            if better > LEAST_BETTER:
                value = found
                untried = self._excluding()
                continue
            # What took its place is no better: neither of them may be it.
            instead = frozenset(self._faults) - kept[0].keys()
            if instead and found > value - NEAR:
                untried.append((component, excluded | instead))
            self._faults, self._land.blamed, self._land.background = kept
            self._stale[self._candidates] = True

    def _excluding(self) -> list[tuple[int, frozenset[int]]]:
        """Return what to search on without: each fault, then each with those that are like it."""
        alone, together = [], []
        for component in sorted(self._faults, key=lambda c: (self._faults[c].gain, c)):
            among = self._rivals(component)
            gains, _ = self._scan(among, without=component)
            posterior = self._posterior(gains)
            like = frozenset(among[posterior >= LEAST_POSTERIOR].tolist())
            alone.append((component, frozenset({component})))
            if like - {component}:
                together.append((component, like | {component}))
        return alone + together

    def _note(self) -> float:
        """Return the nats that what is blamed is worth, its costs deducted; remember them."""
        prior = float(self._prior[list(self._faults)].sum())
        value = self._land.likelihood() + prior - self._settings.cost * len(self._faults)
        blamed = frozenset(self._faults)
        self._sets[blamed] = max(value, self._sets.get(blamed, -math.inf))
        return value

    def _worth(self, blamed: frozenset[int]) -> float:
        """Return what a set is worth, and more for every whole that others take for its parts.

        A whole that does not fail evenly, as where it dies in the middle of a window, looks like
        some of its parts. That several of them failed at once by themselves is far less likely.
        Parts that explain less than the whole make it no likelier.
        """
        own = self._sets[blamed]
        more: dict[int, float] = {}
        for other, value in self._sets.items():
            (whole, *rest) = blamed - other or (None,)
            parts = {c for c in other if whole in self._wholes[c]}
            if whole is not None and not rest and parts >= other - blamed:
                extra = self._settings.siblings * max(len(parts) - 1, 0) + min(0.0, value - own)
                more[whole] = max(extra, more.get(whole, 0.0))
        return own + math.fsum(more.values())

    def _probabilities(self) -> dict[frozenset[int], float]:
        """Return the sets that were met with the probability of each."""
        worth = {each: self._worth(each) for each in self._sets}
        top = max(worth.values())
        weights = {each: math.exp(value - top) for each, value in worth.items()}
        total = math.fsum(weights.values())
        return {each: weight / total for each, weight in weights.items()}

    def _inclusion(self) -> dict[int, float]:
        """Return components with the probability of the sets that they are in."""
        chance: dict[int, float] = defaultdict(float)
        for each, probability in self._probabilities().items():
            for component in each:
                chance[component] += probability
        return chance

    def _next(self) -> int | None:
        """Return the component that explains most besides what is blamed; None if not enough.

        What another one explains only shrinks when one is blamed, nearly always: so the best ones
        of the last look are looked at again, and all of them before the search ends.
        """
        while True:
            tired = [c for c, times in self._acquitted.items() if times >= MOST_ACQUITTALS]
            self._gains[[*self._taken(), *tired, *self._banned]] = -math.inf
            best = int(_ranked(self._gains, 1)[0])
            enough = self._gains[best] > self._settings.cost
            if not self._stale[best] and (enough or not self._stale.any()):
                return best if enough else None
            some = _ranked(self._gains, LOOKS) if enough else self._candidates
            self._look(some[self._stale[some]])

    def _look(self, components: Ints) -> None:
        self._gains[components], self._hazards[components] = self._scan(components)
        self._stale[components] = False

    def _blame(self, component: int, fault: _Fault) -> None:
        self._faults[component] = fault
        self._land.blamed[component] = fault.hazard
        self._stale[self._candidates] = True

    def _release(self, component: int) -> None:
        del self._faults[component], self._land.blamed[component]
        self._stale[self._candidates] = True

    def _scan(self, components: Ints, without: int | None = None) -> tuple[Floats, Floats]:
        """Return gains, prior included, and best hazards of blaming each besides the blamed."""
        land, limits = self._land, self._settings
        state = land.state(without)
        healthy = land.elsewhere(state, components, limits.background)
        least = np.maximum(limits.spread * healthy, -math.log1p(-limits.least_rate))
        least = np.minimum(GRID[-1], least)[:, None]
        grid = np.maximum(least, np.concatenate([least, np.tile(GRID, (len(least), 1))], axis=1))
        gains = land.gains(state, components, grid)
        every, best = np.arange(len(components)), np.argmax(gains, axis=1)
        hazards, floor = grid[every, best], np.maximum(0.0, gains[:, 0])
        value = gains[every, best] - floor
        top = _ranked(value, REFINED)
        top = top[value[top] > 0.0]
        for factors in STEPS if len(top) else ():
            near = hazards[top, None] * factors
            near = np.clip(near, least[top], GRID[-1])
            fine = land.gains(state, components[top], near)
            hazards[top] = near[np.arange(len(top)), np.argmax(fine, axis=1)]
            value[top] = fine.max(axis=1) - floor[top]
        return value + np.where(value > 0.0, self._prior[components], 0.0), hazards

    def _settle(self) -> None:
        """Fit all faults anew; take back what no longer explains enough, or is replaced."""
        for _ in range(SETTLE_ROUNDS):
            self._land.fit_background(self._settings.background)
            moved = False
            for component in sorted(self._faults, key=lambda c: (self._faults[c].gain, c)):
                old, among = self._faults[component], self._rivals(component)
                gains, hazards = self._scan(among, without=component)
                best = int(_ranked(gains, 1)[0])
                winner, hazard = int(among[best]), float(hazards[best])
                self._release(component)
                if gains[best] > self._settings.cost:
                    # It rests on the others that are blamed; alone it rests on nothing.
                    kept = winner == component and self._faults
                    first = old.first if kept else self._chances(among, gains)
                    self._blame(winner, _Fault(hazard, float(gains[best]), among, first))
                    moved |= winner != component
                    moved |= not math.isclose(hazard, old.hazard, rel_tol=0.04)
                else:
                    self._acquitted[component] += 1
                    moved = True
            if not moved:
                return

    def _rivals(self, component: int) -> Ints:
        """Return the components that could take a fault's place, itself among them."""
        among = np.unique(np.append(self._faults[component].rivals, component))
        others = self._taken(but=component)
        return among[~np.isin(among, [*others, *self._banned])]

    def _taken(self, but: int | None = None) -> list[int]:
        """Return the components that are one thing with a fault other than `but`."""
        blamed = [self._things[c] for c in self._faults if c != but]
        return np.flatnonzero(np.isin(self._things, blamed)).tolist() if blamed else []

    def _posterior(self, gains: Floats) -> Floats:
        """Return the probabilities that each is at fault, and not another or none of them."""
        top = float(gains.max())
        weights = np.exp(gains - top)
        posterior: Floats = weights / (weights.sum() + math.exp(self._settings.cost - top))
        return posterior

    def _chances(self, components: Ints, gains: Floats) -> dict[int, float]:
        posterior = self._posterior(gains)
        return dict(zip(components.tolist(), posterior.tolist(), strict=True))

    def _found(self) -> Found[K]:
        names, land = self._seen.components, self._land
        blamed = self._rested([self._weighed(component) for component in self._faults])
        gains, _ = self._scan(self._candidates)
        order = np.argsort(-gains, kind="stable")
        rest = tuple(
            (names[row], float(gains[n]))
            for n, row in zip(order, self._candidates[order].tolist(), strict=True)
            if gains[n] > 0.0 and row not in self._faults
        )
        alone = tuple(
            (names[int(c)], float(self._alone[c]))
            for c in np.argsort(-self._alone, kind="stable")
            if self._alone[c] > 0.0
        )
        ranked = tuple(sorted(blamed, key=lambda each: -each.gain))
        chances = self._probabilities()
        sets = tuple(
            frozenset(names[c] for c in each)
            for each in sorted(chances, key=lambda each: (-chances[each], sorted(each)))
            if chances[each] >= LEAST_SET
        )
        return Found(ranked, land.background, alone, rest, sets)

    def _rested(self, blamed: Sequence[Blamed[K]]) -> list[Blamed[K]]:
        """Lower the confidence in what rests on faults that may be others.

        While it is open which of several links a flow lost its packets on, what else it crossed is
        open, too, and a second fault may only be what the wrong choice of the first left over.
        """
        alone = [
            min(each.confidence, self._first_sure(component), self._included(component))
            for each, component in zip(blamed, self._faults, strict=True)
        ]
        lossy = [self._lossy(component) for component in self._faults]
        made = []
        for n, each in enumerate(blamed):
            doubts = [
                alone[m]
                for m, other in enumerate(lossy)
                if m != n
                and alone[m] < OPEN
                and lossy[n][other > 0].sum() > SHARED * lossy[n].sum()
            ]
            made.append(replace(each, confidence=alone[n] * math.prod(doubts)))
        return made

    def _first_sure(self, component: int) -> float:
        """Return how sure it was when it was blamed, against what was not blamed later as well."""
        first, taken = self._faults[component].first, set(self._taken(but=component))
        mine = sum(p for c, p in first.items() if self._things[c] == self._things[component])
        others = sum(p for c, p in first.items() if c in taken)
        return min(1.0, mine / max(1.0 - others, LEAST_POSTERIOR))

    def _included(self, component: int) -> float:
        """Return the probability of the sets with a component, or what is one thing with it."""
        thing = self._things[component]
        chance = self._inclusion()
        return min(1.0, sum(p for c, p in chance.items() if self._things[c] == thing))

    def _instead(self, component: int) -> dict[int, float]:
        """Return components with the probability that they stand in the place of one.

        What is as probable beside it as without it is another fault's, or another one's rival.
        """
        thing = self._things[component]
        beside, without = defaultdict[int, float](float), defaultdict[int, float](float)
        here = 0.0
        for each, chance in self._probabilities().items():
            is_here = any(self._things[c] == thing for c in each)
            here += chance * is_here
            for other in each:
                (beside if is_here else without)[other] += chance
        share = (1.0 - here) / here if here else 0.0
        return {c: max(0.0, chance - share * beside[c]) for c, chance in without.items()}

    def _lossy(self, component: int) -> Floats:
        """Return (n_groups,) lost probes of groups that crossed a component only maybe."""
        grouped = self._land.tables
        maybe, made = grouped.maybe, np.zeros(grouped.groups)
        groups = maybe.group[maybe.first[component] : maybe.first[component + 1]]
        made[groups] = grouped.lost[groups] * grouped.times[groups]
        return made

    def _weighed(self, component: int) -> Blamed[K]:
        fault, names = self._faults[component], self._seen.components
        among = self._rivals(component)
        gains, _ = self._scan(among, without=component)
        rivals = self._chances(among, gains)
        taken = set(self._taken(but=component))
        for other, chance in self._instead(component).items():
            if other not in self._faults and other not in taken:
                rivals[other] = max(chance, rivals.get(other, 0.0))
        thing = self._things[component]
        explains, flows = self._explained(component, self._land.state().hazard)
        return Blamed(
            names[component],
            rate=-math.expm1(-fault.hazard),
            gain=float(gains[int(np.flatnonzero(among == component)[0])]),
            confidence=min(1.0, sum(p for c, p in rivals.items() if self._things[c] == thing)),
            explains=explains,
            rivals=tuple(
                (names[c], p)
                for c, p in sorted(rivals.items(), key=lambda each: (-each[1], each[0]))
                if p >= LEAST_POSTERIOR and self._things[c] != thing
            ),
            flows=flows,
        )

    def _explained(self, component: int, total: Floats) -> tuple[float, Ints]:
        """Return the lost probes that a blamed component accounts for, and most likely whose."""
        grouped, hazard = self._land.tables, self._faults[component].hazard
        state = self._land.state()
        ranges = [
            slice(each.first[component], each.first[component + 1])
            for each in (grouped.certain, grouped.maybe)
        ]
        sure, maybe = grouped.certain.group[ranges[0]], grouped.maybe.group[ranges[1]]
        of_sure = hazard * grouped.certain.times[ranges[0]]
        of_maybe = hazard * state.times[ranges[1]] * state.share[ranges[1]]
        groups = np.concatenate([sure, maybe])
        part = np.minimum(1.0, np.concatenate([of_sure, of_maybe]) / total[groups])
        part = part * state.bound[groups]
        lost = grouped.lost[groups] * grouped.times[groups]
        explained = float((part * lost).sum())
        # Beside something dead it may be second on every way that is open: then the likeliest.
        order = np.argsort(-part, kind="stable")
        likeliest = np.zeros(len(part), np.bool_)
        likeliest[order] = np.cumsum(lost[order]) <= explained
        likely = np.zeros(grouped.groups, np.bool_)
        likely[groups[(part > 0.5) | (likeliest & (part >= LEAST_PART))]] = True
        return explained, np.flatnonzero(likely[grouped.group_of] & (self._seen.lost > 0))


RETRIES, LEAST_RETRIES = 6, 2
"""Most times that the search goes on without one of the faults, and how often at least where that
takes long. Chosen: bounds the time."""
WORK = 12_000_000
"""Crossings of groups and components, times faults squared, that all retries together may look at.
Chosen: some ten seconds."""
MORE = 5
"""Most components more that a retry may blame. Chosen: more than so many that seem to be one are
rare, and a search costs the square of their number."""
FEW = 8
"""Most faults with which LEAST_RETRIES are made. Chosen: each costs the square of their number."""
NEAR = 30.0
"""Nats that a retry may be worse for another one without what it found. Chosen: what is far worse
stands for nothing better."""
LEAST_BETTER = 1.0
"""Nats by which what a retry found must be better. Chosen: less is no difference."""
MOST_ACQUITTALS = 2
"""Times that a component is blamed and found not to be needed until it is left alone. Chosen: once
may be too early, while others were not blamed yet."""
CHOICE_ROUNDS = 3
"""Rounds of fitting each set where one of some is chosen. Chosen: more change little."""
SETTLE_ROUNDS = 4
"""Most rounds of fitting what is blamed anew. Chosen: more change little."""
DIGITS = 6
"""Digits of a nat in which gains are compared. Chosen: what remains is rounding."""


def _ranked(gains: Floats, most: int) -> Ints:
    """Return at most so many rows, most gain first; of equal ones, the first by name."""
    rounded = np.round(gains, DIGITS)
    rows = np.arange(len(rounded))
    if len(rounded) > most:  # all of them in order would take ten times as long
        rows = np.flatnonzero(rounded >= np.partition(rounded, -most)[-most])
    return rows[np.argsort(-rounded[rows], kind="stable")[:most]]
