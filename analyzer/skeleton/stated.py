# SPDX-License-Identifier: Apache-2.0
"""A running job's skeleton, as its own operators state it, and whether they say all that it sends.

Sums say which groups there are, records of the last minute who sends to whom and how much. Hooks
see no collective that C++ issues by itself, and may be on in a part of a job only: so groups count
as the skeleton only where what they exchange accounts for what the task's endpoints send.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.keeper import PROBES
from analyzer.operators.log import UNKNOWN, GroupKind, Kind, Log, Place, State, log_of
from analyzer.skeleton.infer import Skeleton
from analyzer.skeleton.logged import Ends, logged
from analyzer.skeleton.series import basic_edges
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

FOR_PEOPLE = 4096
"""Most bytes of a collective of all ranks that does not count as the job's exchange. Chosen: norms,
losses and barriers have some; gradients have more, and then every pair is used."""
UNTOLD = 1.5
"""Most that a task's endpoints may send, as a multiple of what its operators account for. Chosen:
headers and retransmissions are some percent, a data parallel exchange that is not seen is most."""
IDLE_BYTES_PER_S = 65_536
"""Bytes per second and endpoint that need no account. Chosen: twice what netagent's own probes
send."""
AS_OTHERS = 4.0
"""Most that what one rank says it sent accounts for, as a multiple of the ranks' median. Chosen:
stages of a pipeline differ by less, and no rank's word stands for what all others send."""
_GATHERS = ("gather", "broadcast", "scatter_object")
"""In the name of what sends each rank's bytes to all others."""

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Stated:
    """What operators say that a task uses."""

    skeleton: Skeleton
    """Its rows are `members`; not confident, with the reason, where they do not say it all."""
    members: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of a running job."""

    sums: Log
    """Which groups there are, by `Keeper.log`."""
    records: Log
    """Of the last minute, of the ranks that were asked."""
    ends: Mapping[int, tuple[EndpointId, ...]]
    """By rank."""
    transferring: frozenset[int]
    """Ranks that send or receive, as their hosts' sums say."""
    incomplete: frozenset[int]
    """Ranks of which some operations were not recorded."""
    sent_bytes: float
    """What the task's endpoints sent in that minute; NaN where that is not known."""
    seconds: float


def stated(given: Given, members: tuple[Endpoint, ...], seen: set[Pair]) -> Stated:
    """Return the skeleton of a task with these endpoints.

    `seen` has who was seen to send to whom, and grows: an iteration may be longer than what is
    recorded of it.
    """
    ends = ends_of(members)
    found = transfers(given.records)
    # What names nobody is judged now, and not remembered: a rank may name any number.
    seen |= {pair for pair in found if given.ends.keys() >= set(pair)}
    if lack := _lack(given, members):
        return Stated(
            Skeleton(0.0, lack, 0, 0, 0, 0, {}, basic_edges(ends.host, ends.rail)), members
        )
    return Stated(logged(_whole(given, seen | found), ends), members)


def ends_of(members: Iterable[Endpoint]) -> Ends:
    """Return endpoints as rows."""
    every = tuple(members)
    hosts = {host: n for n, host in enumerate(sorted({each.host for each in every}))}
    return Ends(
        tuple(str(each.id) for each in every),
        np.asarray([hosts[each.host] for each in every], np.int64),
        np.asarray([each.id.rail for each in every], np.int64),
    )


def transfers(records: Log) -> set[Pair]:
    """Return who was seen to send to whom, the smaller rank first."""
    sent = records.take(_direct(records))
    both = np.unique(np.stack([sent.rank, sent.peer], axis=1), axis=0)
    return {(min(one, two), max(one, two)) for one, two in both.tolist()}


def _direct(records: Log) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isin(records.kind, (Kind.SEND, Kind.RECV)) & (
        records.peer != UNKNOWN
    )
    return found


def accounted_bytes(records: Log) -> float:
    """Return what the ranks of a log sent at most over the network for what ended."""
    ended = (records.state == State.ENDED) & (records.bytes > 0)
    sizes = np.append(np.maximum(1, _seen_in(records)), 1)  # of no group
    gathers = np.asarray([any(word in op for word in _GATHERS) for op in records.ops])
    # Rings send what is reduced twice, and a gathered part to each other member.
    size = sizes[records.group]
    times: NDArray[np.int64] = np.where(gathers[records.op], np.maximum(1, size - 1), 2)
    times = np.where(records.kind == Kind.SEND, 1, times)
    sends = ended & np.isin(records.kind, (Kind.COLLECTIVE, Kind.SEND))
    each = defaultdict[int, float](float, dict.fromkeys(records.places, 0.0))
    for rank, sent in zip(
        records.rank[sends].tolist(), (1.0 * records.bytes * times)[sends], strict=True
    ):
        each[rank] += float(sent)
    most = AS_OTHERS * median_low(each.values()) if each else 0.0
    return sum(min(sent, most) for sent in each.values())


def _seen_in(records: Log) -> NDArray[np.int64]:
    """Return how many ranks recorded something in each group (n_groups,).

    Its members, as the log has them, are one host's word.
    """
    both = np.stack([records.group, records.rank], axis=1)[records.group != UNKNOWN]
    groups = np.unique(both, axis=0)[:, 0]
    return np.bincount(groups, minlength=len(records.groups)).astype(np.int64)


def _lack(given: Given, members: Collection[Endpoint]) -> str:
    """Return what is not known of what the job exchanges; empty where all is."""
    if given.records.source == PROBES:
        return "sums of what probes see do not say who is in a group"
    unseen = given.transferring - set(given.records.rank[_direct(given.records)].tolist())
    if unseen:
        return f"to whom {len(unseen)} ranks send is not in their records"
    if given.incomplete:
        return f"of {len(given.incomplete)} ranks not every operation is recorded"
    if (largest := _of_all(given.records, given.sums.world)) > FOR_PEOPLE:
        return f"all ranks exchange {largest} bytes at a time: every pair is used"
    accounted = UNTOLD * accounted_bytes(given.records)
    accounted += IDLE_BYTES_PER_S * given.seconds * len(members)
    if not given.sent_bytes <= accounted:  # nor where it is not known
        return "the operators do not account for what the endpoints send"
    return ""


def _of_all(records: Log, world: int) -> int:
    """Return the size of the largest collective of all ranks."""
    wide = np.asarray(
        [
            group.kind is GroupKind.WORLD or max(len(group.members), seen) >= world
            for group, seen in zip(records.groups, _seen_in(records).tolist(), strict=True)
        ]
        + [False]  # of no group
    )
    mine = wide[records.group] & (records.kind == Kind.COLLECTIVE)
    return int(records.bytes[mine].max(initial=0))


def _whole(given: Given, seen: Iterable[Pair]) -> Log:
    """Return the log of a job's groups, places and pairs."""
    sums, pairs = given.sums, sorted(seen)
    places = {
        rank: replace(
            given.sums.places.get(rank, Place()), endpoints=tuple(map(str, given.ends[rank]))
        )
        for rank in given.ends
    }
    columns = {
        "rank": [*sums.rank.tolist(), *(one for one, _ in pairs)],
        "group": [*sums.group.tolist(), *(UNKNOWN for _ in pairs)],
        "kind": [*sums.kind.tolist(), *(int(Kind.SEND) for _ in pairs)],
        "peer": [*sums.peer.tolist(), *(two for _, two in pairs)],
    }
    return log_of(columns, groups=sums.groups, places=places, world=sums.world, unseen=sums.unseen)
