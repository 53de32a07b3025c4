# SPDX-License-Identifier: Apache-2.0
"""Tasks, containers and endpoints of the lab: names, addresses, ports. Pure.

A task `<word>-<letter>` belongs to tenant `<letter>` and runs at most one container per host,
`<task>-<host number>`. Overlay addresses depend on rail and host only, so tenants overlap.
"""

import re
from dataclasses import dataclass

from tests.lab.errors import LabError
from tests.lab.shape import PREFIX, namespace

DEFAULT_TASKS = ("train-a", "train-b")
OVERLAY_MTU = 1450
TASK_PATTERN = re.compile(r"[a-z]{1,6}-[a-z]")
CONTAINER_PATTERN = re.compile(r"([a-z]{1,6}-[a-z])-(\d{1,3})")


@dataclass(frozen=True, slots=True, order=True)
class Container:
    """A container of a task on a host."""

    task: str
    host: int

    @property
    def id(self) -> str:
        """Return the container id, which is also its short namespace name."""
        return f"{self.task}-{self.host}"

    @property
    def namespace(self) -> str:
        """Return the full name of the container's network namespace."""
        return namespace(self.id)

    @property
    def tenant(self) -> str:
        """Return the tenant, a letter."""
        return self.task[-1]

    @property
    def vni(self) -> int:
        """Return the tenant's VXLAN network identifier: 1001 for tenant a."""
        return 1001 + self._tenant_number

    @property
    def _tenant_number(self) -> int:
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
        return f"eth{self.rail}"

    @property
    def port(self) -> str:
        """Return the interface's name on the host, a port of the integration bridge."""
        return f"{self.container.id}-r{self.rail}"

    @property
    def ofport(self) -> int:
        """Return the OpenFlow port number requested; unique on a host, stable over restarts."""
        return 100 + 16 * self.container._tenant_number + self.rail

    @property
    def address(self) -> str:
        """Return the overlay address; the same for every tenant."""
        return f"10.0.{self.rail}.{10 + self.container.host}"

    @property
    def mac(self) -> str:
        """Return the hardware address; unique in the lab."""
        tenant = 1 + self.container._tenant_number
        return f"02:00:00:{tenant:02x}:{self.rail:02x}:{10 + self.container.host:02x}"

    def external_ids(self) -> dict[str, str]:
        """Return what the port carries in OVSDB: ovn-kubernetes' keys plus task and rail."""
        container = self.container
        return {
            "iface-id": f"{container.tenant}_{container.id}_rail{self.rail}",
            "attached_mac": self.mac,
            "ip_addresses": f"{self.address}/24",
            "sandbox": container.id,
            "task": container.task,
            "rail": str(self.rail),
        }


def container_of(container_id: str) -> Container:
    """Return the container that `container_id` (short or namespace name) names.

    Raises `LabError` if it is no container id.
    """
    match = CONTAINER_PATTERN.fullmatch(container_id.removeprefix(PREFIX))
    if match is None:
        raise LabError(f"{container_id!r} names no container", "container ids look like train-a-0")
    return Container(match[1], int(match[2]))


def task_containers(task: str, hosts: tuple[int, ...]) -> tuple[Container, ...]:
    """Return the containers of a task on `hosts`; raise `LabError` for an impossible name."""
    if TASK_PATTERN.fullmatch(task) is None:
        raise LabError(f"{task!r} is no task name", "use up to six letters and a tenant: train-a")
    return tuple(Container(task, host) for host in hosts)
