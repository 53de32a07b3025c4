# SPDX-License-Identifier: Apache-2.0
"""In which windows' summaries a host says its inventory: once in a minute, and as it changes. Pure.

So an analyzer that starts anew, or lost a summary, knows within a minute what each host has.
"""

from zlib import crc32

from netagent.wire.inventory import Inventory

AGAIN_NS = 60_000_000_000
"""Nanoseconds from one window with the inventory to the next one. Chosen: half of the time that an
analyzer reads again after a restart; some hundred bytes a minute."""


class InventoryNews:
    """What was said of one host's inventory."""

    def __init__(self, host: str) -> None:
        # Without the difference all hosts would say it in one and the same window.
        self._phase_ns = crc32(host.encode()) * AGAIN_NS >> 32
        self._said: Inventory | None = None
        self._minute = 0

    def of(self, inventory: Inventory | None, *, start_ns: int) -> Inventory | None:
        """Return what the summary says of a window that began at `start_ns` (Unix time)."""
        minute = (start_ns + self._phase_ns) // AGAIN_NS
        if inventory == self._said and minute == self._minute:
            return None
        self._said, self._minute = inventory, minute
        return inventory
