# SPDX-License-Identifier: Apache-2.0
"""One window with what its endpoints are, so that it can be summed by any of that.

What an endpoint is, is looked up once for each of them; all else is arrays over rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import WindowTable
from analyzer.localize.routes import NO_ROUTE, RouteTable, Rows
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNKNOWN = "unknown"
"""Name of a leaf that is not known."""
MAX_MASKS = 64
"""Most callers' masks kept in a window. Chosen: more tenants than look at once."""


@dataclass(frozen=True, slots=True)
class Names:
    """What endpoints are of one kind: their hosts, say."""

    of: Ints
    """(n_endpoints,) places in `names`."""
    names: tuple[str, ...]

    @classmethod
    def by(cls, given: Sequence[str]) -> "Names":
        """Return the names of endpoints, in the order of the names."""
        every = sorted(set(given), key=natural)
        place = {name: number for number, name in enumerate(every)}
        return cls(np.array([place[name] for name in given], np.int64), tuple(every))


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return what names are in order by: h2 comes before h10."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts))


class Ends:
    """The endpoints that are known in a window, and what they are; arrays are (n_endpoints,)."""

    def __init__(self, known: Mapping[EndpointId, Endpoint], numbers: FlowNumbers) -> None:
        self._known, self._numbers, self._changes = known, numbers, numbers.changes
        self._leaves: tuple[object, Names] | None = None
        self.endpoints = tuple(known.values())
        place = {each.id: n for n, each in enumerate(self.endpoints)}
        of_number = [(number, place.get(each, -1)) for number, each in numbers.ends_in_use()]
        self.place = np.full(numbers.endpoints, -1)
        """(n,) place in `endpoints` by the endpoint's number; -1 where it is not known."""
        if of_number:
            at, found = np.array(of_number, np.int64).T
            self.place[at] = found

    def holds(self, known: Mapping[EndpointId, Endpoint], numbers: FlowNumbers) -> bool:
        """Return whether these are the endpoints of another window, too."""
        return (
            self._known is known and self._numbers is numbers and self._changes == numbers.changes
        )

    @cached_property
    def hosts(self) -> Names:
        """Hosts of `endpoints`."""
        return Names.by([end.host for end in self.endpoints])

    @cached_property
    def rails(self) -> Ints:
        """(n_endpoints,) numbers of the rails of `endpoints`."""
        return np.array([end.id.rail for end in self.endpoints], np.int64)

    @cached_property
    def tasks(self) -> Names:
        """Tasks of `endpoints`."""
        return Names.by([end.task for end in self.endpoints])

    def leaves(self, topology: LearnedTopology) -> Names:
        """Return the leaves of `endpoints`, UNKNOWN where one is not known.

        They are looked up anew where another topology, or others of its leaves, are told.
        """
        key = topology.declared, topology.traced_leaves()
        if self._leaves is None or self._leaves[0] != key:
            found = [topology.leaf_of(end) or UNKNOWN for end in self.endpoints]
            self._leaves = key, Names.by(found)
        return self._leaves[1]

    def named(self, mask: Mask) -> Names:
        """Return the names of those that `mask` (n_endpoints,) has; the others have none (-1)."""
        mine = np.flatnonzero(mask)
        some = Names.by([str(self.endpoints[each].id) for each in mine.tolist()])
        of = np.full(len(self.endpoints), -1)
        of[mine] = some.of
        return Names(of, some.names)

    @cached_property
    def rail_names(self) -> Names:
        """Rails by name."""
        return Names.by([f"rail{end.id.rail}" for end in self.endpoints])


class Scene:
    """A window, its endpoints, and how its packets went; arrays of rows are (n_rows,)."""

    def __init__(self, table: WindowTable, known: Ends, topology: LearnedTopology) -> None:
        self.table, self.known, self.topology = table, known, topology
        self._masks: dict[tuple[str, ...] | None, Mask] = {}

    @property
    def start_ns(self) -> int:
        """When the window began."""
        return self.table.rows.window.start_ns

    @property
    def width_ns(self) -> int:
        """How long it was."""
        return self.table.rows.window.width_ns

    @cached_property
    def ends(self) -> Ints:
        """(2, n_rows) places of sources and targets among the endpoints."""
        found: Ints = self.known.place[self.table.ends]
        return found

    @cached_property
    def leaves(self) -> Names:
        """Leaves of the endpoints; UNKNOWN where one is not known."""
        return self.known.leaves(self.topology)

    def visible(self, patterns: tuple[str, ...] | None) -> Mask:
        """Return (n_endpoints,) which endpoints are of tasks that may be seen; None: all."""
        found = self._masks.get(patterns)
        if found is None:
            tasks = self.known.tasks
            places = [
                place
                for place, name in enumerate(tasks.names)
                if patterns is None or any(fnmatchcase(name, each) for each in patterns)
            ]
            found = self._masks[patterns] = np.isin(tasks.of, places)
            while len(self._masks) > MAX_MASKS:
                del self._masks[next(iter(self._masks))]
        return found

    def seen(self, patterns: tuple[str, ...] | None) -> Mask:
        """Return (n_rows,) whose both ends are of tasks that may be seen; None: all."""
        source, target = self.visible(patterns)[self.ends]
        found: Mask = source & target
        return found

    @cached_property
    def first(self) -> Mask:
        """(n_rows,) which are the first of their pair of endpoints."""
        key = self.ends[0] << 32 | self.ends[1]
        found = np.zeros(len(key), np.bool_)
        found[np.unique(key, return_index=True)[1]] = True
        return found

    @cached_property
    def columns(self) -> Floats:
        """(4, n_rows) probes sent, lost, round trips, and the sum of ln(ns) of these."""
        rows = self.table.rows
        made = np.empty((4, len(rows.flow)))
        made[:3] = rows.sent, rows.lost, rows.count
        np.multiply(made[2], rows.mean_ln, out=made[3])
        return made

    @property
    def ways(self) -> Rows:
        """(2, n_rows) rows of the newest whole routes there and back; NO_ROUTE where none is."""
        return self._taken[0]

    @property
    def routes(self) -> RouteTable:
        """What `ways` are rows of."""
        return self._taken[1]

    @cached_property
    def _taken(self) -> tuple[Rows, RouteTable]:
        newest, routes = self.topology.taken()
        flow = self.table.rows.flow
        found = newest.take(flow, axis=1, mode="clip")  # what traces never met is behind all
        found[:, flow >= newest.shape[1]] = NO_ROUTE
        return found, routes
