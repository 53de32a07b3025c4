# SPDX-License-Identifier: Apache-2.0
"""The traced paths of a summary, and which of them say what an earlier summary did not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

    def same(self, other: "PathTable") -> NDArray[np.bool_]:
        """Return which rows (n_paths,) say what those in the same places of `other` say."""
        if self is other:
            return np.ones(len(self), np.bool_)
        if self.endpoints != other.endpoints or len(self) != len(other):
            return np.zeros(len(self), np.bool_)
        same: NDArray[np.bool_]
        if self.routes == other.routes:
            same = self.route == other.route
        else:
            number: dict[tuple[str, ...], int] = {}
            ours, theirs = (
                np.array([number.setdefault(hops, len(number)) for hops in each.routes], np.int64)
                for each in (self, other)
            )
            same = ours[self.route] == theirs[other.route]
        for mine, others in zip(self.key, other.key, strict=True):
            same &= mine == others
        return same


class PathBase:
    """All paths of a window, over which what differs in later ones is laid."""

    def __init__(self, paths: PathTable) -> None:
        self.paths = paths
        self._ends: dict[EndpointId, int] | None = None
        self._routes: dict[tuple[str, ...], int] = {}
        self._places: dict[int, int] = {}

    def with_news(self, news: PathTable) -> PathTable | None:
        """Return these paths with those of `news` in their places, new ones at the end.

        None where that is more than the columns can number, or than a host has.
        """
        if not len(news):
            return self.paths
        paths, known_ends = self.paths, self._ends
        if known_ends is None:  # cost follows the news from the second time on
            known_ends = self._ends = _first(paths.endpoints)
            self._routes, self._places = _first(paths.routes), _first(_keys(paths.key))
        ends, end_at = _joined(paths.endpoints, known_ends, news.endpoints)
        routes, route_at = _joined(paths.routes, self._routes, news.routes)
        if max(len(ends), len(routes)) > 1 << 16:
            return None
        row = np.array(end_at, np.uint16)
        theirs = (row[news.key[0]], row[news.key[1]], *news.key[2:])
        lacking: dict[int, int] = {}
        at: list[int] = []
        for key in _keys(theirs):
            place = self._places.get(key)
            at.append(
                lacking.setdefault(key, len(paths) + len(lacking)) if place is None else place
            )
        if len(paths) + len(lacking) > MAX_ROWS:
            return None
        both = zip(paths.key, theirs, strict=True)
        laid = tuple(_laid_over(mine, others, at, len(lacking)) for mine, others in both)
        shown = np.array(route_at, np.uint16)[news.route]
        route = _laid_over(paths.route, shown, at, len(lacking))
        return PathTable(ends, routes, laid, route)


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


def _first(of: Sequence[T]) -> dict[T, int]:
    """Return where each stands first: a host may name one twice."""
    found: dict[T, int] = {}
    for n, each in enumerate(of):
        found.setdefault(each, n)
    return found


def _joined(
    mine: tuple[T, ...], at: dict[T, int], others: tuple[T, ...]
) -> tuple[tuple[T, ...], list[int]]:
    """Return `mine`, which are `at`, with what they lack of `others`, and where all others are."""
    lacking = _first([each for each in dict.fromkeys(others) if each not in at])
    more = len(mine)
    places = [at[e] if e in at else more + lacking[e] for e in others]
    return (*mine, *lacking), places


def _keys(key: tuple[NDArray[Any], ...]) -> list[int]:
    source, target, port, reply = (each.astype(np.int64) for each in key[:4])
    keys: list[int] = ((((source << 16 | target) << 16 | port) << 1) | (reply != 0)).tolist()
    return keys


def _laid_over(mine: NDArray[Any], theirs: NDArray[Any], at: list[int], more: int) -> NDArray[Any]:
    made = np.concatenate([mine, np.zeros(more, mine.dtype)])
    made[at] = theirs
    return made
