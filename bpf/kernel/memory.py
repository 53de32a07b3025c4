# SPDX-License-Identifier: Apache-2.0
"""Reads other processes' memory, and never waits long for any of it.

A process may have memory behind which somebody has to answer first (userfaultfd, FUSE): who reads
that waits, so it is done in a thread that may be left behind.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Generic, TypeVar

from bpf.trace.contexts import Read

LONGEST_S = 0.5
"""Seconds that a read may take, and all slow ones of a process together before it has to wait.
Chosen: one takes some microseconds."""
SLOW_S = 0.01
"""Seconds from which a read is slow. Chosen: a busy machine has the reader wait so long seldom."""
FORGIVEN = 0.002
"""Seconds of slow reads that are forgotten in each second. Chosen: of a process that is well one
read in a hundred may be slow; all that are watched, slow on purpose, take a tenth of the time."""
MOST_STUCK = 4
"""Readers that may be left behind, after which nothing is read any more. Chosen: each is a thread
for good."""
Found = TypeVar("Found")


class Memory(Generic[Found]):
    """Looks into processes by one function."""

    def __init__(
        self,
        look: Callable[[Read, int], Found | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet; `look` is given what reads a process' memory, and an address."""
        self._look, self._clock = look, clock
        self._stuck: set[int] = set()
        self._slow: dict[int, tuple[float, float]] = {}
        """Process -> seconds that its slow reads took, as of an instant."""

    def reads(self, pid: int) -> bool:
        """Return whether a process is read, or has taken too long."""
        if pid in self._stuck or len(self._stuck) >= MOST_STUCK:
            return False
        return self._took_s(pid) < LONGEST_S

    def at(self, pid: int, address: int) -> Found | None:
        """Return what is at an address; None where there is nothing, or nobody may read it."""
        if not self.reads(pid):
            return None
        took_s, began_s = self._took_s(pid), self._clock()
        found: list[Found | None] = []
        thread = Thread(target=lambda: found.append(self._read(pid, address)), daemon=True)
        thread.start()
        thread.join(LONGEST_S)
        ended_s = self._clock()
        if ended_s - began_s >= SLOW_S:
            self._slow[pid] = took_s + ended_s - began_s, ended_s
        if thread.is_alive():
            self._stuck.add(pid)
            return None
        return found[0] if found else None

    def forget(self, pid: int) -> None:
        """Forget how slow a process was that is gone; whoever is stuck in it still is."""
        self._slow.pop(pid, None)

    def _took_s(self, pid: int) -> float:
        took_s, then_s = self._slow.get(pid, (0.0, 0.0))
        return max(0.0, took_s - FORGIVEN * (self._clock() - then_s))

    def _read(self, pid: int, address: int) -> Found | None:
        try:
            file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None

        def read(at: int, size: int) -> bytes:
            with suppress(OSError, OverflowError, ValueError):  # of an address as it may be given
                return os.pread(file, size, at)
            return b""

        try:
            return self._look(read, address)
        finally:
            os.close(file)
