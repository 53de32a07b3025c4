# SPDX-License-Identifier: Apache-2.0
"""Records a running analyzer: always into a ring, and with each incident into a file of its own."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import structlog
from msgspec.structs import replace

from analyzer.judge.messages import Open
from analyzer.judge.ring import Ring
from analyzer.replay import records
from analyzer.replay.fed import Fed
from analyzer.replay.state import freeze
from analyzer.replay.tape import roster_of
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident, IncidentState

STATE_FLOWS = 8_000
"""Most known flows for which the diagnosis' state is recorded, with two routes each. Chosen: it is
some 1.3 kB a flow, and the event loop stands still while it is written."""
APART_S = 30.0
"""Seconds from one batch of incident recordings to the next. Chosen: incidents come in groups, and
each recording copies the whole ring."""
SUFFIX = ".recording"
EXPORTS = 4
"""Most files for downloads; a fifth download overwrites the first. Chosen: bounds the disk where
downloads are not finished."""

log = structlog.get_logger()


class Recorder:
    """The ring of one analyzer, and the recordings of its incidents."""

    def __init__(self, opening: Open, fed: Fed) -> None:
        self._settings, self._header, self._fed = opening.recording, opening.header, fed
        self._folder = Path(opening.database).parent / "recording"
        self._ring = Ring(self._folder, max_bytes=self._settings.bytes, opening=self._opening)
        self._wanted: dict[str, None] = {}
        """Incidents without a recording so far, oldest first."""
        self._news = asyncio.Event()
        self._exports = 0

    @property
    def lost(self) -> int:
        """Return the number of records lost since the analyzer started."""
        return self._ring.lost

    def begin(self) -> None:
        """Record from now on."""
        if not self._settings.enabled:
            return
        try:
            self._ring.begin()
        except OSError as error:
            log.warning("not_recording", folder=str(self._folder), error=str(error))

    def write(self, record: records.Record, payload: bytes | None = None) -> None:
        """Keep a record; see `Ring.write`."""
        self._ring.write(record, payload)

    def _opening(self, *, urgent: bool) -> Sequence[records.Record] | None:
        diagnosis = self._fed.diagnosis
        if diagnosis.judging and not urgent:
            return None
        known = max(diagnosis.flows, diagnosis.routes // 2)
        state = freeze(diagnosis) if known <= STATE_FLOWS else None
        header = replace(self._header, whole=state is not None)
        states = [records.State(body=state)] if state is not None else []
        return [header, roster_of(self._fed.roster), *states]

    def saw(self, incident: Incident) -> None:
        """Write a recording of an incident that is certain, and once more when it is over."""
        if incident.state is not IncidentState.OPEN and self._settings.keep:
            self._wanted[incident.id] = None
            self._news.set()

    async def run(self) -> None:
        """Write to disk until cancelled."""
        if not self._settings.enabled:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ring.run())
            group.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            wanted, self._wanted = list(self._wanted), {}
            for name in wanted[-self._settings.keep :]:
                await self._save(name)
            await asyncio.sleep(APART_S)

    async def _save(self, incident: str) -> None:
        try:
            size = await self._ring.export(self._folder / f"{incident}{SUFFIX}")
            await asyncio.to_thread(self._trim)
        except OSError as error:
            log.warning("incident_not_recorded", incident=incident, error=str(error))
        else:
            log.info("incident_recorded", incident=incident, bytes=size)

    def _trim(self) -> None:
        files = sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in files[: -self._settings.keep]:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    async def stop(self) -> None:
        """Write the records that are still in memory."""
        if self._settings.enabled:
            await self._ring.flush()

    async def export(self) -> Path:
        """Write all that is kept as one recording to a file, for the caller to delete.

        Raises CapabilityMissing where nothing is recorded or the disk refuses.
        """
        if not self._settings.enabled:
            raise CapabilityMissing("recording", "set enabled = true under [recording]")
        self._exports += 1
        to = self._folder / f"export-{self._exports % EXPORTS}"
        try:
            await self._ring.export(to)
        except OSError as error:
            raise CapabilityMissing("recording", f"{to}: {error.strerror}") from error
        return to
