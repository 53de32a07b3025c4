# SPDX-License-Identifier: Apache-2.0
"""Keeps what the diagnosis knows of round trips in a file beside the database, over restarts.

It is a cache: written every minute to a file of another name, which then takes the old one's place,
so that a kill leaves one of the two. Whatever is wrong with it is logged, and the analyzer starts
all the same, with baselines that begin anew.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from analyzer.detect.latency.saved import Saved
from analyzer.diagnosis.engine import Diagnosis
from analyzer.replay.baselines import pack, unpack
from netagent.model.errors import RemoteProtocolError

SAVE_S = 60.0
"""Seconds between two files. Chosen: half of what a restart replays, so that nothing between the
last one and a kill is missed."""
LOOK_S = 0.5
"""Seconds between two looks for a moment to save. Chosen: such a moment lasts a window."""
SUFFIX = ".baselines"

log = structlog.get_logger()


class Keeper:
    """The file of one analyzer."""

    def __init__(self, database: str, diagnosis: Diagnosis, clock: Callable[[], int]) -> None:
        self._path = Path(database + SUFFIX)
        self._diagnosis, self._clock = diagnosis, clock

    async def restore(self) -> None:
        """Let the diagnosis adopt the file, if there is one that it can use."""
        try:
            saved = await asyncio.to_thread(self._read, self._clock())
        except FileNotFoundError:
            return
        except (OSError, RemoteProtocolError) as error:
            log.warning("baselines_not_restored", file=str(self._path), error=str(error))
            return
        self._diagnosis.adopt(saved, self._clock())
        log.info("baselines_restored", flows=len(saved.flows), until_ns=saved.until_ns)

    def _read(self, now_ns: int) -> Saved:
        with self._path.open("rb") as file:
            return unpack(file, now_ns=now_ns)

    async def run(self) -> None:
        """Save, over and over, until cancelled."""
        rest_s = SAVE_S
        while True:
            await asyncio.sleep(rest_s)
            rest_s = SAVE_S if await self.save() else LOOK_S

    async def save(self) -> bool:
        """Write the file; return False where this is no moment for it."""
        saved = self._diagnosis.baselines()
        if saved is None:
            return False
        try:
            size = await asyncio.to_thread(self._write, saved)
        except OSError as error:
            log.warning("baselines_not_saved", file=str(self._path), error=str(error))
        else:
            log.debug("baselines_saved", flows=len(saved.flows), bytes=size)
        return True

    def _write(self, saved: Saved) -> int:
        half = self._path.with_name(f"{self._path.name}.half")
        try:
            with half.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)  # names of the cluster's containers are in it
                size = sum(map(file.write, pack(saved)))
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path)
        finally:
            half.unlink(missing_ok=True)
        return size
