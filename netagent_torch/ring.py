# SPDX-License-Identifier: Apache-2.0
"""The writing end of a ring: a file in memory, one writer, no lock on the way."""

import fcntl
import json
import mmap
import os
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

from netagent_torch import form


class Ring:
    """A ring of one process.

    Raises OSError where the file cannot be made.
    """

    def __init__(self, path: Path, *, capacity: int = form.CAPACITY) -> None:
        """Make the file anew."""
        self.path = path
        self.capacity = capacity
        self.records_at = form.HEAD_BYTES + form.LINES_BYTES
        self.numbers = count(1)
        """Gives each record its number; atomic under the interpreter's lock."""
        self.written = 0
        self._lines_used = 0
        self._left_out = 0
        self._lock = threading.Lock()
        if sys.byteorder != "little":
            raise OSError("rings are written by little-endian machines only")
        size = self.records_at + capacity * form.RECORD_BYTES
        # Nobody follows a link, or takes over a file, that somebody else laid there.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o640)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._file, 0, size)  # else a full memory would end the job (SIGBUS)
            self.map = mmap.mmap(self._file, size)
        except OSError:
            os.close(self._file)
            path.unlink()
            raise
        head = form.Head(
            capacity, form.LINES_BYTES, 0, 0, os.getpid(), time.time_ns(), time.monotonic_ns(), 0
        )
        self.map[: form.HEAD.size] = form.pack_head(head)
        self.words = memoryview(self.map).cast("q")
        """The same as numbers, since to set one is the cheapest write there is."""

    def say(self, what: dict[str, Any]) -> bool:
        """Add a line; False where there is no room for it."""
        line = json.dumps(what, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            start = form.HEAD_BYTES + self._lines_used
            if self._lines_used + len(line) > form.LINES_BYTES:
                return False
            self.map[start : start + len(line)] = line
            self._lines_used += len(line)
            form.LINES_USED.pack_into(self.map, form.LINES_USED_AT, self._lines_used)
        return True

    def add(self, record: form.Record) -> int:
        """Write a record whatever its number, and return the number that it has."""
        number = next(self.numbers)
        at = self.records_at + (number - 1) % self.capacity * form.RECORD_BYTES
        form.RECORD.pack_into(self.map, at, *record._replace(number=number))
        self.words[form.WRITTEN_AT // 8] = self.written = number
        return number

    def word_of(self, number: int) -> int:
        """Return at which of `words` a record begins."""
        return (self.records_at + (number - 1) % self.capacity * form.RECORD_BYTES) // 8

    def leave_out(self) -> None:
        """Count an operation of which there is no record."""
        self._left_out += 1
        self.words[form.LEFT_OUT_AT // 8] = self._left_out

    def close(self) -> None:
        """Let go of the file, which stays for readers."""
        self.words.release()
        self.map.close()
        os.close(self._file)
