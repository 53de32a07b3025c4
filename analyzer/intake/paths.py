# SPDX-License-Identifier: Apache-2.0
"""The traced paths of a summary, and which of them say what an earlier summary did not."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import column, columns
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS
from netagent.wire.messages import Summary

T = TypeVar("T")

_KEY = ("source", "target", "source_port", "reply", "outer_port")


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

    def with_news(self, news: "PathTable") -> "PathTable | None":
        """Return these paths with those of `news` in their places, new ones at the end.

        None where that is more than the columns can number.
        """
        if not len(news):
            return self
        ends, end_at = _joined(self.endpoints, news.endpoints)
        routes, route_at = _joined(self.routes, news.routes)
        if max(len(ends), len(routes)) > 1 << 16:
            return None
        row = np.array(end_at, np.uint16)
        theirs = (row[news.key[0]], row[news.key[1]], *news.key[2:])
        places: dict[int, int] = dict(zip(_keys(self.key), range(len(self)), strict=True))
        at = [places.setdefault(key, len(places)) for key in _keys(theirs)]
        more = len(places) - len(self)
        key = tuple(
            _laid_over(mine, others, at, more)
            for mine, others in zip(self.key, theirs, strict=True)
        )
        shown = np.array(route_at, np.uint16)[news.route]
        return PathTable(ends, routes, key, _laid_over(self.route, shown, at, more))

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


def paths_of(summary: Summary) -> PathTable:
    """Return the summary's traced paths; RemoteProtocolError where they make no sense."""
    paths, endpoints = summary.paths, len(summary.endpoints)
    if max(map(len, paths.routes), default=0) > MAX_HOPS:
        raise RemoteProtocolError(f"a path of more than {MAX_HOPS} routers")
    route = column(paths, "route")
    key = tuple(columns(paths, _KEY, len(route)).values())
    for numbers, many in ((key[0], endpoints), (key[1], endpoints), (route, len(paths.routes))):
        if (numbers >= many).any():
            raise RemoteProtocolError("path columns do not agree: a row beyond its table")
    if not 0 <= paths.whole_ns <= summary.start_ns:
        raise RemoteProtocolError("paths that differ from those of a later window")
    return PathTable(summary.endpoints, paths.routes, key, route, paths.whole_ns)


def _joined(mine: tuple[T, ...], others: tuple[T, ...]) -> tuple[tuple[T, ...], list[int]]:
    """Return `mine` with those of `others` that it lacks at its end, and where all others are.

    A host may name one twice; what is numbered stays where it is.
    """
    at: dict[T, int] = {}
    for n, each in enumerate(mine):
        at.setdefault(each, n)
    lacking = [each for each in dict.fromkeys(others) if each not in at]
    at |= {each: n for n, each in enumerate(lacking, len(mine))}
    return (*mine, *lacking), [at[each] for each in others]


def _keys(key: tuple[NDArray[Any], ...]) -> list[int]:
    source, target, port, reply = (each.astype(np.int64) for each in key[:4])
    keys: list[int] = ((((source << 16 | target) << 16 | port) << 1) | (reply != 0)).tolist()
    return keys


def _laid_over(mine: NDArray[Any], theirs: NDArray[Any], at: list[int], more: int) -> NDArray[Any]:
    made = np.concatenate([mine, np.zeros(more, mine.dtype)])
    made[at] = theirs
    return made
