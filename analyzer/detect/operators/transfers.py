# SPDX-License-Identifier: Apache-2.0
"""Which transfers take longer than others of their kind, and which rank, edge or group that means.

What a transfer took is what the last to come measured (`aggregate`). It is compared with the same
operation of the same size in other groups, or over other edges. A receiver that comes after all has
arrived measures nothing, so an edge is slow only where its sends are, too. C4D's reading of its
delay matrix follows: one hot cell is an edge, several that share a rank are that rank's; of a ring
that is slow as a whole nothing tells which of its links is.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from analyzer.detect.chance import chances
from analyzer.detect.operators.case import Case
from analyzer.detect.operators.matrix import FEW, Marks, marks
from analyzer.detect.operators.verdict import Who
from analyzer.detect.operators.votes import BY_CHANCE, Flags, elected, spread
from analyzer.operators.log import GroupKind
from analyzer.operators.rows import Floats, Ints
from analyzer.operators.units import edge_of, group_of, op_of

SLOWER = 1.5
"""How many times as long as its like a transfer has to take. Chosen, as Aegis' beta."""
HELD_UP = 0.01
"""What it costs of a step, from which it counts. Chosen: half of what a rank may be late, since a
pipeline pays for each stage's."""
HELD_UP_GUESSED = 0.05
"""Likewise, where the log does not name who sends to whom. Chosen: a guess has to show more."""
APART = 6.0
"""Standard deviations from its like. Algorithm A6's z. Chosen there."""
FEWEST_ALIKE = 3
"""Transfers of a kind below which none is unlike the others. Chosen."""
FEW_ALIKE = 8
"""Groups up to which half of them may be told slow. Chosen: of more, two kinds that nothing in a
log tells apart are likelier than so many faults."""
HALF_SLOWER = 3.0
"""How many times as long as any of the quicker half these take in each iteration. Chosen: twice
`SLOWER`, since there is no median to compare with."""
_OF_ALL = 0.6
"""Share of a rank's transfers that are slow where the rank is what they have in common. Chosen:
two of three."""
_BOTH_ENDS = 3
_PAIR = 2
_SPARSE = 0.5  # cells of a matrix that may be empty, its diagonal among them
_MOST_RANKS = 1024  # who all send to each other are few


@dataclass(frozen=True, slots=True)
class Hot:
    """What is slow of the network."""

    kind: Who
    ranks: tuple[int, ...]
    effect: float
    """What it costs, as a share of a step."""
    share: float
    """In how many of the steps it stood out."""
    times: float
    """How many times as long as its like it takes."""
    what: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """One slow transfer."""

    members: frozenset[int]
    effect: float
    share: float
    times: float
    what: str
    edge: tuple[int, int] | None


def hot(case: Case) -> list[Hot]:
    """Return what of the network is slow, what costs most first."""
    slow, judged = _slow(case)
    slow = list(_dense(case, slow))
    least = HELD_UP_GUESSED if case.guessed else HELD_UP
    found = [each for each in _explained(slow, judged) if each.effect >= least]
    return sorted(found, key=lambda each: -each.effect)


def _kinds(case: Case) -> Iterator[Ints]:
    """Yield the units of each kind that can be compared with each other."""
    units, alike = case.sums.units, defaultdict(list)
    logged = frozenset(case.sums.ranks.tolist())
    for n, number in enumerate(units.number.tolist()):
        members = _members(case, number)
        # Who is not logged may have come last.
        if units.ends[n] != _BOTH_ENDS or len(members) < _PAIR or not members <= logged:
            continue
        group = case.groups[group_of(number)] if edge_of(number) is None else None
        size = len(group.members) if group else 0
        kind = group.kind if group else None
        alike[op_of(number), kind, size, int(units.bytes[n])].append(n)
    for places in alike.values():
        if len(places) >= FEWEST_ALIKE:
            yield np.array(places)


def _slow(case: Case) -> tuple[list[_Unit], list[frozenset[int]]]:
    """Return the slow units, and the members of all that were judged."""
    time, units = case.step_us, case.sums.units
    found, judged = [], []
    for places in _kinds(case):
        least, count = units.least_us[:, places], units.count[:, places]
        members = [_members(case, int(units.number[n])) for n in places]
        known = np.isfinite(least) & _whole(case, members)
        least = np.where(known, least, np.nan)
        usual = np.nanmedian(least, axis=1, keepdims=True)
        if not _inside(case, int(units.number[places[0]])):
            judged += members
        instances = count / np.array([max(len(each), 1) for each in members])
        cost = np.nan_to_num((least - usual) * instances) / time[:, None]
        wide = APART * spread(least - usual, axis=1)[:, None]
        outstanding = known & (least - usual > np.maximum(wide, (SLOWER - 1) * usual))
        if np.isfinite(sent := units.sent_us[:, places]).any():
            outstanding &= sent > SLOWER * np.nanmedian(sent, axis=1, keepdims=True)
        named = elected(outstanding, known)
        if not named.any() and (half := _half(case, places, least)).any():
            named, outstanding = half, known & half
            usual = np.nanmax(least[:, ~half], axis=1, keepdims=True)
            cost = np.nan_to_num((least - usual) * instances) / time[:, None]
        for at in np.flatnonzero(named):
            effect = float(cost[:, at].mean())
            number = int(units.number[places[at]])
            times = float(np.nanmedian(least[:, at]) / np.nanmedian(usual))
            share = float(outstanding[:, at].mean())
            what = case.sums.ops[op_of(number)]
            found.append(_Unit(members[at], effect, share, times, what, edge_of(number)))
    return found, judged


def _whole(case: Case, members: list[frozenset[int]]) -> Flags:
    """Return (steps, units) whether all members were logged: who was not may have come last."""
    known = case.known
    if known.all():
        return np.ones((len(known), len(members)), bool)
    ranks = case.sums.ranks
    each = (known[:, np.searchsorted(ranks, sorted(of))].all(axis=1) for of in members)
    return np.stack(list(each), axis=1)


def _half(case: Case, places: Ints, least: Floats) -> Flags:
    """Return which half of few groups is slow; none where that may be how the job is made.

    Of a half the median is between both. Chance would pick another half each time, and what a
    whole stage does differently may be another network, or other work beside it.
    """
    units, nobody = case.sums.units, np.zeros(len(places), bool)
    groups = [_members(case, int(number)) for number in units.number[places]]
    sized = units.bytes[places[0]] > 0 and edge_of(int(units.number[places[0]])) is None
    if not sized or len(places) % 2 or len(places) > FEW_ALIKE or np.isnan(least).any():
        return nobody
    order = np.argsort(np.median(least, axis=0))
    slow, quick = order[len(order) // 2 :], order[: len(order) // 2]
    apart = least[:, slow].min(axis=1) > HALF_SLOWER * least[:, quick].max(axis=1)
    by_chance = 1 / comb(len(order), len(slow))
    votes, of = np.array([apart.sum() - 1]), np.array([len(apart) - 1])
    if chances(votes, of, by_chance)[0] < BY_CHANCE and _mixed(case, groups, slow, quick):
        nobody[slow] = True
    return nobody


def _mixed(case: Case, groups: list[frozenset[int]], slow: Ints, quick: Ints) -> bool:
    """Return whether some stage has groups of both halves."""
    of = [set(case.stage[np.isin(case.sums.ranks, list(each))].tolist()) for each in groups]
    return any(of[one] & of[other] for one in slow for other in quick)


def _dense(case: Case, slow: list[_Unit]) -> Iterator[_Unit]:
    """Yield the slow units; of ranks that all send to each other, as their matrix has it.

    Who sends slowly, or receives slowly, has half of its edges slow, and nothing else in common
    with them than itself.
    """
    edges = {each.edge for each in slow if each.edge is not None}
    ranks, delay = _delays(case)
    if len(ranks) < FEW or np.isnan(delay).mean() > _SPARSE or not edges:
        yield from slow
        return
    found = marks(delay)
    for each in slow:
        side = _side(each.edge, found, ranks) if each.edge else None
        if side is None:
            yield each
        else:
            yield replace(each, members=frozenset({side[0]}), edge=None, what=side[1])


def _delays(case: Case) -> tuple[list[int], Floats]:
    """Return who sends or receives, and (senders, receivers) the median of what transfers took."""
    units = case.sums.units
    logged = frozenset(case.sums.ranks.tolist())
    known = {
        edge: n for n, number in enumerate(units.number.tolist())
        if (edge := edge_of(number)) is not None and units.ends[n] == _BOTH_ENDS
        and logged.issuperset(edge)
    }  # fmt: skip
    ranks = sorted({rank for edge in known for rank in edge})
    if not FEW <= len(ranks) <= _MOST_RANKS:
        return [], np.zeros((0, 0))
    place = {rank: n for n, rank in enumerate(ranks)}
    delay = np.full((len(ranks), len(ranks)), np.nan)
    whole = _whole(case, [frozenset(edge) for edge in known])
    for at, ((source, target), n) in enumerate(known.items()):
        own = units.least_us[whole[:, at], n]
        delay[place[source], place[target]] = np.median(own[np.isfinite(own)])
    return ranks, delay


def _side(edge: tuple[int, int], found: Marks, ranks: list[int]) -> tuple[int, str] | None:
    if edge[0] in {ranks[each] for each in found.senders}:
        return edge[0], "sending"
    if edge[1] in {ranks[each] for each in found.receivers}:
        return edge[1], "receiving"
    return None


def _members(case: Case, number: int) -> frozenset[int]:
    edge = edge_of(number)
    return frozenset(edge if edge is not None else case.groups[group_of(number)].members)


def _explained(slow: list[_Unit], judged: list[frozenset[int]]) -> Iterator[Hot]:
    """Yield ranks that several slow transfers share, then what none explains."""
    left = slow
    of = defaultdict(set)
    for members in judged:
        for rank in members:
            of[rank].add(members)
    while left:
        common = _shared(left, of)
        if common is None:
            break
        yield _hot(Who.RANK, (common,), [each for each in left if common in each.members])
        left = [each for each in left if common not in each.members]
    alike = defaultdict(list)
    for each in left:
        alike[each.members].append(each)
    for members, units in alike.items():
        edge = units[0].edge
        kind = Who.RANK if len(members) == 1 else Who.GROUP if edge is None else Who.EDGE
        yield _hot(kind, edge if edge is not None else tuple(sorted(members)), units)


def _shared(left: list[_Unit], of: dict[int, set[frozenset[int]]]) -> int | None:
    """Return the rank that most slow transfers share, if at least two and most of its own do."""
    hot: dict[int, set[frozenset[int]]] = defaultdict(set)
    effect: dict[int, float] = defaultdict(float)
    for each in left:
        for rank in each.members:
            hot[rank].add(each.members)
            effect[rank] += each.effect
    ranks = [
        rank for rank, own in hot.items() if len(own) > 1 and len(own) >= _OF_ALL * len(of[rank])
    ]
    return max(ranks, key=lambda rank: (len(hot[rank]), effect[rank], -rank), default=None)


def _hot(kind: Who, ranks: tuple[int, ...], units: list[_Unit]) -> Hot:
    worst = max(units, key=lambda each: each.effect)
    return Hot(
        kind, ranks, sum(each.effect for each in units), worst.share, worst.times,
        ", ".join(sorted({each.what for each in units})),
    )  # fmt: skip


def _inside(case: Case, number: int) -> bool:
    """Return whether a unit is of a group that never leaves its host: an uplink is not in it."""
    return edge_of(number) is None and case.groups[group_of(number)].kind is GroupKind.TENSOR
