# SPDX-License-Identifier: Apache-2.0
"""What traces showed of each direction of each flow, in columns by the flow's number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathTable
from analyzer.intake.places import met
from analyzer.localize.incidence import Ints, Route
from analyzer.localize.routes import (
    LEAST_ROUTES,
    NEVER_NS,
    NO_ROUTE,
    UNTRACED,
    Directions,
    Mask,
    RouteTable,
    Rows,
    Settled,
)
from analyzer.localize.saved import COLUMNS, SavedRoutes
from netagent.model.ids import FlowId

ROUTES_KEPT = 3
"""Complete routes remembered per direction of a flow. Chosen: windows are judged in order and few
of them late, and memory stays bounded."""
LEFT_KEPT = 100_000
"""Most links remembered that flows left. Chosen: some ten megabytes; more than a fabric has."""

Places = NDArray[np.uint16]
"""Places in a summary's tables."""

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """Remembers what a function returned."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


@dataclass(slots=True)
class Known:
    """What is known of a direction that was traced to its end."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"outer_port"})
    """What earlier versions wrote into recordings."""

    routes: list[tuple[Route, int]]
    """Complete routes with the start (ns) of the window that first showed them, oldest first."""
    latest: Route
    seen_ns: int

    @property
    def hops(self) -> Route:
        """The newest of them."""
        return self.routes[-1][0]


@dataclass(slots=True)
class Traced:
    """Routes by flow and direction."""

    FORGOTTEN: ClassVar[frozenset[str]] = frozenset({"_links", "_between"})
    """What no recording holds, since it follows from the rest."""

    numbers: FlowNumbers = field(default_factory=FlowNumbers)
    routes: RouteTable = field(default_factory=RouteTable)
    leaf_of: dict[str, str] = field(default_factory=dict)
    """VTEP -> first router of its latest trace."""
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    """Two routers of a route that a flow took no more -> newest window (ns) that showed it."""
    _taken: Directions = field(default_factory=Directions)
    _earlier: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Twice the number of a flow, and one more for replies -> rows of its whole routes before the
    newest, with the start (ns) of the window that first showed them, oldest first."""
    _most_routes: int = LEAST_ROUTES
    """Routes from which those that nobody takes any more are forgotten at once."""
    _links: set[tuple[str, str]] | None = None
    """Cache: two routers beside each other on complete routes."""
    _between: tuple[Ints, Ints] | None = None
    """Cache: keys (n,) of leaves, and rows (n,) of the routes between them, by the key."""

    def learn(
        self,
        paths: PathTable,
        which: Ints,
        underlays: "Memo[int, str | None]",
        *,
        wall_ns: int,
        leaves_only: bool = False,
    ) -> tuple[Mask, bool]:
        """Take in the paths `which` (n,) of a summary whose window began at `wall_ns`.

        `underlays` has the VTEPs by places in the table of endpoints. Return (n,) which are whole,
        and whether a route was crossed that none had crossed.
        """
        source, target, port, reply = (each[which] for each in paths.key[:4])
        is_reply = np.not_equal(reply, 0)
        sender = np.where(is_reply, target, source)
        receiver = np.where(is_reply, source, target)
        route = paths.route[which]
        self._learn_leaves(paths, sender, route, underlays)
        if leaves_only:  # hops of several packets, and so of several ways
            return np.ones(len(which), np.bool_), False
        asked, place = met(route, len(paths.routes))
        table, stood_in = self.routes.rows([paths.routes[each] for each in asked.tolist()])
        shown = table[place]
        is_traced = shown != NO_ROUTE
        complete = is_traced.copy()
        complete[is_traced] = self._reaches(shown[is_traced], receiver[is_traced], underlays)
        rows = (source[is_traced], target[is_traced], port[is_traced])
        numbers = self.numbers.traced(paths.endpoints, rows, seen_ns=wall_ns)
        at = is_reply[is_traced].astype(np.int64), numbers
        news = self._take(
            at, shown[is_traced], complete[is_traced], stood_in[place][is_traced], wall_ns
        )
        return np.where(is_traced, complete, True), news

    def awaits(self, paths: PathTable, which: Ints, underlays: "Memo[int, str | None]") -> Mask:
        """Return (n,) which paths, taken in, are of directions of which no whole route is known.

        And cannot be, since the receiver's leaf is not: it has traced nothing yet.
        """
        source, target, port, reply = (each[which] for each in paths.key[:4])
        is_reply = np.not_equal(reply, 0)
        asked, place = met(np.where(is_reply, source, target), len(paths.endpoints))
        leaf_of = self.leaf_of.keys()
        awaits: Mask = np.array([underlays[n] not in leaf_of for n in asked.tolist()])[place]
        numbers = self.numbers.numbers(paths.endpoints, (source, target, port))
        awaits &= self._taken.newest[is_reply.astype(np.int64), numbers] == NO_ROUTE
        return awaits

    def _learn_leaves(
        self, paths: PathTable, sender: Places, route: Places, underlays: "Memo[int, str | None]"
    ) -> None:
        """Take the first router of each sender's last path."""
        asked, place = met(route, len(paths.routes))
        first = [hops[0] if hops else "" for hops in (paths.routes[n] for n in asked.tolist())]
        mine = np.array(list(map(bool, first)), np.bool_)[place]
        last = dict(zip(sender[mine].tolist(), place[mine].tolist(), strict=True))
        for who, number in last.items():
            underlay = underlays[who]
            if underlay is not None:
                self.leaf_of[underlay] = first[number]

    def _reaches(self, shown: Rows, receiver: Places, underlays: "Memo[int, str | None]") -> Mask:
        """Return (n,) which routes end at the leaf that the receiver's own traces begin with."""
        asked, place = met(receiver, int(receiver.max(initial=0)) + 1)
        leaf_of, number = self.leaf_of.get, self.routes.routers.number
        ends = [underlays[each] for each in asked.tolist()]
        leaves = [None if end is None else leaf_of(end) for end in ends]
        numbers = [-1 if leaf is None else number(leaf) for leaf in leaves]
        reaches: Mask = self.routes.last(shown) == np.array(numbers, np.int64)[place]
        return reaches

    def _take(
        self, at: tuple[Ints, Ints], shown: Rows, complete: Mask, stood_in: Mask, wall_ns: int
    ) -> bool:
        """Take in traces (n,) of directions; `at` says of which. Return whether any is news."""
        taken = self._taken
        taken.cover(at[1])
        before = taken.newest[at]
        is_known = before != NO_ROUTE
        whole = complete & ~(is_known & stood_in)
        fresh, turned = whole & ~is_known, whole & is_known & (before != shown)
        begun = at[0][fresh], at[1][fresh]
        taken.newest[begun], taken.since_ns[begun] = shown[fresh], wall_ns
        taken.latest[at], taken.seen_ns[at] = shown, wall_ns
        columns = (each[turned].tolist() for each in (*at, shown))
        for reply, number, row in zip(*columns, strict=True):
            self._turn((reply, number), row, wall_ns)
        return self._cross(np.unique(shown[whole]), wall_ns)

    def _turn(self, at: tuple[int, int], row: int, wall_ns: int) -> None:
        before, since_ns = int(self._taken.newest[at]), int(self._taken.since_ns[at])
        if row == before:
            return  # a summary said it twice
        hops, left = self.routes.shown(row), self.routes.shown(before)
        for pair in {*pairwise(left)} - {*pairwise(hops)}:
            if pair in self.left or len(self.left) < LEFT_KEPT:
                self.left[pair] = max(wall_ns, self.left.get(pair, wall_ns))
        key = 2 * at[1] + at[0]
        self._earlier[key] = [*self._earlier.get(key, ()), (before, since_ns)][1 - ROUTES_KEPT :]
        self._taken.newest[at], self._taken.since_ns[at] = row, wall_ns

    def _cross(self, rows: Rows, wall_ns: int) -> bool:
        crossed_ns = self.routes.crossed_ns
        news = bool((crossed_ns[rows] == NEVER_NS).any())
        crossed_ns[rows] = np.maximum(crossed_ns[rows], wall_ns)
        if news:
            self._links = self._between = None
        return news

    # --- what is known ---------------------------------------------------------------------------

    @property
    def directions(self) -> int:
        """Return how many directions of flows are remembered."""
        return int(np.count_nonzero(self._taken.latest != NO_ROUTE))

    def known(self, flow: FlowId, *, reply: bool) -> Known | None:
        """Return what is known of a direction; None where it was never traced to its end."""
        number, taken, shown = self._number(flow), self._taken, self.routes.shown
        row = NO_ROUTE if number is None else int(taken.newest[int(reply), number])
        if number is None or row == NO_ROUTE:
            return None
        at = int(reply), number
        rows = [*self._earlier.get(2 * number + reply, ()), (row, int(taken.since_ns[at]))]
        return Known(
            [(shown(each), since_ns) for each, since_ns in rows],
            shown(int(taken.latest[at])),
            int(taken.seen_ns[at]),
        )

    def newest(self, flow: FlowId, *, reply: bool) -> Route | None:
        """Return the newest whole route of a direction; None where there is none."""
        number = self._number(flow)
        row = NO_ROUTE if number is None else int(self._taken.newest[int(reply), number])
        return None if row == NO_ROUTE else self.routes.shown(row)

    def partial(self, flow: FlowId, *, reply: bool) -> Route:
        """Return the latest trace of a direction that was never traced to its end."""
        number, taken = self._number(flow), self._taken
        if number is None or taken.newest[int(reply), number] != NO_ROUTE:
            return ()
        row = int(taken.latest[int(reply), number])
        return self.routes.shown(row) if row != NO_ROUTE else ()

    def is_untraced(self, flow: FlowId) -> bool:
        """Return whether no trace has shown anything of a flow."""
        number = self._number(flow)
        return number is None or bool((self._taken.latest[:, number] == NO_ROUTE).all())

    def _number(self, flow: FlowId) -> int | None:
        number = self.numbers.known(flow)
        return number if number is not None and number < len(self._taken) else None

    def settled(
        self, numbers: Ints, flows: FlowNumbers, *, at_ns: int, lost: Mask | None = None
    ) -> Settled:
        """Return the routes of the flows with these numbers, where both stand since before `at_ns`.

        Of flows that `lost` nothing (n_flows,), if that is given, also where the window that began
        then was the first to show one. Of flows that others number the names are looked up.
        """
        taken, routes = self._taken, self.routes
        if flows is not self.numbers:
            known_here = map(self.numbers.known, flows.flows(numbers))
            numbers = np.array([-1 if each is None else each for each in known_here], np.int64)
        known = (numbers >= 0) & (numbers < len(taken))
        at = np.where(known, numbers, 0)
        # Of both rows at once, `take` costs a sixth of what an index does.
        there, back = taken.newest.take(at, axis=1).astype(np.int64)
        is_whole = known & (there != NO_ROUTE) & (back != NO_ROUTE)
        since_ns = taken.since_ns.take(at, axis=1)
        later_ns = np.maximum(since_ns[0], since_ns[1])
        is_new = later_ns >= at_ns
        if lost is not None:
            first = np.flatnonzero(is_whole & is_new & ~lost & (later_ns == at_ns))
            is_new[first] = [
                any(2 * n + reply in self._earlier for reply in (0, 1) if since[reply] == at_ns)
                for n, since in zip(at[first].tolist(), since_ns[:, first].T.tolist(), strict=True)
            ]
        is_whole &= ~is_new
        rest = np.flatnonzero(~is_whole)  # in health few
        untraced = ~known[rest] | (taken.latest.take(at[rest], axis=1) == NO_ROUTE).all(axis=0)
        there[rest] = back[rest] = np.where(untraced, UNTRACED, NO_ROUTE)
        routes.cover()
        return Settled(there, back, routes, routes.incidence)

    def taken(self) -> tuple[Rows, RouteTable]:
        """Return rows (2, n) of the newest whole routes by the flow's number, and the routes.

        Later calls change both.
        """
        return self._taken.newest, self.routes

    def unmoved(
        self, numbers: Ints, flows: FlowNumbers, lost: Mask, *, at_ns: int, moving_ns: int
    ) -> tuple[Ints, Ints]:
        """Return the settled routes there and back of flows that still take them.

        NO_ROUTE stands in the place of all others: those that `lost` something (n_flows,) and that
        a newer trace shows on another way, or ending at a link that others left no longer than
        `moving_ns` before.
        """
        settled = self.settled(numbers, flows, at_ns=at_ns)
        kept = (settled.there >= 0) & (flows is self.numbers)
        at = np.flatnonzero(kept & lost)
        for newest, latest in zip(
            self._taken.newest[:, numbers[at]], self._taken.latest[:, numbers[at]], strict=True
        ):
            turned, gaps = self.routes.turned(newest, latest)
            left = [self.left.get(gap, NEVER_NS) + moving_ns >= at_ns for gap in gaps[0]]
            kept[at[turned | np.array([*left, False])[gaps[1]]]] = False
        there, back = (np.where(kept, each, NO_ROUTE) for each in (settled.there, settled.back))
        return there, back

    def links(self) -> set[tuple[str, str]]:
        """Return the links that whole routes crossed, as pairs of addresses."""
        if self._links is None:
            names = self.routes.routers.names
            self._links = {(names[a], names[b]) for a, b in self.routes.links()}
        return self._links

    def between(self, first: str, last: str) -> set[Route]:
        """Return the whole routes from one leaf to another, all by name."""
        if self._between is None:
            rows = self.routes.crossed()
            keys = _leaves(*self.routes.ends(rows))
            order = np.argsort(keys, kind="stable")
            self._between = keys[order], rows[order]
        keys, rows = self._between
        wanted = [self.routes.routers.number(leaf) for leaf in (first, last)]
        key = _leaves(*np.array(wanted, np.int64))
        begin, end = (int(np.searchsorted(keys, key + more)) for more in (0, 1))
        return {self.routes[row] for row in rows[begin:end].tolist()}

    # --- forgetting ------------------------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many routes that those in use have to do."""
        return len(self.routes) > self._most_routes

    def in_use(self) -> Mask:
        """Return (n_routes,) which routes a direction takes, or took."""
        used = np.zeros(len(self.routes) + 1, np.bool_)  # NO_ROUTE is the last
        used[self._taken.newest] = used[self._taken.latest] = True
        used[[row for each in self._earlier.values() for row, _ in each]] = True
        return used[:-1]

    def expire(self, *, before_ns: int) -> Mask:
        """Forget directions that no window since `before_ns` showed.

        Return (n_routes,) which routes are left, or were crossed since.
        """
        self._taken.expire(before_ns=before_ns)
        latest = self._taken.latest
        self._earlier = {
            key: rows
            for key, rows in self._earlier.items()
            if latest[key & 1, key >> 1] != NO_ROUTE
        }
        self.left = {pair: left_ns for pair, left_ns in self.left.items() if left_ns >= before_ns}
        crossed_ns = self.routes.crossed_ns
        crossed_ns[crossed_ns < before_ns] = NEVER_NS
        kept: Mask = self.in_use() | (crossed_ns[: len(self.routes)] != NEVER_NS)
        return kept

    def keep(self, kept: Mask) -> None:
        """Forget all other routes (n_routes,)."""
        self.routes, now = self.routes.only(kept)
        self._taken.renumber(now)
        self._earlier = {
            key: [(int(now[row]), since_ns) for row, since_ns in rows]
            for key, rows in self._earlier.items()
        }
        self._most_routes = max(LEAST_ROUTES, 2 * len(self.routes))
        self._links = self._between = None

    # --- over restarts ---------------------------------------------------------------------------

    def save(self, at_ns: int) -> SavedRoutes:
        """Return what is known, of all that came until `at_ns`."""
        taken, routes = self._taken, self.routes
        numbers = np.flatnonzero((taken.latest != NO_ROUTE).any(axis=0))
        place = np.full(len(taken), -1)
        place[numbers] = np.arange(len(numbers))
        ends, port = self.numbers.ends(numbers), self.numbers.ports(numbers)
        named, at = met(ends.reshape(-1), self.numbers.endpoints)
        source, target = at.reshape(ends.shape)
        before = [
            (2 * place[key >> 1] + key % 2, *e) for key, each in self._earlier.items() for e in each
        ]
        earlier = np.array(before, np.int64).reshape(-1, 3)
        left = np.array([routes.routers.numbers(pair) for pair in self.left], np.int64).reshape(
            -1, 2
        )
        columns = {
            "source": source, "target": target, "port": port,
            "newest": taken.newest[:, numbers], "since_ns": taken.since_ns[:, numbers],
            "latest": taken.latest[:, numbers], "seen_ns": taken.seen_ns[:, numbers],
            **routes.columns(),
            "earlier": earlier[:, 0], "earlier_route": earlier[:, 1], "earlier_ns": earlier[:, 2],
            "left": left.T, "left_ns": np.array(list(self.left.values()), np.int64),
        }  # fmt: skip
        return SavedRoutes(
            at_ns,
            tuple(map(self.numbers.endpoint, named.tolist())),
            tuple(routes.routers.names),
            dict(self.leaf_of),
            {name: columns[name].reshape(-1).astype(dtype) for name, dtype in COLUMNS.items()},
        )

    def adopt(self, saved: SavedRoutes) -> None:
        """Take what was saved, before anything was learned.

        Raises RemoteProtocolError where it does not agree with itself; then nothing was taken.
        """
        saved.check()
        columns = saved.columns
        newest, latest, since_ns, seen_ns = (
            columns[name].reshape(2, -1) for name in ("newest", "latest", "since_ns", "seen_ns")
        )
        ends = columns["source"], columns["target"], columns["port"]
        numbers = self.numbers.traced(saved.endpoints, ends, seen_ns=saved.at_ns)
        taken = Directions()
        taken.cover(numbers)
        taken.newest[:, numbers], taken.since_ns[:, numbers] = newest, since_ns
        taken.latest[:, numbers] = latest
        # A clock was ahead: a trace that outlives its flow's number would be another flow's.
        taken.seen_ns[:, numbers] = np.minimum(seen_ns, saved.at_ns)
        self._taken, self.leaf_of = taken, dict(saved.leaf_of)
        self.routes.put(saved.names, columns)
        names = [saved.names[each] for each in columns["left"].tolist()]
        pairs = zip(names[: len(names) // 2], names[len(names) // 2 :], strict=True)
        self.left = dict(zip(pairs, columns["left_ns"].tolist(), strict=True))
        before = (columns[name].tolist() for name in ("earlier", "earlier_route", "earlier_ns"))
        for place, row, first_ns in zip(*before, strict=True):
            key = 2 * int(numbers[place // 2]) + place % 2
            self._earlier.setdefault(key, []).append((row, first_ns))
        self._most_routes = max(LEAST_ROUTES, 2 * len(self.routes))
        self._links = self._between = None

    # --- recordings of earlier versions ----------------------------------------------------------

    def restore(self, attributes: Mapping[str, Any]) -> None:
        """Take what a version had that kept routes by flow."""
        self.leaf_of, self.left = attributes["_leaf_of"], attributes.get("_left", {})
        for (flow, reply), (latest, seen_ns) in attributes.get("_partial", {}).items():
            self._restore((flow, reply), [], latest, seen_ns)
        for (flow, reply), known in attributes["_known"].items():
            self._restore((flow, reply), known.routes, known.latest, known.seen_ns)
        row_of = {names: row for row, names in enumerate(self.routes)}
        for ways in attributes.get("_between", {}).values():
            for names, seen_ns in ways.items():
                row = row_of[names] if names in row_of else self._row(names)
                self.routes.crossed_ns[row] = seen_ns

    def _restore(
        self,
        key: tuple[FlowId, bool],
        routes: Sequence[tuple[Route, int]],
        latest: Route,
        seen_ns: int,
    ) -> None:
        number, reply = self.numbers.number(key[0]), int(key[1])
        self._taken.cover(np.array([number]))
        rows = [(self._row(hops), since_ns) for hops, since_ns in routes]
        if rows:
            self._taken.newest[reply, number], self._taken.since_ns[reply, number] = rows[-1]
            self._earlier |= {2 * number + reply: rows[:-1]} if rows[:-1] else {}
        self._taken.latest[reply, number] = self._row(latest)
        self._taken.seen_ns[reply, number] = seen_ns

    def _row(self, route: Route) -> int:
        return int(self.routes.rows([route])[0][0])


def _leaves(first: NDArray[Any], last: NDArray[Any]) -> NDArray[np.int64]:
    """Return one number for two numbers of leaves each."""
    keys: Ints = (first.astype(np.int64) << 32) + last
    return keys
