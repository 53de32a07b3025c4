# SPDX-License-Identifier: Apache-2.0
"""What traces showed, as columns that outlive a run, so that a restart need not read it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId

COLUMNS = {
    "source": "<i4", "target": "<i4", "port": "<u2",
    "newest": "<i4", "since_ns": "<i8", "latest": "<i4", "seen_ns": "<i8",
    "hops": "<i4", "lengths": "|u1", "crossed_ns": "<i8",
    "earlier": "<i8", "earlier_route": "<i4", "earlier_ns": "<i8",
    "left": "<i4", "left_ns": "<i8",
}  # fmt: skip
"""Names and types of columns. By flow: places of its ends in `endpoints`, its port, and, replies
after all others, what `routes.Directions` has. By route: its routers, as places in `names`, and
what `routes.RouteTable` has. By route before the newest: twice the place of the flow, and one more
for replies, and the route. By link that flows left: the places of both ends in `names`, all first
ones first."""


@dataclass(frozen=True, slots=True)
class SavedRoutes:
    """Routes of flows."""

    at_ns: int
    """Instant until which all that came is in it, Unix nanoseconds."""
    endpoints: tuple[EndpointId, ...]
    names: tuple[str, ...]
    """Addresses of routers."""
    leaf_of: Mapping[str, str]
    """VTEP -> address of its leaf."""
    columns: Mapping[str, NDArray[Any]]

    def check(self) -> None:
        """Raise RemoteProtocolError where columns do not agree."""
        size = {name: len(column) for name, column in self.columns.items()}
        flows, routes = size["source"], size["lengths"]
        lengths = {
            "target": flows, "port": flows, "newest": 2 * flows, "since_ns": 2 * flows,
            "latest": 2 * flows, "seen_ns": 2 * flows,
            "hops": int(self.columns["lengths"].sum(dtype=np.int64)), "crossed_ns": routes,
            "earlier_route": size["earlier"], "earlier_ns": size["earlier"],
            "left": 2 * size["left_ns"],
        }  # fmt: skip
        ranges = {
            "source": (0, len(self.endpoints)), "target": (0, len(self.endpoints)),
            "newest": (-1, routes), "latest": (-1, routes), "lengths": (1, 256),
            "hops": (0, len(self.names)), "earlier": (0, 2 * flows),
            "earlier_route": (0, routes), "left": (0, len(self.names)),
        }  # fmt: skip
        for name, wanted in lengths.items():
            if size[name] != wanted:
                raise RemoteProtocolError(f"{name}: {size[name]} items and not {wanted}")
        for name, (first, beyond) in ranges.items():
            column = self.columns[name]
            if len(column) and not first <= int(column.min()) <= int(column.max()) < beyond:
                raise RemoteProtocolError(f"{name}: an item beyond {beyond}")
