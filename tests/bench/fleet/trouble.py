# SPDX-License-Identifier: Apache-2.0
"""What befalls the server's machine meanwhile: its wall clock is set, its disk is slow, or full.

libfaketime also replaces waits, and reads a file at each look at the clock: a server under it stood
still for seconds. So both are done by a library of our own (`machine.c`).
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).with_name("machine.c")
NUMBERS = struct.Struct("<qq")
"""`struct trouble` of it: nanoseconds that are added to the wall clock, and that a sync takes."""
BEFORE_NS = 86_400 * 10**9
"""Nanoseconds before now from which certificates are valid: a clock that is set back makes none
invalid."""


THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")
DISK_MIB = 1024
"""Size of a disk of the server's own, in MiB. Chosen: a run writes some hundred at most."""
FILL_S = 0.5
"""Seconds between two looks for room on a disk that is to be full. Chosen: what the server frees
in between it may use, as beside any other program."""
JOINING = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Program that begins another one in a control group."""


@dataclass(frozen=True)
class Trouble:
    """What befalls a run."""

    steps_s: tuple[int, ...] = ()
    """By how many seconds the server's wall clock is wrong, in turn."""
    every_s: float = 20.0
    """How long each of them lasts, and how long there is room on the disk until it is full."""
    sync_ms: int = 0
    """Milliseconds that each sync of the server's disk takes longer."""
    disk_iops: int = 0
    """Writes that the server's disk takes in a second: a device of its own; 0: any number."""
    full_s: float = 0.0
    """How long another program leaves no room on the server's disk, a device of its own, again and
    again; 0: never."""

    @property
    def takes_device(self) -> bool:
        """Whether the server's disk is a device of its own."""
        return bool(self.disk_iops or self.full_s)

    @property
    def remedy(self) -> str | None:
        """Return what is missing on this machine for it; None where nothing is."""
        is_needed = bool(self.steps_s or self.sync_ms)
        if is_needed and not shutil.which("cc"):
            return "apt-get install gcc libc6-dev"
        if self.disk_iops and not (os.geteuid() == 0 and THROTTLE.exists()):
            return "run as root on a kernel that throttles by blkio, cgroup version 1"
        if self.full_s and os.geteuid() != 0:
            return "run as root: the server's disk is a device of its own"
        return None


class Machine:
    """The server's machine."""

    def __init__(self, folder: Path, trouble: Trouble) -> None:
        self._folder, self._trouble = folder, trouble
        self._library, self._file = folder / "machine.so", folder / "machine"
        self._past, self.disk = folder / "machine.past", folder / "disk"
        """Folder on the server's disk."""
        self._is_needed = bool(trouble.steps_s or trouble.sync_ms)
        self._group = THROTTLE.with_name(f"netagent-bench-{os.getpid()}")
        self._cleanup = ExitStack()
        self.full_ns = 0
        """When the disk was full last, Unix nanoseconds; 0: never."""

    def __enter__(self) -> Self:
        """Build what is needed for the trouble."""
        self.disk.mkdir()
        if self._is_needed:
            built = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE)]
            subprocess.run([*built, "-ldl"], check=True)
        self._set(self._file, 0)
        self._set(self._past, -BEFORE_NS)
        with self._cleanup:
            if self._trouble.takes_device:
                device = self._device()
                if self._trouble.disk_iops:
                    self._throttle(device)
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _device(self) -> str:
        image = self._folder / "image"
        with image.open("wb") as file:
            file.truncate(DISK_MIB << 20)
        device = _said("losetup", "-f", "--show", str(image))
        self._cleanup.callback(_said, "losetup", "-d", device)
        # All of it for whoever comes, or root would always find some room.
        _said("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        _said("mount", device, str(self.disk))
        self._cleanup.callback(_said, "umount", str(self.disk))
        return device

    def _throttle(self, device: str) -> None:
        self._group.mkdir()
        self._cleanup.callback(self._group.rmdir)
        major, minor = _numbers_of(device)
        limit = self._group / THROTTLE.name
        limit.write_text(f"{major}:{minor} {self._trouble.disk_iops}", encoding="ascii")

    def command(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command of the server on this machine."""
        if not self._trouble.disk_iops:
            return words
        return [sys.executable, "-c", JOINING, str(self._group / "cgroup.procs"), *words]

    @property
    def environ(self) -> Mapping[str, str] | None:
        """Return the environment of the server; None: as this process has it."""
        return self._under(self._file)

    @property
    def of_certificates(self) -> Mapping[str, str] | None:
        """Return the environment in which certificates are made."""
        return self._under(self._past)

    def _under(self, file: Path) -> Mapping[str, str] | None:
        if not self._is_needed:
            return None
        return {**os.environ, "LD_PRELOAD": str(self._library), "MACHINE_FILE": str(file)}

    def _set(self, file: Path, by_ns: int) -> None:
        with file.open("r+b" if file.exists() else "wb") as opened:  # it is mapped: never replaced
            opened.write(NUMBERS.pack(by_ns, self._trouble.sync_ms * 10**6))

    async def live(self, say: Callable[[str], None]) -> None:
        """Set the clock forth and back, and fill and free the disk, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._step(say))
            group.create_task(self._fill(say))

    async def _step(self, say: Callable[[str], None]) -> None:
        for by_s in itertools.cycle(self._trouble.steps_s):
            await asyncio.sleep(self._trouble.every_s)
            say(f"the server's clock is off by {by_s} s")
            self._set(self._file, by_s * 10**9)

    async def _fill(self, say: Callable[[str], None]) -> None:
        others = self.disk / "others"
        while self._trouble.full_s:
            await asyncio.sleep(self._trouble.every_s)
            say("the server's disk is full")
            until_s = time.monotonic() + self._trouble.full_s
            while time.monotonic() < until_s:
                filled(others)
                self.full_ns = time.time_ns()
                await asyncio.sleep(FILL_S)
            others.unlink()
            say("the server's disk has room")


def filled(path: Path) -> None:
    """Let a file take all the room that its disk has left."""
    with path.open("ab") as file, contextlib.suppress(OSError):
        for size in (64 << 20, 1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _numbers_of(device: str) -> tuple[int, int]:
    number = Path(device).stat().st_rdev
    return os.major(number), os.minor(number)
