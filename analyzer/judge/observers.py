# SPDX-License-Identifier: Apache-2.0
"""Whoever looks on while windows are judged, as one."""

from collections.abc import Mapping

from analyzer.diagnosis.engine import Observer
from analyzer.intake.table import WindowTable
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId


class Both:
    """One that wants windows of the past, too, and one that takes whatever is shown."""

    def __init__(self, first: Observer, other: Observer) -> None:
        self._first, self._other = first, other

    def wants(self, start_ns: int) -> bool:
        """Return whether the first one wants it."""
        return self._first.wants(start_ns)

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Show both a window."""
        self._first.saw(table, endpoints, topology)
        self._other.saw(table, endpoints, topology)

    def expire(self, before_ns: int) -> None:
        """Let both forget."""
        self._first.expire(before_ns)
        self._other.expire(before_ns)
