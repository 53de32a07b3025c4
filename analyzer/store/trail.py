# SPDX-License-Identifier: Apache-2.0
"""The trail of actions: JSON lines, each on disk before what it says is done.

Whatever ends the analyzer, what was written is there; a line that was cut off is passed over. The
file is renamed once it is large, so that two of them bound the space.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from analyzer.actions.broker import Entry

FILE = "actions.jsonl"
"""Beside the database; the one before has `.1` at its end."""
MOST_BYTES = 4 << 20
"""Bytes from which on another file is begun. Chosen: some thousand actions, read in no time."""
MOST_LINE = 1 << 16
"""Bytes of a line that is read. Chosen: far more than an entry has."""


class Trail:
    """One trail. Every method may raise OSError."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._most = path, most_bytes
        self._before = path.with_name(f"{path.name}.1")

    def read(self) -> list[Entry]:
        """Return all entries that are kept, oldest first."""
        return [entry for path in (self._before, self._path) for entry in _entries(path)]

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries; they are on disk when this returns."""
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in entries)
        if not lines:
            return
        if _size(self._path) > self._most:
            # What is open stays open, however much is told meanwhile.
            breaker = [entry for entry in self.read() if entry.action is None][-1:]
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in breaker) + lines
            self._path.replace(self._before)
        with os.fdopen(os.open(self._path, _FLAGS, 0o600), "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                whole = file.read(1) == b"\n"
                lines = lines if whole else b"\n" + lines
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        if not end:
            _sync_folder(self._path.parent)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def _entries(path: Path) -> Iterator[Entry]:
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in iter(lambda: file.readline(MOST_LINE), b""):
            with suppress(msgspec.DecodeError):  # cut off, or of a later version
                yield msgspec.json.decode(line, type=Entry)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
