# SPDX-License-Identifier: Apache-2.0
"""What one host probes."""

from dataclasses import dataclass

from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId


@dataclass(frozen=True, slots=True)
class Target:
    """A registered endpoint that a local endpoint probes."""

    source: EndpointId
    target: EndpointId
    address: str
    """Overlay address of the target, IPv4 or IPv6."""
    underlay: str
    """VTEP of the target's rail."""
    rdma: RdmaAddress | None = None
    """None: probe it by UDP."""
    rare: bool = False
    """The task does not use this pair: all such targets together get `rare_share` of the visits."""
    host: str = ""
    """Host of the target."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Who may be probed from some endpoints, of one declared task, once they are up."""

    sources: tuple[EndpointId, ...]
    """Endpoints of the list's own host."""
    containers: tuple[str, ...]
    """Containers of the task, of which those on the source's rail and another host count."""


@dataclass(frozen=True, slots=True)
class PingList:
    """All active targets of one host. A higher version replaces a lower one whole."""

    version: int
    targets: tuple[Target, ...] = ()
    rare_share: float = 0.1
    """Share of an endpoint's visits that goes to its rare targets, if it has others."""
    expected: tuple[Expected, ...] = ()
    """The preloaded list: its owner activates targets by itself, as hosts announce what is up."""
