# SPDX-License-Identifier: Apache-2.0
"""The traced paths of a summary, and which of them say what an earlier summary did not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import is_
from typing import Any, Self, TypeVar

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from analyzer.intake.columns import column, columns
from analyzer.intake.flows import MAX_ROWS
from netagent.model.endpoint import MAX_TEXT
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS
from netagent.wire.messages import PathColumns, Summary

T = TypeVar("T")

MAX_SINCE_NS = 120_000_000_000
"""Nanoseconds for which a summary may say only what differs of its paths. Chosen: twice what agents
do."""

MAX_CROSSED = 1 << 18
"""Most routers that the routes of a summary have in all. Chosen: four for each of `MAX_ROWS`."""
MAX_ROUTERS = 1 << 16
"""Most different ones. Chosen: a router answers from each of its interfaces with another address,
which are 33,000 where 64 spines and 512 leaves are crossed."""

NOWHERE = -1
"""Place of a path that a table does not have."""

_Laid = tuple["PathTable", dict[int, tuple[int, int, tuple[str, ...]]]]
"""Paths with news, and for each key of these: its place, outer port, and routers."""
Numbering = tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]

_KEY = ("source", "target", "source_port", "reply", "outer_port")
_NOTHING = astuple(PathColumns())[:-1]
_NO_ROWS = tuple(columns(PathColumns(), _KEY, 0).values()), column(PathColumns(), "route")


@dataclass(frozen=True, slots=True)
class PathRow:
    """The routers one direction of a flow crossed, as traced by the sender's host."""

    flow: FlowId
    reply: bool
    outer_port: int
    hops: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """All traced paths of a summary, undecoded; columns are (n_paths,), as in `PathColumns`."""

    endpoints: tuple[EndpointId, ...]
    routes: tuple[tuple[str, ...], ...]
    key: tuple[NDArray[np.uint16], ...]
    """Columns of source, target, source port, direction and outer source port."""
    route: NDArray[np.uint16]
    whole_ns: int = 0
    """Start of the window that had all of the paths from which these differ; 0: these are all."""

    @classmethod
    def of(cls, rows: Iterable[PathRow]) -> Self:
        """Return columns of paths that are looked at one by one already."""
        rows = tuple(rows)
        met = dict.fromkeys(end for row in rows for end in (row.flow.source, row.flow.target))
        endpoint = {each: n for n, each in enumerate(met)}
        route = {each: n for n, each in enumerate(dict.fromkeys(row.hops for row in rows))}
        columns = [
            [endpoint[row.flow.source] for row in rows],
            [endpoint[row.flow.target] for row in rows],
            [row.flow.source_port for row in rows],
            [row.reply for row in rows],
            [row.outer_port for row in rows],
            [route[row.hops] for row in rows],
        ]
        *key, shown = (np.array(each, np.uint16) for each in columns)
        return cls(tuple(endpoint), tuple(route), tuple(key), shown)

    def __len__(self) -> int:
        return len(self.route)

    def rows(self, which: NDArray[np.int64]) -> list[PathRow]:
        """Return the paths in these rows."""
        chosen = (each[which].tolist() for each in (*self.key, self.route))
        return [
            PathRow(
                FlowId(self.endpoints[source], self.endpoints[target], port),
                bool(reply),
                outer,
                self.routes[route],
            )
            for source, target, port, reply, outer, route in zip(*chosen, strict=True)
        ]

    def says_as(self, other: "PathTable") -> bool:
        """Return whether both have the same columns and tables, and differ from the same paths."""
        if self.whole_ns != other.whole_ns or len(self) != len(other):
            return False
        return not len(self) or (
            self.endpoints is other.endpoints
            and self.routes == other.routes
            and all(a.tobytes() == b.tobytes() for a, b in zip(self.key, other.key, strict=True))
            and self.route.tobytes() == other.route.tobytes()
        )

    def found_in(self, other: "PathTable") -> NDArray[np.int64]:
        """Return the rows (n_paths,) of `other` that say the same, NOWHERE where none does.

        An agent says its paths in the order in which it met their flows: where one is gone, all
        that come after it have other places.
        """
        if self is other:
            return np.arange(len(self))
        ends = _comparable(self.endpoints, other.endpoints)
        routes = _comparable(self.routes, other.routes)
        both = zip((self, other), ends, routes, strict=True)
        (mine, shown), (theirs, shown_there) = (_packed(*each) for each in both)
        many = min(len(mine), len(theirs))
        found = np.full(len(mine), NOWHERE)
        is_same = (mine[:many] == theirs[:many]) & (shown[:many] == shown_there[:many])
        found[:many][is_same] = np.flatnonzero(is_same)
        rest = np.flatnonzero(found == NOWHERE)
        if len(rest) and len(theirs):
            order = theirs.argsort()
            place = np.minimum(theirs.searchsorted(mine[rest], sorter=order), len(theirs) - 1)
            at = order[place]
            is_same = (theirs[at] == mine[rest]) & (shown_there[at] == shown[rest])
            found[rest[is_same]] = at[is_same]
        return found


class PathBase:
    """All paths of a window, over which what differs in later ones is laid."""

    def __init__(self, paths: PathTable) -> None:
        self.paths = paths
        self._ends: dict[EndpointId, int] | None = None
        self._routes: dict[tuple[str, ...], int] = {}
        self._places: dict[int, int] = {}
        self._before: _Laid = (paths, {})
        self._newest: _Laid = (paths, {})
        """What came of the newest news, and of those before."""
        self._said = paths
        """The newest news; first, these paths themselves."""

    def with_news(self, news: PathTable) -> PathTable | None:
        """Return these paths with those of `news` in their places, new ones at the end.

        None where that is more than the columns can number, or than a host has.
        """
        self._before = self._newest
        if not len(news):
            self._said, self._newest = news, (self.paths, {})
            return self.paths
        if self._said.says_as(news):  # an agent says them in each window until the minute's end
            return self._newest[0]
        paths, known_ends = self.paths, self._ends
        if known_ends is None:  # cost follows the news from the second time on
            known_ends = self._ends = _first(paths.endpoints)
            self._routes, self._places = _first(paths.routes), _first(_keys(paths.key))
        ends, end_at = paths.endpoints, None
        if news.endpoints is not ends:
            ends, end_at = _joined(ends, known_ends, news.endpoints)
        routes, route_at = _joined(paths.routes, self._routes, news.routes)
        if max(len(ends), len(routes)) > 1 << 16:
            return None
        theirs = news.key
        if end_at is not None:
            row = np.array(end_at, np.uint16)
            theirs = (row[news.key[0]], row[news.key[1]], *news.key[2:])
        lacking: dict[int, int] = {}
        at: list[int] = []
        keys = _keys(theirs)
        for key in keys:
            place = self._places.get(key)
            at.append(
                lacking.setdefault(key, len(paths) + len(lacking)) if place is None else place
            )
        if len(paths) + len(lacking) > MAX_ROWS:
            return None
        both, places = zip(paths.key, theirs, strict=True), np.array(at, np.int64)
        laid = tuple(_laid_over(mine, others, places, len(lacking)) for mine, others in both)
        shown = np.array(route_at, np.uint16)[news.route]
        route = _laid_over(paths.route, shown, places, len(lacking))
        made = PathTable(ends, routes, laid, route)
        hops = map(news.routes.__getitem__, news.route.tolist())
        said = zip(at, news.key[4].tolist(), hops, strict=True)
        self._said, self._newest = news, (made, dict(zip(keys, said, strict=True)))
        return made

    def found(self, paths: PathTable, before: PathTable) -> NDArray[np.int64]:
        """Return what `found_in` does, at a part of its cost where both were laid over these paths.

        Then whatever neither of them has news of is the same.
        """
        (mine, said), (theirs, said_before) = self._newest, self._before
        if paths is not mine or before is not theirs:
            return paths.found_in(before)
        found = np.arange(len(paths))
        for key, (place, *shown) in said.items():
            was_at, *was_shown = said_before.get(key, (NOWHERE,))
            found[place] = was_at if was_shown == shown else NOWHERE
        for key, (place, *_) in said_before.items():
            if key not in said and place < len(self.paths):
                found[place] = NOWHERE
        return found


def joined(tables: Sequence[PathTable], rows: Sequence[NDArray[np.int64]]) -> PathTable:
    """Return some rows of each table as one; of endpoints and routes it has what they need.

    They are few: no more than columns can number. Routes are met in the order in which they are
    where tables are taken one after the other.
    """
    ends, routes = dict[int, int](), dict[tuple[str, ...], int]()
    named: list[EndpointId] = []
    columns: list[list[int]] = [[] for _ in range(6)]

    def number(end: EndpointId) -> int:
        # Equal ones that are two objects have two numbers, as where a host says one twice.
        found = ends.setdefault(id(end), len(named))
        if found == len(named):
            named.append(end)
        return found

    for table, mine in zip(tables, rows, strict=True):
        source, target, *rest, route = (each[mine].tolist() for each in (*table.key, table.route))
        for n in sorted(set(route)):
            routes.setdefault(table.routes[n], len(routes))
        numbered = [routes[table.routes[n]] for n in route]
        both = ([number(table.endpoints[n]) for n in places] for places in (source, target))
        for listed, more in zip(columns, (*both, *rest, numbered), strict=True):
            listed.extend(more)
    *key, shown = [np.array(each, np.uint16) for each in columns]
    return PathTable(tuple(named), tuple(routes), tuple(key), shown)


def paths_of(summary: Summary) -> PathTable:
    """Return the summary's traced paths; RemoteProtocolError where they make no sense."""
    paths, endpoints = summary.paths, len(summary.endpoints)
    since_ns = summary.start_ns - paths.whole_ns if paths.whole_ns else 0
    if paths.whole_ns < 0 or not 0 <= since_ns <= MAX_SINCE_NS:
        raise RemoteProtocolError("paths that differ from those of a later window, or one long ago")
    if astuple(paths)[:-1] == _NOTHING:  # as in most windows of a minute
        return PathTable(summary.endpoints, (), *_NO_ROWS, paths.whole_ns)
    if max(map(len, paths.routes), default=0) > MAX_HOPS:
        raise RemoteProtocolError(f"a path of more than {MAX_HOPS} routers")
    if sum(map(len, paths.routes)) > MAX_CROSSED:
        raise RemoteProtocolError(f"paths of more than {MAX_CROSSED} routers in all")
    routers = set().union(*paths.routes)
    if len(routers) > MAX_ROUTERS or max(map(len, routers), default=0) > MAX_TEXT:
        raise RemoteProtocolError(f"more than {MAX_ROUTERS} routers, or one that has a longer name")
    route = column(paths, "route")
    key = tuple(columns(paths, _KEY, len(route)).values())
    for numbers, many in ((key[0], endpoints), (key[1], endpoints), (route, len(paths.routes))):
        if len(route) and np.maximum.reduce(numbers) >= many:
            raise RemoteProtocolError("path columns do not agree: a row beyond its table")
    if len(route) > MAX_ROWS:
        raise RemoteProtocolError(f"{len(route)} paths of a host; {MAX_ROWS} at most")
    return PathTable(summary.endpoints, paths.routes, key, route, paths.whole_ns)


def _comparable(mine: tuple[T, ...], theirs: tuple[T, ...]) -> Numbering:
    """Return numbers (n,) for the items of two tables; the same for none but the same ones.

    None twice where their places are such.
    """
    if mine is theirs:
        return None, None
    alike = list(map(is_, mine, theirs))  # what is laid over one table begins with the same objects
    many = len(alike) if all(alike) else alike.index(False)
    if many in (len(mine), len(theirs)):
        return None, None
    rest = mine[many:], theirs[many:]
    number = dict(zip((*rest[0], *rest[1]), count(many), strict=False))
    one, other = (np.array([*range(many), *map(number.__getitem__, items)]) for items in rest)
    return one, other


def _packed(
    paths: PathTable, end: NDArray[np.int64] | None, route: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (n_paths,) one number for whose each path is, and one for what it shows."""
    source, target, port, reply, outer = (each.astype(np.int64) for each in paths.key)
    if end is not None:
        source, target = end[source], end[target]
    shown = paths.route.astype(np.int64) if route is None else route[paths.route]
    # Two tables together have at most twice as many endpoints as one.
    return ((source << 17 | target) << 16 | port) << 1 | (reply != 0), outer << 17 | shown


def _first(of: Sequence[T]) -> dict[T, int]:
    """Return where each stands first: a host may name one twice."""
    return dict(zip(reversed(of), range(len(of) - 1, -1, -1), strict=True))


def _joined(
    mine: tuple[T, ...], at: dict[T, int], others: tuple[T, ...]
) -> tuple[tuple[T, ...], list[int]]:
    """Return `mine`, which are `at`, with what they lack of `others`, and where all others are."""
    lacking = dict(zip((e for e in dict.fromkeys(others) if e not in at), count(len(mine))))
    places = [at[e] if e in at else lacking[e] for e in others]
    return (*mine, *lacking), places


def _keys(key: tuple[NDArray[Any], ...]) -> list[int]:
    source, target, port, reply = (each.astype(np.int64) for each in key[:4])
    keys: list[int] = ((((source << 16 | target) << 16 | port) << 1) | (reply != 0)).tolist()
    return keys


def _laid_over(
    mine: NDArray[Any], theirs: NDArray[Any], at: NDArray[np.int64], more: int
) -> NDArray[Any]:
    made = np.concatenate([mine, np.zeros(more, mine.dtype)])
    made[at] = theirs
    return made
