# SPDX-License-Identifier: Apache-2.0
"""Keeps some of the disk free: where it runs out, the oldest that is stored goes first."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import structlog

from analyzer.server.disk import Disk
from analyzer.store.space import Freed, Room, is_full
from netagent.model.errors import CapabilityMissing

LOOK_S = 1.0
"""Seconds between two looks at the disk. Chosen: in one, the largest cluster known sends less than
a hundredth of what is left free."""
NEEDED_NS = 180 * 10**9
"""Nanoseconds of summaries that are never deleted for room. Chosen: the two minutes that a restart
reads again, and one in which it happens."""
TOLD_NS = 3600 * 10**9
"""Nanoseconds for which a deletion stays a warning. Chosen: on a disk that is full, a file is
deleted every few minutes; in between, nothing is mended."""

log = structlog.get_logger()


class Storage(Protocol):
    """What can make room; `analyzer.store.tables.Store` in production."""

    def room(self) -> Room:
        """Return what the disk has. Raises OSError."""

    async def make_room(self, *, before_ns: int, least: int = 0) -> Freed:
        """Free what the disk is short of, and `least` bytes. Raises OSError, CapabilityMissing."""


@dataclass(slots=True)
class Space:
    """The room on the analyzer's disk."""

    store: Storage
    disk: Disk
    clock: Callable[[], int]
    room: Room | None = None
    """As last seen; None where that cannot be told."""
    summaries: int = 0
    """Deleted for room since the start."""
    backups: int = 0
    """Likewise."""
    freed_ns: int | None = None
    """When something was deleted last."""
    is_short: bool = False
    """Whether too little is free, and nothing is left that may be deleted."""
    _refusals: int = 0
    """Refused writes for which room was made: one is no reason to delete more and more."""

    async def run(self) -> None:
        """Look, over and over, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Make room if there is too little, or if a write was refused anew for lack of it."""
        try:
            self.room = self.store.room()
            refused = self.disk.refusals != self._refusals and is_full(self.disk.error)
            self._refusals = self.disk.refusals
            if self.room.short or refused:
                before_ns = self.clock() - NEEDED_NS
                self._note(await self.store.make_room(before_ns=before_ns, least=int(refused)))
                self.room = self.store.room()
        except (OSError, CapabilityMissing) as error:
            log.warning("no_room_made", error=str(error))
        self._settle()

    def _note(self, freed: Freed) -> None:
        if freed.summaries or freed.backups:
            self.summaries += freed.summaries
            self.backups += freed.backups
            self.freed_ns = self.clock()
            told = {"summaries": freed.summaries, "backups": freed.backups}
            log.warning("deleted_for_room", free_bytes=self._free, **told)

    def _settle(self) -> None:
        is_short = self.room is not None and self.room.short > 0
        if is_short != self.is_short:
            (log.error if is_short else log.info)("disk_short", is_short=is_short, free=self._free)
        self.is_short = is_short

    @property
    def _free(self) -> int | None:
        return self.room.free if self.room is not None else None

    def warnings(self) -> Iterator[str]:
        """Yield what is wrong with the analyzer's own disk; the same words as long as it is so."""
        if not self.disk.takes:
            yield f"its disk refuses what it is given: {self.disk.error}"
        if self.freed_ns is not None and self.clock() - self.freed_ns < TOLD_NS:
            yield "its disk ran out of room, and the oldest that it stores was deleted for it"
        if self.is_short:
            yield "its disk has little room left, and nothing that it stores may be deleted"

    def told(self) -> dict[str, object]:
        """Return what the API says of it."""
        return {
            "free_bytes": self._free,
            "reserve_bytes": self.room.reserve if self.room is not None else None,
            "is_short": self.is_short,
            "summaries_trimmed_for_space": self.summaries,
            "backups_deleted_for_space": self.backups,
            "deleted_for_space_ns": self.freed_ns,
        }
