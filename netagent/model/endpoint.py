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
class RdmaAddress:
    """Where an endpoint answers RDMA probes: queue pairs (type UD) behind a RoCE v2 GID."""

    device: str
    """RDMA device on the endpoint's host, such as ``mlx5_3``."""
    gid: str
    """As ibverbs writes it: ``::ffff:10.0.0.10``."""
    qpns: tuple[int, ...]
    """Queue pair numbers; the flow with index k goes to the one at ``k % len``."""
    qkey: int
    mtu: int
    """Bytes that one packet of the port may carry after BTH and DETH (active MTU)."""


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
    rdma: RdmaAddress | None = None
    """None: it answers UDP."""
