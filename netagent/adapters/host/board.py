# SPDX-License-Identifier: Apache-2.0
"""Reads the host's board: RNICs, GPUs, the PCIe ports above them, huge pages and MTUs.

From sysfs and procfs; RNICs' settings from netlink and ethtool. Every file may be missing or
unreadable. A driver may ask its firmware: for a thread.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

from netagent.adapters.host.files import entries, link_at, number, read_bytes, read_text
from netagent.adapters.host.settings import Settings, settings_of
from netagent.adapters.host.sysfs import SYSFS
from netagent.host.checks.gpudirect import PEERMEM
from netagent.host.hardware import (
    Hardware,
    Hugepages,
    Nic,
    PciFunction,
    PciLink,
    Placed,
    redirects,
    translates,
)

PROCFS = Path("/proc")

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
"""Name of a function's port, as devlink_port_phys_port_name_get of net/devlink/port.c makes it."""
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s")  # "16.0 GT/s PCIe", "8 GT/s" before Linux 5.7
_GPUS = ("0x0302", "0x1200")
"""Classes of PCI functions that compute: 3D controllers, processing accelerators (PCI's code and
ID assignment)."""
_NVIDIA, _DISPLAY = "0x10de", "0x0300"
_MOST_LANES = 32
"""Most lanes that a link has; the kernel says 0 and 255 of one that it cannot read."""
_AER = ("correctable", "nonfatal", "fatal")
_PRIORITIES = range(8)
_HUGEPAGES = re.compile(r"hugepages-(\d+)kB")


def read_hardware(
    netdevs: Iterable[str],
    *,
    sysfs: Path = SYSFS,
    procfs: Path = PROCFS,
    ask: Callable[[str], Settings] = settings_of,
) -> Hardware:
    """Return the board as it is now, with the RNICs `netdevs`; others are not looked at."""
    switches = frozenset(_switches(sysfs))
    version = read_text(str(procfs / "driver/nvidia/version"))
    return Hardware(
        nics=tuple(_nic(sysfs, name, ask(name), switches) for name in sorted(set(netdevs))),
        gpus=tuple(filter(None, map(_placed, _gpus(sysfs)))),
        modules=frozenset(name for name in PEERMEM if (sysfs / "module" / name).is_dir()),
        open_gpu_driver="Open Kernel Module" in version,
        hugepages=tuple(_hugepages(sysfs)),
        mtus={
            path.name: mtu
            for path in entries(sysfs / "class/net")
            if (mtu := number(f"{path}/mtu")) is not None
        },
    )


def _switches(sysfs: Path) -> Iterator[str]:
    """Yield the identities of switches of which representors are here."""
    for folder in entries(sysfs / "class/net"):
        if _REPRESENTOR.fullmatch(read_text(f"{folder}/phys_port_name")):
            yield read_text(f"{folder}/phys_switch_id")


def _nic(sysfs: Path, name: str, settings: Settings, switches: Container[str]) -> Nic:
    folder = sysfs / "class/net" / name
    device = folder / "device"
    switch = read_text(f"{folder}/phys_switch_id")
    return Nic(
        netdev=name,
        placed=_placed(device),
        driver=settings.driver,
        driver_version=settings.driver_version,
        firmware=settings.firmware,
        offload=settings.offload,
        virtual_functions=number(f"{device}/sriov_numvfs") or 0,
        switch=switch if switch in switches else "",
        pause=settings.pause,
        trust=settings.trust,
        marks=_marks(folder),
    )


def _marks(netdev: Path) -> tuple[int, ...] | None:
    """Return the priorities for which DCQCN's reaction point is on.

    NVIDIA's drivers have it as ``ecn/roce_rp/enable/PRIORITY``; the kernel's own mlx5 has not.
    """
    states = {p: number(f"{netdev}/ecn/roce_rp/enable/{p}") for p in _PRIORITIES}
    if all(state is None for state in states.values()):
        return None
    return tuple(priority for priority, state in states.items() if state)


def _gpus(sysfs: Path) -> Iterator[Path]:
    return filter(_is_gpu, entries(sysfs / "bus/pci/devices"))


def _is_gpu(function: Path) -> bool:
    kind = read_text(f"{function}/class")[:6]
    shows = kind == _DISPLAY and read_text(f"{function}/vendor") == _NVIDIA
    return shows or kind in _GPUS


def _hugepages(sysfs: Path) -> Iterable[Hugepages]:
    for folder in entries(sysfs / "kernel/mm/hugepages"):
        size = _HUGEPAGES.fullmatch(folder.name)
        if size:
            total, free = (number(f"{folder}/{name}_hugepages") for name in ("nr", "free"))
            yield Hugepages(int(size[1]), total or 0, free or 0)


# --- PCI ------------------------------------------------------------------------------------------


def _placed(device: Path) -> Placed | None:
    """Return a device's function, and the ports above it; None where it is none, or gone."""
    place = device.resolve()
    ways = [folder for folder in (place, *place.parents) if _PCI.fullmatch(folder.name)]
    if not ways:
        return None
    own, *above = map(_function, ways)
    return Placed(own, tuple(above))


def _function(folder: Path) -> PciFunction:
    driver = link_at(folder / "driver")
    space = read_bytes(f"{folder}/config")
    vendor, device = (read_text(f"{folder}/{name}")[2:] for name in ("vendor", "device"))
    node = number(f"{folder}/numa_node")  # -1, which is no number here, where it is not known
    return PciFunction(
        address=folder.name,
        model=f"{vendor}:{device}" if vendor else "",
        driver=driver.name if driver else "",
        link=_link(folder, "current"),
        most=_link(folder, "max"),
        numa=node,
        errors=_errors(folder),
        acs=redirects(space),
        ats=translates(space),
    )


def _link(folder: Path, which: str) -> PciLink | None:
    speed = _SPEED.match(read_text(f"{folder}/{which}_link_speed"))
    lanes = number(f"{folder}/{which}_link_width")
    if speed is None or not lanes or lanes > _MOST_LANES:
        return None
    return PciLink(float(speed[1]), lanes)


def _errors(folder: Path) -> dict[str, int]:
    found = {}
    for kind in _AER:
        *_, last = read_text(f"{folder}/aer_dev_{kind}").split() or [""]  # "TOTAL_ERR_COR 0"
        if last.isdecimal():
            found[kind] = int(last)
    return found
