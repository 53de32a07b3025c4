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

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathRow
from analyzer.localize.incidence import Direction, Part, Route
from analyzer.localize.routes import NO_ROUTE, UNTRACED, RouteRows, Settled
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, link, switch
from netagent.model.topology import DeclaredTopology, Fabric

UnderlayOf = Callable[[EndpointId], str | None]
"""Address of an endpoint's VTEP; None where it is not known."""

ROUTES_KEPT = 3
"""Complete routes remembered per direction of a flow. Chosen: windows are judged in order and few
of them late, and memory stays bounded."""
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
PARTIAL_KEPT = 100_000
"""Most directions remembered that were never traced to their end. Chosen: some ten megabytes; what
comes beyond has one trace less to tell its way by."""

K = TypeVar("K")
V = TypeVar("V")

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


@dataclass(slots=True)
class _Known:
    routes: list[tuple[Route, int]]
    """Complete routes with the start (ns) of the window that first showed them, oldest first."""
    latest: Route
    outer_port: int
    seen_ns: int

    @property
    def hops(self) -> Route:
        return self.routes[-1][0]

    def turn(self, hops: Route, wall_ns: int) -> None:
        if hops != self.hops:
            self.routes = [*self.routes, (hops, wall_ns)][-ROUTES_KEPT:]


@dataclass(frozen=True, slots=True)
class _Leg:
    """One direction of a flow: possible routes with their probabilities, which add up to one."""

    routes: Mapping[Route, float]
    unseen: float = 0.0

    @property
    def sure(self) -> Route | None:
        """Return the only route that is possible, if no other is."""
        return next(iter(self.routes)) if len(self.routes) == 1 and not self.unseen else None

    def after(self, before: Route) -> "_Leg":
        """Return the routes of a window in which it was taken, after another one."""
        shares = {route: CHANGED * share for route, share in self.routes.items()}
        shares[before] = shares.get(before, 0.0) + 1 - CHANGED
        return _Leg(shares, CHANGED * self.unseen)


@dataclass(slots=True)
class LearnedTopology:
    """Routes by flow and direction, and what they say of the fabric."""

    declared: DeclaredTopology = field(default_factory=DeclaredTopology)
    _leaf_of: dict[str, str] = field(default_factory=dict)
    """VTEP -> first router of its latest trace."""
    _known: dict[tuple[FlowId, bool], _Known] = field(default_factory=dict)
    _partial: dict[tuple[FlowId, bool], tuple[Route, int]] = field(default_factory=dict)
    """Latest trace of directions that were never traced to their end, and its window (ns)."""
    _links: dict[tuple[str, str], int] = field(default_factory=dict)
    """Two routers beside each other on complete routes -> start (ns) of the newest such window."""
    _between: dict[tuple[str, str], dict[Route, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Names of two leaves -> routes by name that traces showed, with the newest window (ns)."""
    _left: dict[tuple[str, str], int] = field(default_factory=dict)
    """Two routers of a route that a flow took no more -> newest window (ns) that showed it."""
    _components: dict[Route, frozenset[Component]] = field(default_factory=dict)
    """Cache: route -> components that it crosses. All flows share a few routes."""
    _settled_ways: dict[tuple[Route, Route], Way] = field(default_factory=dict)
    """Cache: routes there and back -> components that both cross."""
    _untraced_ways: dict[tuple[str | None, ...], Way] = field(default_factory=dict)
    """Cache: two leaves -> what flows between them may cross of which no trace shows anything."""
    _legs: dict[object, Leg] = field(default_factory=dict)
    """Cache: possible routes -> what they cross."""
    _declared_ways: dict[tuple[str, str], tuple[Route, ...]] = field(default_factory=dict)
    _rows: RouteRows = field(default_factory=RouteRows)
    """Cache: number of a flow -> its newest routes."""
    _declared_leaf: dict[tuple[str, str], str] = field(init=False)

    def __post_init__(self) -> None:
        uplinks = self.declared.uplinks
        self._declared_leaf = {(each.host, each.rnic): each.leaf for each in uplinks}

    def learn(
        self, rows: Sequence[PathRow], underlay_of: UnderlayOf, *, wall_ns: int = 0
    ) -> list[bool]:
        """Take in paths of a summary whose window began at `wall_ns`; say which are whole.

        Of those that are whole, nothing more is learned by taking them in again.
        """
        # A summary's thousands of rows name a few endpoints and routes, again and again.
        underlays = _Memo(underlay_of)
        answered = _Memo(self._answered)
        for row in rows:
            sender = underlays[row.flow.target if row.reply else row.flow.source]
            if sender is not None and row.hops and row.hops[0]:
                self._leaf_of[sender] = row.hops[0]
        if self.sprays:
            return [True] * len(rows)  # hops of several packets, and so of several ways
        whole, crossed = list[bool](), set[Route]()
        for row in rows:
            hops = answered[row.hops]
            receiver = underlays[row.flow.source if row.reply else row.flow.target]
            complete = receiver is not None and hops[-1:] == (self._leaf_of.get(receiver),)
            whole.append(complete or not hops)
            if hops and self._take(row, hops, wall_ns, complete=complete):
                crossed.add(hops)
        for hops in crossed:
            self._cross(hops, wall_ns)
        return whole

    def _take(self, row: PathRow, hops: Route, wall_ns: int, *, complete: bool) -> bool:
        """Take in a trace; return whether it is a flow's whole route."""
        key = (row.flow, row.reply)
        known = self._known.get(key)
        stood_in = len(hops) == len(row.hops) and hops != row.hops
        if complete and not (known and stood_in):
            self._learn_whole(key, hops, row.outer_port, known, wall_ns)
            return True
        if known is not None:
            known.latest, known.seen_ns = hops, wall_ns
        elif key in self._partial or len(self._partial) < PARTIAL_KEPT:
            if key not in self._partial:
                self._rows.turned.add(row.flow)
            self._partial[key] = (hops, wall_ns)
        return False

    def _answered(self, hops: Route) -> Route:
        """Return who answered for itself, "" for routers that the one before them spoke for."""
        names = self._named(hops)
        answered = ["" if n and names[n] == names[n - 1] else hop for n, hop in enumerate(hops)]
        while len(answered) > 1 and hops[len(answered) - 1] and not answered[-1]:
            answered.pop()
        return tuple(answered)

    def _learn_whole(
        self,
        key: tuple[FlowId, bool],
        hops: Route,
        outer_port: int,
        known: "_Known | None",
        wall_ns: int,
    ) -> None:
        if known is None:
            self._partial.pop(key, None)
            self._rows.turned.add(key[0])
            self._known[key] = _Known([(hops, wall_ns)], hops, outer_port, wall_ns)
            return
        if hops != known.hops:
            self._rows.turned.add(key[0])
            for pair in {*pairwise(known.hops)} - {*pairwise(hops)}:
                if pair in self._left or len(self._left) < PARTIAL_KEPT:
                    self._left[pair] = max(wall_ns, self._left.get(pair, wall_ns))
        known.turn(hops, wall_ns)
        known.latest, known.outer_port, known.seen_ns = hops, outer_port, wall_ns

    def _cross(self, hops: Route, wall_ns: int) -> None:
        names = self._named(hops)
        ways = self._between[names[0], names[-1]]
        if names not in ways:
            self._untraced_ways.clear()
        ways[names] = wall_ns
        for a, b in pairwise(hops):
            if a and b:
                ends = (min(a, b), max(a, b))
                self._links[ends] = max(wall_ns, self._links.get(ends, wall_ns))

    @property
    def sprays(self) -> bool:
        """Whether each packet takes a way of its own, so that no flow has one."""
        return self.declared.fabric is Fabric.SPRAY

    @property
    def directions(self) -> int:
        """Return how many directions of flows are remembered."""
        return len(self._known) + len(self._partial)

    def leaf(self, underlay: str) -> str | None:
        """Return the router that the VTEP's traces begin with; None before the first trace."""
        return self._leaf_of.get(underlay)

    def hops(self, flow: FlowId, *, reply: bool) -> Route | None:
        """Return the names of the routers of the last complete route; "" where one is silent."""
        known = self._known.get((flow, reply))
        return tuple(map(self.name, known.hops)) if known else None

    def ends_after(self, flow: FlowId, *, reply: bool) -> str | None:
        """Return the last router of a latest trace that ended early; None where it did not."""
        known = self._known.get((flow, reply))
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
        keys = [(flow, False), (flow, True)]
        moved = lost and any(self._moved_ns(key, at_ns) is not None for key in keys)
        settled = None if moved else self._settled(flow, at_ns)
        if settled is not None:
            return settled
        leaves = tuple(map(self.leaf_of, ends))
        if self._untraced(flow):
            way = self._untraced_ways.get(leaves)
            if way is None:
                both = [self._possible(leaves, ()), self._possible(leaves[::-1], ())]
                way = self._untraced_ways[leaves] = self._mixed(both)
            return way
        legs = [
            self._leg((flow, False), leaves, at_ns, lost=lost),
            self._leg((flow, True), leaves[::-1], at_ns, lost=lost),
        ]
        return self._mixed(legs)

    def _untraced(self, flow: FlowId) -> bool:
        """Return whether no trace has shown anything of a flow."""
        keys = [(flow, False), (flow, True)]
        return not any(key in self._known or key in self._partial for key in keys)

    def _mixed(self, legs: Sequence[_Leg]) -> Way:
        """Return the way there and back, each of which may be one of several."""
        possible = tuple(map(self._possible_parts, legs))
        sure = [leg.sure for leg in legs if leg.sure is not None]
        if len(sure) == len(legs):
            return Way(frozenset[Component]().union(*map(self._parts, sure)), legs=possible)
        missed: dict[Component, float] = defaultdict(lambda: 1.0)
        for leg in legs:
            crossed: dict[Component, float] = defaultdict(float)
            for route, share in leg.routes.items():
                for component in self._parts(route):
                    crossed[component] += share
            for component, share in crossed.items():
                missed[component] *= max(0.0, 1.0 - share)
        certain = frozenset(c for c, share in missed.items() if share < 1e-9)
        maybe = {c: 1.0 - share for c, share in missed.items() if c not in certain}
        unseen = 1.0 - (1.0 - legs[0].unseen) * (1.0 - legs[1].unseen)
        return Way(certain, maybe, unseen, possible)

    def _possible_parts(self, leg: _Leg) -> Leg:
        key = (tuple(leg.routes.items()), leg.unseen)
        found = self._legs.get(key)
        if found is None:
            found = self._legs[key] = tuple(
                (self._parts(route) | _directions(route), share * (1.0 - leg.unseen))
                for route, share in leg.routes.items()
            )
        return found

    def _settled(self, flow: FlowId, at_ns: int) -> Way | None:
        """Return the way of a flow whose routes both stand since before the window."""
        there, back = self._known.get((flow, False)), self._known.get((flow, True))
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

    def settled(self, numbers: NDArray[np.int64], flows: FlowNumbers, *, at_ns: int) -> Settled:
        """Return the routes of the flows with these numbers, where both stand since before `at_ns`.

        It is what `way` returns for each of them. `untraced_leg` has what is possible of flows of
        which no trace has shown anything.
        """
        rows, named = self._rows, _Memo(self._named)
        for number in rows.unknown(numbers, flows):
            flow = flows.flow(number)
            both = [self._known.get((flow, reply)) for reply in (False, True)]
            newest = [known.routes[-1] for known in both if known is not None]
            if len(newest) < len(both):
                state = UNTRACED if self._untraced(flow) else NO_ROUTE
                rows.put(number, (state, state), -1)
                continue
            routes = [rows.row(named[hops]) for hops, _ in newest]
            rows.put(number, (routes[0], routes[1]), max(since_ns for _, since_ns in newest))
        return rows.settled(numbers, at_ns=at_ns)

    def untraced_leg(self, leaves: tuple[str | None, str | None]) -> Leg:
        """Return what untraced packets may cross from a leaf to another; None: it is not known."""
        return self._possible_parts(self._possible(leaves, ()))

    def untraced_routes(self, first: str | None, last: str | None) -> tuple[Route, ...]:
        """Return the routes that untraced packets may take from a leaf to another."""
        return tuple(self._possible((first, last), ()).routes)

    def leaf_of(self, end: Endpoint) -> str | None:
        """Return the name of an endpoint's leaf, traced or declared; None where it is not known."""
        seen = self._leaf_of.get(end.underlay)
        return self.name(seen) if seen else self._declared_leaf.get((end.host, end.rnic))

    def _leg(
        self,
        key: tuple[FlowId, bool],
        leaves: tuple[str | None, ...],
        at_ns: int,
        *,
        lost: bool,
    ) -> _Leg:
        known = self._known.get(key)
        moved_ns = self._moved_ns(key, at_ns) if lost else None
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

    def _moved_ns(self, key: tuple[FlowId, bool], at_ns: int) -> int | None:
        """Return the window that showed a direction on another way, on which it is lost; or None.

        Its latest trace ends where routers began to move other flows, or on another way.
        """
        known = self._known.get(key)
        if known is None or known.latest == known.hops:
            return None
        if any(a and b and a != b for a, b in zip(known.latest, known.hops, strict=False)):
            return known.seen_ns
        gap = known.hops[len(known.latest) - 1 :][:2] if known.latest else ()
        left_ns = self._left.get(gap) if len(gap) == 2 else None
        return left_ns if left_ns is not None and at_ns <= left_ns + MOVED_NS else None

    def _named(self, hops: Route) -> Route:
        return tuple(map(self.name, hops)) if self.declared.names else hops

    def _prefix(self, key: tuple[FlowId, bool]) -> Route:
        return _whole_part(self._named(self._partial.get(key, ((), 0))[0]))

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
            *self._between.get((first, last), ()),
            *(way[::-1] for way in self._between.get((last, first), ())),
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

    def _parts(self, route: Route) -> frozenset[Component]:
        parts = self._components.get(route)
        if parts is None:
            switches = {switch(name) for name in route if name}
            links = {link(a, b) for a, b in pairwise(route) if a and b}
            parts = self._components[route] = frozenset(switches | links)
        return parts

    def expire(self, *, before_ns: int) -> None:
        """Forget routes and links that no window since `before_ns` showed, and flows' numbers."""
        self._known = {k: v for k, v in self._known.items() if v.seen_ns >= before_ns}
        self._partial = {k: v for k, v in self._partial.items() if v[1] >= before_ns}
        self._links = {k: seen_ns for k, seen_ns in self._links.items() if seen_ns >= before_ns}
        self._left = {k: left_ns for k, left_ns in self._left.items() if left_ns >= before_ns}
        for ends, ways in list(self._between.items()):
            kept = {route: seen_ns for route, seen_ns in ways.items() if seen_ns >= before_ns}
            self._between[ends] = kept
            if not kept:
                del self._between[ends]
        self._components.clear()
        self._settled_ways.clear()
        self._untraced_ways.clear()
        self._legs.clear()
        self._rows = RouteRows()

    def links(self) -> set[tuple[str, str]]:
        """Return the links that remembered complete routes crossed, as sorted pairs of names."""
        names = ((self.name(a), self.name(b)) for a, b in self._links)
        return {(min(a, b), max(a, b)) for a, b in names}

    def leaves(self) -> dict[str, str]:
        """Return VTEP -> name of its leaf."""
        return {underlay: self.name(leaf) for underlay, leaf in self._leaf_of.items()}

    def undeclared_links(self) -> set[tuple[str, str]]:
        """Return links that were crossed but not declared; empty where no link was declared."""
        return self.links() - self.declared.links if self.declared.links else set()

    def unseen_links(self) -> set[tuple[str, str]]:
        """Return declared links that no remembered complete route crossed."""
        return set(self.declared.links) - self.links()

    def name(self, address: str) -> str:
        """Return the declared name of the router that answers from `address`, or the address."""
        return self.declared.name(address) if address else ""


class _Memo(dict[K, V]):
    """Remembers what a function returned."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


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
