# SPDX-License-Identifier: Apache-2.0
"""What a host's board is like: RNICs and GPUs, the PCIe ports above them, their settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ACS_CAPABILITY, ATS_CAPABILITY = 0x000D, 0x000F
"""Numbers of extended capabilities: PCI_EXT_CAP_ID_ACS, _ATS of linux/pci_regs.h."""
_FIRST_EXTENDED = 0x100
"""Where extended capabilities begin in a function's configuration space (PCI Express base)."""
_ACS_CONTROL, _ATS_CONTROL = 6, 6
_ACS_REDIRECTS = 0x04 | 0x08
"""PCI_ACS_RR and PCI_ACS_CR: requests and completions between peers go by the root complex."""
_ATS_ENABLE = 0x8000
_MOST_CAPABILITIES = 48
"""Capabilities looked at in one space. Chosen: a list that is damaged may be a circle."""


@dataclass(frozen=True, slots=True)
class PciLink:
    """A PCIe link."""

    gts: float
    """Gigatransfers per second of each lane."""
    lanes: int

    def __str__(self) -> str:
        return f"{self.lanes} lane{'s' * (self.lanes != 1)} at {self.gts:g} GT/s"


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function: a NIC, a GPU, or a port of a switch or of the root complex."""

    address: str
    """``0000:17:00.0``."""
    model: str = ""
    """Vendor and device, ``15b3:1021``."""
    driver: str = ""
    link: PciLink | None = None
    """As it is now; None where it has none, or does not say."""
    most: PciLink | None = None
    """The most that it could be."""
    numa: int | None = None
    """NUMA node; None where the firmware does not say."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Errors since the function was found (AER), ``correctable``, ``nonfatal``, ``fatal``; empty
    where the kernel does not count them."""
    acs: bool | None = None
    """Whether it sends what is between peers by the root complex; None: unknown, or not able to."""
    ats: bool | None = None
    """Whether it asks for addresses itself (ATS) and sends them translated; None: unknown."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A function, and where it is plugged."""

    function: PciFunction
    above: tuple[PciFunction, ...] = ()
    """Ports on its way to the root complex, nearest first."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network device of hardware."""

    netdev: str
    placed: Placed | None = None
    """None where it is no PCI function, or is not seen as one."""
    driver: str = ""
    driver_version: str = ""
    firmware: str = ""
    offload: bool | None = None
    """Whether it takes flows from the kernel (hw-tc-offload); None: cannot, or does not say."""
    virtual_functions: int = 0
    """Virtual functions that are switched on (sriov_numvfs)."""
    switch: str = ""
    """Identity of the switch within it (phys_switch_id), where ports of it are here as well:
    drivers tell one in legacy mode, too; "" otherwise."""
    pause: tuple[int, ...] | None = None
    """Priorities that it pauses for (PFC); None where it does not say."""
    trust: str = ""
    """By what it finds a packet's priority, ``dscp`` or ``pcp``; "" where it does not say."""
    marks: tuple[int, ...] | None = None
    """Priorities for which it slows down where packets are marked (DCQCN); None: does not say."""


@dataclass(frozen=True, slots=True)
class Hugepages:
    """Huge pages of one size."""

    size_kb: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """All of it, as read at one time."""

    nics: tuple[Nic, ...] = ()
    """Sorted by netdev."""
    gpus: tuple[Placed, ...] = ()
    """Sorted by address."""
    modules: frozenset[str] = frozenset()
    """Kernel modules that are loaded, as far as checks ask for them."""
    open_gpu_driver: bool = False
    """Whether the GPUs' driver is the one of open kernel modules, which can share buffers."""
    hugepages: tuple[Hugepages, ...] = ()
    mtus: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by network device of the host's namespace."""


def redirects(space: bytes) -> bool | None:
    """Return whether ACS of a port sends peers' traffic by the root complex.

    `space` is its configuration space. None where it has no ACS, or the space is not readable
    beyond its first 64 bytes, as without privileges.
    """
    control = _control(space, ACS_CAPABILITY, _ACS_CONTROL)
    return None if control is None else bool(control & _ACS_REDIRECTS)


def translates(space: bytes) -> bool | None:
    """Return whether a function has ATS switched on; None where it has none, or cannot be read."""
    control = _control(space, ATS_CAPABILITY, _ATS_CONTROL)
    return None if control is None else bool(control & _ATS_ENABLE)


def _control(space: bytes, capability: int, offset: int) -> int | None:
    """Return the 16-bit control register at `offset` of an extended capability."""
    at = _FIRST_EXTENDED
    for _ in range(_MOST_CAPABILITIES):
        if not _FIRST_EXTENDED <= at <= len(space) - offset - 2:
            return None
        head = int.from_bytes(space[at : at + 4], "little")
        if head & 0xFFFF == capability:
            return int.from_bytes(space[at + offset : at + offset + 2], "little")
        at = head >> 20
    return None
