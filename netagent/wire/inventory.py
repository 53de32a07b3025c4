# SPDX-License-Identifier: Apache-2.0
"""What a host says of its RNICs and of itself, so that the analyzer can compare it with others'.

What could not be read is absent. One host alone cannot know what most of a cluster have.
"""

from typing import Annotated

from msgspec import Meta, Struct

MOST_RNICS = 64
"""Most RNICs of an inventory. Chosen: four times those of the largest servers."""
MOST_TEXT = 64
"""Most characters of a text in it. Chosen: ethtool's and devlink's are 32 at most, releases of
kernels 64 (`__NEW_UTS_LEN` of linux/utsname.h)."""

Priorities = Annotated[tuple[int, ...], Meta(max_length=8)]
"""Priorities of IEEE 802.1Q, of which there are eight."""


class RnicInventory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RNIC."""

    netdev: str
    model: str = ""
    """Vendor and device of PCI, ``15b3:1021``; the driver's name where it is no PCI function."""
    board: str = ""
    """Identity of the board (PSID): firmware is made for one."""
    firmware: str = ""
    driver: str = ""
    """With its version, where that is not the kernel's."""
    pfc: Priorities | None = None
    """Priorities that it pauses for."""
    dcqcn: Priorities | None = None
    """Priorities for which it slows down where packets are marked."""
    trust: str = ""
    """By what it finds a packet's priority, ``dscp`` or ``pcp``."""
    mtu: int | None = None
    """Bytes."""
    mbps: int | None = None
    """Nominal rate in 10^6 bits per second; None also without a carrier."""
    offload: bool | None = None
    """Whether it takes flows from the kernel (hw-tc-offload)."""


class Inventory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a host says of them."""

    rnics: Annotated[tuple[RnicInventory, ...], Meta(max_length=4 * MOST_RNICS)] = ()
    kernel: str = ""
    """Release, as `uname -r` has it."""
    ovs: str = ""
    """Version of Open vSwitch, as its database says."""
    hw_offload: bool | None = None
    """Whether Open vSwitch puts flows into NICs (other_config:hw-offload)."""
    netagent: str = ""
    """Version of the agent."""
