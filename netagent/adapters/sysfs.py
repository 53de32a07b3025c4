# SPDX-License-Identifier: Apache-2.0
"""What sysfs says of the host's RDMA devices."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

INFINIBAND = Path("/sys/class/infiniband")


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device."""

    device: str
    port: int
    state: str
    """Such as ``ACTIVE``."""
    link_layer: str
    """``Ethernet`` (RoCE) or ``InfiniBand``."""
    netdevs: tuple[str, ...] = ()
    """Network devices of the same hardware."""


def rdma_ports(root: Path = INFINIBAND) -> tuple[RdmaPort, ...]:
    """Return the ports of all RDMA devices; none where the kernel has no RDMA."""
    return tuple(port for device in _entries(root) for port in _ports(device))


def _ports(device: Path) -> Iterator[RdmaPort]:
    netdevs = tuple(path.name for path in _entries(device / "device" / "net"))
    for port in _entries(device / "ports"):
        if port.name.isdecimal():
            # The kernel writes "4: ACTIVE".
            state = _read(port / "state").rpartition(": ")[2]
            link_layer = _read(port / "link_layer")
            yield RdmaPort(device.name, int(port.name), state, link_layer, netdevs)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""
