# SPDX-License-Identifier: Apache-2.0
"""The traced paths of a summary, and which of them say what an earlier summary did not."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import column, columns
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS
from netagent.wire.messages import Summary

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
    return PathTable(summary.endpoints, paths.routes, key, route)
