# SPDX-License-Identifier: Apache-2.0
"""Payloads of summaries in files that are only appended to; the database holds where each one is.

A frame is ``u32 length | u32 crc32 | payload``, little-endian. A file that is full is followed by
the next one, and a start begins a new one, so that what a kill left half is never written to. A
file of which the database knows no summary any more is deleted as a whole.
"""

import contextlib
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns

from analyzer.store.space import Room
from netagent.model.errors import RemoteProtocolError

HEAD = struct.Struct("<II")
SEGMENT_BYTES = 32 << 20
"""Bytes from which a file is followed by the next. Chosen: deleting one frees a fair part of the
smallest retention that makes sense."""
PARTS = 64
"""Least number of such files that a disk holds. Chosen: a file is what is deleted at once where the
disk runs out of room, and that shall be little of all there is."""
SUFFIX = ".segment"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a payload is."""

    segment: int
    offset: int
    """Of its frame in the file, in bytes."""
    length: int
    """Of the payload, in bytes."""


class Segments:
    """The files of one database. One thread writes; any may read."""

    def __init__(self, folder: Path, synced: Callable[[int], None] = lambda _: None) -> None:
        """Begin with a new file of `folder`; `synced` is told how many ns each sync took."""
        self._folder, self._synced = folder, synced
        self._number, self._end = -1, 0
        """The newest file, and where it ends; -1 before the first write."""
        self._most = SEGMENT_BYTES
        self._syncing_since_ns: int | None = None

    def syncing_ns(self) -> int:
        """Return for how long the disk has been syncing; 0 where it does not."""
        since_ns = self._syncing_since_ns  # of the thread that writes
        return 0 if since_ns is None else monotonic_ns() - since_ns

    def places(self, lengths: Iterable[int]) -> list[Place]:
        """Return where payloads of these lengths will be, if they are written next."""
        self._begin()
        if self._end >= self._most:
            self._number, self._end = self._number + 1, 0
        found, offset = list[Place](), self._end
        for length in lengths:
            found.append(Place(self._number, offset, length))
            offset += HEAD.size + length
        return found

    def write(self, payloads: Sequence[tuple[Place, bytes]]) -> None:
        """Write payloads to their places; they are on disk when this returns.

        Raises OSError; then nothing of them takes space.
        """
        if not payloads:
            return
        file = os.open(self.path(self._number), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for place, payload in payloads:
                frame = HEAD.pack(len(payload), zlib.crc32(payload)) + payload
                _write_all(file, frame, place.offset)
            self._sync(file)
            if not self._end:
                self._sync_folder()  # or a power cut could lose the name of a new file
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            raise
        finally:
            os.close(file)
        last = payloads[-1][0]
        self._end = last.offset + HEAD.size + last.length

    def read(self, place: Place) -> bytes:
        """Return the payload at a place. Raises OSError; RemoteProtocolError if it is damaged."""
        with self.path(place.segment).open("rb") as file:
            file.seek(place.offset)
            head, payload = file.read(HEAD.size), file.read(place.length)
        if head != HEAD.pack(place.length, zlib.crc32(payload)) or len(payload) != place.length:
            raise RemoteProtocolError(f"{self.path(place.segment)}: damaged at {place.offset}")
        return payload

    def drop_all_but(self, kept: Collection[int]) -> None:
        """Delete the files of which no summary is kept, but the newest."""
        for number, path in self._files().items():
            if number not in kept and number != self._number:
                path.unlink(missing_ok=True)

    def freeable(self) -> dict[int, int]:
        """Return each file but the newest, the oldest first, and how many bytes its end frees.

        One that somebody else has a link to frees none.
        """
        found = {}
        for number, path in sorted(self._files().items()):
            of = path.stat()
            if number != self._number:
                found[number] = of.st_blocks * 512 if of.st_nlink == 1 else 0
        return found

    def drop(self, number: int) -> None:
        """Delete a file. Raises OSError."""
        self.path(number).unlink(missing_ok=True)

    def _begin(self) -> None:
        if self._number < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._number = max(self._files(), default=0) + 1
            self._most = min(SEGMENT_BYTES, Room.of(self._folder).total // PARTS)

    def turn(self) -> None:
        """Write to a new file from now on: those that there are stay as they are."""
        self._begin()
        if self._end:
            self._number, self._end = self._number + 1, 0

    def path(self, number: int) -> Path:
        """Return the file of a number."""
        return self._folder / f"{number:010d}{SUFFIX}"

    def _sync(self, file: int) -> None:
        self._syncing_since_ns = began_ns = monotonic_ns()
        try:
            os.fdatasync(file)
        finally:
            self._synced(monotonic_ns() - began_ns)
            self._syncing_since_ns = None

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _files(self) -> dict[int, Path]:
        found = self._folder.glob(f"*{SUFFIX}")
        return {int(path.stem): path for path in found if path.stem.isdecimal()}


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count
