# SPDX-License-Identifier: Apache-2.0
"""What sysfs says of the host's RDMA devices.

Every file may be missing, unreadable or empty: drivers differ, and devices vanish while they are
read. What cannot be read is an absent value, never an error.

In a namespace other than the initial one, RDMA's shared mode shows all devices, but without
counters, and netdevs by the names they have in their own namespaces (seen on Linux 6.1).
"""

import ctypes
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from netagent.adapters.host.files import entries, link_at, number, read_text
from netagent.host.rates import PortRate
from netagent.host.rdma_facts import Gid, RdmaDevice, RdmaPort, mac_gid
from netagent.model.errors import CapabilityMissing

SYSFS = Path("/sys")

_CLASS = "class/infiniband"
_FREE_PLACES = 32
"""Free places in a row after which the rest of a GID table counts as free. Chosen: the kernel fills
the first free place, so gaps are short."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_WIDTH = re.compile(r"\((\d{1,2})X\b")  # "(4X EDR)", as sysfs writes the width of a port
_NO_GID = bytes(16)
NETDEV_ERRORS = frozenset(
    {"rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_carrier_errors"}
)
"""Names in `RdmaPort.counters` that come from the netdev."""
_NO_SPEED = {0, 0xFFFF, 0xFFFF_FFFF}
"""What `speed` says of a device that has none: -1, which is no number here, also as 16 or 32 bits
without a sign (SPEED_UNKNOWN of linux/ethtool.h), or nought."""
_SETTINGS = frozenset({"lifespan"})  # of hw_counters: milliseconds that a reading is cached for

_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
"""System calls of linux/mount.h's interface; their numbers are the same on every architecture."""
_FSOPEN_CLOEXEC, _FSCONFIG_CMD_CREATE, _FSMOUNT_CLOEXEC = 1, 6, 1
"""Arguments of these calls, of linux/mount.h."""


class SysfsReader:
    """Reads RDMA devices again and again, at little cost.

    A GID table has up to 1024 places, each a file, and few of them in use. The kernel fills the
    first free one, so the places behind the last in use are free but for odd cases, and between two
    `whole` readings the reader looks only at the known ones and the first free one.
    """

    def __init__(self) -> None:
        self._known: dict[str, RdmaDevice] = {}
        """What seldom changes, by name."""

    def devices(self, sysfs: Path = SYSFS, *, whole: bool = True) -> tuple[RdmaDevice, ...]:
        """Return all devices, sorted by name; else than `whole`, only the state of known ones."""
        return tuple(self._device(sysfs, folder, whole=whole) for folder in entries(sysfs / _CLASS))

    def _device(self, sysfs: Path, folder: Path, *, whole: bool) -> RdmaDevice:
        known = self._known.get(folder.name)
        if known is None or whole:
            known = self._known[folder.name] = _device(sysfs, folder)
        ports = tuple(_state(sysfs, folder, port) for port in known.ports)
        return replace(known, ports=ports)


def rdma_ports(sysfs: Path = SYSFS) -> tuple[RdmaPort, ...]:
    """Return the ports of all RDMA devices; none where the kernel has no RDMA."""
    return tuple(port for device in SysfsReader().devices(sysfs) for port in device.ports)


def netdev_rate(netdev: str, sysfs: Path = SYSFS) -> PortRate | None:
    """Return what the network device `netdev` runs at; None where it has no carrier or no speed."""
    folder = f"{sysfs}/class/net/{netdev}"
    mbps = number(f"{folder}/speed")  # the driver asks the firmware: this may take milliseconds
    if mbps is None or mbps in _NO_SPEED or number(f"{folder}/carrier") != 1:
        return None
    return PortRate(mbps * 1_000_000)


def physical_function(parent: str, sysfs: Path = SYSFS) -> str:
    """Return the address of the physical PCI function that the device `parent` is a part of.

    `parent` is a PCI function, or a sub-function by its name on the auxiliary bus; "" where it is
    neither, or cannot be read. Of a virtual function it is the one at ``physfn``
    (pci_iov_sysfs_link of drivers/pci/iov.c), of a sub-function the one below which it was made
    (mlx5_sf_dev_add of its driver).
    """
    if not _PCI.fullmatch(parent):
        parent = _pci(sysfs / "bus/auxiliary/devices" / parent) or ""
    return parent and (_pci(sysfs / "bus/pci/devices" / parent / "physfn") or parent)


@contextmanager
def sysfs_here() -> Iterator[Path]:
    """Give a root of sysfs as the calling thread's network namespace shows it.

    `/sys` shows the namespace of whoever mounted it. This mount is attached nowhere and ends with
    the block. Raises CapabilityMissing without the right to mount.
    """
    try:
        made = _syscall(_SYS_FSOPEN, b"sysfs", _FSOPEN_CLOEXEC)
        try:
            _syscall(_SYS_FSCONFIG, made, _FSCONFIG_CMD_CREATE, None, None, 0)
            mount = _syscall(_SYS_FSMOUNT, made, _FSMOUNT_CLOEXEC, 0)
        finally:
            os.close(made)
    except OSError as error:
        remedy = f"run as root, or with CAP_SYS_ADMIN, on Linux 5.2 or newer ({error})"
        raise CapabilityMissing("sysfs of a namespace", remedy) from error
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    # glibc has wrappers for these since 2.36 only.
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# --- ports ----------------------------------------------------------------------------------------


def _state(sysfs: Path, device: Path, known: RdmaPort) -> RdmaPort:
    """Return a port as it is now; its netdevs, and where in its table to look, are `known`."""
    folder = f"{device}/ports/{known.port}"
    counters = _numbers(f"{folder}/counters") | _numbers(f"{folder}/hw_counters")
    used = [] if known.gids is None else [entry.index for entry in known.gids]
    free = next(at for at in range(len(used) + 1) if at not in used)
    return replace(
        known,
        state=_word(f"{folder}/state"),
        phys_state=_word(f"{folder}/phys_state"),
        rate_bps=_rate_bps(rate := read_text(f"{folder}/rate")),
        lanes=_lanes(rate),
        gids=None if known.gids is None else _gids(folder, sorted([*used, free])),
        counters=counters | _netdev_errors(sysfs, device, known),
    )


def _gids(port: str, places: Iterable[int]) -> tuple[Gid, ...]:
    found, free = [], 0
    for at in places:
        entry = _gid(port, at)
        if entry is not None:
            found.append(entry)
        free = free + 1 if entry is None else 0
        if free > _FREE_PLACES:
            break
    return tuple(found)


def _word(path: str) -> str:
    return read_text(path).rpartition(": ")[2]  # the kernel writes "4: ACTIVE"


def _rate_bps(text: str) -> int | None:
    # The kernel writes "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)".
    number, _, rest = text.partition(" ")
    with suppress(ValueError):
        if rest.startswith("Gb/sec"):
            return int(float(number) * 1e9)
    return None


def _lanes(rate: str) -> int | None:
    found = _WIDTH.search(rate)
    return int(found[1]) if found else None


def _gid(port: str, at: int) -> Gid | None:
    octets = _octets(read_text(f"{port}/gids/{at}"))
    if octets == _NO_GID:
        return None
    attributes = f"{port}/gid_attrs"
    text = socket.inet_ntop(socket.AF_INET6, octets)
    return Gid(
        at, text, read_text(f"{attributes}/types/{at}"), read_text(f"{attributes}/ndevs/{at}")
    )


def _octets(text: str) -> bytes:
    with suppress(OSError):
        return socket.inet_pton(socket.AF_INET6, text)
    return _NO_GID


def _netdev_errors(sysfs: Path, device: Path, port: RdmaPort) -> dict[str, int]:
    total: dict[str, int] = {}
    for netdev in port.netdevs:
        if _belongs(sysfs, device, netdev, port.gids or ()):
            for name in sorted(NETDEV_ERRORS):
                value = number(f"{sysfs}/class/net/{netdev}/statistics/{name}")
                if value is not None:
                    total[name] = total.get(name, 0) + value
    return total


# --- the hardware ---------------------------------------------------------------------------------


def _device(sysfs: Path, folder: Path) -> RdmaDevice:
    """Return a device without the state of its ports."""
    hardware = folder / "device"
    numbers = sorted(int(p.name) for p in entries(folder / "ports") if p.name.isdecimal())
    ports = tuple(_port(folder, number) for number in numbers)
    gids = [gid for port in ports for gid in port.gids or ()]
    netdevs = _netdevs(folder, gids)
    bonds = (_bond(sysfs, each) for each in netdevs if _belongs(sysfs, folder, each, gids))
    return RdmaDevice(
        name=folder.name,
        driver=_driver(folder),
        node_guid=read_text(f"{folder}/node_guid"),
        firmware=read_text(f"{folder}/fw_ver"),
        pci=_pci(hardware) or _pci(folder),  # a subfunction lies within one
        physical_function=_pci(hardware / "physfn"),
        virtual_functions=number(f"{hardware}/sriov_numvfs"),
        bond=next((bond for bond in bonds if bond), None),
        ports=tuple(replace(port, netdevs=netdevs) for port in ports),
    )


def _port(device: Path, number: int) -> RdmaPort:
    folder = f"{device}/ports/{number}"
    return RdmaPort(
        device=device.name,
        port=number,
        state="",
        link_layer=read_text(f"{folder}/link_layer"),
        gids=_gids(folder, count()) if Path(folder, "gids").is_dir() else None,
    )


def _driver(folder: Path) -> str:
    driver = link_at(folder / "device/driver")
    if driver is None and (folder / "parent").exists():
        return "rxe"  # the one driver of software that has this attribute
    return driver.name if driver else ""


def _pci(path: Path) -> str | None:
    """Return the last PCI function on the way that `path` links to."""
    link = link_at(path)
    parts = reversed(link.parts) if link else ()
    return next((part for part in parts if _PCI.fullmatch(part)), None)


def _netdevs(folder: Path, gids: Iterable[Gid]) -> tuple[str, ...]:
    names = {path.name for path in entries(folder / "device/net")}
    names.add(read_text(f"{folder}/parent"))
    names.update(gid.netdev for gid in gids)
    return tuple(sorted(names - {""}))


def _belongs(sysfs: Path, device: Path, netdev: str, gids: Iterable[Gid]) -> bool:
    # One that only has the name is in this namespace, while the device's is in another.
    if (device / "device/net" / netdev).exists():
        return True
    mac = read_text(f"{sysfs}/class/net/{netdev}/address")
    return _MAC.fullmatch(mac) is not None and mac_gid(mac) in {gid.gid for gid in gids}


def _bond(sysfs: Path, netdev: str) -> str | None:
    folder = sysfs / "class/net" / netdev
    if (folder / "bonding").is_dir():
        return netdev
    master = link_at(folder / "master")
    return master.name if master and (folder / "master/bonding").is_dir() else None


def _numbers(folder: str) -> dict[str, int]:
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))  # noqa: PTH208 - a Path for each costs as much as reading
    read = {name: number(f"{folder}/{name}") for name in names if name not in _SETTINGS}
    return {name: value for name, value in read.items() if value is not None}
