# SPDX-License-Identifier: Apache-2.0
"""All hosts' rows of a window as one: what is asked of a window is asked of all hosts at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.columns import widest
from analyzer.intake.few import filled
from analyzer.intake.flows import FlowNumbers, WindowRows
from netagent.model.ids import EndpointId
from netagent.model.window import Window
from netagent.wire.messages import FlowColumns

Ints = NDArray[np.int64]

HostOf = Callable[[EndpointId], str | None]
"""Host of an endpoint; None where it is not known."""
Owners = tuple[Ints, tuple[str, ...]]
"""(n_endpoints,) places of endpoints' hosts, and the names of these places."""
NOBODY = -1
"""Owner of an endpoint that is not known."""


@dataclass(frozen=True, slots=True)
class WindowTable:
    """Rows of a window; arrays are (n_rows,)."""

    numbers: FlowNumbers
    hosts: tuple[str, ...]
    host: Ints
    """Place in `hosts` of who reported the row."""
    rows: WindowRows
    """`host` and `instance` of it say nothing."""
    ends: Ints
    """(2, n_rows): numbers of the sources and targets."""

    def owners(self, host_of: HostOf) -> Owners:
        """Return (n_endpoints,) places of their hosts, and the names of these places.

        Hosts that reported nothing are behind `hosts`. NOBODY has those that are not known, and
        those that are in no row.
        """
        places = {host: place for place, host in enumerate(self.hosts)}
        owners = np.full(self.numbers.endpoints, NOBODY)
        is_met = np.zeros(self.numbers.endpoints, np.bool_)
        is_met[self.ends] = True
        for number in np.flatnonzero(is_met).tolist():
            host = host_of(self.numbers.endpoint(number))
            if host is not None:
                owners[number] = places.setdefault(host, len(places))
        return owners, tuple(places)

    def only(self, mask: NDArray[np.bool_]) -> "WindowTable":
        """Return the rows that `mask` (n_rows,) has."""
        if mask.all():
            return self
        rows = self.rows.only(mask)
        ends = self.ends.compress(mask, axis=1)
        return WindowTable(self.numbers, self.hosts, self.host[mask], rows, ends)


def joined(window: Window, rows: Mapping[str, WindowRows], numbers: FlowNumbers) -> WindowTable:
    """Return the rows of all hosts of a window, host after host."""
    parts = [each for each in rows.values() if len(each.flow)]
    hosts = tuple(rows)
    lengths = [len(each.flow) for each in rows.values()]
    columns = {each.name: _column(each.name, parts) for each in fields(WindowRows)[3:]}
    every = filled(WindowRows("", "", window, **columns))
    host = np.repeat(np.arange(len(hosts)), lengths)
    return WindowTable(numbers, hosts, host, every, numbers.ends(every.flow))


def _column(name: str, parts: list[WindowRows]) -> NDArray[Any]:
    if not parts:
        return np.zeros(0, np.int64)
    found = list(map(attrgetter(name), parts))
    if name == "hist_len":  # what an earlier version recorded has no histograms
        both = zip(found, parts, strict=True)
        found = [of if len(of) else np.zeros(len(each.flow), np.uint8) for of, each in both]
    dtype = np.int64 if name == "flow" else widest(FlowColumns, name)
    return np.concatenate(found, dtype=dtype)
