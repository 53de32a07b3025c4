# SPDX-License-Identifier: Apache-2.0
"""Keeps what the diagnosis knows in files beside the database, over restarts.

They are caches: each is written over and over to a file of another name, which then takes the old
one's place, so that a kill leaves one of the two. Whatever is wrong with one is logged, and the
judge starts all the same, without what it held.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import structlog

from analyzer.detect.latency.saved import Saved
from analyzer.diagnosis.engine import Diagnosis
from analyzer.localize.saved import SavedRoutes
from analyzer.replay import baselines, routes
from netagent.model.errors import RemoteProtocolError

LOOK_S = 0.5
"""Seconds between two looks for a moment to save. Chosen: such a moment lasts a window."""
BASELINES_S = 60.0
"""Seconds between two files of baselines. Chosen: half of what a restart replays, so that nothing
between the last one and a kill is missed."""
ROUTES_S = 10.0
"""Seconds between two files of routes. Chosen: a large cluster's summaries of that time are read
again in less than ten seconds."""
ROUTES_AGE_NS = 60 * 10**9
"""Nanoseconds after which routes are not taken up. Chosen: half of what a restart replays, in which
all routes are said anew."""

T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True)
class What(Generic[T]):
    """What is kept in one file."""

    name: str
    every_s: float
    save: Callable[[Diagnosis], T | None]
    """Returns what is known; None where this is no moment to save it."""
    pack: Callable[[T], Iterable[bytes]]
    unpack: Callable[[BinaryIO, int], T]
    """Raises RemoteProtocolError for what is no such file, or of another time."""
    adopt: Callable[[Diagnosis, T, int], int]
    """Returns the instant until which what is known is in it."""


def _adopt_baselines(diagnosis: Diagnosis, saved: Saved, now_ns: int) -> int:
    diagnosis.adopt(saved, now_ns)
    return saved.until_ns


def _adopt_routes(diagnosis: Diagnosis, saved: SavedRoutes, _now_ns: int) -> int:
    diagnosis.adopt_routes(saved)
    return saved.at_ns


BASELINES = What(
    "baselines",
    BASELINES_S,
    lambda diagnosis: diagnosis.baselines(),
    baselines.pack,
    lambda file, now_ns: baselines.unpack(file, now_ns=now_ns),
    _adopt_baselines,
)
ROUTES = What(
    "routes",
    ROUTES_S,
    lambda diagnosis: diagnosis.routes_saved(),
    routes.pack,
    lambda file, now_ns: routes.unpack(file, now_ns=now_ns, most_ns=ROUTES_AGE_NS),
    _adopt_routes,
)


class Keeper(Generic[T]):
    """One file of one analyzer."""

    def __init__(
        self, what: What[T], database: str, diagnosis: Diagnosis, clock: Callable[[], int]
    ) -> None:
        self._what = what
        self._path = Path(f"{database}.{what.name}")
        self._diagnosis, self._clock = diagnosis, clock

    async def restore(self) -> int:
        """Let the diagnosis adopt the file, if there is one that it can use.

        Return the instant until which what is known is in it; 0 where there is no such file.
        """
        try:
            saved = await asyncio.to_thread(self._read, self._clock())
            until_ns = self._what.adopt(self._diagnosis, saved, self._clock())
        except FileNotFoundError:
            return 0
        except (OSError, RemoteProtocolError) as error:
            log.warning("state_not_restored", file=str(self._path), error=str(error))
            return 0
        log.info("state_restored", file=str(self._path), until_ns=until_ns)
        return until_ns

    def _read(self, now_ns: int) -> T:
        with self._path.open("rb") as file:
            return self._what.unpack(file, now_ns)

    async def run(self) -> None:
        """Save, over and over, until cancelled."""
        rest_s = self._what.every_s
        while True:
            await asyncio.sleep(rest_s)
            rest_s = self._what.every_s if await self.save() else LOOK_S

    async def save(self) -> bool:
        """Write the file; return False where this is no moment for it."""
        saved = self._what.save(self._diagnosis)
        if saved is None:
            return False
        try:
            size = await asyncio.to_thread(self._write, saved)
        except OSError as error:
            log.warning("state_not_saved", file=str(self._path), error=str(error))
        else:
            log.debug("state_saved", file=str(self._path), bytes=size)
        return True

    def _write(self, saved: T) -> int:
        half = self._path.with_name(f"{self._path.name}.half")
        try:
            with half.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)  # names of the cluster's containers are in it
                size = sum(map(file.write, self._what.pack(saved)))
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path)
        finally:
            half.unlink(missing_ok=True)
        return size
