# SPDX-License-Identifier: Apache-2.0
"""An endpoint as its host sees it."""

from dataclasses import dataclass
from enum import StrEnum

from netagent.model.ids import EndpointId


class EndpointState(StrEnum):
    """What the host can say of an endpoint."""

    UP = "up"
    """Its interface is up in the container's namespace and carries its address."""

    CRASHED = "crashed"
    """Its port is still configured in the vSwitch, but its namespace is gone."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint's addresses and the parts of the host that carry it."""

    id: EndpointId
    task: str
    host: str
    address: str
    """Overlay IPv4 address; repeats between tenants."""
    mac: str
    underlay: str
    """Address of the rail's tunnel endpoint (VTEP), unique in the fabric."""
    rnic: str
    """Netdev of the RNIC that carries the rail."""
    bridge: str
    port: str
    """Name of its port on `bridge`."""
    mtu: int = 1450
    """Bytes, of the interface inside the container."""
    bond: str | None = None
    state: EndpointState = EndpointState.UP
