# SPDX-License-Identifier: Apache-2.0
"""Tasks, containers and endpoints of the lab: names, addresses, ports. Pure.

A task `<word>-<letter>` belongs to tenant `<letter>` and runs at most one container per host,
`<task>-<host number>`. Overlay addresses depend on rail and host only, so tenants overlap, unless
all endpoints share the initial namespace (RDMA): there each tenant has addresses of its own.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_interface

from tests.lab.errors import LabError
from tests.lab.shape import INITIAL_NAMESPACE, IPV4, PREFIX, Transport, Versions, namespace, vtep

DEFAULT_TASKS = ("train-a", "train-b")
OVERLAY_MTU = {4: 1450, 6: 1430}
"""Bytes, by the version of the underlay: what the outer headers leave of 1500."""
OVERLAY_PREFIX_LENGTH = {4: 24, 6: 64}
TASK_PATTERN = re.compile(r"[a-z]{1,6}-[a-z]")
CONTAINER_PATTERN = re.compile(r"([a-z]{1,6}-[a-z])-(\d{1,3})")


@dataclass(frozen=True, slots=True, order=True)
class Container:
    """A container of a task on a host."""

    task: str
    host: int
    transport: Transport = Transport.UDP
    ip: Versions = IPV4

    @property
    def id(self) -> str:
        """Return the container id, which is also its short namespace name if it has one."""
        return f"{self.task}-{self.host}"

    @property
    def shares_namespace(self) -> bool:
        """Tell whether its interfaces are in the initial namespace, among those of others."""
        return self.transport is Transport.RDMA

    @property
    def namespace(self) -> str:
        """Return the full name of the network namespace that holds the container's interfaces."""
        return INITIAL_NAMESPACE if self.shares_namespace else namespace(self.id)

    @property
    def tenant(self) -> str:
        """Return the tenant, a letter."""
        return self.task[-1]

    @property
    def vni(self) -> int:
        """Return the tenant's VXLAN network identifier: 1001 for tenant a."""
        return 1001 + self.tenant_number

    @property
    def tenant_number(self) -> int:
        """Return 0 for tenant a."""
        return ord(self.tenant) - ord("a")

    def endpoint(self, rail: int) -> "Endpoint":
        """Return the container's endpoint on `rail`."""
        return Endpoint(self, rail)


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One interface of a container: (container, rail)."""

    container: Container
    rail: int

    @property
    def interface(self) -> str:
        """Return the interface's name inside the container."""
        return f"{PREFIX}{self._name}" if self.container.shares_namespace else f"eth{self.rail}"

    @property
    def rdma_device(self) -> str:
        """Return the name of the RDMA device on the interface, in a lab that has any."""
        return f"rxe-{self._name}"

    @property
    def _name(self) -> str:
        # A tenant has one task, so letter and host tell containers apart.
        return f"{self.container.tenant}{self.container.host}-r{self.rail}"

    @property
    def port(self) -> str:
        """Return the interface's name on the host, a port of the integration bridge."""
        return f"{self.container.id}-r{self.rail}"

    @property
    def ofport(self) -> int:
        """Return the OpenFlow port number requested; unique on a host, stable over restarts."""
        return 100 + 16 * self.container.tenant_number + self.rail

    @property
    def address(self) -> str:
        """Return the overlay address; the same for every tenant that has its own namespaces."""
        return self._address(0)

    @property
    def foreign_address(self) -> str:
        """Return an address of the same length that no endpoint has; the controller knows none."""
        return self._address(128)

    def _address(self, offset: int) -> str:
        tenant = self.container.tenant_number if self.container.shares_namespace else 0
        last = 10 + self.container.host
        if self.container.ip.overlay == 6:
            return str(IPv6Address(f"fd00:10:{offset + tenant}:{self.rail}::{last}"))
        return f"10.{offset + tenant}.{self.rail}.{last}"

    @property
    def prefix_length(self) -> int:
        """Return how many bits of the address its tenant's endpoints of the rail share."""
        return OVERLAY_PREFIX_LENGTH[self.container.ip.overlay]

    @property
    def network(self) -> str:
        """Return the prefix that holds the endpoints of its tenant and rail."""
        return str(ip_interface(f"{self.address}/{self.prefix_length}").network)

    @property
    def vtep(self) -> str:
        """Return the underlay address of its host's RNIC."""
        return vtep(self.container.host, self.rail, self.container.ip.underlay)

    @property
    def mtu(self) -> int:
        """Return how many bytes of an IP packet its interface takes."""
        return OVERLAY_MTU[self.container.ip.underlay]

    @property
    def mac(self) -> str:
        """Return the hardware address; unique in the lab."""
        tenant = 1 + self.container.tenant_number
        return f"02:00:00:{tenant:02x}:{self.rail:02x}:{10 + self.container.host:02x}"

    def environment(self) -> dict[str, str]:
        """Return what a command of the container needs to know to use the endpoint."""
        known = {"INTERFACE": self.interface, "ADDRESS": self.address}
        return known | ({"DEVICE": self.rdma_device} if self.container.shares_namespace else {})

    def external_ids(self) -> dict[str, str]:
        """Return what the port carries in OVSDB: ovn-kubernetes' keys plus task and rail."""
        container = self.container
        return {
            "iface-id": f"{container.tenant}_{container.id}_rail{self.rail}",
            "attached_mac": self.mac,
            "ip_addresses": f"{self.address}/{self.prefix_length}",
            "sandbox": container.id,
            "task": container.task,
            "rail": str(self.rail),
        }


def container_of(
    container_id: str, transport: Transport = Transport.UDP, ip: Versions = IPV4
) -> Container:
    """Return the container that `container_id` (short or namespace name) names.

    Raises `LabError` if it is no container id.
    """
    match = CONTAINER_PATTERN.fullmatch(container_id.removeprefix(PREFIX))
    if match is None:
        raise LabError(f"{container_id!r} names no container", "container ids look like train-a-0")
    return Container(match[1], int(match[2]), transport, ip)


def task_containers(
    task: str,
    hosts: tuple[int, ...],
    transport: Transport = Transport.UDP,
    ip: Versions = IPV4,
) -> tuple[Container, ...]:
    """Return the containers of a task on `hosts`; raise `LabError` for an impossible name."""
    if TASK_PATTERN.fullmatch(task) is None:
        raise LabError(f"{task!r} is no task name", "use up to six letters and a tenant: train-a")
    return tuple(Container(task, host, transport, ip) for host in hosts)
