# SPDX-License-Identifier: Apache-2.0
"""What this process and those that it started use of the host."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""utime, stime, cutime and cstime of /proc/PID/stat (man 5 proc), behind the command's name."""


def cpu_s() -> float:
    """Return the CPU seconds that this process used, and all that descend from it.

    Those that ended and were waited for included; where the kernel does not tell which processes a
    process has started (CONFIG_PROC_CHILDREN), those that live are not.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = used.ru_utime + used.ru_stime + ended.ru_utime + ended.ru_stime
    return own + sum(map(_cpu_s, _descendants(os.getpid())))


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it ended meanwhile
        for task in (_PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield int(child)
                yield from _descendants(int(child))


def _cpu_s(pid: int) -> float:
    try:
        told = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    return sum(map(int, told.rpartition(")")[2].split()[_TIMES])) / _TICKS


def rss_kb() -> int:
    """Return the resident memory of this process alone, in KiB."""
    pages = int((_PROC / "self" / "statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024
