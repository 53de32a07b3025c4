# SPDX-License-Identifier: Apache-2.0
"""Which host holds which endpoint, for windows of tens of thousands of them.

Each window asks it of every endpoint. So it is looked up where the roster or the numbers of
endpoints changed, and kept in columns meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import NOBODY, Owners
from analyzer.roster.registry import EndpointRecord, Registry
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

Ints = NDArray[np.int64]
NEVER_NS = np.iinfo(np.int64).max


def _nothing() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class Holders:
    """Which host holds each endpoint, and since when."""

    _as_of: tuple[int, int] = (-1, -1)
    """Revision of the roster, and changes of the numbers, of which the columns are."""
    _names: tuple[str, ...] = ()
    _host: Ints = field(default_factory=_nothing)
    """(n_endpoints,): place in `_names`, NOBODY for who is not registered."""
    _since_ns: Ints = field(default_factory=_nothing)
    """(n_endpoints,): from when on it is known; NEVER_NS for who is not registered."""
    _revision: int = -1
    _known: Mapping[EndpointId, Endpoint] = field(default_factory=dict)
    """All that are registered at `_revision`."""
    _newest_ns: int = 0
    """When the last of them was."""

    def known(self, roster: Registry, at_ns: int) -> Mapping[EndpointId, Endpoint]:
        """Return the endpoints that were registered at `at_ns`, or crashed since."""
        if self._revision != roster.revision:
            live = [record for record in roster.endpoints() if record.live]
            live.sort(key=lambda record: record.active)  # the crashed come first
            self._known = {record.endpoint.id: record.endpoint for record in live}
            self._newest_ns = max(map(_since_ns, live), default=0)
            self._revision = roster.revision
        if self._newest_ns <= at_ns:
            return self._known
        records = ((end, roster.endpoint(end)) for end in self._known)
        return {end: r.endpoint for end, r in records if r is not None and _since_ns(r) <= at_ns}

    def places(
        self,
        roster: Registry,
        numbers: FlowNumbers,
        hosts: Sequence[str],
        *,
        at_ns: int | None = None,
    ) -> Owners:
        """Return (n_endpoints,) places of their hosts, and the names of these places.

        The names begin with `hosts`. NOBODY has those that are not registered; where `at_ns` is
        given, also those that `known` does not return.
        """
        self._look(roster, numbers)
        at = {host: place for place, host in enumerate(hosts)}
        place = np.array([*(at.setdefault(name, len(at)) for name in self._names), NOBODY])
        owners = place[self._host]
        if at_ns is not None:
            owners[self._since_ns > at_ns] = NOBODY
        return owners, tuple(at)

    def _look(self, roster: Registry, numbers: FlowNumbers) -> None:
        as_of = roster.revision, numbers.changes
        if self._as_of == as_of and len(self._host) == numbers.endpoints:
            return
        at: dict[str, int] = {}
        self._host = np.full(numbers.endpoints, NOBODY)
        self._since_ns = np.full(numbers.endpoints, NEVER_NS)
        for number, endpoint in numbers.ends_in_use():
            record = roster.endpoint(endpoint)
            if record is not None:
                self._host[number] = at.setdefault(record.endpoint.host, len(at))
                self._since_ns[number] = _since_ns(record)
        self._names, self._as_of = tuple(at), as_of


def _since_ns(record: EndpointRecord) -> int:
    """Return from when on an endpoint is known: at any time where it crashed."""
    if record.active:
        return record.registered_ns
    return 0 if record.live else NEVER_NS
