# SPDX-License-Identifier: Apache-2.0
"""How much room a disk has, how much of it is left free, and what goes first where it is short."""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHARE = 20
"""Part of the disk, one in so many, that is left free. Chosen: 5 %, as ext4 leaves for root."""
MOST_BYTES = 1 << 30
"""Most bytes left free. Chosen: what a cluster of 40,000 RNICs sends in three minutes, and a
checkpoint of its database."""
FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
"""What a disk says that has no room, also in what DuckDB says of it."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What was deleted to make room."""

    summaries: int = 0
    backups: int = 0


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


def is_full(error: str) -> bool:
    """Return whether a write failed because there was no room."""
    return any(each in error for each in FULL)


def oldest(
    freeable: Mapping[int, int], newest_ns: Mapping[int, int], *, needed: int, before_ns: int
) -> list[int]:
    """Return the files to delete, the oldest first: no more than free `needed` bytes.

    `freeable` are the bytes of files, the oldest first, and `newest_ns` when the newest summary in
    each was received. Those since `before_ns` are kept, and files whose end frees nothing.
    """
    chosen, freed = list[int](), 0
    for number, size in freeable.items():
        if freed >= needed or newest_ns.get(number, 0) >= before_ns:
            break
        if size:
            chosen.append(number)
            freed += size
    return chosen
