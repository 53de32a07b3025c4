# SPDX-License-Identifier: Apache-2.0
"""A bounded spool of summaries on disk, one file per window.

A file appears whole (written aside, then renamed) or not at all, so `kill -9` of the agent loses
nothing that `put` returned from. What has to wait for the analyzer is fsynced in a thread, by
whoever finds that out: most is delivered at once, and the event loop does not stall for it. What a
crash of the host leaves half-written fails its checksum, and is counted and dropped.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()

_HEADER = struct.Struct("<4sII")  # magic, length, CRC-32 of the body
_MAGIC = b"NAS1"
_NAME = re.compile(r"^(\d{20})\.summary$")

RECENT_NS = 120_000_000_000
"""Nanoseconds of newest summaries that are delivered before older ones, in order. Chosen: as many
as an analyzer judges after a restart; what differs of a host's paths then comes after these paths,
which it says once a minute."""

HELD = 32
"""Summaries kept in memory while the disk refuses them. Chosen: almost three minutes of windows of
the default five seconds."""


class Spool:
    """Summaries by the start of their window. When full, the oldest go and count.

    One whose window begins with another's, since the clock went back in between, is kept as if it
    began a nanosecond later.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        """Open the spool in `folder`, with what an earlier process left there.

        Raises OSError if the folder can neither be made nor read.
        """
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._held: dict[int, bytes] = {}
        self._postponed: set[int] = set()
        self._unsynced: set[int] = set()
        self.dropped = 0
        """Summaries thrown away because the spool was full, since this object was made."""
        self.damaged = 0
        """Files dropped because they do not hold what was written."""
        self.disk_errors = 0
        """Writes the disk refused."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # an earlier version let everybody read it
        self._sizes = self._scan()

    def __len__(self) -> int:
        return len(self._sizes) + len(self._held)

    @property
    def used_bytes(self) -> int:
        """Bytes on disk and in memory."""
        return sum(self._sizes.values()) + sum(map(len, self._held.values()))

    def put(self, start_ns: int, body: bytes) -> None:
        """Keep `body`, beside all that is kept already.

        If the disk refuses, it is kept in memory, and counted in `disk_errors`.
        """
        size = _HEADER.size + len(body)
        if size > self._limit_bytes:
            self.dropped += 1
            log.warning("summary_dropped", reason="larger than the spool", size_bytes=size)
            return
        while start_ns in self._sizes or start_ns in self._held:
            start_ns += 1
        self._make_room(size)
        try:
            self._write(start_ns, body)
            self._sizes[start_ns] = size
            self._unsynced.add(start_ns)
        except OSError as error:
            self.disk_errors += 1
            log.warning("spool_write_failed", error=str(error))
            self._held[start_ns] = body
            if len(self._held) > HELD:
                self._drop(next(iter(self._held)))

    def next(self) -> tuple[int, bytes] | None:
        """Return window start and body of what is delivered next; None if there is nothing.

        That is the oldest of the newest RECENT_NS. What was measured before can wait: nobody judges
        it any more.
        """
        while self._sizes or self._held:
            every = {*self._sizes, *self._held}
            known = every - self._postponed or every
            since_ns = max(known) - RECENT_NS
            start_ns = min(each for each in known if each > since_ns)
            body = self._held.get(start_ns) or self._read(start_ns)
            if body is not None:
                return start_ns, body
            self.damaged += 1
            log.warning("summary_damaged", start_ns=start_ns)
            self.delete(start_ns)
        return None

    def take_unsynced(self) -> list[Path]:
        """Return the files that a loss of power may still take, and expect them to be synced."""
        taken = [self._path(start_ns) for start_ns in sorted(self._unsynced)]
        self._unsynced.clear()
        return taken

    def postpone(self, start_ns: int) -> None:
        """Deliver the summary of this window after all others."""
        self._postponed.add(start_ns)

    def delete(self, start_ns: int) -> None:
        """Forget the summary of the window that starts at `start_ns`, if there is one."""
        self._held.pop(start_ns, None)
        self._unsynced.discard(start_ns)
        self._postponed.discard(start_ns)
        if self._sizes.pop(start_ns, None) is not None:
            with suppress(OSError):  # read-only meanwhile: it is sent again, which is idempotent
                self._path(start_ns).unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        while len(self) and self.used_bytes + size > self._limit_bytes:
            # As they came: what a clock that was ahead has left is no newer for that.
            self._drop(next(iter(self._sizes or self._held)))

    def _drop(self, start_ns: int) -> None:
        self.dropped += 1
        log.warning("summary_dropped", reason="spool full", start_ns=start_ns)
        self.delete(start_ns)

    def _write(self, start_ns: int, body: bytes) -> None:
        path = self._path(start_ns)
        aside = path.with_suffix(".new")
        aside.write_bytes(_HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body)
        aside.replace(path)

    def _read(self, start_ns: int) -> bytes | None:
        try:
            data = self._path(start_ns).read_bytes()
        except OSError:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, length, checksum = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        whole = magic == _MAGIC and len(body) == length and zlib.crc32(body) == checksum
        return body if whole else None

    def _path(self, start_ns: int) -> Path:
        return self._folder / f"{start_ns:020d}.summary"

    def _scan(self) -> dict[int, int]:
        """Return the sizes of what is there; remove what a killed process was writing."""
        sizes = {}
        for path in sorted(self._folder.iterdir()):
            if found := _NAME.match(path.name):
                sizes[int(found[1])] = path.stat().st_size
            elif path.suffix == ".new":
                path.unlink(missing_ok=True)
        return sizes


def sync(files: Iterable[Path]) -> None:
    """Have files of a spool, and their names, outlive a loss of power. Takes milliseconds each."""
    folders = set[Path]()
    for path in files:
        with suppress(FileNotFoundError):  # delivered meanwhile
            _sync(path)
            folders.add(path.parent)
    for folder in folders:
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
