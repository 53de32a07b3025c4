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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.chance import chances
from analyzer.detect.operators.votes import BY_CHANCE, FEWEST_VOTES, Flags
from analyzer.operators.log import Group, GroupKind, Kind
from analyzer.operators.rows import Floats, Ints, Rows

STALLED = 0.04
"""Share of a usual step by which a transfer ends late. As much makes an iteration irregular:
Holmes' delta, as in the paper."""
LONG_STALL = 0.16
"""Share of a usual step from which a stall counts where those of `STALLED` tell nobody apart.
Chosen: four times that one. A time-out of TCP is 200 ms, what processors do to each other tens."""
APART = 6.0
"""Standard deviations of how late that transfer ends mostly. Algorithm A6's z. Chosen there."""
BY_ITSELF = 0.25
"""How often a rank is late by itself, or stalls inside its host, as a share of what a processor
that stops it at random would do, from which it is not the network that it waits for. Chosen."""
FEWEST_BY_ITSELF = 3.0
"""How often a processor would do so at least, for its not having done so to acquit it. Chosen: else
one of twenty that are stopped at random shows nothing of it."""
FEW = 0.25
"""Share of the steps below which stalls in a row are one: something that lasted. Chosen: of more,
many lie beside each other by chance."""
LONG = 0.1
"""Quantile of steps' lengths that is their usual one. Chosen: what stalls may do so in most."""
MOST_ROWS = 1 << 23
"""Operators of which stalls are looked for, with room for all in each step. Chosen: half a gigabyte
of work."""
MOST_NAMED = 8
"""Who are named at most; of more, nobody. Chosen: something else stalls then."""
_MOSTLY = 0.5
"""Share of the steps of ranks that have to be alike; and of a step that has to lie between its
beginning and the next one's, or else times begin anew. Chosen."""
_PAIR = 2
_PRIME, _ROOM = 0x9E3779B97F4A7C15, 12  # of a hash, of which a float has room for 52 bits


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
    """(steps, ranks) how much later than most a rank left the step before; NaN: not known."""


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Transfers: the same one in each step."""

    key: Ints
    """(meetings,) which members."""
    late_us: Floats
    """(steps, meetings) how much later it ended than by who began it last; NaN where not known."""


def stalled(
    rows: Rows, groups: tuple[Group, ...], step_us: Floats, own: Floats,
    hosts: Sequence[str | None],
) -> list[Stalled]:  # fmt: skip
    """Return who takes part in what stalls at times, who does most often first.

    `step_us`: (steps,) how long each takes. `own`, `hosts`: (ranks,) the share of a step that a
    rank works by itself, and where it is. Nobody where steps' times begin anew, ranks do other
    operators in each step, or too many stall for one to stand out.
    """
    if not 0 < len(rows.start) <= MOST_ROWS or len(rows.steps) < FEWEST_VOTES:
        return []
    columns = _columns(rows)
    if columns is None:
        return []
    members, key = _members(rows, columns, groups)
    met = _meetings(columns, key, members)
    late = _outstanding(met.late_us, step_us)
    # What ends late and lengthens no step holds nobody up.
    late[step_us <= (1 + STALLED) * np.nanquantile(step_us, LONG)] = 0.0
    inside = _inside(members, groups, dict(zip(rows.ranks.tolist(), hosts, strict=True)))
    stalls = _stalls(members, len(groups), replace(met, late_us=late), met.late_us, inside)
    alone = _alone(stalls, rows.ranks, _outstanding(_own(columns), step_us) > 0, own)
    for least_us in (0.0, LONG_STALL * float(np.nanmedian(step_us))):
        long = np.where(stalls.late_us > least_us, stalls.late_us, 0.0)
        named = _named(replace(stalls, late_us=long), rows.ranks, alone, float(np.nansum(step_us)))
        if named:
            return named
    return []


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
    if steps * width > MOST_ROWS:
        return None
    begin, end = np.full((2, steps, width), np.nan)
    at, step_of = column[kept], rows.step[kept]
    begin[step_of, at] = (rows.start - zero[block])[kept]
    end[step_of, at] = (rows.end - zero[block])[kept]
    size = np.frexp(np.maximum(rows.bytes, 0).astype(np.float64))[1]
    what = np.stack([rows.kind, rows.group, rows.peer, rows.op, size])[:, kept]
    told = np.full((len(what), width), -1)
    same = _mostly(what, step_of, at, (steps, width))
    told[:, at[same]] = what[:, same]
    # What the rank does there in some other steps is not compared with it.
    begin[step_of[~same], at[~same]] = end[step_of[~same], at[~same]] = np.nan
    own = np.repeat(np.arange(ranks), usual)
    carried = _carried(length, place, step, (steps, ranks))
    begin += carried[:, own] - _middle(begin)
    end += carried[:, own] - _middle(end)
    return _Columns(own, told[0], told[1], told[2], begin, end, carried)


def _mostly(what: Ints, step: Ints, column: Ints, shape: tuple[int, int]) -> Flags:
    """Return (rows,) which are what their column has in most steps; `what` is (fields, rows)."""
    code = np.zeros(what.shape[1], np.uint64)
    for each in what:
        code = (code ^ each.astype(np.uint64)) * np.uint64(_PRIME)
    number = (code >> np.uint64(_ROOM)).astype(np.float64)
    table = np.full(shape, np.nan)
    table[step, column] = number
    count = np.isfinite(table).sum(axis=0)
    usual = np.take_along_axis(np.sort(table, axis=0), np.maximum(count - 1, 0)[None] // 2, 0)[0]
    return np.asarray(number == usual[column])


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

    What is no more than jitter is forgotten, so that errors do not add up. NaN where it is not
    known: until a rank takes as much longer than usual as most do, which it does not that came
    late or early to whom it waits for.
    """
    took = np.full(shape, np.nan)
    took[step, place] = length
    over = took - _middle(took)
    over -= np.nanmedian(over, axis=1, keepdims=True)
    least = STALLED / 2 * float(np.nanmedian(took))
    carried = np.full(shape, np.nan)
    for n in range(1, len(took)):
        even = np.where(np.abs(over[n - 1]) <= least, 0.0, np.nan)
        late = np.where(np.isnan(carried[n - 1]), even, carried[n - 1] + over[n - 1])
        late -= np.nanmedian(late)
        carried[n] = np.where(np.abs(late) <= least, 0.0, late)
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
    rank, world = rows.ranks[columns.place], int(rows.ranks[-1]) + 1
    together = (columns.kind == Kind.COLLECTIVE) & (columns.group >= 0)
    # Others than its members take no part in a group, whatever they say.
    inside = [
        n * world + one for n, each in enumerate(groups) for one in each.members if one < world
    ]
    together &= np.isin(columns.group * world + rank, np.array(inside, np.int64))
    key[together] = columns.group[together]
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
    """What stalls, by who takes part in it: each set of ranks once."""

    members: list[tuple[int, ...]]
    """Of an edge the sender first, of the direction that stalls more."""
    edge: list[bool]
    late_us: Floats
    """(steps, sets): the longest of a step; zero where nothing stalls."""
    known: Ints
    """(sets,): in how many steps they are known."""
    inside: Flags
    """(sets,): whether all are on one host."""

    def events(self, sets: list[int]) -> int:
        """Return how often any of these stalls: few that follow each other are one."""
        stalls = (self.late_us[:, sets] > 0).any(axis=1)
        if (count := int(stalls.sum())) >= FEW * len(self.late_us):
            return count
        return int((np.diff(stalls, prepend=False) & stalls).sum())


def _inside(
    members: list[tuple[int, ...]], groups: tuple[Group, ...], hosts: dict[int, str | None]
) -> Flags:
    """Return of each whether it never leaves a host: a tensor group does not, nor does a host's."""
    tensor = [each.kind is GroupKind.TENSOR for each in groups]
    tensor += [False] * (len(members) - len(groups))
    of = [{hosts.get(rank) for rank in each} for each in members]
    one = [len(each) == 1 and None not in each for each in of]
    return np.array([a or b for a, b in zip(tensor, one, strict=True)], bool)


def _stalls(
    members: list[tuple[int, ...]], edges: int, met: _Meetings, every: Floats, inside: Flags
) -> _Stalls:
    """Put all transfers of the same ranks together. `edges`: from where on members are a pair."""
    of: dict[frozenset[int], list[int]] = defaultdict(list)
    keys, first = np.unique(met.key, return_index=True)  # meetings are in order of it
    shape = (len(met.late_us), len(keys))
    late, known = np.zeros(shape), np.zeros(shape, bool)
    if len(first):
        late = np.maximum.reduceat(met.late_us, first, axis=1)
        known = np.logical_or.reduceat(np.isfinite(every), first, axis=1)
    for n, which in enumerate(keys.tolist()):
        if len(members[which]) >= _PAIR:
            of[frozenset(members[which])].append(n)
    total = late.sum(axis=0)
    most = [keys[max(each, key=lambda n: total[n])] for each in of.values()]
    return _Stalls(
        [members[each] for each in most], [each >= edges for each in most],
        np.stack([late[:, each].max(axis=1) for each in of.values()], axis=1)
        if of else np.zeros((len(late), 0)),
        np.array([known[:, each].any(axis=1).sum() for each in of.values()], np.int64),
        np.array([inside[keys[each]].any() for each in of.values()], bool),
    )  # fmt: skip


def _alone(
    stalls: _Stalls, ranks: Ints, itself: Flags, own: Floats
) -> dict[int, tuple[int, float]]:
    """Return how often each rank is late by itself or within its host; and the share it works."""
    place = {rank: n for n, rank in enumerate(ranks.tolist())}
    for n in np.flatnonzero(stalls.inside).tolist():
        for rank in _apart(stalls.members[n], ranks):
            itself[:, place[rank]] |= stalls.late_us[:, n] > 0
    return {rank: (int(itself[:, n].sum()), float(own[n])) for rank, n in place.items()}


def _apart(members: tuple[int, ...], ranks: Ints) -> tuple[int, ...]:
    """Return the members; nobody of what all ranks do, which tells nobody apart."""
    return members if len(members) < len(ranks) else ()


def _named(
    stalls: _Stalls, ranks: Ints, late: dict[int, tuple[int, float]], total_us: float
) -> list[Stalled]:
    """Return who explains stalls that are more than chance, most first; nobody of too many.

    `late`: of each rank how often it is late by itself, and the share of a step that it works.
    """
    outside: dict[int, list[int]] = defaultdict(list)
    for n in np.flatnonzero(~stalls.inside).tolist():
        for rank in _apart(stalls.members[n], ranks):
            outside[rank].append(n)
    alone = {n: stalls.events([n]) for n in {n for sets in outside.values() for n in sets}}
    votes = {rank: stalls.events(sets) for rank, sets in outside.items()}
    found: list[Stalled] = []
    while outside:
        every = {rank: sum(alone[n] for n in sets) for rank, sets in outside.items()}
        first = max(votes, key=lambda rank: (votes[rank], every[rank], -rank))
        sets = outside[first]
        if votes[first] < FEWEST_VOTES or not _beyond_chance(
            stalls.known, alone, sets, votes[first], len(outside)
        ):
            break
        if len(found) == MOST_NAMED:
            return []
        hot = [each for each in sets if alone[each]]
        most = max(hot, key=lambda each: float(stalls.late_us[:, each].sum()))
        named = _stalled(stalls, hot, most, first, total_us)
        pair = stalls.members[most] if len(stalls.members[most]) == _PAIR else ()
        if not any(_starved(*late[rank], votes[first]) for rank in {*named.ranks, *pair}):
            found.append(named)
        stalls.late_us[:, sets] = 0
        alone |= dict.fromkeys(sets, 0)
        for rank in {rank for each in sets for rank in stalls.members[each]}:
            votes[rank] = stalls.events(outside[rank])
    return found


def _starved(times: int, own: float, votes: int) -> bool:
    """Return whether a rank may lack a processor, given how often it was late by itself.

    One that is stopped at random is so while it works as often as that is of its time.
    """
    wanted = votes * own / max(1 - own, 1 - _MOSTLY)
    return wanted < FEWEST_BY_ITSELF or times >= BY_ITSELF * min(wanted, votes)


def _beyond_chance(
    known: Ints, events: dict[int, int], mine: list[int], votes: int, ranks: int
) -> bool:
    """Return whether so many of all stalls are one of some ranks' by chance, by its sets' share.

    `known`: (sets,) in how many steps each is known. `events`: how often each stalls.
    """
    own = set(mine)
    others = sum(count for each, count in events.items() if each not in own)
    share = int(known[mine].sum()) / max(int(known[list(events)].sum()), 1)
    if share >= 1:
        return False
    chance = chances(np.array([votes]), np.array([votes + others]), share)[0]
    return bool(chance * ranks < BY_CHANCE)


def _stalled(stalls: _Stalls, hot: list[int], most: int, first: int, total_us: float) -> Stalled:
    worst = stalls.late_us[:, hot].max(axis=1)
    alone = len(hot) == 1
    return Stalled(
        stalls.members[most] if alone else (first,), alone and stalls.edge[most],
        int((worst > 0).sum()), float(np.median(worst[worst > 0])), float(worst.sum()) / total_us,
    )  # fmt: skip
