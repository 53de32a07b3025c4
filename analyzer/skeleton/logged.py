# SPDX-License-Identifier: Apache-2.0
"""A task's skeleton from a log of its operators, and whether its traffic says the same.

The log names the groups, so nothing is inferred: cliques over replicas, experts and tensor ranks,
chains over pipelines, and whoever was seen to send to whom. Ranks of one tensor group on one host
are pooled: what changes the rail takes NVLink between them, so two groups that exchange something
use all pairs of their RNICs that are on one rail of two hosts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzer.operators.log import UNKNOWN, Group, GroupKind, Kind, Log
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.series import Ints, basic_edges, carried, unique_edges

EXAMPLES = 3
"""Most pairs that a disagreement names. Chosen: enough to look for them."""
MOST_PAIRS = 1 << 22
"""Most pairs of endpoints, of any rails, that pairs of ranks make. Chosen: a hundred times those of
the largest job whose records are asked for whole."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The endpoints of a task; row i of everything is endpoint i."""

    names: tuple[str, ...]
    """`container/railN`."""
    host: Ints
    """(n_endpoints,): number of the endpoint's host."""
    rail: Ints
    """(n_endpoints,): number of its rail."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What a task sends is not what its operators say: one of both is of something else."""

    text: str
    """One sentence for people."""
    evidence: tuple[str, ...]
    unsent: int
    """Pairs that operators use, and the traffic's skeleton leaves out."""
    untold: int
    """Pairs that the traffic's skeleton has, and operators do not use; 0 for a superset."""


def logged(log: Log, ends: Ends) -> Skeleton:
    """Return the skeleton that a log of operators states; its rows are those of `ends`.

    It is the basic list, with the reason, where the log does not say it all: a pair that the job
    uses is never left out.
    """
    rows = _rows(log, ends)
    members = {number: _members(log, number) for number in range(len(log.groups))}
    if lack := _lack(log, rows, members, ends):
        groups: dict[str, list[list[int]]] = {"dp": [], "pp": [], "ep": []}
        return Skeleton(0.0, lack, 0, 0, 0, 0, groups, basic_edges(ends.host, ends.rail))
    edges = _edges(_talking(log, members), _pools(log, rows, members), ends)
    if edges is None:
        lack = f"its ranks' endpoints make more than {MOST_PAIRS} pairs"
        return Skeleton(0.0, lack, 0, 0, 0, 0, {}, basic_edges(ends.host, ends.rail))
    sizes = {kind: [len(m) for _, m in _of(log, members, kind)] for kind in GroupKind}
    dp, pp, tp, ep = (
        max(sizes[kind], default=1)
        for kind in (GroupKind.DATA, GroupKind.PIPELINE, GroupKind.TENSOR, GroupKind.EXPERT)
    )
    named = {
        kind.value: [
            sorted({row for rank in each for row in rows[rank]})
            for _, each in _of(log, members, kind)
            if len(each) > 1
        ]
        for kind in (GroupKind.DATA, GroupKind.PIPELINE, GroupKind.EXPERT)
    }
    return Skeleton(1.0, "", dp, pp, tp, ep, named, edges)


def disagreement(found: Skeleton, told: Skeleton, ends: Ends) -> Disagreement | None:
    """Return how a skeleton of traffic contradicts one of operators; None where neither is sure.

    A superset has pairs that no operator uses, by its nature.
    """
    if not (found.confident and told.confident):
        return None
    sent, said = (set(map(tuple, each.edges.tolist())) for each in (found, told))
    unsent, untold = sorted(said - sent), [] if found.superset else sorted(sent - said)
    if not unsent and not untold:
        return None
    evidence = [_named("used by operators, not by the traffic's groups", unsent, ends)]
    evidence.append(_named("by the traffic's groups, used by no operator", untold, ends))
    evidence.append(f"operators: {_degrees(told)}; traffic: {_degrees(found)}")
    text = (
        f"the operators' groups use {len(unsent)} pairs that the traffic's leave out, and leave"
        f" out {len(untold)} that it has: the log is of another job, or ranks are placed wrongly"
    )
    return Disagreement(text, tuple(filter(None, evidence)), len(unsent), len(untold))


def _rows(log: Log, ends: Ends) -> dict[int, tuple[int, ...]]:
    """Return the rows of each rank's endpoints, as far as they are the task's."""
    at = {name: row for row, name in enumerate(ends.names)}
    return {
        rank: tuple(at[name] for name in place.endpoints if name in at)
        for rank, place in log.places.items()
    }


def _members(log: Log, number: int) -> tuple[int, ...]:
    """Return the ranks of a group: as the source says, else those seen in it."""
    group: Group = log.groups[number]
    return group.members or tuple(np.unique(log.rank[log.group == number]).tolist())


def _lack(
    log: Log, rows: dict[int, tuple[int, ...]], members: dict[int, tuple[int, ...]], ends: Ends
) -> str:
    """Return what the log does not say; empty where it says it all."""
    ranks = set(range(log.world)).union(*members.values(), _seen(log.peer))
    homeless = [rank for rank in sorted(ranks) if rank not in log.places]
    if homeless:
        return f"the log does not say where {len(homeless)} of {len(ranks)} ranks are"
    left = set(range(len(ends.names))) - {row for each in rows.values() for row in each}
    if left:
        return f"no rank of the log is at {len(left)} of {len(ends.names)} endpoints"
    alone = ranks.difference(*(each for n, each in members.items() if _tells(log, n, len(each))))
    if alone:
        return f"no group of the log is said to have {len(alone)} of {len(ranks)} ranks"
    unsaid = [n for n in members if not log.groups[n].members and log.unseen]
    if unsaid:
        return f"members of {len(unsaid)} groups are not said, and ranks without a log may be some"
    stages = {place.pp for place in log.places.values()} - {UNKNOWN}
    linked = any(group.kind is GroupKind.PIPELINE for group in log.groups)
    if len(stages) > 1 and not linked and not np.isin(log.kind, (Kind.SEND, Kind.RECV)).any():
        return f"the log has {len(stages)} stages, and not who sends to whom"
    return ""


def _seen(numbers: np.ndarray) -> list[int]:
    return [int(each) for each in np.unique(numbers) if each != UNKNOWN]


def _tells(log: Log, number: int, size: int) -> bool:
    """Whether a group says with whom its members exchange what an iteration is about."""
    kind = log.groups[number].kind
    if kind is GroupKind.UNKNOWN:
        return size < log.world  # of all ranks: a barrier, or what is summed up for people
    return kind not in (GroupKind.WORLD, GroupKind.TENSOR)


def _of(
    log: Log, members: dict[int, tuple[int, ...]], kind: GroupKind
) -> Iterator[tuple[int, tuple[int, ...]]]:
    return ((n, each) for n, each in members.items() if log.groups[n].kind is kind)


def _pools(
    log: Log, rows: dict[int, tuple[int, ...]], members: dict[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the rows that a rank may send from: those of its tensor group on its own host."""
    pooled = {rank: set(each) for rank, each in rows.items()}
    for _, ranks in _of(log, members, GroupKind.TENSOR):
        by_host: defaultdict[str | None, set[int]] = defaultdict(set)
        for rank in ranks:
            by_host[log.places[rank].host].update(rows[rank])
        for rank in ranks:
            pooled[rank] |= by_host[log.places[rank].host]
    return {rank: tuple(sorted(each)) for rank, each in pooled.items()}


def _talking(log: Log, members: dict[int, tuple[int, ...]]) -> Ints:
    """Return (n, 2) pairs of ranks that exchange something."""
    found = [np.empty((0, 2), np.int64)]
    for number, ranks in members.items():
        if log.groups[number].kind is GroupKind.PIPELINE:
            chain = sorted(ranks, key=lambda rank: (log.places[rank].pp, rank))
            found.append(np.asarray(list(pairwise(chain)), np.int64).reshape(-1, 2))
        elif _tells(log, number, len(ranks)) or log.groups[number].kind is GroupKind.TENSOR:
            found.append(np.asarray(ranks, np.int64)[np.stack(np.triu_indices(len(ranks), 1), 1)])
    direct = np.isin(log.kind, (Kind.SEND, Kind.RECV)) & (log.peer != UNKNOWN)
    found.append(np.stack([log.rank[direct], log.peer[direct]], axis=1).astype(np.int64))
    return np.concatenate(found)


def _edges(pairs: Ints, pools: dict[int, tuple[int, ...]], ends: Ends) -> Ints | None:
    """Return the pairs of endpoints that pairs of ranks use; None where they are too many."""
    kinds = sorted(set(pools.values()))
    at = {pool: number for number, pool in enumerate(kinds)}
    number = np.zeros(max(pools, default=0) + 1, np.int64)
    for rank, pool in pools.items():
        number[rank] = at[pool]
    parts = []
    between = unique_edges([number[pairs]])
    sizes = np.array([len(each) for each in kinds] or [0], np.int64)
    if int((sizes[between[:, 0]] * sizes[between[:, 1]]).sum()) > MOST_PAIRS:
        return None
    for one, two in between.tolist():
        mine, theirs = (np.asarray(kinds[each], np.int64) for each in (one, two))
        both = np.stack([np.repeat(mine, len(theirs)), np.tile(theirs, len(mine))], axis=1)
        parts.append(carried(both, ends.host, ends.rail))
    return unique_edges(parts)


def _named(what: str, pairs: Sequence[tuple[int, int]], ends: Ends) -> str:
    some = ", ".join(f"{ends.names[one]} - {ends.names[two]}" for one, two in pairs[:EXAMPLES])
    more = f" and {len(pairs) - EXAMPLES} more" if len(pairs) > EXAMPLES else ""
    return f"{what}: {some}{more}" if pairs else ""


def _degrees(each: Skeleton) -> str:
    if each.superset:
        return f"{each.pp} stages of {each.dp}"
    return f"DP {each.dp} PP {each.pp} TP {each.tp} EP {each.ep}"
