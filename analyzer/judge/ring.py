# SPDX-License-Identifier: Apache-2.0
"""The recording that always runs: the newest records, in files of a folder, bounded.

Theory of operation. Records are gathered in memory as they come; once a second a thread deflates
them and appends them to the newest file. A file that is full is followed by a new one, which begins
with all that a replay needs to begin there: header, roster and the state of the diagnosis. When the
files together are too large the oldest is deleted. So what is kept can be replayed from the
beginning of the oldest file, and a recording is those files, one after the other, and an end.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from analyzer.replay import records
from analyzer.replay.frames import MAX_BYTES, frame, whole
from netagent.wire.codec import is_deflated

FLUSH_S = 1.0
"""Seconds between two writes to disk. Chosen: a crash loses a second of records, and the disk sees
one write a second."""
FILES = 8
"""Files that the ring is cut into. Chosen: deleting the oldest takes an eighth of the history; each
file begins with a copy of the state."""
MAX_WAITING_BYTES = 32 << 20
"""Most bytes of records held in memory while the disk is slow; further records are counted as lost.
Chosen: bounds memory, over a stall of seconds."""
SUFFIX = ".part"

log = structlog.get_logger()


class Opening(Protocol):
    """Makes the records that a file begins with."""

    def __call__(self, *, urgent: bool) -> Sequence[records.Record] | None:
        """Return them; None where this is no moment to begin a file, and it is not urgent."""


@dataclass(slots=True)
class _Waiting:
    """Packed records for one file."""

    number: int
    payloads: list[tuple[bytes, bool]]
    """Each with whether it may shrink."""


class Ring:
    """The newest records of one analyzer."""

    def __init__(self, folder: Path, *, max_bytes: int, opening: Opening) -> None:
        """Keep `max_bytes` in `folder`, which is made; what an earlier run left goes first."""
        self._folder, self._max_bytes, self._opening = folder, max_bytes, opening
        self._waiting: deque[_Waiting] = deque()
        """Records for the disk, by file; new ones go to the last."""
        self._waiting_bytes = 0
        self._number = 0
        self._file_bytes = 0
        """Bytes written to the newest file, without the records that it begins with."""
        self.lost = 0
        """Number of records lost since the analyzer started."""
        self._gap = 0
        self._lock = asyncio.Lock()
        self._begun = False

    def begin(self) -> None:
        """Begin the first file. Raises OSError where the folder cannot be used."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)  # names and addresses of the whole cluster are in it
        parts = self._parts()
        for path in parts[-1:]:
            with path.open("r+b") as file:  # a kill may have cut the last frame
                file.truncate(whole(file)[1])
        self._number = max((int(path.stem) for path in parts), default=0)
        self._begun = True
        self._next_file()

    def write(self, record: records.Record, payload: bytes | None = None) -> None:
        """Keep a record; `payload` are its bytes, where it was read from such."""
        if not self._begun:
            return
        share = self._max_bytes // FILES
        if self._file_bytes > share:
            # Or at a later record, where this is no moment for it. But the disk must stay bounded
            # also where a window is always under judgement.
            self._next_file(urgent=self._file_bytes > 2 * share)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.lost += 1
            self._gap += 1
            return
        if self._gap:
            gap, self._gap = self._gap, 0
            self._append(records.Lost(records=gap))
        self._append(record, payload)

    def _next_file(self, *, urgent: bool = False) -> None:
        opening = self._opening(urgent=urgent)
        if opening is None:
            return
        self._number += 1
        self._waiting.append(_Waiting(self._number, []))
        for record in opening:
            self._append(record)
        self._file_bytes = -sum(
            len(payload) for payload, _ in self._waiting[-1].payloads
        )  # or it would be all there is

    def _append(self, record: records.Record, payload: bytes | None = None) -> None:
        payload = records.pack(record) if payload is None else payload
        if len(payload) > MAX_BYTES:
            self.lost += 1
            self._gap += 1
            return
        # Of thousands of hosts, to see it at each summary takes a tenth of what judging takes.
        is_packed = isinstance(record, records.Ingested) and is_deflated(record.payload)
        self._waiting[-1].payloads.append((payload, not is_packed))
        self._waiting_bytes += len(payload)

    async def run(self) -> None:
        """Write to disk, over and over."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the records in memory; where the disk refuses, they are lost and counted."""
        async with self._lock:
            waiting = [_Waiting(each.number, each.payloads) for each in self._waiting]
            self._waiting = deque([_Waiting(self._number, [])] if self._begun else [])
            size, self._waiting_bytes = self._waiting_bytes, 0
            number = self._number
            try:
                written = await asyncio.to_thread(self._write, waiting)
                self._file_bytes += written if number == self._number else 0
            except OSError as error:
                count = sum(len(each.payloads) for each in waiting)
                self.lost += count
                self._gap += count
                log.warning("recording_not_written", bytes=size, error=str(error))

    def _write(self, waiting: Sequence[_Waiting]) -> int:
        """Append to the files; return the bytes appended to the last one."""
        written = 0
        for each in waiting:
            written = 0
            if each.payloads:
                with self._path(each.number).open("ab") as file:
                    frames = (frame(payload, may_shrink=may) for payload, may in each.payloads)
                    written = file.write(b"".join(frames))
        self._trim()
        return written

    def _trim(self) -> None:
        parts = list(self._parts())
        sizes = [path.stat().st_size for path in parts]
        while len(parts) > 1 and sum(sizes) > self._max_bytes:
            parts.pop(0).unlink()
            sizes.pop(0)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}{SUFFIX}"

    def _parts(self) -> list[Path]:
        parts = [path for path in self._folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()]
        return sorted(parts, key=lambda path: int(path.stem))

    async def export(self, to: Path) -> int:
        """Write the whole ring as one recording to the file `to`; return its bytes.

        The file appears whole or not at all. Raises OSError.
        """
        await self.flush()
        async with self._lock:
            return await asyncio.to_thread(self._export, to)

    def _export(self, to: Path) -> int:
        half = to.with_name(f"{to.name}.half")
        count = size = 0
        try:
            with half.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                for body, frames in self._bodies():
                    count += frames
                    size += file.write(body)
                size += file.write(frame(records.pack(records.End(records=count))))
            half.replace(to)
        finally:
            with contextlib.suppress(FileNotFoundError):
                half.unlink()
        return size

    def _bodies(self) -> Iterator[tuple[bytes, int]]:
        for path in self._parts():
            with path.open("rb") as file:
                count, end = whole(file)
                file.seek(0)
                yield file.read(end), count
