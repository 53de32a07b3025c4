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

from analyzer.intake.table import WindowTable
from analyzer.localize.routes import NO_ROUTE, RouteTable
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

UNKNOWN = ""
"""Name of a leaf that is not known."""


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


class Scene:
    """A window, its endpoints, and how its packets went; arrays of rows are (n_rows,)."""

    def __init__(
        self,
        table: WindowTable,
        known: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        self.table, self._known, self.topology = table, known, topology
        self._masks: dict[tuple[str, ...] | None, Mask] = {}

    @property
    def start_ns(self) -> int:
        """When the window began."""
        return self.table.rows.window.start_ns

    @property
    def width_ns(self) -> int:
        """How long it was."""
        return self.table.rows.window.width_ns

    # --- endpoints ------------------------------------------------------------------------------

    @cached_property
    def _met(self) -> tuple[Ints, tuple[Endpoint, ...]]:
        numbers = self.table.numbers
        is_met = np.zeros(numbers.endpoints, np.bool_)
        is_met[self.table.ends] = True
        met = np.flatnonzero(is_met).tolist()
        ends = tuple(self._known[numbers.endpoint(each)] for each in met)
        return np.cumsum(is_met) - 1, ends

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Those that any row is of."""
        return self._met[1]

    @cached_property
    def ends(self) -> Ints:
        """(2, n_rows) places of sources and targets in `endpoints`."""
        found: Ints = self._met[0][self.table.ends]
        return found

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

    @cached_property
    def leaves(self) -> Names:
        """Leaves of `endpoints`; UNKNOWN where one is not known."""
        return Names.by([self.topology.leaf_of(end) or UNKNOWN for end in self.endpoints])

    def seen(self, patterns: tuple[str, ...] | None) -> Mask:
        """Return (n_rows,) whose both ends are of tasks that may be seen; None: all."""
        found = self._masks.get(patterns)
        if found is None:
            found = self._masks[patterns] = self._of_tasks(patterns)
        return found

    def _of_tasks(self, patterns: tuple[str, ...] | None) -> Mask:
        if patterns is None:
            return np.ones(self.ends.shape[1], np.bool_)
        may = [any(fnmatchcase(name, each) for each in patterns) for name in self.tasks.names]
        is_seen = np.array(may, np.bool_)[self.tasks.of]
        found: Mask = is_seen[self.ends].all(axis=0)
        return found

    # --- rows -----------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> Floats:
        """(4, n_rows) probes sent, lost, round trips, and the sum of ln(ns) of these."""
        rows = self.table.rows
        count = rows.count.astype(np.float64)
        made = np.stack([rows.sent, rows.lost, count, count * rows.mean_ln])
        return made.astype(np.float64)

    @cached_property
    def routes(self) -> RouteTable:
        """What `ways` are rows of."""
        return self.topology.taken()[1]

    @cached_property
    def ways(self) -> Ints:
        """(2, n_rows) rows of the newest whole routes there and back; NO_ROUTE where none is."""
        newest, _ = self.topology.taken()
        flow = self.table.rows.flow
        found = np.full((2, len(flow)), NO_ROUTE, np.int64)
        is_known = flow < newest.shape[1]
        found[:, is_known] = newest[:, flow[is_known]]
        return found
