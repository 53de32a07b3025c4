# SPDX-License-Identifier: Apache-2.0
"""The fabric as traces show it: which components each direction of each flow crosses.

A trace names the routers up to the destination's leaf. It is known to be complete when its last
router is the one that the destination's own traces begin with. While a path fails, its traces end
early or show other routers; the route in force before is what the lost probes took, so only
complete routes replace a route. A router that answers twice in a row speaks for the one behind it,
which is dead or has no way to answer: that one counts as silent, and there is no link between a
router and itself. Nor does such a trace replace a route.

A loss belongs to the way that its probe took when it was sent. So a route counts from the window
after the one that first showed it, and in that one window the route before counts as well: nobody
knows when the routers turned. A direction that was never traced to its end took one of the ways
that are known, or declared, between its two leaves, or one that nobody has seen. Where the fabric
sprays, that holds of all flows: a trace tells the leaf that it begins with, and no way.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathTable
from analyzer.localize.incidence import Direction, Ints, Part, Route
from analyzer.localize.own import Before
from analyzer.localize.routes import Mask, Routers, RouteTable, Settled
from analyzer.localize.saved import SavedRoutes
from analyzer.localize.traced import Known, Memo, Traced
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, switch
from netagent.model.topology import DeclaredTopology, Fabric

UnderlayOf = Callable[[EndpointId], str | None]
"""Address of an endpoint's VTEP; None where it is not known."""

CHANGED = 0.5
"""Probability that a probe of the window that first showed a route took that route. Chosen: half a
window, without knowing when the routers turned."""
UNSEEN = 0.5
"""Probability of an unseen way between two known leaves where no way between them is known. Chosen:
nothing is known, so it is even."""
BLIND = 0.2
"""Probability of an unseen way where a leaf is unknown too, as without any trace. Chosen: some ten
flows that fail together still accuse the endpoint that they share."""
MOVED_NS = 60_000_000_000
"""Nanoseconds for which routers that moved a flow off a link may have moved others, too. Chosen:
an agent takes a minute to trace all of its flows again."""
MOST_MIXED = 10_000
"""Most ways remembered of which some are possible. Chosen: some tens of megabytes; all flows
between two leaves that lose something share a few."""
Leg = tuple[tuple[frozenset[Part], float], ...]
"""One direction of a flow: what each possible route crosses, with the route's probability. What
they lack to one is the probability of a route that no trace has shown."""


@dataclass(frozen=True, slots=True)
class Way:
    """What the probes of a flow and their replies crossed in one window, as far as it is known."""

    certain: frozenset[Component]
    maybe: Mapping[Component, float] = field(default_factory=dict)
    """Component that only some of the possible routes cross -> probability that it was crossed."""
    unseen: float = 0.0
    """Probability that a part of the way is one that no trace has shown."""
    legs: tuple[Leg, ...] = ()
    """The way there and the way back."""

    @property
    def whole(self) -> bool:
        """Whether every switch and link of both directions is known for certain."""
        return not self.maybe and not self.unseen


@dataclass(frozen=True, slots=True)
class _Leg:
    """One direction of a flow: possible routes with their probabilities, which add up to one."""

    routes: Mapping[Route, float]
    unseen: float = 0.0

    @property
    def sure(self) -> Route | None:
        """Return the only route that is possible, if no other is."""
        return next(iter(self.routes)) if len(self.routes) == 1 and not self.unseen else None

    @property
    def key(self) -> object:
        """Return what says the same of another one that is like it."""
        return tuple(self.routes.items()), self.unseen

    def after(self, before: Route) -> "_Leg":
        """Return the routes of a window in which it was taken, after another one."""
        shares = {route: CHANGED * share for route, share in self.routes.items()}
        shares[before] = shares.get(before, 0.0) + 1 - CHANGED
        return _Leg(shares, CHANGED * self.unseen)


@dataclass(slots=True)
class LearnedTopology:
    """Routes by flow and direction, and what they say of the fabric."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({
        "_ways_on", "_legs_on", "hosts", "_mixed_ways", "_missed", "_both", "_numbers_of",
        "_numbered", "_names",
    })  # fmt: skip
    """What no recording holds, since it follows from the routes."""

    declared: DeclaredTopology = field(default_factory=DeclaredTopology)
    numbers: FlowNumbers = field(default_factory=FlowNumbers)
    """Whoever numbers the flows; a diagnosis's own where it has one, which then recycles them."""
    _traced: Traced = field(init=False)
    _components: dict[Route, frozenset[Component]] = field(default_factory=dict)
    """Cache: route -> components that it crosses. All flows share a few routes."""
    _settled_ways: dict[tuple[Route, Route], Way] = field(default_factory=dict)
    """Cache: routes there and back -> components that both cross."""
    _untraced_ways: dict[tuple[str | None, ...], Way] = field(default_factory=dict)
    """Cache: two leaves -> what flows between them may cross of which no trace shows anything."""
    _ways_on: dict[tuple[int, int], Way] = field(default_factory=dict)
    """Cache: rows of the routes there and back -> what both cross."""
    _legs_on: dict[int, tuple[frozenset[Component], Leg]] = field(default_factory=dict)
    """Cache: row of a route -> what it crosses: components, and all parts."""
    hosts: Before = field(default_factory=Before)
    """Cache: what endpoints cross on their own hosts, as it was in the window before."""
    _legs: dict[object, Leg] = field(default_factory=dict)
    """Cache: possible routes -> what they cross."""
    _missed: dict[object, Mapping[int, float]] = field(default_factory=dict)
    """Cache: possible routes -> numbers of components, with the probability that they do not cross
    it."""
    _both: dict[Route, frozenset[Part]] = field(default_factory=dict)
    """Cache: route -> components that it crosses, and its links with their directions."""
    _numbers_of: dict[Route, tuple[int, ...]] = field(default_factory=dict)
    """Cache: route -> numbers of the components that it crosses, in `_numbered`."""
    _numbered: dict[Component, int] = field(default_factory=dict)
    _names: list[Component] = field(default_factory=list)
    """Components by these numbers, which are quicker to look up than names."""
    _mixed_ways: dict[object, Way] = field(default_factory=dict)
    """Cache: possible routes there and back -> what both cross; MOST_MIXED of them."""
    _declared_ways: dict[tuple[str, str], tuple[Route, ...]] = field(default_factory=dict)
    _declared_leaf: dict[tuple[str, str], str] = field(init=False)

    def __post_init__(self) -> None:
        uplinks = self.declared.uplinks
        self._declared_leaf = {(each.host, each.rnic): each.leaf for each in uplinks}
        self._traced = Traced(self.numbers, RouteTable(Routers(self.declared)))

    def learn(
        self,
        paths: PathTable,
        underlay_of: UnderlayOf,
        *,
        which: Ints | None = None,
        wall_ns: int = 0,
    ) -> Mask:
        """Take in paths of a summary whose window began at `wall_ns`: those `which` (n,), or all.

        Return (n,) which are whole: nothing more is learned by taking them in again.
        """
        which = np.arange(len(paths)) if which is None else which
        underlays = Memo[int, str | None](lambda place: underlay_of(paths.endpoints[place]))
        whole, news = self._traced.learn(
            paths, which, underlays, wall_ns=wall_ns, leaves_only=self.sprays
        )
        if news:
            self._untraced_ways.clear()
        if self._traced.is_crowded:
            self._forget(self._traced.in_use())
        return whole

    def shows_leaf(self, paths: PathTable, which: Ints, underlay_of: UnderlayOf) -> bool:
        """Return whether one of these few paths shows a VTEP behind another leaf than is known.

        Then it matters in which order they and others are learned.
        """
        source, target, _, reply, _, route = (
            each[which].tolist() for each in (*paths.key, paths.route)
        )
        for ends, is_reply, row in zip(zip(source, target, strict=True), reply, route, strict=True):
            hops = paths.routes[row]
            if hops and hops[0]:
                vtep = underlay_of(paths.endpoints[ends[1 if is_reply else 0]])
                if vtep is not None and self._traced.leaf_of.get(vtep) != hops[0]:
                    return True
        return False

    def awaits(self, paths: PathTable, which: Ints, underlay_of: UnderlayOf) -> Mask:
        """Return (n,) which paths, taken in, tell nothing new until their receiver is traced from.

        They are of directions that were never traced to their end: nobody knows which that is.
        """
        underlays = Memo[int, str | None](lambda place: underlay_of(paths.endpoints[place]))
        return self._traced.awaits(paths, which, underlays)

    @property
    def sprays(self) -> bool:
        """Whether each packet takes a way of its own, so that no flow has one."""
        return self.declared.fabric is Fabric.SPRAY

    @property
    def directions(self) -> int:
        """Return how many directions of flows are remembered."""
        return self._traced.directions

    @property
    def known_parts(self) -> int:
        """Return how many routes are remembered, and how many routers are named."""
        return len(self._traced.routes) + len(self._traced.routes.routers.names)

    def leaf(self, underlay: str) -> str | None:
        """Return the router that the VTEP's traces begin with; None before the first trace."""
        return self._traced.leaf_of.get(underlay)

    def hops(self, flow: FlowId, *, reply: bool) -> Route | None:
        """Return the names of the routers of the last complete route; "" where one is silent."""
        newest = self._traced.newest(flow, reply=reply)
        return None if newest is None else tuple(map(self.name, newest))

    def ends_after(self, flow: FlowId, *, reply: bool) -> str | None:
        """Return the last router of a latest trace that ended early; None where it did not."""
        known = self._traced.known(flow, reply=reply)
        if known is None or known.latest == known.hops or len(known.latest) >= len(known.hops):
            return None
        return self.name(known.latest[-1])

    def crossed(self, flow: FlowId) -> frozenset[Component] | None:
        """Return switches and links of both directions; None where neither was ever traced."""
        routes = [self.hops(flow, reply=False), self.hops(flow, reply=True)]
        if routes == [None, None]:
            return None
        return frozenset().union(*(self._parts(route) for route in routes if route))

    def way(self, flow: FlowId, ends: tuple[Endpoint, Endpoint], *, at_ns: int, lost: bool) -> Way:
        """Return what the flow's probes crossed in the window that began at `at_ns`.

        `ends` are the flow's source and target. A flow that `lost` nothing took the route that
        the same window showed: had routers turned because one of them died, something was lost.
        """
        known = [self._traced.known(flow, reply=reply) for reply in (False, True)]
        moved_ns = [self._moved_ns(each, at_ns) if lost else None for each in known]
        settled = self._settled_on(known[0], known[1], at_ns) if moved_ns == [None] * 2 else None
        if settled is not None:
            return settled
        leaves = tuple(map(self.leaf_of, ends))
        if self._traced.is_untraced(flow):
            way = self._untraced_ways.get(leaves)
            if way is None:
                both = [self._possible(leaves, ()), self._possible(leaves[::-1], ())]
                way = self._untraced_ways[leaves] = self._mixed(both)
            return way
        legs = [
            self._leg((flow, False), known[0], leaves, at_ns, lost=lost, moved_ns=moved_ns[0]),
            self._leg((flow, True), known[1], leaves[::-1], at_ns, lost=lost, moved_ns=moved_ns[1]),
        ]
        return self._mixed(legs)

    def _mixed(self, legs: Sequence[_Leg]) -> Way:
        """Return the way there and back, each of which may be one of several."""
        keys = tuple(leg.key for leg in legs)
        way = self._mixed_ways.get(keys)
        if way is None:
            if len(self._mixed_ways) >= MOST_MIXED:
                self._mixed_ways.clear()
            way = self._mixed_ways[keys] = self._mix(legs)
        return way

    def _mix(self, legs: Sequence[_Leg]) -> Way:
        possible = tuple(map(self._possible_parts, legs))
        sure = [leg.sure for leg in legs if leg.sure is not None]
        if len(sure) == len(legs):
            return Way(frozenset[Component]().union(*map(self._parts, sure)), legs=possible)
        missed: dict[int, float] = {}
        for leg in legs:
            for number, share in self._missed_on(leg).items():
                missed[number] = missed.get(number, 1.0) * share
        names = self._names
        certain = frozenset(names[n] for n, share in missed.items() if share < 1e-9)
        maybe = {names[n]: 1.0 - share for n, share in missed.items() if share >= 1e-9}
        unseen = 1.0 - (1.0 - legs[0].unseen) * (1.0 - legs[1].unseen)
        return Way(certain, maybe, unseen, possible)

    def _missed_on(self, leg: _Leg) -> Mapping[int, float]:
        found = self._missed.get(leg.key)
        if found is None:
            shares = self._shares_of(leg.routes).items()
            found = {number: max(0.0, 1.0 - share) for number, share in shares}
            self._missed[leg.key] = found
        return found

    def _shares_of(self, routes: Mapping[Route, float]) -> Mapping[int, float]:
        """Return the numbers of the components on some routes, with the sum of those's shares."""
        if len(set(routes.values())) == 1:  # where nothing is known of them all are alike
            times = Counter(chain.from_iterable(map(self._numbers_on, routes)))
            share = next(iter(routes.values()))
            # Added up one by one, as below: a product would be rounded otherwise.
            sums = list(accumulate(repeat(share, len(routes)), initial=0.0))
            return {number: sums[count] for number, count in times.items()}
        crossed: dict[int, float] = defaultdict(float)
        for route, share in routes.items():
            for number in self._numbers_on(route):
                crossed[number] += share
        return crossed

    def _numbers_on(self, route: Route) -> tuple[int, ...]:
        found = self._numbers_of.get(route)
        if found is None:
            parts, known = self._parts(route), self._numbered
            new = [each for each in parts if each not in known]
            known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
            self._names += new
            found = self._numbers_of[route] = tuple(map(known.__getitem__, parts))
        return found

    def _possible_parts(self, leg: _Leg) -> Leg:
        key = leg.key
        found = self._legs.get(key)
        if found is None:
            found = self._legs[key] = tuple(
                (self._all_on(route), share * (1.0 - leg.unseen))
                for route, share in leg.routes.items()
            )
        return found

    def _settled(self, flow: FlowId, at_ns: int) -> Way | None:
        """Return the way of a flow whose routes both stand since before the window."""
        there, back = (self._traced.known(flow, reply=reply) for reply in (False, True))
        return self._settled_on(there, back, at_ns)

    def _settled_on(self, there: Known | None, back: Known | None, at_ns: int) -> Way | None:
        if there is None or back is None:
            return None
        (hops, since_ns), (back_hops, back_ns) = there.routes[-1], back.routes[-1]
        if max(since_ns, back_ns) >= at_ns:
            return None
        way = self._settled_ways.get((hops, back_hops))
        if way is None:
            legs = tuple(_Leg({self._named(each): 1.0}) for each in (hops, back_hops))
            way = self._settled_ways[hops, back_hops] = Way(
                frozenset[Component]().union(*(self._parts(r) for leg in legs for r in leg.routes)),
                legs=tuple(map(self._possible_parts, legs)),
            )
        return way

    def settled(
        self,
        numbers: NDArray[np.int64],
        flows: FlowNumbers,
        *,
        at_ns: int,
        lost: Mask | None = None,
    ) -> Settled:
        """Return the routes of the flows with these numbers, where both stand since before `at_ns`.

        Of those that `lost` nothing (n_flows,), if that is given, also where the window that began
        then was the first to show one. It is what `way` returns for each of them. `untraced_leg`
        has what is possible of flows of which no trace has shown anything.
        """
        return self._traced.settled(numbers, flows, at_ns=at_ns, lost=lost)

    def taken(self) -> tuple[NDArray[np.int32], RouteTable]:
        """Return rows (2, n) of flows' newest whole routes by their numbers, and the routes.

        Replies are last. Where routes are forgotten, it is another table.
        """
        return self._traced.taken()

    def unmoved(
        self, numbers: Ints, flows: FlowNumbers, lost: Mask, *, at_ns: int
    ) -> tuple[Ints, Ints]:
        """Return the rows of the routes there and back of some flows, for `way_on`.

        They are those of flows that `way` has on just these, whether or not they `lost` anything
        (n_flows,); NO_ROUTE of all others.
        """
        return self._traced.unmoved(numbers, flows, lost, at_ns=at_ns, moving_ns=MOVED_NS)

    def way_on(self, there: int, back: int) -> Way:
        """Return what is crossed on two routes, by their rows."""
        way = self._ways_on.get((there, back))
        if way is None:
            both = tuple(map(self._leg_on, (there, back)))
            certain = frozenset[Component]().union(*(parts for parts, _ in both))
            way = self._ways_on[there, back] = Way(certain, legs=tuple(leg for _, leg in both))
        return way

    def _leg_on(self, row: int) -> tuple[frozenset[Component], Leg]:
        found = self._legs_on.get(row)
        if found is None:
            parts = self._traced.routes.incidence.crossed(row)
            # To leave some out takes no hash of the others, which are most and slow to hash.
            directions = [part for part in parts if not isinstance(part, Component)]
            components = cast("frozenset[Component]", parts.difference(directions))
            found = self._legs_on[row] = components, ((parts, 1.0),)
        return found

    def untraced_leg(self, leaves: tuple[str | None, str | None]) -> Leg:
        """Return what untraced packets may cross from a leaf to another; None: it is not known."""
        return self._possible_parts(self._possible(leaves, ()))

    def untraced_routes(self, first: str | None, last: str | None) -> tuple[Route, ...]:
        """Return the routes that untraced packets may take from a leaf to another."""
        return tuple(self._possible((first, last), ()).routes)

    def leaf_of(self, end: Endpoint) -> str | None:
        """Return the name of an endpoint's leaf, traced or declared; None where it is not known."""
        seen = self._traced.leaf_of.get(end.underlay) if end.bridge else None
        return self.name(seen) if seen else self._declared_leaf.get((end.host, end.rnic))

    def _leg(
        self,
        key: tuple[FlowId, bool],
        known: Known | None,
        leaves: tuple[str | None, ...],
        at_ns: int,
        *,
        lost: bool,
        moved_ns: int | None,
    ) -> _Leg:
        if known is not None and moved_ns is not None:
            leg = self._possible(leaves, _whole_part(self._named(known.latest)))
            return leg if at_ns > moved_ns else leg.after(self._named(known.hops))
        routes = known.routes if known is not None else []
        before = [hops for hops, since_ns in routes if since_ns < at_ns][-1:]
        shown = [hops for hops, since_ns in routes if since_ns == at_ns][-1:]
        if before:
            shares = dict.fromkeys(map(self._named, shown), CHANGED)
            return _Leg({self._named(before[0]): 1 - sum(shares.values()), **shares})
        if shown and not lost:
            return _Leg({self._named(shown[0]): 1.0})
        leg = self._possible(leaves, self._prefix(key))
        if not shown:
            return leg
        hops = self._named(shown[0])
        others = {route: share for route, share in leg.routes.items() if route != hops}
        rest = sum(others.values())
        if not rest:
            return _Leg({hops: 1.0}, leg.unseen)
        shares = {route: (1 - CHANGED) * share / rest for route, share in others.items()}
        return _Leg({hops: CHANGED, **shares}, leg.unseen)

    def _moved_ns(self, known: Known | None, at_ns: int) -> int | None:
        """Return the window that showed a direction on another way, on which it is lost; or None.

        Its latest trace ends where routers began to move other flows, or on another way.
        """
        if known is None or known.latest == known.hops:
            return None
        if any(a and b and a != b for a, b in zip(known.latest, known.hops, strict=False)):
            return known.seen_ns
        gap = known.hops[len(known.latest) - 1 :][:2] if known.latest else ()
        left_ns = self._traced.left.get(gap) if len(gap) == 2 else None
        return left_ns if left_ns is not None and at_ns <= left_ns + MOVED_NS else None

    def _named(self, hops: Route) -> Route:
        return tuple(map(self.name, hops)) if self.declared.names else hops

    def _prefix(self, key: tuple[FlowId, bool]) -> Route:
        return _whole_part(self._named(self._traced.partial(key[0], reply=key[1])))

    def _possible(self, leaves: tuple[str | None, ...], prefix: Route) -> _Leg:
        """Return the routes from the first leaf to the last that begin as a trace did."""
        first, last = leaves
        if first is None or last is None:
            seen = prefix or tuple(leaf for leaf in (first or last,) if leaf)
            return _Leg({seen: 1.0}, BLIND)
        if first == last:
            return _Leg({(first,): 1.0})
        declared = self._ways_declared(first, last)
        # What hosts say they crossed adds none to declared ones: one that lies would invent some.
        ways = {*declared} or {
            *self._traced.between(first, last),
            *(way[::-1] for way in self._traced.between(last, first)),
        }
        ways = {way for way in ways if way[: len(prefix)] == prefix}
        if not ways:
            return _Leg({prefix or (first,): 1.0}, UNSEEN)
        unseen = 0.0 if declared else 1.0 / (len(ways) + 1)
        return _Leg(dict.fromkeys(sorted(ways), 1.0 / len(ways)), unseen)

    def _ways_declared(self, first: str, last: str) -> tuple[Route, ...]:
        """Return the shortest declared ways between two leaves."""
        ways = self._declared_ways.get((first, last))
        if ways is None:
            ways = self._declared_ways[first, last] = _shortest(self.declared.links, first, last)
        return ways

    def _all_on(self, route: Route) -> frozenset[Part]:
        found = self._both.get(route)
        if found is None:
            found = self._both[route] = self._parts(route) | _directions(route)
        return found

    def on_route(self, route: Route) -> frozenset[Component]:
        """Return the routers of a whole route that answered, and the links between those."""
        return self._parts(route)

    def _parts(self, route: Route) -> frozenset[Component]:
        parts = self._components.get(route)
        if parts is None:
            switches = {switch(name) for name in route if name}
            links = {link(a, b) for a, b in pairwise(route) if a and b}
            parts = self._components[route] = frozenset(switches | links)
        return parts

    def expire(self, *, before_ns: int) -> None:
        """Forget directions, routes and links that no window since `before_ns` showed."""
        self._forget(self._traced.expire(before_ns=before_ns))

    def _forget(self, kept: Mask) -> None:
        self._traced.keep(kept)
        self._components.clear()
        self._settled_ways.clear()
        self._ways_on.clear()
        self._legs_on.clear()
        self._untraced_ways.clear()
        self._legs.clear()
        self._missed.clear()
        self._mixed_ways.clear()
        self._both.clear()
        self._numbers_of.clear()
        self._numbered.clear()
        self._names.clear()

    def save(self, at_ns: int) -> SavedRoutes:
        """Return what traces showed, of all that came until `at_ns`."""
        return self._traced.save(at_ns)

    def adopt(self, saved: SavedRoutes) -> None:
        """Take what was saved before a restart, before anything else.

        Raises RemoteProtocolError where it does not agree with itself; then nothing was taken.
        """
        self._traced.adopt(saved)

    @classmethod
    def upgraded(cls, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return attributes as recordings have them, also of versions that kept them by flow."""
        if "_known" not in attributes:
            return attributes
        made = cls(attributes["declared"])
        made._traced.restore(attributes)
        return {each.name: getattr(made, each.name) for each in fields(cls)}

    def links(self) -> set[tuple[str, str]]:
        """Return the links that remembered complete routes crossed, as sorted pairs of names."""
        names = ((self.name(a), self.name(b)) for a, b in self._traced.links())
        return {(min(a, b), max(a, b)) for a, b in names}

    def traced_leaves(self) -> dict[str, str]:
        """Return VTEP -> the address that its leaf answers from, of those that traces showed."""
        return dict(self._traced.leaf_of)

    def leaves(self) -> dict[str, str]:
        """Return VTEP -> name of its leaf."""
        return {underlay: self.name(leaf) for underlay, leaf in self._traced.leaf_of.items()}

    def undeclared_links(self) -> set[tuple[str, str]]:
        """Return links that were crossed but not declared; empty where no link was declared."""
        return self.links() - self.declared.links if self.declared.links else set()

    def unseen_links(self) -> set[tuple[str, str]]:
        """Return declared links that no remembered complete route crossed."""
        return set(self.declared.links) - self.links()

    def name(self, address: str) -> str:
        """Return the declared name of the router that answers from `address`, or the address."""
        return self.declared.name(address) if address else ""


def _whole_part(route: Route) -> Route:
    """Return a route up to its first silent router, or the first that it would come to again."""
    part: list[str] = []
    for hop in route:
        if not hop or hop in part:
            break
        part.append(hop)
    return tuple(part)


def _directions(route: Route) -> frozenset[Direction]:
    return frozenset((a, b) for a, b in pairwise(route) if a and b)


def _shortest(links: Iterable[tuple[str, str]], first: str, last: str) -> tuple[Route, ...]:
    """Return all shortest ways over `links`, which lead both ways."""
    beside: dict[str, set[str]] = defaultdict(set)
    for a, b in links:
        beside[a].add(b)
        beside[b].add(a)
    ways: list[Route] = [(first,)]
    seen = {first}
    while ways and last not in seen:
        ways = [(*way, hop) for way in ways for hop in beside[way[-1]] - seen]
        seen |= {way[-1] for way in ways}
    return tuple(sorted(way for way in ways if way[-1] == last))
