# SPDX-License-Identifier: Apache-2.0
"""How much better each component explains the losses than what is blamed already does.

A component that is blamed has a hazard h: a probe survives one crossing with probability exp(-h).
Each component that a probe crosses also has the background's hazard. A flow that sent n and lost k
on a way with the total hazard s has the likelihood

    (1 - exp(-s))^k exp(-s (n - k))

and a flow that may have taken several ways the mean of theirs, weighted by their probabilities:
that is Flock's model (CoNEXT '23, section 4) with rates that are fitted, not given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzer.localize.tomography.observations import (
    NO_LEG,
    Floats,
    Ints,
    spread,
    sums,
)
from analyzer.localize.tomography.tables import Tables

LEAST_S = 1e-12
"""Smallest total hazard of a way. Chosen: keeps logarithms finite, and a way on which nothing is
ever lost as good as impossible once something was."""
LEAST_COLD = 1e-280
"""Least probability of ways that cross nothing blamed. Chosen: less is no number to divide by."""
BLOCK = 1_000_000
"""Most crossings times hazards that are weighed at once. Chosen: bounds memory."""
CHUNK = 4096
"""Most groups whose ways are weighed at once. Chosen: bounds memory."""


@dataclass(frozen=True, slots=True)
class State:
    """What the groups' flows probably crossed, given the components that are blamed."""

    hazard: Floats
    """(n_groups,): mean total hazard of a group's ways."""
    share: Floats
    """(n_pairs,): probability that a flow of the pair's group crosses the pair's component."""
    times: Floats
    """(n_pairs,): how often it crosses it, where it does."""
    ln: Floats
    """(n_groups,): log-likelihood of what one of a group's flows lost."""
    bound: Floats
    """(n_groups,): probability that a flow of the group lost no probes for other reasons."""
    cold: Floats
    """(n_pairs,): share of crossings on ways that cross nothing blamed. Once a flow's losses are
    explained such ways are hardly probable, but a component on them may explain them as well."""
    cold_hazard: Floats
    """(n_groups,): mean total hazard of those ways."""
    hot_hazard: Floats
    """(n_groups,): mean total hazard of the others."""
    all_cold: Floats
    """(n_groups,): probability that a flow's ways cross nothing blamed, 1 where all are alike."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """What is probable of some groups' ways; entries are those of the groups, one after another."""

    hazard: Floats
    ln: Floats
    chance: Floats
    """(n_entries,)"""
    cold: Floats
    """(n_groups,): probability that no way crosses anything blamed."""
    cold_hazard: Floats
    cold_chance: Floats
    """(n_entries,): chances if that is so."""
    hot_hazard: Floats
    """(n_groups,): mean hazard if it is not."""


class Landscape:
    """Log-likelihoods over one set of observations."""

    def __init__(self, tables: Tables, background: float) -> None:
        self.tables = tables
        self.background = background
        """Hazard of each crossing of a component that is not blamed."""
        self.blamed: dict[int, float] = {}
        """Component -> its hazard."""
        self._seen = tables.seen
        self._lengths = np.diff(self._seen.first_member).astype(np.float64)
        self._across: dict[int, Ints] = {}
        """Component -> alternatives that cross it."""
        self._state: tuple[object, State] | None = None
        """The newest state, and what it is of."""
        self._row = np.zeros(len(tables.maybe.group), np.int64)
        """Scratch: pair -> its row among the pairs of some groups."""
        self._ways = np.diff(self._seen.first_alternative)
        """(n_legs,): alternatives of each."""
        self._entries = np.diff(tables.maybe.first_entry)
        """(n_groups,): entries of each."""
        self._pairs = np.diff(tables.maybe.first_pair)
        """(n_groups,): pairs of each."""
        self._sure, self._perhaps = np.diff(tables.certain.first), np.diff(tables.maybe.first)
        """(n_components,): groups that cross each for certain, or on some of their ways."""
        self._lossy = tables.lost > 0
        self._crossings = self._mean_length()
        self._before = np.zeros((2, len(tables.maybe.group)))
        """Shares and times of all pairs while nothing is blamed."""
        every = np.arange(tables.groups)
        self._before[:, tables.maybe.pairs_of] = self._shares(every, tables.maybe.prior)

    def state(self, without: int | None = None) -> State:
        """Return what is probable while `blamed`, but for `without`, are at fault."""
        groups = self.tables.groups
        now = (self.background, tuple(sorted(self.blamed.items())))
        if self._state is None or self._state[0] != now:
            share, times = self._before
            zeros = np.zeros(groups)
            nothing = State(zeros, share, times, zeros, zeros, share, zeros, zeros, zeros)
            every = np.arange(groups)
            self._state = now, self._renewed(nothing, every, self.blamed)
        if without is None:
            return self._state[1]
        # Only flows that may cross the component are seen in another light without it.
        others = {c: hazard for c, hazard in self.blamed.items() if c != without}
        return self._renewed(self._state[1], self._across_groups(without), others)

    def _renewed(self, old: State, groups: Ints, blamed: Mapping[int, float]) -> State:
        """Return `old` with what is known of `groups` found anew."""
        tables, certain = self.tables, self.tables.certain
        total = self.background * tables.length
        of_way = self.background * self._lengths
        is_cold = np.ones(len(of_way), np.bool_)
        for component, hazard in blamed.items():
            mine = slice(certain.first[component], certain.first[component + 1])
            np.add.at(total, certain.group[mine], hazard * certain.times[mine])
            np.add.at(of_way, self._ways_across(component), hazard)
            is_cold[self._ways_across(component)] = False
        mean, alike = self._legs(of_way)
        uneven = np.zeros(len(groups), np.bool_)
        hazard_of = total[groups]
        for legs in tables.open_legs[groups].T:
            here = np.flatnonzero(legs != NO_LEG)
            hazard_of[here] += mean[legs[here]]
            uneven[here] |= ~alike[legs[here]]
        hazard_of = np.maximum(hazard_of, LEAST_S)
        n, k = tables.sent[groups], tables.lost[groups]
        ln_of = k * np.log(-np.expm1(-hazard_of)) - (n - k) * hazard_of
        share, times, cold = old.share.copy(), old.times.copy(), old.cold.copy()
        pairs = self._pairs_of(groups)
        share[pairs], times[pairs] = self._before[:, pairs]
        cold[pairs] = share[pairs]
        cold_of, hot_of, all_cold = hazard_of.copy(), hazard_of.copy(), np.ones(len(groups))
        # Where all alternatives lose alike, what was lost says nothing about which was taken.
        for rows in np.array_split(np.flatnonzero(uneven), 1 + int(uneven.sum()) // CHUNK):
            if len(rows):
                ways = self._posterior(groups[rows], total, of_way, is_cold)
                hazard_of[rows], ln_of[rows] = ways.hazard, ways.ln
                pairs, counts = self._pairs_of(groups[rows]), self._pair_counts(groups[rows])
                share[pairs], times[pairs] = self._shares(groups[rows], ways.chance)
                all_cold[rows] = ways.cold
                of_cold = self._shares(groups[rows], ways.cold_chance)[0]
                cold[pairs] = np.repeat(ways.cold, counts) * of_cold
                cold_of[rows], hot_of[rows] = ways.cold_hazard, ways.hot_hazard
        hazards, ln, bound = old.hazard.copy(), old.ln.copy(), old.bound.copy()
        colds, hots, alls = old.cold_hazard.copy(), old.hot_hazard.copy(), old.all_cold.copy()
        hazards[groups], colds[groups], hots[groups] = hazard_of, cold_of, hot_of
        alls[groups] = all_cold
        ln[groups], bound[groups] = self._freed(groups, ln_of)
        cold = np.minimum(cold, share)
        return State(hazards, share, times, ln, bound, cold, colds, hots, alls)

    def _freed(self, groups: Ints, ln: Floats) -> tuple[Floats, Floats]:
        """Return log-likelihoods with other reasons, which explain any loss alike, and bounds."""
        n, k, prior = (x[groups] for x in (self.tables.sent, self.tables.lost, self.tables.free))
        rate = np.clip(k / np.maximum(n, 1.0), 1e-12, 1.0 - 1e-12)
        with np.errstate(divide="ignore"):
            other = np.log(prior) + k * np.log(rate) + (n - k) * np.log1p(-rate)
        here = np.log1p(-prior) + ln
        whole = np.logaddexp(here, other)
        return whole, np.exp(here - whole)

    def _pair_counts(self, groups: Ints) -> Ints:
        counts: Ints = self._pairs[groups]
        return counts

    def _pairs_of(self, groups: Ints) -> Ints:
        maybe = self.tables.maybe
        return maybe.pairs_of[spread(maybe.first_pair[groups], self._pair_counts(groups))]

    def _across_groups(self, component: int) -> Ints:
        return np.unique(
            np.concatenate(
                [
                    each.group[each.first[component] : each.first[component + 1]]
                    for each in (self.tables.certain, self.tables.maybe)
                ]
            )
        )

    def suspects(self) -> Ints:
        """Return the components that lost probes crossed, or may have."""
        tables, every = self.tables, np.arange(self.tables.components)
        found = [
            np.repeat(every, counts)[self._lossy[each.group]]
            for each, counts in ((tables.certain, self._sure), (tables.maybe, self._perhaps))
        ]
        return np.unique(np.concatenate(found))

    def likelihood(self) -> float:
        """Return the log-likelihood of all that was seen, in nats."""
        arrived = self.tables.seen.arrived
        hazard = self.background * arrived.crossed
        for component, more in self.blamed.items():
            hazard += more * float(arrived.probes[component])
        return float((self.tables.times * self.state().ln).sum()) - hazard

    def _ways_across(self, component: int) -> Ints:
        if component not in self._across:
            at = np.flatnonzero(self._seen.members == component)
            self._across[component] = np.searchsorted(self._seen.first_member, at, "right") - 1
        return self._across[component]

    def _legs(self, of_way: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return legs' mean hazard, and whether their alternatives have the same hazard."""
        starts = self._seen.first_alternative[:-1]
        if not len(starts):
            return np.zeros(0), np.zeros(0, np.bool_)
        mean = np.add.reduceat(of_way * self._seen.weight, starts)
        least, most = (fold.reduceat(of_way, starts) for fold in (np.minimum, np.maximum))
        return mean, (self._ways == 1) | (most - least <= 1e-9 * most)

    def _posterior(
        self, groups: Ints, certain: Floats, of_way: Floats, is_cold: NDArray[np.bool_]
    ) -> "_Ways":
        """Return what is probable of the groups' ways."""
        tables = self.tables
        first, second = (
            self._padded(tables.open_legs[groups, slot], of_way, is_cold) for slot in (0, 1)
        )
        total = certain[groups, None, None] + first[0][:, :, None] + second[0][:, None, :]
        total = np.maximum(total, LEAST_S)
        n, k = tables.sent[groups, None, None], tables.lost[groups, None, None]
        with np.errstate(divide="ignore"):
            ln = np.log(first[1])[:, :, None] + np.log(second[1])[:, None, :]
        ln += k * np.log(-np.expm1(-total)) - (n - k) * total
        most = ln.max(axis=(1, 2))
        joint = np.exp(ln - most[:, None, None])
        whole = joint.sum(axis=(1, 2))
        joint /= whole[:, None, None]
        mean: Floats = (joint * total).sum(axis=(1, 2))
        is_cold_way = first[2][:, :, None] & second[2][:, None, :]
        hot, cold = np.where(is_cold_way, 0.0, joint), np.where(is_cold_way, joint, 0.0)
        # Each from its own ways: what is left of one has no digits where the other is all but sure.
        all_hot, all_cold = hot.sum(axis=(1, 2)), cold.sum(axis=(1, 2))
        hot /= np.maximum(all_hot, LEAST_COLD)[:, None, None]
        cold /= np.maximum(all_cold, LEAST_COLD)[:, None, None]
        return _Ways(
            mean,
            most + np.log(whole),
            self._chances(groups, joint),
            np.where(all_cold < LEAST_COLD, 0.0, all_cold),
            np.maximum(LEAST_S, (cold * total).sum(axis=(1, 2))),
            self._chances(groups, cold),
            np.where(all_hot < LEAST_COLD, mean, (hot * total).sum(axis=(1, 2))),
        )

    def _chances(self, groups: Ints, joint: Floats) -> Floats:
        """Return the chances of the groups' entries, from those of the ways there and back."""
        maybe = self.tables.maybe
        counts = self._entries[groups]
        entries, rows = spread(maybe.first_entry[groups], counts), _rows(counts)
        leg = self.tables.open_legs[groups[rows], maybe.entry_slot[entries]]
        column = maybe.entry_alternative[entries] - self._seen.first_alternative[leg]
        of_first, of_second = joint.sum(axis=2), joint.sum(axis=1)
        chances: Floats = np.where(
            maybe.entry_slot[entries] == 0,
            of_first[rows, np.minimum(column, of_first.shape[1] - 1)],
            of_second[rows, np.minimum(column, of_second.shape[1] - 1)],
        )
        return chances

    def _padded(
        self, legs: Ints, of_way: Floats, is_cold: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return (n, most alternatives) hazards, weights, and what crosses nothing blamed.

        NO_LEG has one way of none.
        """
        here = legs != NO_LEG
        counts = np.where(here, self._ways[legs], 0)
        most = max(1, int(counts.max(initial=1)))
        hazards, weights = np.zeros((2, len(legs), most))
        weights[~here, 0] = 1.0
        row = np.repeat(np.arange(len(legs)), counts)
        way = spread(np.where(here, self._seen.first_alternative[legs], 0), counts)
        column = way - self._seen.first_alternative[legs[row]]
        hazards[row, column], weights[row, column] = of_way[way], self._seen.weight[way]
        cold = np.ones(hazards.shape, np.bool_)
        cold[row, column] = is_cold[way]
        return hazards, weights, cold

    def _shares(self, groups: Ints, chance: Floats) -> tuple[Floats, Floats]:
        """Return shares and times of the groups' pairs, from the chances of their entries."""
        maybe = self.tables.maybe
        entries = spread(maybe.first_entry[groups], self._entries[groups])
        pairs = self._pairs_of(groups)
        row = self._row
        row[pairs] = np.arange(len(pairs))
        of_entry, slot = row[maybe.entry_pair[entries]], maybe.entry_slot[entries]
        share, crossings = np.zeros((2, len(pairs)))
        for each in (0, 1):
            at = slot == each
            of_slot = np.minimum(1.0, sums(of_entry[at], chance[at], len(pairs)))
            share += of_slot * (1.0 - share)
            crossings += of_slot
        return share, crossings / np.where(share > 0.0, share, 1.0)

    def gains(self, state: State, components: Ints, hazards: Floats) -> Floats:
        """Return (n_components, n_hazards) nats that blaming each with each hazard would gain.

        `hazards` are (n_hazards,), or (n_components, n_hazards); `state` is of what is blamed
        besides.
        """
        certain, maybe = self.tables.certain, self.tables.maybe
        hazards = np.broadcast_to(hazards, (len(components), hazards.shape[-1]))
        counts = self._sure[components]
        entry, row = spread(certain.first[components], counts), _rows(counts)
        group, times = certain.group[entry], certain.times[entry]
        lossy = self._lossy
        mixed = lossy & (state.all_cold > 0.0) & (state.all_cold < 1.0)
        apart = mixed[group] | (self.tables.free[group] > 0.0)
        # What survived counts the same whatever else is crossed: only losses are looked at.
        alone, flows = ~apart, self.tables.times[group] * times
        healthy = (flows * (self.tables.sent - self.tables.lost)[group])[alone]
        arrived = self.tables.seen.arrived.probes[components]
        survived = arrived + sums(row[alone], healthy, len(components))
        made = -survived[:, None] * hazards
        lost = alone & lossy[group]
        self._add(made, row[lost], group[lost], times[lost], state.hazard, (), hazards)
        for kind in (mixed, ~mixed):
            mine = np.flatnonzero(apart & kind[group])
            if not len(mine):
                continue
            bound, cold = state.bound[group[mine]], state.all_cold[group[mine]]
            hot, colder = (
                (state.hot_hazard, bound * (1.0 - cold)),
                (state.cold_hazard, bound * cold),
            )
            parts = (hot, colder) if kind is mixed else ((state.hazard, bound),)
            self._add(made, row[mine], group[mine], times[mine], state.hazard, parts, hazards)
        counts = self._perhaps[components]
        pair, row = spread(maybe.first[components], counts), _rows(counts)
        group = maybe.group[pair]
        share, cold = (each[pair] * state.bound[group] for each in (state.share, state.cold))
        # Where nothing is lost, it is the same what else a way crosses.
        cold[~lossy[group]] = 0.0
        kinds = (cold == 0.0, cold == share, (cold > 0.0) & (cold < share))
        for n, which in enumerate(kinds):
            mine = np.flatnonzero(which)
            if not len(mine):
                continue
            hot = (state.hot_hazard, share[mine] - cold[mine])
            colder = (state.cold_hazard, cold[mine])
            parts = ((hot,), (colder,), (hot, colder))[n]
            times = state.times[pair[mine]]
            self._add(made, row[mine], group[mine], times, state.hazard, parts, hazards)
        return made

    def _add(
        self,
        made: Floats,
        row: Ints,
        group: Ints,
        times: Floats,
        now: Floats,
        parts: Sequence[tuple[Floats, Floats]],
        hazards: Floats,
    ) -> None:
        """Add what more hazard changes; without `parts`, of what is lost on all ways of a group.

        Each part has the groups' hazards on some of their ways, and the share of those among all.
        """
        tables = self.tables
        flows, lost = tables.times[group], tables.lost[group]
        healthy = tables.sent[group] - lost
        if not len(row):
            return
        count = hazards.shape[1]
        step = max(1, BLOCK // len(row))
        for first in range(0, count, step):
            block = slice(first, min(count, first + step))
            more = hazards[row, block] * times[:, None]
            if not parts:
                ln = lost[:, None] * _ln_more(now[group, None], more)
            else:
                with np.errstate(divide="ignore"):
                    ln = np.log1p(-np.minimum(1.0, sum(share for _, share in parts)))[:, None]
                    for hazard, share in parts:
                        of_part = lost[:, None] * _ln_more(hazard[group, None], more)
                        of_part -= healthy[:, None] * more
                        ln = np.logaddexp(ln, np.log(share)[:, None] + of_part)
            width = block.stop - block.start
            cell = row[:, None] * width + np.arange(width)
            summed = sums(cell.ravel(), (flows[:, None] * ln).ravel(), len(made) * width)
            made[:, block] += summed.reshape(-1, width)

    def fit_background(self, least: float) -> None:
        """Set the background to the rate of the losses that nothing blamed explains."""
        tables, crossings = self.tables, self._crossings
        state = self.state()
        sent = float((tables.times * crossings * tables.sent).sum()) + tables.seen.arrived.crossed
        for _ in range(FIT_STEPS):
            chance = np.minimum(1.0, self.background * crossings / state.hazard)
            chance *= state.bound
            lost = float((tables.times * tables.lost * chance).sum())
            fitted = max(least, lost / max(1.0, sent))
            done = abs(fitted - self.background) <= 0.01 * self.background
            hazard = np.maximum(LEAST_S, state.hazard + (fitted - self.background) * crossings)
            state = replace(state, hazard=hazard)
            self.background = fitted
            if done:
                return

    def elsewhere(self, state: State, components: Ints, least: float) -> Floats:
        """Return (n_components,) backgrounds as flows that do not cross each component show them.

        What is at fault and not blamed yet raises the background; its own flows must not raise
        what it is compared with.
        """
        tables, crossings = self.tables, self._crossings
        chance = np.minimum(1.0, self.background * crossings / state.hazard)
        chance *= state.bound
        lost = tables.times * tables.lost * chance
        crossed = tables.times * tables.sent * crossings
        certain, maybe = tables.certain, tables.maybe
        sizes = self._sure[components]
        group, row = certain.group[spread(certain.first[components], sizes)], _rows(sizes)
        mine = [sums(row, x[group], len(components)) for x in (lost, crossed)]
        sizes = self._perhaps[components]
        pair, row = spread(maybe.first[components], sizes), _rows(sizes)
        group, share = maybe.group[pair], state.share[pair]
        for n, each in enumerate((lost, crossed)):
            mine[n] += sums(row, share * each[group], len(components))
        arrived = tables.seen.arrived
        mine[1] += arrived.crossings[components]
        every = crossed.sum() + arrived.crossed
        rest = np.maximum(0.0, lost.sum() - mine[0]), np.maximum(1.0, every - mine[1])
        rate: Floats = np.maximum(least, rest[0] / rest[1])
        return rate

    def _mean_length(self) -> Floats:
        """Return (n_groups,) components crossed on a group's way, on average."""
        tables, seen = self.tables, self._seen
        length = sums(_rows(self._ways), seen.weight * self._lengths, len(self._ways))
        total = tables.length.copy()
        for slot in range(tables.open_legs.shape[1]):
            here = tables.open_legs[:, slot] != NO_LEG
            total[here] += length[tables.open_legs[here, slot]]
        return total


FIT_STEPS = 30
"""Most rounds of fitting the background. Chosen: it settles within a few."""


def _ln_more(now: Floats, more: Floats) -> Floats:
    """Return by how much likelier a loss is on a way with more hazard than now, as logarithm."""
    changed: Floats = np.log(np.expm1(-(now + more)) / np.expm1(-now))
    return changed


def _rows(counts: Ints) -> Ints:
    return np.repeat(np.arange(len(counts)), counts)
