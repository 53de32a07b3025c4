# SPDX-License-Identifier: Apache-2.0
"""What a host reads of its RDMA devices, from sysfs, rdma netlink and verbs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from netagent.model.address import is_six
from netagent.model.endpoint import MAC
from netagent.model.strenum import StrEnum

ROCE_V2 = "RoCE v2"
ACTIVE = "ACTIVE"

_HEADER_BYTES = 96
"""Bytes of headers that RoCE v2 may need in a netdev's MTU: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH
28, ICRC 4 (`iboe_get_mtu` of include/rdma/ib_addr.h)."""

_MTUS_BYTES = (4096, 2048, 1024, 512, 256)
"""Bytes of the MTUs that a RoCE port may have, largest first (enum ib_mtu of
include/rdma/ib_verbs.h)."""


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry of a port's GID table."""

    index: int
    gid: str
    """The GID as ibverbs writes it: ``::ffff:10.0.0.10``."""
    type: str = ""
    """``RoCE v2``, ``IB/RoCE v1``; "" where it cannot be read."""
    netdev: str = ""
    """Network device the entry belongs to, by its name in its own namespace."""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA device."""

    device: str
    port: int
    state: str
    """State of the link, such as ``ACTIVE``; "" where it cannot be read."""
    link_layer: str
    """``Ethernet`` (RoCE) or ``InfiniBand``."""
    netdevs: tuple[str, ...] = ()
    """Network devices of the same hardware, as far as this namespace shows them."""
    phys_state: str = ""
    """Physical state, such as ``LinkUp``, ``Polling``, ``Disabled``."""
    rate_bps: int | None = None
    """Nominal bits per second; drivers keep the last rate while the port is down."""
    lanes: int | None = None
    """Lanes that it trained with; None where they are not said."""
    gids: tuple[Gid, ...] | None = None
    """None where the table cannot be read."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """The port's counters, its driver's (hw_counters) and its netdev's of physical errors."""
    active_mtu_bytes: int | None = None
    """Payload of one packet; neither sysfs nor netlink has it, verbs does."""

    def find(self, gid: str) -> Gid | None:
        """Return the RoCE v2 entry that has `gid`."""
        entries = self.gids or ()
        return next((e for e in entries if e.gid == gid and e.type == ROCE_V2), None)


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device and the hardware behind it."""

    name: str
    driver: str = ""
    """``mlx5_core``, ``rxe``, ...; "" where it does not say."""
    node_guid: str = ""
    firmware: str = ""
    pci: str | None = None
    """PCI address; None for a device of software."""
    physical_function: str | None = None
    """PCI address of the PF this one is a VF of."""
    virtual_functions: int | None = None
    """VFs that are switched on, where it is a PF that can have some."""
    bond: str | None = None
    """Bond that its netdev is, or belongs to."""
    ports: tuple[RdmaPort, ...] = ()

    def port(self, number: int) -> RdmaPort | None:
        """Return the port `number`, counted from 1."""
        return next((port for port in self.ports if port.port == number), None)


@dataclass(frozen=True, slots=True)
class RdmaView:
    """All RDMA devices of the host, as read at one time."""

    devices: tuple[RdmaDevice, ...] = ()
    """Sorted by name; names are unique in the whole host."""
    mode: str = ""
    """``shared`` or ``exclusive``; "" where the kernel has no RDMA."""
    wall_ns: int = 0
    """When the reading was done."""
    took_ns: int = 0
    """How long the reading took."""

    def by_name(self) -> dict[str, RdmaDevice]:
        """Return the devices by name."""
        return {device.name: device for device in self.devices}


class RdmaEventKind(StrEnum):
    """What a device reported by itself."""

    PORT_DOWN = "port-down"
    PORT_UP = "port-up"
    GID_CHANGED = "gid-changed"
    DEVICE_FATAL = "device-fatal"
    QP_ERROR = "qp-error"


@dataclass(frozen=True, slots=True)
class RdmaEvent:
    """An asynchronous event of ibverbs."""

    device: str
    kind: RdmaEventKind
    wall_ns: int
    text: str = ""
    """For a human: what the driver said."""


def address_gid(address: str) -> str:
    """Return the GID of `address`: one of IPv6 is its own (IBTA annex A17, RoCEv2)."""
    return address if is_six(address) else f"::ffff:{address}"


def mac_gid(mac: str) -> str:
    """Return the default GID of a port whose netdev has `mac`, its link-local address.

    "", which is no port's, where `mac` is none of Ethernet.
    """
    if not MAC.fullmatch(mac):
        return ""
    octets = [int(part, 16) for part in mac.split(":")]
    octets = [octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]  # RFC 4291, appendix A
    groups = (octets[at] << 8 | octets[at + 1] for at in range(0, 8, 2))
    return "fe80::" + ":".join(f"{group:x}" for group in groups)


def roce_mtu_bytes(netdev_mtu_bytes: int) -> int:
    """Return the active MTU that RoCE can have on a netdev; 0 where it is too small for any."""
    room = netdev_mtu_bytes - _HEADER_BYTES
    return next((mtu for mtu in _MTUS_BYTES if mtu <= room), 0)


def device_of(
    devices: Iterable[RdmaDevice], netdev: str, address: str, mac: str | None = None
) -> tuple[RdmaPort, Gid] | None:
    """Return the port that carries `address` on `netdev`, and the GID by which it does.

    Names of netdevs and overlay addresses repeat between namespaces, but sysfs shows the devices of
    all of them together unless RDMA is in exclusive mode. `mac` then distinguishes them, by the
    default GID that every RoCE port makes of it; None if that does not single one out.
    """
    found = list(_carriers(devices, netdev, address_gid(address)))
    if mac is not None and len(found) > 1:
        default = mac_gid(mac)
        found = [each for each in found if each[0].find(default)]
    return found[0] if len(found) == 1 else None


def _carriers(
    devices: Iterable[RdmaDevice], netdev: str, gid: str
) -> Iterator[tuple[RdmaPort, Gid]]:
    for device in devices:
        for port in device.ports:
            entry = port.find(gid)
            if entry is not None and entry.netdev == netdev:
                yield port, entry
