# SPDX-License-Identifier: Apache-2.0
"""Flows that lost nothing on ways that are known, or not known at all: nearly all of a window.

Each probe that arrived speaks for everything that it crossed, and for each thing by itself. So it
makes no difference how these flows are put together: their probes are counted by route and by
endpoint, and no ballot is made of any of them.

A flow that no trace shows took one of the ways between its two leaves, and stayed on it. The chance
that it lost nothing is its ends' times the mean over those ways, there and back by themselves. So
such flows are counted by their pair of leaves, as so many flows of so many probes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.flows import Flows
from analyzer.localize.case import Case, OrderedPair
from analyzer.localize.incidence import Crossed, Direction, Ints, Part, Route
from analyzer.localize.own import KINDS, Own
from analyzer.localize.routes import NO_ROUTE, UNTRACED
from analyzer.localize.tomography.observations import Arrived, sums
from analyzer.localize.topology import LearnedTopology, Leg
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link_ends

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Whole = NDArray[np.signedinteger[Any]]
FABRIC = {Kind.SWITCH, Kind.LINK}
_NUMBER = np.int32
"""What flows' numbers are kept as: those of some windows wait for a vote on all of their probes."""


V = TypeVar("V")


class Lazily(Mapping[int, V]):
    """A mapping that is made when somebody asks for it: nobody does for a window without losses."""

    def __init__(self, numbers: Ints, look: Callable[[int], V]) -> None:
        self.numbers = numbers
        self._look = look

    def __getitem__(self, number: int) -> V:
        return self._made[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self.numbers)

    def __reduce__(self) -> tuple[type, tuple[dict[int, V]]]:
        return dict, (self._made,)  # as recordings have it: what it looks up is not copied

    @cached_property
    def _made(self) -> dict[int, V]:
        return {number: self._look(number) for number in self.numbers.tolist()}


@dataclass(frozen=True)
class Fine:
    """Flows that lost nothing, on settled routes, or on none that any trace has shown."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"views"})
    """What earlier versions wrote into recordings."""

    rows: Whole
    """(n_flows,): which of the flows that were divided they are."""
    sent: Whole
    """Probes that count: all, or those of the largest size."""
    every: Whole
    there: Whole
    """(n_flows,): row of `routes`, or of `open` beyond those."""
    back: Whole
    ends: Whole
    """(2, n_flows): numbers of the endpoints in `own`."""
    routes: Sequence[Route]
    parts: Mapping[int, frozenset[Part]]
    """Row that is taken -> what is crossed for certain."""
    open: Mapping[int, Leg]
    """Row beyond `routes` -> ways that untraced flows may have taken."""
    own: Mapping[int, frozenset[Component]]
    """Number of an endpoint -> what all packets of it cross on its own host."""
    names: Mapping[int, EndpointId]
    """Number of an endpoint -> the endpoint."""

    def of_all_sizes(self) -> "Fine":
        """Return the same flows with probes of every size."""
        return self if self.sent is self.every else replace(self, sent=self.every)

    def survived(self, dead: AbstractSet[Component]) -> "Fine":
        """Return the same flows without ways across what is dead: all their probes arrived."""
        if not self.open:
            return self
        legs = {row: beyond(leg, dead) for row, leg in self.open.items()}
        parts = self._crossed.but({row: _certain(leg) for row, leg in legs.items()})
        return replace(self, open=legs, parts=parts)

    @cached_property
    def probes(self) -> int:
        """Return how many probes they sent."""
        return int(self.sent.sum())

    def arrived(self, among: Sequence[object]) -> Arrived:
        """Return the probes that arrived across each of `among`.

        Each probe counts four times: on the routes there and back, and at the two ends. What they
        shared with a pair that lost others is `of_pairs`; ways that are open are in `mixtures`.
        """
        return self._on_routes(among) + self._on_hosts(among)

    def _on_routes(self, among: Sequence[object]) -> Arrived:
        size, crossed = self._size, self._crossed
        sent = sums(self.there, self.sent, size) + sums(self.back, self.sent, size)
        sent[list(self.open)] = 0.0
        length = crossed.lengths(size)
        number = crossed.numbers(among)
        mine = np.flatnonzero(number >= 0)
        probes, crossings = np.zeros((2, len(among)))
        probes[mine], crossings[mine] = crossed.sums([sent, sent * length])[:, number[mine]]
        total, every = sent[length > 0].sum(), (sent * length).sum()
        return Arrived(probes, crossings, int(total), int(every))

    def _on_hosts(self, among: Sequence[object]) -> Arrived:
        hosts = self._hosts
        one, other = (sums(each, self.sent, hosts.size) for each in self.ends)
        probes = hosts.sums(among, one + other)
        sent = int((one + other).sum())
        return Arrived(probes, len(KINDS) * probes, sent, len(KINDS) * sent)

    def mixtures(self) -> Iterator[tuple[Leg, int, int]]:
        """Yield ways one of which each flow took, with the flows' probes and number."""
        if not self.open:
            return
        for places in (self.there, self.back):
            probes, flows = np.bincount(places, self.sent), np.bincount(places, self.sent > 0)
            for row, leg in self.open.items():
                if row < len(probes) and probes[row]:
                    yield leg, int(probes[row]), int(flows[row])

    def of_pairs(self, pairs: Collection[OrderedPair]) -> dict[OrderedPair, int]:
        """Return the probes of some pairs, ordered as they were probed."""
        number = {name: n for n, name in self.names.items()}
        wanted = {
            (number[a] << 32) + number[b]: (a, b) for a, b in pairs if a in number and b in number
        }
        keys, place = self._pairs
        asked = np.sort(np.fromiter(wanted, np.int64, len(wanted)))
        at = np.searchsorted(keys, asked)
        there = at < len(keys)
        there[there] = keys[at[there]] == asked[there]
        totals = sums(place, self.sent, len(keys))[at[there]]
        return {
            wanted[key]: int(total)
            for key, total in zip(asked[there].tolist(), totals.tolist(), strict=True)
            if total
        }

    def across(self, component: Component) -> Mask:
        """Return (n_flows,) which of them cross a component."""
        return self._across_any(frozenset({component}))

    def _across_any(self, parts: frozenset[Part]) -> Mask:
        routes = self._routes_across(parts)
        crossed: Mask = routes[self.there] | routes[self.back]
        if any(not isinstance(part, tuple) and part.kind not in FABRIC for part in parts):
            crossed |= self._ends_across(parts)
        return crossed

    def _ends_across(self, parts: frozenset[Part]) -> Mask:
        own = np.zeros(self._hosts.size, np.bool_)
        own[self._hosts.ends_of(parts)] = True
        crossed: Mask = own[self.ends[0]] | own[self.ends[1]]
        return crossed

    def _routes_across(self, parts: Collection[Part]) -> Mask:
        return self._crossed.across(parts, self._size)

    @property
    def _size(self) -> int:
        """Return one more than the last row that is taken."""
        rows = (int(each.max(initial=-1)) for each in (self.there, self.back))
        return 1 + max(*rows, max(self.open, default=-1))

    @cached_property
    def _crossed(self) -> Crossed:
        if isinstance(self.parts, Crossed):
            return self.parts
        first = min(self.open, default=1 + max(self.parts, default=-1))
        return Crossed.of(self.parts, first)  # as recordings have it

    @cached_property
    def _hosts(self) -> Own:
        return self.own if isinstance(self.own, Own) else Own.of(self.own)

    def crossed(self, component: Component, rate: float = 0.0) -> float:
        """Return how many of the probes crossed a component, as expected where ways are open.

        A flow that lost nothing hardly took a way that loses the share `rate`.
        """
        return self.crossing(component)(rate)

    def crossing(self, component: Component) -> Callable[[float], float]:
        """Return `crossed` of a component, as a function of the rate."""
        shares: list[Floats] = []
        sent, sure = self.sent[:0], self._across_any(frozenset({component}))
        if self.open:
            there, back = (self._shares(component, places) for places in (self.there, self.back))
            sure = self._ends_across(frozenset({component})) | (there == 1.0) | (back == 1.0)
            maybe = ~sure & ((there > 0.0) | (back > 0.0))
            sent, shares = self.sent[maybe], [there[maybe], back[maybe]]
        total = float(self.sent[sure].sum())

        def crossed(rate: float) -> float:
            if not len(sent):
                return total
            missed = np.ones(len(sent))
            for share in shares:
                survived = share * (1.0 - rate) ** sent
                missed *= 1.0 - survived / (survived + 1.0 - share)
            return total + float((sent * (1.0 - missed)).sum())

        return crossed

    def _shares(self, component: Component, places: Ints) -> Floats:
        """Return (n_flows,) the share of the ways of each that cross a component."""
        share: Floats = self._routes_across({component}).astype(np.float64)
        for row, leg in self.open.items():
            mine = sum(s for parts, s in leg if component in parts)
            if 0.0 < mine < 1.0 - 1e-9:
                share[row] = mine
        of_flow: Floats = share[places]
        return of_flow

    def length(self, kind: Kind) -> Ints:
        """Return (n_flows,) how many components of a kind each crosses on its longer way."""
        if kind not in FABRIC:
            return np.full(len(self.sent), 2)
        if kind not in self._lengths:
            count = self._crossed.count(kind, self._size)
            self._lengths[kind] = np.maximum(count[self.there], count[self.back])
        return self._lengths[kind]

    @cached_property
    def _lengths(self) -> dict[Kind, Ints]:
        return {}

    def beside(self, kind: Kind, named: Collection[Component], least: int) -> int:
        """Return how many probes crossed none of `named`, on ways of at least `least` of a kind.

        Only those count whose whole way is known.
        """
        mine = (self.length(kind) >= least) & self._routed & ~self._across_any(frozenset(named))
        return int(self.sent[mine].sum())

    @cached_property
    def _routed(self) -> Mask:
        is_open = np.zeros(self._size, np.bool_)
        is_open[list(self.open)] = True
        routed: Mask = ~(is_open[self.there] | is_open[self.back])
        return routed

    def directions(self, component: Component) -> dict[frozenset[tuple[str, str]], int]:
        """Return directions of a link -> probes that crossed it, or not, in just these."""
        ways = self._ways_on(component)
        which = np.zeros(self._size, np.int64)
        for n, way in enumerate(ways):
            which |= self._routes_across({way}).astype(np.int64) << n
        of_flow = (which[self.there] | which[self.back])[self._routed]
        totals = sums(of_flow, self.sent[self._routed], 1)
        return {
            frozenset(way for n, way in enumerate(ways) if bits >> n & 1): int(total)
            for bits, total in enumerate(totals.tolist())
            if total
        }

    def _ways_on(self, component: Component) -> list[Direction]:
        """Return the directions of a link that some route which is taken crosses, in order."""
        if component.kind is not Kind.LINK:
            return []
        one, other = link_ends(component)
        both = sorted({(one, other), (other, one)})
        return [way for way in both if self._taken[self._crossed.rows(way)].any()]

    @cached_property
    def _taken(self) -> Mask:
        """Which rows of routes any of these flows takes."""
        taken = np.zeros(self._crossed.routes, np.bool_)
        for places in (self.there, self.back):
            taken[places[places < len(taken)]] = True
        return taken

    def neighbours(
        self, component: Component, near: Collection[Component], most: int
    ) -> dict[OrderedPair, int]:
        """Return the probes of the pairs with most, that cross any of `near`, not the component."""
        mine = self._across_any(frozenset(near) - {component}) & ~self.across(component)
        keys, place = self._pairs
        totals = sums(place[mine], self.every[mine], len(keys))
        met = np.flatnonzero(np.bincount(place[mine], minlength=len(keys)))
        first = met[_largest(totals[met], most)]
        return {
            (self.names[key >> 32], self.names[key & 0xFFFF_FFFF]): int(total)
            for key, total in zip(keys[first].tolist(), totals[first], strict=True)
        }

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints]:
        """Keys of the ordered pairs, in order, and (n_flows,) the place of each flow's pair."""
        keys = (self.ends[0].astype(np.int64) << 32) + self.ends[1]
        # Flows of a pair mostly stand together: then fewer have to be put in order.
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        met, place = np.unique(keys[begins], return_inverse=True)
        return met, np.repeat(place.reshape(-1), np.diff(begins, append=len(keys)))


def _largest(values: Floats, most: int) -> Ints:
    """Return the places of the largest values, largest first; of equal ones, the first."""
    if len(values) > most:
        least = np.partition(values, len(values) - most)[len(values) - most]
        places = np.flatnonzero(values >= least)
    else:
        places = np.arange(len(values))
    return places[np.argsort(-values[places], kind="stable")[:most]]


def divide(
    flows: Flows, case: Case, topology: LearnedTopology, *, large_only: bool = False
) -> tuple[Flows, tuple[Fine, ...]]:
    """Return the flows that have to be weighed one by one, and the others.

    One by one are flows that lost anything, and those whose ways are not settled. Of the others,
    only probes of the largest size are counted if `large_only`.
    """
    if case.numbers is None:
        return flows, ()
    lost = flows.lost > 0
    settled = topology.settled(flows.number, flows.numbers, at_ns=case.window.start_ns, lost=lost)
    fine = ~lost & (settled.there != NO_ROUTE)
    ways, ends = (settled.there, settled.back), flows.ends
    rows = np.flatnonzero(fine).astype(_NUMBER)
    if len(rows) < len(fine):
        ways, ends = (ways[0][rows], ways[1][rows]), ends.take(rows, axis=1)
    there, back = (each.astype(_NUMBER) for each in ways)
    ends = ends.astype(_NUMBER)
    names = Lazily(_met(ends), flows.numbers.endpoint)
    endpoints, routes = case.endpoints, settled.routes  # what is asked for later keeps no window
    own = Own(names.numbers, lambda n: endpoints[names[n]], topology.hosts)
    untraced = there == UNTRACED
    legs: dict[int, Leg] = {}
    if untraced.any():
        leaf_of = {n: topology.leaf_of(case.endpoints[name]) for n, name in names.items()}
        both = _between_leaves(ends[:, untraced], leaf_of, topology, len(settled.routes), legs)
        there[untraced], back[untraced] = both

    parts = Crossed(
        settled.incidence,
        len(routes),
        {row: _certain(leg) for row, leg in legs.items()},
        _met(there, back),
    )
    of_all_sizes = flows.sent[rows].astype(_NUMBER)
    sent = flows.sent_large[rows].astype(_NUMBER) if large_only else of_all_sizes
    counted = Fine(
        rows, sent, of_all_sizes, there, back, ends,
        routes, parts, legs, own, names,
    )  # fmt: skip
    return flows.only(~fine), (counted,)


def _between_leaves(
    ends: Whole,
    leaf_of: Mapping[int, str | None],
    topology: LearnedTopology,
    first: int,
    legs: dict[int, Leg],
) -> tuple[Ints, Ints]:
    """Return rows, from `first` on, of the legs there and back of untraced flows; fill `legs`."""
    names = sorted({leaf or "" for leaf in leaf_of.values()})
    number = {name: n for n, name in enumerate(names)}
    leaf = np.zeros(1 + max(leaf_of), np.int64)
    leaf[list(leaf_of)] = [number[each or ""] for each in leaf_of.values()]
    a, b = leaf[ends]
    keys = np.stack([a * len(names) + b, b * len(names) + a])
    met, place = np.unique(keys, return_inverse=True)
    for n, key in enumerate(met.tolist()):
        source, target = (names[each] or None for each in divmod(key, len(names)))
        legs[first + n] = topology.untraced_leg((source, target))
    there, back = first + place.reshape(keys.shape)
    return there, back


def _met(*numbers: Whole) -> Ints:
    """Return these numbers once each, in order."""
    found = np.zeros(1 + max(int(each.max(initial=-1)) for each in numbers), np.bool_)
    for each in numbers:
        found[each] = True
    return np.flatnonzero(found)


def _certain(leg: Leg) -> frozenset[Part]:
    """Return what a flow crossed whichever way it took."""
    unseen = 1.0 - sum(share for _, share in leg) > 1e-9
    return frozenset() if unseen else frozenset.intersection(*(parts for parts, _ in leg))


def beyond(leg: Leg, dead: AbstractSet[Component]) -> Leg:
    """Return a leg without the ways across what is dead; as it is where none is left."""
    kept = [(parts, share) for parts, share in leg if dead.isdisjoint(parts)]
    total = 1.0 - sum(share for parts, share in leg if not dead.isdisjoint(parts))
    if len(kept) == len(leg) or total <= 1e-9:
        return leg
    return tuple((parts, share / total) for parts, share in kept)
