# SPDX-License-Identifier: Apache-2.0
"""Observations regrouped for arithmetic: alike flows together, and who may cross what.

A group is flows that cross the same legs. Where every leg has one alternative, their counts are
added up. Otherwise only flows with equal counts are alike, because a flow stays on its way: two
flows that lost 5 of 10 each are not one that lost 10 of 20. Nor are those added up that may have
lost their probes for other reasons.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.localize.tomography.observations import (
    NO_LEG,
    Floats,
    Ints,
    Observations,
    offsets,
    spread,
)

MAX_OPEN_LEGS = 2
"""Most legs of a flow that have more than one alternative. Chosen: there and back."""


@dataclass(frozen=True, slots=True)
class Certain:
    """What groups cross whichever alternatives they took, sorted by component."""

    group: Ints
    times: Floats
    """How often one probe crosses the component."""
    first: Ints
    """(n_components + 1,): entries of component c are first[c] to first[c + 1]."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """What groups cross on some alternatives only: pairs of group and component, by component."""

    group: Ints
    first: Ints
    """(n_components + 1,)"""
    entry_pair: Ints
    """An entry is an alternative that crosses the pair's component -> row of its pair."""
    entry_slot: Ints
    """Entry -> which of its group's open legs."""
    entry_alternative: Ints
    first_entry: Ints
    """(n_groups + 1,): entries are sorted by group."""
    pairs_of: Ints
    """Rows of pairs, group after group."""
    first_pair: Ints
    """(n_groups + 1,): pairs of group g are pairs_of[first_pair[g] : first_pair[g + 1]]."""
    prior: Floats
    """(n_entries,): probability of the alternative before anything was seen."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Groups, with what they cross."""

    seen: Observations[Any]
    """What was regrouped. The ways of legs with alternatives lack what all of them cross: that is
    certain."""
    components: int
    sent: Floats
    lost: Floats
    times: Floats
    """(n_groups,): how many flows a group stands for."""
    length: Floats
    """(n_groups,): components crossed on certain legs."""
    free: Floats
    """(n_groups,): probability that a flow of the group lost its probes for other reasons."""
    open_legs: Ints
    """(n_groups, MAX_OPEN_LEGS): row of the leg or NO_LEG."""
    certain: Certain
    maybe: Maybe
    group_of: Ints
    """(n_flows,)"""

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return len(self.sent)


def tables(seen: Observations[Any]) -> Tables:
    """Return `seen` regrouped; ValueError where a flow has too many legs with alternatives."""
    alternatives = np.diff(seen.first_alternative)
    is_open = (seen.legs != NO_LEG) & (alternatives[seen.legs] > 1)
    if is_open.sum(axis=1).max(initial=0) > MAX_OPEN_LEGS:
        raise ValueError(f"a flow has more than {MAX_OPEN_LEGS} legs with alternatives")
    seen, fixed = _split(seen)
    apart = is_open.any(axis=1) | (seen.free > 0.0)
    reasons, reason = np.unique(seen.free, return_inverse=True)
    counts = np.where(apart[:, None], np.stack([seen.sent, seen.lost], axis=1), -1)
    keys, group_of = np.unique(
        np.concatenate([seen.legs, reason.reshape(-1, 1), counts], axis=1),
        axis=0,
        return_inverse=True,
    )
    group_of = group_of.reshape(-1)
    legs, mixed = keys[:, :-3], keys[:, -1] >= 0
    summed = [
        np.bincount(group_of, seen.times * column, minlength=len(keys))
        for column in (seen.sent, seen.lost)
    ]
    sent, lost = (
        np.where(mixed, column, total) for column, total in zip(keys[:, -2:].T, summed, strict=True)
    )
    times = np.where(mixed, np.bincount(group_of, seen.times, minlength=len(keys)), 1)
    open_here = (legs != NO_LEG) & (alternatives[legs] > 1)
    order = np.argsort(~open_here, axis=1, kind="stable")[:, :MAX_OPEN_LEGS]
    open_legs = np.full((len(keys), MAX_OPEN_LEGS), NO_LEG, np.int64)
    taken = np.take_along_axis(np.where(open_here, legs, NO_LEG), order, axis=1)
    open_legs[:, : taken.shape[1]] = taken
    certain, length = _certain(fixed, legs)
    return Tables(
        seen=seen,
        components=len(seen.components),
        sent=sent.astype(np.float64),
        lost=lost.astype(np.float64),
        times=times.astype(np.float64),
        length=length,
        free=reasons[keys[:, -3]],
        open_legs=open_legs,
        certain=certain,
        maybe=_maybe(seen, open_legs),
        group_of=group_of,
    )


def _split(seen: Observations[Any]) -> tuple[Observations[Any], Observations[Any]]:
    """Return the ways without what is certain, and for each leg one way with what is."""
    lengths, counts = np.diff(seen.first_member), np.diff(seen.first_alternative)
    leg_of = np.repeat(np.arange(len(counts)), counts)
    leg = np.repeat(leg_of, lengths)
    pairs, inverse, times = np.unique(
        leg * max(1, len(seen.components)) + seen.members, return_inverse=True, return_counts=True
    )
    is_fixed = (times == counts[pairs // max(1, len(seen.components))])[inverse.reshape(-1)]
    first_way = np.repeat(seen.first_alternative[leg_of], lengths)
    way = np.repeat(np.arange(len(lengths)), lengths)
    kept, one = np.flatnonzero(~is_fixed), np.flatnonzero(is_fixed & (way == first_way))
    ways = replace(
        seen,
        first_member=offsets(np.bincount(way[kept], minlength=len(lengths))),
        members=seen.members[kept],
    )
    certain = replace(
        seen,
        first_alternative=np.arange(len(counts) + 1),
        weight=np.ones(len(counts)),
        first_member=offsets(np.bincount(leg[one], minlength=len(counts))),
        members=seen.members[one],
    )
    return ways, certain


def _certain(fixed: Observations[Any], legs: Ints) -> tuple[Certain, Floats]:
    group, slot = np.nonzero(legs != NO_LEG)
    group, component, _ = _members(fixed, group, legs[group, slot])
    count = len(fixed.components)
    pairs, times = np.unique(component * len(legs) + group, return_counts=True)
    certain = Certain(
        group=pairs % max(1, len(legs)),
        times=times.astype(np.float64),
        first=_firsts(pairs // max(1, len(legs)), count),
    )
    return certain, np.bincount(group, minlength=len(legs)).astype(np.float64)


def _maybe(seen: Observations[Any], open_legs: Ints) -> Maybe:
    groups = len(open_legs)
    group, slot = np.nonzero(open_legs != NO_LEG)
    leg = open_legs[group, slot]
    counts = np.diff(seen.first_alternative)[leg]
    alternative = spread(seen.first_alternative[leg], counts)
    group, slot = np.repeat(group, counts), np.repeat(slot, counts)
    at, component, which = _members(seen, group, alternative)
    slot, alternative = slot[which], alternative[which]
    pairs, entry_pair = np.unique(component * groups + at, return_inverse=True)
    of_pair = pairs % max(1, groups)
    return Maybe(
        group=of_pair,
        first=_firsts(pairs // max(1, groups), len(seen.components)),
        entry_pair=entry_pair.reshape(-1),
        entry_slot=slot,
        entry_alternative=alternative,
        first_entry=_firsts(at, groups),
        prior=seen.weight[alternative],
        pairs_of=np.argsort(of_pair, kind="stable"),
        first_pair=_firsts(of_pair, groups),
    )


def _members(
    seen: Observations[Any], group: Ints, alternative: Ints
) -> tuple[Ints, Ints, NDArray[np.int64]]:
    """Return group, component and row of the input for each member of these alternatives."""
    counts = np.diff(seen.first_member)[alternative]
    component = seen.members[spread(seen.first_member[alternative], counts)]
    which = np.repeat(np.arange(len(alternative)), counts)
    return group[which], component, which


def _firsts(sorted_rows: Ints, count: int) -> Ints:
    return offsets(np.bincount(sorted_rows, minlength=count))
