# SPDX-License-Identifier: Apache-2.0
"""What hosts count of packets that end at each router of a way.

In a fabric of two segments, every probe that crosses one link of a spine crosses the other. So no
number of probes decides between them. Packets that end at a router on the way do.

Where no trace shows the ways of flows, as where RNICs encapsulate, all parallel links are such a
tie. Then hosts look for the ways themselves, with packets of their own, and count on each.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from types import MappingProxyType

from analyzer.localize.incidence import Part, Route
from analyzer.localize.topology import LearnedTopology, Leg
from analyzer.localize.voting.election import Ballot
from netagent.model.ids import FlowId
from netagent.model.path import Component, Kind, link, link_ends, switch
from netagent.wire.messages import PathAnswer

FABRIC = {Kind.SWITCH, Kind.LINK}
SURE_HOPS = 2
"""Routers at the begin of a path whose silence proves a loss. Chosen: a leaf and the spine above it
answer over the link that the packet took; farther answers may take another."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A flow to count on; or between whose two VTEPs to count, on up to so many `ways`."""

    flow: FlowId
    ways: int = 0
    over_ms: int = 0
    """Milliseconds over which to count on these."""


@dataclass(frozen=True, slots=True)
class Count:
    """What the host of a flow's source counted along one way."""

    flow: FlowId
    answer: PathAnswer
    routers: Route
    """Names, nearest first; "" where one was silent. What the answer counted goes with them."""
    sure: int
    """Routers at the begin whose silence proves a loss: their answers come back as the packet
    went."""
    own: bool = False
    """Whether the host found the way by itself: no probe of the flow need have taken it."""
    window_ns: int = 0
    """Start of the window for whose sake packets were counted."""


def middle(route: Sequence[str]) -> int:
    """Return how many routers of a whole route lead up, the topmost one included.

    From those an answer has one way back, the one that the packet came by.
    """
    return (len(route) + 1) // 2


def counted_on(wanted: Wanted, answer: PathAnswer, topology: LearnedTopology) -> Count:
    """Return what was counted, with the names of the routers."""
    if wanted.ways:
        routers = tuple(map(topology.name, answer.hops))
        return Count(wanted.flow, answer, routers, middle(routers), own=True)
    return Count(wanted.flow, answer, _routers(wanted.flow, answer, topology), SURE_HOPS)


def ballot_of(
    count: Count,
    n: int,
    sent: int,
    lost: int,
    crossed: Collection[Component],
    maybe: Mapping[Component, float] = MappingProxyType({}),
    unseen: float = 0.0,
) -> Ballot:
    """Return what became of packets that ended at the `n`-th router of a way, as a ballot.

    They crossed `crossed`, and `maybe` with these probabilities; `unseen` is that of answers that
    came back on a way that is not known.
    """
    pair = (count.flow.source, count.flow.target)
    # A router's answer comes back the way that the packet went.
    routed = frozenset(each for each in crossed if each.kind in FABRIC)
    ends = [link_ends(each) for each in routed if each.kind is Kind.LINK]
    there = frozenset[Part]((*routed, *ends))
    back = frozenset[Part]((*routed, *((b, a) for a, b in ends)))
    legs: list[Leg] = [((there, 1.0),), ((back, 1.0),)]
    legs += [
        ((frozenset[Part]({component}), share), (frozenset[Part](), 1.0 - share))
        for component, share in maybe.items()
    ]
    way = (count.flow, (count.window_ns, count.answer.outer_port))
    return Ballot(
        pair, sent, lost, frozenset(crossed), (*way, n), maybe, unseen, tuple(legs), way=way
    )


def _routers(flow: FlowId, answer: PathAnswer, topology: LearnedTopology) -> Route:
    # Routers that answered now go before those of the last complete path: after a failure flows
    # take other paths. One that answers again says that it can send no farther, not where it is.
    known = topology.hops(flow, reply=False) or ()
    named = [topology.name(hop) for hop in answer.hops]
    now = tuple("" if name in named[:n] else name for n, name in enumerate(named))
    return tuple(a or b for a, b in zip_longest(now[: len(known)], known, fillvalue=""))


def crossed_to(hops: Sequence[str], count: int) -> set[Component]:
    """Return the first `count` routers of a way, and the links between those that are known."""
    way = hops[:count]
    return {switch(name) for name in way if name} | {
        link(a, b) for a, b in pairwise(way) if a and b
    }


def meet(one: Component, other: Component) -> bool:
    """Return whether two links end at one switch."""
    both = one.kind is other.kind is Kind.LINK and one != other
    return both and not set(link_ends(one)).isdisjoint(link_ends(other))
