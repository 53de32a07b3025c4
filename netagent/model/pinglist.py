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
    """Overlay IPv4 address of the target."""
    underlay: str
    """VTEP of the target's rail."""
    rdma: RdmaAddress | None = None
    """None: probe it by UDP."""


@dataclass(frozen=True, slots=True)
class PingList:
    """All active targets of one host. A higher version replaces a lower one whole."""

    version: int
    targets: tuple[Target, ...] = ()
