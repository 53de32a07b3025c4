# SPDX-License-Identifier: Apache-2.0
"""Reads the rings in which jobs record what they communicate.

Whoever may write to the folder may put anything there. So only regular files of a bounded size are
read, by pread: a mapping could be cut short by its writer, and end this process. A container may
have a folder of its own in that one: then it can touch no other's rings, and take no other's place.
"""

import asyncio
import fcntl
import os
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path, PurePath

import structlog

from netagent.collect.operators import (
    OperatorTally,
    Process,
    Said,
    answer,
    is_within,
    shares,
    wanted,
)
from netagent.config import OperatorsConfig
from netagent.host.facts import Namespace
from netagent.model.ids import EndpointId
from netagent.wire.operators import (
    MOST_PROCESSES,
    OperatorColumns,
    OperatorsReply,
    OperatorsRequest,
)
from netagent_torch import form
from netagent_torch.form import Head, Record

LOOK_S = 0.5
"""Seconds between two looks at the rings. Chosen: ten in a window, so that none takes long."""
MOST_AT_ONCE = 2048
"""Most new records of a ring that one look reads; what is behind that is passed over and counted.
Chosen: two milliseconds of this process, four thousand operations a second."""
LINES_AT_ONCE = 256 << 10
"""Bytes of lines of all rings that one look reads, of what changed; others wait for the next.
Chosen: some hundredths of a second, and the rings of eight GPUs with all that they say first."""
FRESH_BYTES = 16 << 10
"""What a ring that was not known counts as in that: of whom it is is looked for among all locks."""
MOST_FILES = 1024
"""Most files of a folder that are looked at: who may write there may make any number."""
MOST_FOLDERS, MOST_INNER = 64, 128
"""Most folders in it, those that changed last, and most files of each. Chosen: as many as rings are
read, and with that some milliseconds a look, whoever fills them."""
IDLE_S = 7 * 86_400.0
"""Seconds after which an empty folder in it is removed: who makes them, as kubelet, may leave them.
Chosen: a container that lives and has recorded nothing for a week loses what it could write to."""
KEEP_S = 900.0
"""Seconds for which the ring of a process that ended is kept. Chosen: who asks what happened does
within minutes."""

STAY_S = 60.0
"""Seconds after which it gives way where there are too many. Chosen: three looks of the analyzer; a
job that is started again and again is seen still."""

LOCKS, MOST_LOCKS = Path("/proc/locks"), 1 << 20
"""What the kernel says of who holds a lock, and how many bytes of it are read: anybody may hold
very many."""

log = structlog.get_logger()


class Rings:
    """A host's rings; without `[operators] enabled` it does nothing."""

    def __init__(self, config: OperatorsConfig, wall_ns: Callable[[], int]) -> None:
        """Read nothing yet."""
        self._config = config
        self._wall_ns = wall_ns
        self.tally = OperatorTally()
        self._containers: dict[int, str] = {}
        """Inode of a network namespace -> its container."""
        self._ended_ns: dict[str, int] = {}
        self._room = LINES_AT_ONCE
        """Bytes of lines that this look may read still."""
        self._turn = 0
        """Looks so far: another ring comes first in each, so that none keeps others waiting."""
        self._sought = ""
        """The ring whose writer is looked for again in this look, if it was not found: somebody may
        hold so many locks for a while that it is not, and to read all locks takes long."""
        self.read = 0
        """Records read so far."""
        self.missed = 0
        """Records that were overwritten, or passed over, before they were read."""

    async def run(self) -> None:
        """Look at the rings until cancelled."""
        if not self._config.enabled:
            return
        folder = Path(self._config.folder)
        _make(folder)
        while True:
            for name in self._names(folder):
                self._look(folder, name)
                await asyncio.sleep(0)  # probes are answered in between
            await asyncio.sleep(LOOK_S)

    def place(self, namespaces: Mapping[EndpointId, Namespace]) -> None:
        """Take which container each network namespace is of."""
        self._containers = {each.inode: key.container for key, each in namespaces.items()}

    def close_window(self) -> OperatorColumns | None:
        """Return what the window that is over was like; None where there is nothing to say."""
        if not self._config.enabled:
            return None
        self.missed += sum(each.missed for each in self.tally.processes.values())
        return self.tally.close(self._wall_ns())

    def answer(self, request: OperatorsRequest) -> OperatorsReply:
        """Return what rings hold still of what is asked for."""
        found = []
        # In a thread of its own: the loop finds rings and leaves them meanwhile.
        every = list(self.tally.processes.items())
        asked = [(name, process) for name, process in every if wanted(request, process)]
        allowed = shares(request, [process for _, process in asked])
        folder = Path(self._config.folder)
        for (name, process), share in zip(asked, allowed, strict=True):
            with suppress(OSError, ValueError), _opened(folder, name) as file:
                process.head = _head(file)
                found.append((process, _newest(file, process, request, share)))
        return answer(request, found)

    def _names(self, folder: Path) -> list[str]:
        # Who lays very many files there hides no ring that is known.
        there = {each for each in self.tally.processes if (folder / each).exists()}
        found = sorted(there.union(_listed(folder, self._wall_ns())))
        for gone in self.tally.processes.keys() - set(found):
            del self.tally.processes[gone]
            self._ended_ns.pop(gone, None)
        most = min(self._config.most_processes, MOST_PROCESSES)
        for name in self._former()[: max(0, len(found) - most)]:
            with suppress(OSError):
                _unlink(folder, name)
            del self.tally.processes[name], self._ended_ns[name]
            found.remove(name)
        kept = _fairly(found, self.tally.processes)[:most]
        for name in self.tally.processes.keys() - set(kept):
            del self.tally.processes[name]
            self._ended_ns.pop(name, None)
        self.tally.unread = len(found) - len(kept)
        self._room, self._turn = LINES_AT_ONCE, self._turn + 1
        first = self._turn % max(1, len(kept))
        turned = kept[first:] + kept[:first]
        self._sought = turned[0] if turned else ""
        return turned

    def _former(self) -> list[str]:
        """Return the rings of those that ended some time ago, who did first comes first."""
        before_ns = self._wall_ns() - STAY_S * 1e9
        ended = {name: at_ns for name, at_ns in self._ended_ns.items() if at_ns <= before_ns}
        return sorted(ended.keys() & self.tally.processes.keys(), key=lambda name: ended[name])

    def _look(self, folder: Path, name: str) -> None:
        try:
            with _opened(folder, name) as file:
                process = self._take(name, file)
                if process is not None:
                    self._follow_end(folder, name, file, process)
        except (OSError, ValueError) as error:
            self.tally.unread += 1
            if name in self.tally.processes:
                log.warning("ring_unreadable", ring=name, error=str(error))
                del self.tally.processes[name]

    def _take(self, name: str, file: int) -> Process | None:
        """Read what is new; return whose ring it is, or None where that has to wait."""
        head = _head(file)
        process = self.tally.processes.get(name)
        lines = min(head.lines_used, form.LINES_BYTES)  # no writer of ours has more
        counts = FRESH_BYTES if process is None else 0
        counts += 0 if process is not None and lines == process.lines else lines
        may_hear = self._room >= counts
        if process is None and not may_hear:
            return None
        if may_hear:
            self._room -= counts
        if process is not None and not process.writer and name == self._sought:
            process.writer = _netns_of_writer(file)
        if process is None:
            process = Process(head, os.fstat(file).st_uid, writer=_netns_of_writer(file))
            process.next = max(head.first, head.written - MOST_AT_ONCE + 1)
            self.tally.processes[name] = process
        if may_hear and lines != process.lines:
            process.hear(Said.of(form.read_lines(os.pread(file, lines, form.HEAD_BYTES))))
            process.lines = lines
        # The worker, which may say whose process it sees, is of this process' own user.
        own = _own_netns() if process.uid == os.geteuid() else 0
        # Of a container that is gone by now it stays.
        process.container = self._containers.get(process.netns(own), process.container)
        process.head = head
        if head.written < process.next - 1:  # nobody's counter goes back
            raise ValueError("a ring that went back")
        first = max(process.next, head.first, head.written - MOST_AT_ONCE + 1)
        process.missed += first - process.next
        for number in list(process.open):
            again = _records(file, head, number, number)
            if again:
                process.take(again)
            else:
                process.forget(number)
        fresh = _records(file, head, first, head.written)
        process.take(fresh)
        self.read += len(fresh)
        process.next = head.written + 1
        return process

    def _follow_end(self, folder: Path, name: str, file: int, process: Process) -> None:
        if not process.gone:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return  # its writer holds it, and lives
            process.gone = True
            self._ended_ns[name] = self._wall_ns()
        elif self._wall_ns() - self._ended_ns.get(name, 0) > KEEP_S * 1e9:
            self._ended_ns.pop(name, None)
            _unlink(folder, name)


def _make(folder: Path) -> None:
    with suppress(OSError):  # it is there, and may be somebody else's to change
        folder.mkdir(mode=0o1777, parents=True)
        folder.chmod(0o1777)  # jobs of any user write there, each its own


def _listed(folder: Path, now_ns: int) -> set[str]:
    """Return the names of rings in a folder, and in those in it, of which idle ones are removed."""
    found, folders = set[str](), list[tuple[int, str]]()
    for each in _entries(folder, MOST_FILES):
        with suppress(OSError):
            if each.is_dir(follow_symlinks=False):
                folders.append((each.stat(follow_symlinks=False).st_mtime_ns, each.name))
            elif each.name.endswith(form.SUFFIX):
                found.add(each.name)
    for changed_ns, name in folders:
        if now_ns - changed_ns > IDLE_S * 1e9:
            with suppress(OSError):  # it is not empty
                (folder / name).rmdir()
    for _, inner in sorted(folders, reverse=True)[:MOST_FOLDERS]:
        names = [each.name for each in _entries(folder / inner, MOST_INNER)]
        found |= {f"{inner}/{name}" for name in names if name.endswith(form.SUFFIX)}
    return found


def _entries(folder: Path, most: int) -> list["os.DirEntry[str]"]:
    """Return what is in a folder, as much as is looked at; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as listed:
            return list(islice(listed, most))
    except OSError:
        return []


def _fairly(found: Iterable[str], known: Container[str]) -> list[str]:
    """Return rings in the order in which they are read: each folder's first one, then second ones.

    Of a folder those that are known come first: others there cannot crowd them out.
    """
    places: Counter[PurePath] = Counter()
    order = {}
    for name in sorted(found, key=lambda name: (name not in known, name)):
        of = PurePath(name).parent
        order[name] = places[of], name
        places[of] += 1
    return sorted(order, key=lambda name: order[name])


@contextmanager
def _placed(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder that a ring is in, without following links from `folder` on."""
    *inner, last = PurePath(name).parts
    there = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in inner:
            within = os.open(
                part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=there
            )
            os.close(there)
            there = within
        yield there, last
    finally:
        os.close(there)


def _unlink(folder: Path, name: str) -> None:
    """Remove a ring. Raises OSError but where it is gone."""
    with _placed(folder, name) as (place, last), suppress(FileNotFoundError):
        os.unlink(last, dir_fd=place)


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[int]:
    # A device may do something as it is opened, so first only its place is.
    with _placed(folder, name) as (place, last):
        there = os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        if not stat.S_ISREG(os.fstat(there).st_mode):
            raise ValueError("no regular file")
        file = os.open(f"/proc/self/fd/{there}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(there)
    try:
        yield file
    finally:
        os.close(file)


def _netns_of_writer(file: int) -> int:
    """Return the inode of the network namespace of who holds a ring's lock; 0 if that is unknown.

    The kernel says who that is, and no text in a file can claim it.
    """
    of = os.fstat(file)
    held = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
    try:
        with LOCKS.open(encoding="ascii") as locks:
            lines = locks.read(MOST_LOCKS).splitlines()
        # 32: FLOCK  ADVISORY  WRITE 4792 00:1b:68 0 EOF
        pids = [
            each[4]
            for each in map(str.split, lines)
            if len(each) > 5 and each[1] == "FLOCK" and each[3] == "WRITE" and each[5] == held
        ]
        return Path("/proc", pids[0], "ns/net").stat().st_ino if pids else 0
    except OSError:
        return 0


@cache
def _own_netns() -> int:
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def _head(file: int) -> Head:
    return form.read_head(os.pread(file, form.HEAD.size, 0))


def _newest(file: int, process: Process, request: OperatorsRequest, share: int) -> list[Record]:
    """Return the newest records of a question's time, in order; a few more than its share."""
    head, found = process.head, list[Record]()
    last, oldest = head.written, max(head.first, head.written - request.most + 1)
    while last >= oldest and len(found) <= share:
        first = max(oldest, last - share)
        block = _records(file, head, first, last)
        found = [each for each in block if is_within(request, process, each)] + found
        if block and process.wall_ns(block[-1].begun_ns) < request.since_ns:
            break
        last = first - 1
    return found


def _records(file: int, head: Head, first: int, last: int) -> list[Record]:
    """Return the records of these numbers that are there, in order."""
    found: list[Record] = []
    while first <= last:
        place = (first - 1) % head.capacity
        count = min(last - first + 1, head.capacity - place)
        data = os.pread(file, count * form.RECORD_BYTES, head.offset(first))
        found += [
            record
            for number, record in enumerate(form.read_records(data), first)
            if record.number == number
        ]
        first += count
    return found
