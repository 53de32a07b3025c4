# SPDX-License-Identifier: Apache-2.0
"""The seam to diagnosis: what turns summaries into incidents."""

from collections.abc import Callable
from typing import Protocol

from analyzer.config import Config
from analyzer.fleet import Fleet
from analyzer.registry import Registry
from analyzer.reports import Report
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.messages import Summary

Clock = Callable[[], int]
"""Unix time in nanoseconds."""


class Engine(Protocol):
    """Detection, localisation and the life of incidents."""

    def restore(self, incidents: list[Incident]) -> None:
        """Take the incidents that were stored before the restart, before anything else."""

    def ingest(self, summary: Summary, wall_ns: int) -> None:
        """Take a summary that the analyzer received at `wall_ns`; it is on disk already."""

    async def run(self, fleet: Fleet, clock: Clock) -> None:
        """Work in the background until cancelled."""

    def incidents(self) -> list[Incident]:
        """Return incidents, open and lately recovered."""

    def findings(self) -> list[Finding]:
        """Return what agents and checks state now."""

    def report(self, host: str) -> Report | None:
        """Return what the agent of `host` said of itself last."""

    def topology(self) -> object:
        """Return the fabric as learned and declared, as plain data."""

    async def diagnose(
        self, source: EndpointId, target: EndpointId, fleet: Fleet
    ) -> dict[str, object]:
        """Walk from `source` to `target` now; return the walk as plain data."""


Build = Callable[[Registry, DeclaredTopology, Config], Engine]
"""Makes the engine of one analyzer."""
