# SPDX-License-Identifier: Apache-2.0
"""Which transfers stall at times: what a link that loses some packets does to a job.

Few packets lost are mostly sent again at once, and steps are as long as ever; now and then one
waits for a time-out, and that iteration is long. So nothing is slow in the median. Such an
iteration is walked back (Holmes, NSDI '25): each operator begins and ends in it so much later than
usual, by its rank's own clock, and the one at fault ends late although all who take part in it
began in time. An operator that began late only hands on what was before it.

How late is measured from the end of the step before. Who left that one late by itself would seem
in time, and whoever waits for it late: so what a rank was later than most others is carried over.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.chance import chances
from analyzer.detect.operators.votes import BY_CHANCE, FEWEST_VOTES, Flags
from analyzer.operators.log import Group, GroupKind, Kind
from analyzer.operators.rows import Floats, Ints, Rows

STALLED = 0.04
"""Share of a usual step by which a transfer ends late. As much makes an iteration irregular:
Holmes' delta, as in the paper."""
APART = 6.0
"""Standard deviations of how late that transfer ends mostly. Algorithm A6's z. Chosen there."""
BY_ITSELF = 0.25
"""How often, as a share of its stalls, a rank is late by itself, or in a group inside its host,
from which it is not the network that it waits for, but a processor. Chosen."""
MOST_ROWS = 1 << 23
"""Operators of which stalls are looked for. Chosen: half a gigabyte of work."""
MOST_NAMED = 8
"""Who are named at most. Chosen: of more, something else stalls."""
_MOSTLY = 0.5
"""Share of the steps of ranks that have to be alike; and of a step that has to lie between its
beginning and the next one's, or else times begin anew. Chosen."""
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Stalled:
    """Who takes part in what stalls."""

    ranks: tuple[int, ...]
    """A rank with several partners, or sender and receiver, or a group."""
    edge: bool
    """Whether these are a sender and a receiver."""
    steps: int
    """In how many it was."""
    late_us: float
    """How late such a transfer ends, by the median."""
    effect: float
    """What it costs, as a share of all steps."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """What each rank does in a step, one operator a column."""

    place: Ints
    """(columns,) of the rank among the rows' ranks."""
    kind: Ints
    group: Ints
    peer: Ints
    begin: Floats
    """(steps, columns) how much later than usual it began, and ended; NaN where not known."""
    end: Floats
    carried: Floats
    """(steps, ranks) how much later than most a rank left the step before."""


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Transfers: the same one in each step."""

    key: Ints
    """(meetings,) which members."""
    late_us: Floats
    """(steps, meetings) how much later it ended than by who began it last; NaN where not known."""


def stalled(rows: Rows, groups: tuple[Group, ...], step_us: Floats) -> list[Stalled]:
    """Return who takes part in what stalls at times, who does most often first.

    `step_us`: (steps,) how long each takes. Nobody where steps' times begin anew, or ranks do
    other operators in each step.
    """
    if not 0 < len(rows.start) <= MOST_ROWS or len(rows.steps) < FEWEST_VOTES:
        return []
    columns = _columns(rows)
    if columns is None:
        return []
    members, key = _members(rows, columns, groups)
    met = _meetings(columns, key, members)
    late = _outstanding(met.late_us, step_us)
    own = _outstanding(_own(columns), step_us) > 0
    stalls = _stalls(members, groups, replace(met, late_us=late), rows.ranks, own)
    return _named(stalls, float(np.nansum(step_us)))


def _outstanding(late_us: Floats, step_us: Floats) -> Floats:
    """Return what of (steps, n) makes a step irregular, and is not as usual there; else zero."""
    wide = 1.4826 * _middle(np.abs(late_us - _middle(late_us)))
    least = np.maximum(STALLED * np.nanmedian(step_us), APART * wide)
    return np.where(late_us > least, late_us, 0.0)


# --- how late each operator is -----------------------------------------------------------------


def _columns(rows: Rows) -> _Columns | None:
    """Return what ranks do in each step; None where that is not comparable."""
    first, ranks, steps = rows.first, len(rows.ranks), len(rows.steps)
    count = np.diff(np.append(first, len(rows.start)))
    place, step = rows.place[first], rows.step[first]
    usual = np.zeros(ranks, np.int64)
    different, begins = np.unique(place, return_index=True)
    for each, counts in zip(different, np.split(count, begins[1:]), strict=True):
        usual[each] = Counter(counts.tolist()).most_common(1)[0][0]
    whole = count == usual[place]
    zero, length = _zeros(rows, place, step)
    comparable = whole & np.isfinite(zero)
    if comparable.sum() < _MOSTLY * len(first):
        return None
    base = np.cumsum(usual) - usual
    block = np.repeat(np.arange(len(first)), count)
    column = base[rows.place] + np.arange(len(rows.start)) - first[block]
    kept = comparable[block]
    width = int(usual.sum())
    begin, end = np.full((2, steps, width), np.nan)
    at, step_of = column[kept], rows.step[kept]
    begin[step_of, at] = (rows.start - zero[block])[kept]
    end[step_of, at] = (rows.end - zero[block])[kept]
    what, told = np.stack([rows.kind, rows.group, rows.peer])[:, kept], np.full((3, width), -1)
    told[:, at] = what
    other = (what != told[:, at]).any(axis=0)  # not what the rank does there in other steps
    begin[step_of[other], at[other]] = np.nan
    own = np.repeat(np.arange(ranks), usual)
    carried = _carried(length, place, step, (steps, ranks))
    begin += carried[:, own] - _middle(begin)
    end += carried[:, own] - _middle(end)
    return _Columns(own, told[0], told[1], told[2], begin, end, carried)


def _middle(values: Floats) -> Floats:
    """Return the medians of columns, but for NaN. `np.nanmedian` takes ten times as long."""
    ordered = np.sort(values, axis=0)
    count = np.isfinite(values).sum(axis=0)
    at = np.stack([np.maximum(count - 1, 0) // 2, count // 2])
    return np.asarray(np.take_along_axis(ordered, np.minimum(at, len(values) - 1), 0).mean(axis=0))


def _zeros(rows: Rows, place: Ints, step: Ints) -> tuple[Floats, Floats]:
    """Return of each step of a rank the end of the one before, and how long it took since then.

    NaN where the one before is not known, or times begin anew.
    """
    begins, ends = rows.start[rows.first], np.maximum.reduceat(rows.end, rows.first)
    zero = np.full(len(begins), np.nan)
    before = (np.diff(place) == 0) & (np.diff(step) == 1)
    before &= np.diff(begins) > _MOSTLY * (ends - begins)[:-1]
    before &= begins[1:] - ends[:-1] < (ends - begins)[:-1]  # else some steps may be left out
    zero[1:] = np.where(before, ends[:-1], np.nan)
    return zero, ends - zero


def _carried(length: Floats, place: Ints, step: Ints, shape: tuple[int, int]) -> Floats:
    """Return (steps, ranks) how much later than most a rank left the step before.

    What is no more than jitter is forgotten, so that errors do not add up.
    """
    took = np.full(shape, np.nan)
    took[step, place] = length
    over = np.nan_to_num(took - np.nanmedian(took, axis=0))
    least = STALLED / 2 * float(np.nanmedian(took))
    carried = np.zeros(shape)
    for n in range(1, len(took)):
        late = carried[n - 1] + over[n - 1]
        late -= np.median(late)
        carried[n] = np.where(np.abs(late) > least, late, 0.0)
    return carried


def _own(columns: _Columns) -> Floats:
    """Return (steps, ranks) by how much a rank became late most, where nobody else made it so.

    In what it computes, or before something that it began later than all that it had ended.
    """
    begin, end, place = columns.begin, columns.end, columns.place
    works = ~np.isin(columns.kind, (Kind.COLLECTIVE, Kind.SEND, Kind.RECV))
    first = np.flatnonzero(np.diff(place, prepend=-1))
    ended = np.nan_to_num(end, nan=0.0)
    lift = place * (2 * float(np.abs(ended).max(initial=0)) + 1.0)  # one running maximum over all
    latest = np.maximum.accumulate(ended + lift, axis=1) - lift
    before = np.empty_like(latest)
    before[:, 1:] = latest[:, :-1]
    before[:, first] = columns.carried[:, place[first]]
    late = np.maximum(begin - before, np.where(works, end - begin, 0.0))
    made = np.zeros_like(columns.carried)
    made[:, place[first]] = np.maximum.reduceat(np.nan_to_num(late, nan=0.0), first, axis=1)
    return made


# --- which transfers are late by themselves ----------------------------------------------------


def _members(
    rows: Rows, columns: _Columns, groups: tuple[Group, ...]
) -> tuple[list[tuple[int, ...]], Ints]:
    """Return who may take part in transfers, and of each column in which of them it is, or -1."""
    key = np.full(len(columns.kind), -1, np.int64)
    together = (columns.kind == Kind.COLLECTIVE) & (columns.group >= 0)
    key[together] = columns.group[together]
    rank = rows.ranks[columns.place]
    sent = (columns.kind == Kind.SEND) & (columns.peer >= 0)
    got = (columns.kind == Kind.RECV) & (columns.peer >= 0)
    edges = np.concatenate([
        np.stack([rank[sent], columns.peer[sent]], axis=1),
        np.stack([columns.peer[got], rank[got]], axis=1),
    ])  # fmt: skip
    different, which = np.unique(edges, axis=0, return_inverse=True)
    which = which.reshape(-1) + len(groups)
    key[sent], key[got] = which[: sent.sum()], which[sent.sum() :]
    pairs = [(int(source), int(target)) for source, target in different]
    return [*(each.members for each in groups), *pairs], key


def _meetings(columns: _Columns, key: Ints, members: list[tuple[int, ...]]) -> _Meetings:
    """Return the transfers in which all members are, and how late each ended by itself."""
    taking = np.flatnonzero(key >= 0)
    # Of a rank in a group, or at one end of an edge, the first, the second, ... in each step.
    order = taking[np.lexsort((taking, columns.place[taking], key[taking]))]
    new = (np.diff(key[order], prepend=-1) != 0) | (np.diff(columns.place[order], prepend=-1) != 0)
    nth = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    at = np.lexsort((nth, key[order]))
    order, nth = order[at], nth[at]
    first = np.flatnonzero((np.diff(key[order], prepend=-1) != 0) | (np.diff(nth, prepend=-1) != 0))
    if not len(first):
        return _Meetings(np.zeros(0, np.int64), np.zeros((len(columns.begin), 0)))
    begun = np.maximum.reduceat(columns.begin[:, order], first, axis=1)
    # What is sent may be under way when its sender is done with it.
    sends = columns.kind[order] == Kind.SEND
    ended = np.minimum.reduceat(np.where(sends, np.inf, columns.end[:, order]), first, axis=1)
    wanted = np.array([len(each) for each in members], np.int64)[key[order[first]]]
    all_in = np.diff(np.append(first, len(order))) == wanted
    late = (ended - begun)[:, all_in]
    return _Meetings(key[order[first]][all_in], np.where(np.isfinite(late), late, np.nan))


# --- who it is ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stalls:
    """What stalls, by who takes part in it."""

    members: list[tuple[int, ...]]
    edges: int
    """From which place on members are a sender and a receiver."""
    late_us: Floats
    """(steps, members): the longest of a step; zero where nothing stalls."""
    outside: dict[int, list[int]]
    """By rank, places of members that may be on several hosts."""
    itself: dict[int, int]
    """By rank, in how many steps it was late by itself, or stalled inside its host."""

    def votes(self, own: list[int]) -> int:
        """Return in how many steps any of these stalls."""
        return int((self.late_us[:, own] > 0).any(axis=1).sum())


def _stalls(
    members: list[tuple[int, ...]], groups: tuple[Group, ...], met: _Meetings, ranks: Ints,
    own: Flags,
) -> _Stalls:  # fmt: skip
    """Put all transfers of the same members together, but for those in which all ranks are.

    `own`: (steps, ranks) who was late by itself.
    """
    longest, itself = np.zeros((len(own), len(members))), own.copy()
    outside: dict[int, list[int]] = defaultdict(list)
    place = {int(rank): n for n, rank in enumerate(ranks)}
    # Meetings are in order of who takes part.
    which_of, first = np.unique(met.key, return_index=True)
    if len(first):
        longest[:, which_of] = np.maximum.reduceat(met.late_us, first, axis=1)
    for which in which_of.tolist():
        if not _PAIR <= len(members[which]) < len(ranks):
            continue
        for rank in members[which]:
            if which < len(groups) and groups[which].kind is GroupKind.TENSOR:
                itself[:, place[rank]] |= longest[:, which] > 0
            else:
                outside[rank].append(which)
    counts = {rank: int(itself[:, n].sum()) for rank, n in place.items()}
    return _Stalls(members, len(groups), longest, outside, counts)


def _named(stalls: _Stalls, total_us: float) -> list[Stalled]:
    """Return who explains stalls that are more than chance, most first."""
    found: list[Stalled] = []
    for _ in range(MOST_NAMED if stalls.outside else 0):
        votes = {rank: stalls.votes(own) for rank, own in stalls.outside.items()}
        first = max(votes, key=lambda rank: (votes[rank], -rank))
        own = stalls.outside[first]
        hot = [each for each in own if stalls.votes([each])]
        if votes[first] < FEWEST_VOTES or not _beyond_chance(stalls, hot, first, votes):
            break
        named = _stalled(stalls, hot, first, total_us)
        if max(stalls.itself[rank] for rank in named.ranks) < BY_ITSELF * votes[first]:
            found.append(named)
        stalls.late_us[:, own] = 0
    return found


def _beyond_chance(stalls: _Stalls, hot: list[int], first: int, votes: dict[int, int]) -> bool:
    """Return whether a rank's transfers stall more often than those of ranks it has none with."""
    touched = {rank for each in hot for rank in stalls.members[each]}
    others = [count for rank, count in votes.items() if rank not in touched]
    steps = len(stalls.late_us)
    rate = (sum(others) + 0.5) / (len(others) * steps + 1.0)
    chance = chances(np.array([votes[first]]), np.array([steps]), min(rate, 0.999))[0]
    return bool(chance * len(votes) < BY_CHANCE)


def _stalled(stalls: _Stalls, hot: list[int], first: int, total_us: float) -> Stalled:
    worst = stalls.late_us[:, hot].max(axis=1)
    most = max(hot, key=lambda each: float(stalls.late_us[:, each].sum()))
    alone = len({frozenset(stalls.members[each]) for each in hot}) == 1
    return Stalled(
        stalls.members[most] if alone else (first,), alone and most >= stalls.edges,
        int((worst > 0).sum()), float(np.median(worst[worst > 0])), float(worst.sum()) / total_us,
    )  # fmt: skip
