# SPDX-License-Identifier: Apache-2.0
"""How much of the machine the analyzer uses, and how many RNICs more it could take.

What it uses is taken to grow with the number of RNICs, from nothing: so it understates what a small
fleet leaves room for.
"""

import asyncio
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 5.0
"""Seconds between two samples. Chosen: a window."""
SAMPLES = 61
"""Samples kept. Chosen: five minutes; half-minute tests and a minute's learning are in them."""
LEAST_S = 60.0
"""Seconds of samples from which something is said. Chosen: what is done once a minute is in it."""
CORE_SHARE = 0.7
"""Share of a core that a process should use at most, in the mean. Chosen: the rest is for what
comes at once, faults above all."""
MEMORY_SHARE = 0.8
"""Share of the free memory that may be used. Chosen: the rest is the page cache's."""
FILES_SHARE = 0.8
"""Share of the open files. Chosen: the rest is for administrators and the store."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was used at an instant; totals since each process began."""

    at_s: float
    """By a monotonic clock."""
    rnics: int
    judge: int | None
    """Pid of the judge."""
    receive_cpu_s: float
    judge_cpu_s: float
    memory_bytes: int
    """Resident, of both."""
    free_bytes: int
    """What the machine has left."""
    files: int
    stored_bytes: int
    """Of summaries, since the start."""


@dataclass(frozen=True, slots=True)
class Used:
    """One resource."""

    name: str
    used: float
    limit: float
    unit: str
    takes: int
    """RNICs that it would be enough for, those that are there included."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the analyzer can take."""

    rnics: int
    over_s: float
    """Seconds that it was measured over."""
    resources: tuple[Used, ...]
    """The scarcest first; none where there is too little to say."""
    bytes_per_s: float
    """Of summaries, that are stored."""
    missing: str = ""
    """Why nothing is said."""

    def history_s(self, *, most_bytes: int, most_s: float) -> float:
        """Return how far back what is stored will reach."""
        return min(most_s, most_bytes / self.bytes_per_s) if self.bytes_per_s else most_s


def capacity(samples: Sequence[Sample], *, files: int, cores: int) -> Capacity:
    """Return what samples of one analyzer show; `files` and `cores` are what it may use."""
    last = samples[-1] if samples else None
    mine = [each for each in samples if last is not None and each.judge == last.judge]
    over_s = mine[-1].at_s - mine[0].at_s if mine else 0.0
    rnics = last.rnics if last is not None else 0
    if last is None or over_s < LEAST_S or last.judge is None:
        return _nothing(rnics, over_s, f"measured for {over_s:.0f} s of {LEAST_S:.0f} so far")
    if not min(each.rnics for each in mine):
        return _nothing(rnics, over_s, "no RNIC was there all the time")
    first = mine[0]
    receive = (last.receive_cpu_s - first.receive_cpu_s) / over_s
    judge = (last.judge_cpu_s - first.judge_cpu_s) / over_s
    memory = last.memory_bytes + MEMORY_SHARE * last.free_bytes
    most = max(each.rnics for each in mine)
    found = [
        Used(
            name, round(used, 4), round(limit, 4), unit, int(most * limit / used) if used else most
        )
        for name, used, limit, unit in (
            ("receiving", receive, CORE_SHARE, "cores"),
            ("judging", judge, CORE_SHARE, "cores"),
            ("cores", receive + judge, CORE_SHARE * cores, "cores"),
            ("memory", last.memory_bytes, memory, "bytes"),
            ("files", last.files, FILES_SHARE * files, "files"),
        )
    ]
    stored = (last.stored_bytes - first.stored_bytes) / over_s
    return Capacity(rnics, over_s, tuple(sorted(found, key=lambda each: each.takes)), stored)


def _nothing(rnics: int, over_s: float, missing: str) -> Capacity:
    return Capacity(rnics, over_s, (), 0.0, missing)


class Meter:
    """Samples what this process and its judge use."""

    def __init__(self, told: Callable[[], tuple[int, int | None, int]]) -> None:
        """Ask `told` for the RNICs there are, the judge's pid and the bytes stored."""
        self._told = told
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def run(self) -> None:
        """Sample, over and over, until cancelled."""
        while True:
            self._samples.append(self.sample())
            await asyncio.sleep(SAMPLE_S)

    def sample(self) -> Sample:
        """Return what is used now."""
        rnics, judge, stored = self._told()
        pids = [os.getpid()] if judge is None else [os.getpid(), judge]
        return Sample(
            at_s=time.monotonic(),
            rnics=rnics,
            judge=judge,
            receive_cpu_s=time.process_time(),
            judge_cpu_s=_cpu_s(judge) if judge is not None else 0.0,
            memory_bytes=sum(map(_resident_bytes, pids)),
            free_bytes=_free_bytes(),
            files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
            stored_bytes=stored,
        )

    def capacity(self) -> Capacity:
        """Return what the newest minutes show."""
        cores = len(os.sched_getaffinity(0))
        return capacity(self._samples, files=open_files(), cores=cores)


def open_files() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files() -> int:
    """Let this process open as many files as it may; return how many that are.

    An agent takes two connections, and the usual limit is 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _cpu_s(pid: int) -> float:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def _resident_bytes(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def _free_bytes() -> int:
    lines = (line.split() for line in _read("/proc/meminfo").splitlines())
    return next((1024 * int(each[1]) for each in lines if each[0] == "MemAvailable:"), 0)


def _read(path: str) -> str:
    """Return a file of /proc; nothing where its process is gone."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
