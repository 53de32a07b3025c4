# SPDX-License-Identifier: Apache-2.0
"""Checks of the host beneath the network: board, cards, memory and settings.

Each is a function of what was read (`contract.Inspected`). A new one is one file and one entry.
"""

from netagent.host.checks.bonds import bonds
from netagent.host.checks.contract import Checked, HostCheck, Inspected
from netagent.host.checks.gids import pod_gids
from netagent.host.checks.gpudirect import gpu_distance, gpu_memory, isolation
from netagent.host.checks.memory import hugepages
from netagent.host.checks.mtu import mtu_ladder
from netagent.host.checks.pcie import pcie_errors, pcie_link
from netagent.host.checks.siblings import congestion, firmware, functions, offload

CHECKS: tuple[HostCheck, ...] = (
    pcie_link, pcie_errors, isolation, gpu_memory, gpu_distance, hugepages,
    mtu_ladder, pod_gids, bonds, firmware, congestion, offload, functions,
)  # fmt: skip


def inspect(seen: Inspected) -> tuple[Checked, ...]:
    """Return what all checks say, in their order."""
    return tuple(checked for check in CHECKS for checked in check(seen))
