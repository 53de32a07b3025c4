# SPDX-License-Identifier: Apache-2.0
"""An endpoint as its host sees it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Protocol

from netagent.model.address import canonical, is_six
from netagent.model.ids import EndpointId
from netagent.model.strenum import StrEnum

MAX_QPNS = 64
"""Queue pairs, at most, by which an endpoint may answer. Chosen: the largest `flows_per_pair` of
the configuration."""
MTUS = (256, 512, 1024, 2048, 4096)
"""Active MTUs of RoCE ports (enum ibv_mtu)."""

MAC = re.compile("(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE | re.ASCII)
"""A MAC address as the kernel writes it."""


class EndpointState(StrEnum):
    """What the host can say of an endpoint."""

    UP = "up"
    """The endpoint's interface is up in the container's namespace and carries its address."""

    CRASHED = "crashed"
    """The endpoint's port is still configured in the vSwitch, but its namespace is gone."""


@dataclass(frozen=True, slots=True)
class RdmaAddress:
    """Where an endpoint answers RDMA probes: queue pairs (type UD) behind a RoCE v2 GID."""

    device: str
    """RDMA device on the endpoint's host, such as ``mlx5_3``."""
    gid: str
    """The GID as ibverbs writes it: ``::ffff:10.0.0.10``."""
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
    """Overlay address, IPv4 or IPv6, as `canonical` writes it; repeats between tenants."""
    mac: str
    underlay: str
    """Address of the rail's tunnel endpoint (VTEP), IPv4 or IPv6 as `canonical` writes it, unique
    in the fabric."""
    rnic: str
    """Netdev of the RNIC that carries the rail; its PCI address where it has none on the host."""
    bridge: str
    """Integration bridge; "" where no virtual switch carries it: it has no tunnel either, and its
    `underlay` is its own address."""
    port: str
    """Name of its port on `bridge`; without one, of the interface inside the container."""
    mtu: int = 1450
    """Bytes, of the interface inside the container."""
    bond: str | None = None
    state: EndpointState = EndpointState.UP
    rdma: RdmaAddress | None = None
    """None: it answers UDP."""


class Reached(Protocol):
    """How probes reach an endpoint: what `Endpoint` and `netagent.wire.roster.Member` have."""

    @property
    def address(self) -> str:
        """Overlay address, IPv4 or IPv6."""

    @property
    def rdma(self) -> RdmaAddress | None:
        """None: it answers UDP."""


def may_answer(one: Reached, other: Reached) -> bool:
    """Whether two endpoints can probe each other: by one transport and one version of IP."""
    is_alike = (one.rdma is None) == (other.rdma is None)
    return is_alike and is_six(one.address) == is_six(other.address)


MAX_TEXT = 255
"""Most characters of a name. Chosen: those of tasks have 128, of interfaces 15, of files 255; the
analyzer keeps thousands of each host."""
RAILS = 1024
"""Rails that a host may have. Chosen: far more than any has."""


def oddity(endpoint: Endpoint) -> str:
    """Return which part of an endpoint makes no sense, "" for none: others make addresses of it."""
    return (
        _odd_names(endpoint)
        or _odd_addresses(endpoint)
        or (_odd_rdma(endpoint.rdma) if endpoint.rdma else "")
    )


def _odd_names(endpoint: Endpoint) -> str:
    texts = [endpoint.task, endpoint.rnic, endpoint.bridge, endpoint.port, endpoint.bond or ""]
    if endpoint.rdma is not None:
        texts += [endpoint.rdma.device, endpoint.rdma.gid]
    longest = max(map(len, texts))
    return f"a name of {longest} characters" if longest > MAX_TEXT else ""


def _odd_addresses(endpoint: Endpoint) -> str:
    if canonical(endpoint.address) != endpoint.address:
        return f"{endpoint.address!r} is no address of an endpoint"
    if endpoint.underlay and canonical(endpoint.underlay) != endpoint.underlay:
        return f"{endpoint.underlay!r} is no address of a tunnel's end"
    if endpoint.mac and not MAC.fullmatch(endpoint.mac):
        return f"{endpoint.mac!r} is no MAC address"
    if not 0 <= endpoint.id.rail < RAILS:
        return f"there is no rail {endpoint.id.rail}"
    return "" if 0 <= endpoint.mtu < 1 << 16 else f"an MTU of {endpoint.mtu} bytes does not exist"


def _odd_rdma(rdma: RdmaAddress) -> str:
    try:
        ipaddress.IPv6Address(rdma.gid)
    except ValueError:
        return f"{rdma.gid!r} is no GID"
    if not 1 <= len(rdma.qpns) <= MAX_QPNS or not all(0 < q < 1 << 24 for q in rdma.qpns):
        return "queue pair numbers are not 1 to 64 of 24 bits"
    if not 0 <= rdma.qkey < 1 << 32:
        return "the QKEY is not of 32 bits"
    return "" if rdma.mtu in MTUS else f"an MTU of {rdma.mtu} bytes does not exist"
