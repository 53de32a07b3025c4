# SPDX-License-Identifier: Apache-2.0
"""A host's inventory, made of what was read of its board and of Open vSwitch."""

import re
from collections.abc import Mapping

from netagent.host.facts import VswitchView
from netagent.host.hardware import Hardware, Nic
from netagent.host.rates import PortRate
from netagent.wire.inventory import MOST_RNICS, MOST_TEXT, Inventory, RnicInventory

_BOARD = re.compile(r"(\S+) \(([^()\s]+)\)")
"""Firmware and board as mlx5e_ethtool_get_drvinfo of the kernel's mlx5/core/en_ethtool.c has them:
``28.39.1002 (MT_0000000838)``."""

_MOST_VERSION = 31
"""Characters of a driver's version: ETHTOOL_DRVINFO's `version` of linux/ethtool.h has 32 bytes."""


def inventory_of(
    hardware: Hardware,
    rates: Mapping[str, PortRate | None],
    vswitch: VswitchView | None,
    *,
    kernel: str,
    netagent: str,
) -> Inventory:
    """Return what is told of a host; `vswitch` is None where its database was never read.

    `rates` are by netdev. What is too long is cut, and RNICs beyond MOST_RNICS are left out.
    """
    settings = vswitch.settings if vswitch else {}
    return Inventory(
        rnics=tuple(
            _rnic(nic, hardware.mtus.get(nic.netdev), rates.get(nic.netdev), kernel)
            for nic in hardware.nics[:MOST_RNICS]
        ),
        kernel=_text(kernel),
        ovs=_text(vswitch.version if vswitch else ""),
        hw_offload=settings.get("hw-offload", "false") == "true" if vswitch else None,
        netagent=_text(netagent),
    )


def _rnic(nic: Nic, mtu: int | None, rate: PortRate | None, kernel: str) -> RnicInventory:
    told = _BOARD.fullmatch(nic.firmware)
    firmware, board = told.groups() if told else (nic.firmware, "")
    # A driver of the kernel's own has no other version, and would differ wherever kernels do.
    version = nic.driver_version if nic.driver_version != kernel[:_MOST_VERSION] else ""
    return RnicInventory(
        netdev=_text(nic.netdev),
        model=_text((nic.placed.function.model if nic.placed else "") or nic.driver),
        board=_text(board),
        firmware=_text(firmware),
        driver=_text(f"{nic.driver} {version}"),
        pfc=nic.pause,
        dcqcn=nic.marks,
        trust=_text(nic.trust),
        mtu=mtu,
        mbps=rate.bps // 1_000_000 if rate else None,
        offload=nic.offload,
    )


def _text(said: str) -> str:
    """Return what can be told of a text: printable, and not too long."""
    return "".join(each for each in said if each.isprintable()).strip()[:MOST_TEXT]
