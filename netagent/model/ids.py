# SPDX-License-Identifier: Apache-2.0
"""Keys of what netagent speaks about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class EndpointId:
    """A (container, RNIC) pair; overlay addresses repeat between tenants and are no key."""

    container: str
    """Container id, unique in the cluster (OVS `external_ids:sandbox`)."""

    rail: int
    """Position of the RNIC in its host; same rail, same leaf group."""

    def __str__(self) -> str:
        return f"{self.container}/rail{self.rail}"

    @classmethod
    def parse(cls, text: str) -> "EndpointId":
        """Return the endpoint that `str()` wrote as `text`; ValueError if it is none."""
        container, separator, rail = text.rpartition("/rail")
        if not separator or not container or not rail.isdecimal():
            raise ValueError(f"{text!r} is no endpoint; write CONTAINER/railN")
        return cls(container, int(rail))


@dataclass(frozen=True, slots=True, order=True)
class FlowId:
    """One probed path: prober, target and the UDP source port that ECMP hashes."""

    source: EndpointId
    target: EndpointId
    source_port: int

    @property
    def order(self) -> tuple[str, int, str, int, int]:
        """Return what flows are in the order of: sorted by it, thousands are never compared."""
        source, target = self.source, self.target
        return source.container, source.rail, target.container, target.rail, self.source_port

    def __hash__(self) -> int:
        # One flat tuple: the generated hash calls that of both endpoints, twice the work for the
        # key of every probe's counters.
        source, target = self.source, self.target
        return hash(
            (self.source_port, source.container, source.rail, target.container, target.rail)
        )
