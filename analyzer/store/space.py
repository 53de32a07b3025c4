# SPDX-License-Identifier: Apache-2.0
"""How much room a disk has, and how much of it the analyzer leaves free."""

import os
from dataclasses import dataclass
from pathlib import Path

SHARE = 20
"""Part of the disk, one in so many, that is left free. Chosen: 5 %, as ext4 leaves for root."""
MOST_BYTES = 1 << 30
"""Most bytes left free. Chosen: what a cluster of 40,000 RNICs sends in three minutes, and a
checkpoint of its database."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a disk has."""

    total: int
    """Bytes."""
    free: int
    """Bytes that whoever is not root may still write."""

    @classmethod
    def of(cls, path: Path) -> "Room":
        """Return that of the disk on which `path` is. Raises OSError."""
        found = os.statvfs(path)
        return cls(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    @property
    def reserve(self) -> int:
        """Return the bytes that are left free."""
        return min(self.total // SHARE, MOST_BYTES)

    @property
    def short(self) -> int:
        """Return how many bytes fewer are free."""
        return max(0, self.reserve - self.free)
