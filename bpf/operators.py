# SPDX-License-Identifier: Apache-2.0
"""Watches gloo, torch over gloo, and NCCL in all processes of a host, without a change to them.

`python -m bpf.operators` reads one JSON line on stdin, {"folder": ...}, says {"attached": n, ...}
in one on stdout, and writes what it sees into rings (`netagent_torch.form`), one for each process,
until stdin ends, or SIGINT or SIGTERM comes. Exit codes as `bpf.worker`: 1 this host cannot, 2 the
request makes no sense.
"""

import json
import os
import platform
import resource
import secrets
import select
import signal
import stat
import sys
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from bpf.kernel.memory import Memory
from bpf.kernel.uprobes import Place, Uprobes
from bpf.lines import refuse, say
from bpf.trace import collectives, contexts, elf
from bpf.trace.collectives import STALLED_NS, Call, Pairing
from bpf.trace.contexts import Context
from netagent.model.errors import MISUSE, PROBLEM, CapabilityMissing
from netagent_torch import form
from netagent_torch.ring import Ring

POLL_S = 0.1
"""Seconds between two looks. Chosen: a buffer holds a thousand hits of a CPU."""
LOOK_S = 5.0
"""Seconds between two looks for libraries that were loaded. Chosen: a job takes longer to start."""
MOST_REST_S = 320.0
"""Most seconds for which probes stay as they are, whatever is loaded. Chosen: hangs last longer."""
MOST_RINGS = 64
"""Most processes that are recorded. Chosen: several times a host's GPUs."""
MOST_FILES = 65536
"""Descriptors: a probe has one of each CPU."""
SPARE_FILES = 512
"""Descriptors that are left for all but probes. Chosen: rings, and the files that are looked at."""
MOST_LIBRARIES = 256
"""Most libraries that are watched. Chosen: a hundred images with two each."""
MOST_OF_PROCESS = 64
"""Most mappings of libraries that are looked at of a process. Chosen: a job has one of each."""
MOST_SHOWN, MOST_NAME = 32, 256
"""Most libraries that are named, and characters of a name: who asked reads lines of 64 KiB."""
MOST_GROUPS = 4096
"""Most groups of a process, and pairs of group and peer. Chosen: more than any job has; a record
has 16 bits for a group, and who calls gives any address for one."""
MOST_READ = 64
"""Most groups of a process whose contexts are read. Chosen: several times what a job has."""
MOST_MAPS, MOST_ENVIRONMENT = 16 << 20, 1 << 20
"""Most bytes that are read of what a process has mapped, and of its environment, which it may make
as large as it likes. Chosen: several times what jobs have."""
RECORDS = 1 << 13
_Inode = tuple[int, int, int]
"""Device, inode, and when it was changed last (ns): another file may have the same inode later."""


class _Library(NamedTuple):
    """A file that processes have loaded."""

    way: str
    """Path by which it is opened; of a process, so it may be gone with that one."""
    name: str
    """Path for people."""
    netns: int = 0
    """Network namespace of one of these processes."""


KINDS = {"collective": form.COLLECTIVE, "send": form.SEND, "recv": form.RECV}


def main() -> int:
    """Watch until stdin ends."""
    try:
        folder = Path(json.loads(sys.stdin.buffer.readline())["folder"])
    except (ValueError, KeyError, TypeError) as error:
        return refuse(MISUSE, f"no request: {error}", 'send {"folder": ...}')
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.append(1))
    try:
        _watch(folder, stop)
    except CapabilityMissing as error:
        return refuse(PROBLEM, error.capability, error.remedy)
    return 0


def _watch(folder: Path, stop: list[int]) -> None:
    machine = platform.machine()
    if machine not in collectives.REGISTERS:
        raise CapabilityMissing(f"uprobes on {machine}", "use a host of x86_64 or aarch64")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    words = {each.symbol: collectives.arguments(each, machine) for each in collectives.FUNCTIONS}
    os.nice(5)
    offsets = dict[_Inode, dict[str, int]]()
    rings = _Rings(folder, offsets)
    said: set[_Inode] | None = None
    rest_s = LOOK_S
    while not stop:
        began = time.monotonic()
        libraries = _libraries()
        with ExitStack() as files:
            places = _places(libraries, offsets, files)[: (limit - SPARE_FILES) // _files_of_one()]
            probes = Uprobes(places, words)
        rings.refused = {each.partition(":")[0] for each in probes.refused}
        with probes:
            if said is None or libraries.keys() - said:
                names = sorted({each.name[:MOST_NAME] for each in libraries.values()})
                say({"attached": len(places), "libraries": names[:MOST_SHOWN]})
            said = set(libraries)
            if _record(probes, rings, said, stop, began + rest_s):
                return
        rest_s = _rest_s(rest_s, time.monotonic() - began)


def _rest_s(before_s: float, lasted_s: float) -> float:
    """Return for how long new probes stay as they are, after those before lasted so long."""
    return LOOK_S if lasted_s >= 2 * MOST_REST_S else min(2 * before_s, MOST_REST_S)


def _files_of_one() -> int:
    """Return how many descriptors a function takes: of its beginning and end, on each CPU."""
    return 2 * (os.cpu_count() or 1)


def _record(
    probes: Uprobes, rings: "_Rings", known: set[_Inode], stop: list[int], until: float
) -> bool:
    """Record until something new is there to be watched, `until` (monotonic) at least.

    Return True where that is the end.
    """
    pairing, looked, lost = Pairing(), time.monotonic(), 0
    while not stop:
        if select.select([sys.stdin], [], [], POLL_S)[0]:
            return True
        now_ns = time.monotonic_ns()
        for call in (*pairing.take(probes.take(now_ns)), *pairing.stall(now_ns)):
            rings.note(call)
        if probes.lost > lost:
            for call in pairing.lose():
                rings.note(call)
            rings.shed(probes.lost - lost)
            lost = probes.lost
        if time.monotonic() - looked >= LOOK_S:
            looked = time.monotonic()
            for call in pairing.stall(now_ns + STALLED_NS):  # before its process' ring is closed
                rings.note(call)
            rings.forget()
            if looked >= until and _libraries().keys() - known:
                for call in pairing.lose():
                    rings.note(call)
                return False
    return True


def _libraries() -> dict[_Inode, _Library]:
    """Return the libraries that processes have loaded, whatever container they are in."""
    found: dict[_Inode, _Library] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            for span, path in _mapped(process, collectives.LIBRARIES):
                _add(found, process, span, path)
    return found


def _mapped(process: Path, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the code that a process has mapped of files whose names begin so: span and path."""
    found: list[tuple[str, str]] = []
    with suppress(OSError):
        for line in _read(process / "maps", MOST_MAPS).splitlines():
            fields = line.split(None, 5)
            path = fields[5] if len(fields) > 5 else ""
            if path.rpartition("/")[2].startswith(names) and "x" in fields[1]:
                found.append((fields[0], path))
    return found[:MOST_OF_PROCESS]


def _add(found: dict[_Inode, _Library], process: Path, span: str, path: str) -> None:
    """Note the file behind a mapping, by a path that this process can open.

    What is mapped is the very file, though another one has its name by now, and is no matter of
    mount namespaces; without CAP_SYS_ADMIN it is looked for in the process' own root.
    """
    for way in (f"{process}/map_files/{span}", f"{process}/root{path}"):
        with suppress(OSError):
            key = _inode(Path(way).stat())
            found.setdefault(key, _Library(way, f"{process}/root{path}", _netns(process)))
            return


def _inode(state: os.stat_result) -> _Inode:
    return state.st_dev, state.st_ino, state.st_ctime_ns


def _read(path: Path, most: int) -> str:
    """Return the beginning of a file of /proc."""
    with path.open("rb") as file:
        return file.read(most).decode(errors="replace")


def _places(
    libraries: Mapping[_Inode, _Library], offsets: dict[_Inode, dict[str, int]], files: ExitStack
) -> list[Place]:
    """Return the functions in libraries; `offsets` keeps where they are, by file.

    They are named by files that `files` holds open. By another name than that of what was read a
    process could have another file by now, of which the middle of an instruction were overwritten,
    in all that use it.
    """
    for gone in offsets.keys() - libraries.keys():
        del offsets[gone]
    found = []
    for key, library in _in_turn(libraries)[:MOST_LIBRARIES]:
        with suppress(OSError, ValueError):
            file = _opened(library.way, key)
            if key not in offsets:
                try:
                    offsets[key] = _offsets(file)
                except BaseException:
                    os.close(file)
                    raise
            files.callback(os.close, file)
            found += [
                Place(f"/proc/self/fd/{file}", offset, collectives.BY_SYMBOL[symbol])
                for symbol, offset in offsets[key].items()
            ]
    return found


def _in_turn(libraries: Mapping[_Inode, _Library]) -> list[tuple[_Inode, _Library]]:
    """Return libraries so that no network namespace, with many, is before the first of others."""
    of: dict[int, list[tuple[_Inode, _Library]]] = defaultdict(list)
    for key, library in sorted(libraries.items()):
        of[library.netns].append((key, library))
    return [each for each in chain(*zip_longest(*of.values())) if each is not None]


def _opened(path: str, key: _Inode) -> int:
    """Open a library; ValueError where it is another file by now, or none.

    A device may do something as it is opened, so first only its place is.
    """
    there = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        state = os.fstat(there)
        if _inode(state) != key or not stat.S_ISREG(state.st_mode):
            raise ValueError("another file")
        return os.open(f"/proc/self/fd/{there}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(there)


def _offsets(file: int) -> dict[str, int]:
    def read(at: int, size: int) -> bytes:
        return os.pread(file, size, at)

    return elf.offsets(read, collectives.BY_SYMBOL)


class _Rings:
    """One ring for each process."""

    def __init__(
        self, folder: Path, offsets: "Mapping[_Inode, Mapping[str, int]] | None" = None
    ) -> None:
        self._folder = folder
        self._offsets = {} if offsets is None else offsets
        self.refused: set[str] = set()
        """Functions that could not be watched."""
        self._memory = Memory(contexts.context)
        self._rings: dict[int, _Recorded] = {}
        # Of workers before, too: processes that begin and end take no more memory with each.
        self._ended = deque(sorted(folder.glob(f"uprobes-*{form.SUFFIX}")))
        self.unkept = 0

    def note(self, call: Call) -> None:
        """Write what became of a call."""
        known = self._rings.get(call.tgid)
        if known is None:
            if len(self._rings) >= MOST_RINGS:
                self.unkept += 1
                return
            try:
                known = _Recorded(self._folder, call.tgid, self._memory)
            except OSError:  # others may have filled the folder
                self.unkept += 1
                return
            self._rings[call.tgid] = known
            known.judge(whole=self._is_whole(call.tgid))
        known.note(call)

    def _is_whole(self, tgid: int) -> bool:
        """Return whether all is watched by which a process may communicate, as its libraries say.

        Work is what a rank does between what it is seen in, so one that may wait unseen is told.
        """
        process = Path("/proc", str(tgid))
        if _mapped(process, collectives.UNWATCHED):
            return False
        there: dict[_Inode, _Library] = {}
        for span, path in _mapped(process, collectives.LIBRARIES):
            _add(there, process, span, path)
        return any(
            collectives.has_transfers(self._offsets[key].keys() - self.refused)
            for key in there
            if key in self._offsets
        )

    def shed(self, count: int) -> None:
        """Count hits that were shed: whose they were nobody knows."""
        for each in self._rings.values():
            for _ in range(min(count, 1000)):
                each.ring.leave_out()

    def forget(self) -> None:
        """Close the rings of processes that are gone; what they did stays in the newest files.

        Look at the others again: they may have loaded something, or made groups anew.
        """
        for tgid in [tgid for tgid in self._rings if not Path("/proc", str(tgid)).exists()]:
            ring = self._rings.pop(tgid).ring
            ring.close()
            self._memory.forget(tgid)
            self._ended.append(ring.path)
        while len(self._ended) > MOST_RINGS:
            # What others may have put there need be no file.
            with suppress(OSError):
                self._ended.popleft().unlink()
        for tgid, each in self._rings.items():
            each.look()
            each.judge(whole=self._is_whole(tgid))


class _Recorded:
    """The ring of one process."""

    def __init__(self, folder: Path, tgid: int, memory: "Memory[Context]") -> None:
        self.ring = Ring(
            folder / f"uprobes-{tgid}-{secrets.token_hex(4)}{form.SUFFIX}", capacity=RECORDS
        )
        self._tgid, self._memory = tgid, memory
        environment = _environment(tgid)
        self.ring.say(
            {
                "job": environment.get("NETAGENT_JOB") or environment.get("SLURM_JOB_ID") or "job",
                "rank": _number(environment.get("RANK")),
                "world": max(0, _number(environment.get("WORLD_SIZE"))),
                "netns": _netns(Path("/proc", str(tgid))),
                "source": "uprobes",
                "pid": tgid,
            }
        )
        self._ops: dict[str, int] = {}
        self._groups: dict[int, int] = {}
        """By address, which several may be of one group."""
        self._made = 0
        self._contexts: dict[int, tuple[Context, int]] = {}
        """By the address of a transport's: what it was when it was read, and its group."""
        self._counted: dict[tuple[int, str, int], int] = {}
        self._whole: bool | None = None

    def judge(self, *, whole: bool) -> None:
        """Say whether all is watched that the process communicates by; once not, never again."""
        if whole != self._whole and self._whole is not False:
            self._whole = whole
            self.ring.say({"whole": whole})

    def look(self) -> None:
        """Forget the groups whose contexts are others by now, at the same addresses."""
        for address, (known, group) in [*self._contexts.items()][:MOST_READ]:
            now = self._memory.at(self._tgid, address)
            if now != known and (now is not None or self._memory.reads(self._tgid)):
                del self._contexts[address]
                self._groups = {at: n for at, n in self._groups.items() if n != group}

    def note(self, call: Call) -> None:
        """Write what is new of a call; of one that ended at once, all of it the first time."""
        if not call.record:
            call.record = self._begin(call) or form.NONE
        if call.record == form.NONE or call.written:
            return
        if call.ended_ns or call.lost:
            call.written = True
            self._end(call, call.record)
        elif call.waited_ns and call.record > self.ring.written - self.ring.capacity:
            at = self.ring.word_of(call.record)
            self.ring.words[at + form.WAITED_AT // 8] = call.waited_ns

    def _begin(self, call: Call) -> int:
        """Return the number of its record; 0 where there is no room for more groups."""
        function = call.function
        group = self._group(call) if call.group else form.NO_GROUP
        # Collectives are counted together, sends and receives by their peer.
        key = (group or 0, "" if function.kind == "collective" else function.kind, call.peer)
        if group is None or (key not in self._counted and len(self._counted) >= MOST_GROUPS):
            self.ring.leave_out()
            return 0
        sequence = self._counted[key] = self._counted.get(key, 0) + 1
        record = form.Record(
            0, call.begun_ns, call.waited_ns, 0, call.bytes, sequence, form.NONE, call.peer,
            self._op(function.op), group, KINDS[function.kind], call.tag,
        )  # fmt: skip
        return self.ring.add(record)

    def _group(self, call: Call) -> int | None:
        """Return the number of a call's group, which is said the first time; None for one more."""
        group = self._groups.get(call.group)
        if group is not None:
            return group
        if max(len(self._groups), self._made) >= MOST_GROUPS:
            return None
        found = None
        if call.function.gloo and len(self._contexts) < MOST_READ:
            found = self._memory.at(self._tgid, call.group)
        if found is not None and found.address in self._contexts:
            group = self._groups[call.group] = self._contexts[found.address][1]
            return group
        group = self._groups[call.group] = self._made
        self._made += 1
        line = {"group": group, "name": f"{call.group:x}", "size": call.size, "place": call.place}
        if found is not None:
            self._contexts[found.address] = found, group
            ends = [(at, *numbers) for at, numbers in found.ends.items()]
            line |= {"size": found.size, "place": found.place, "ends": ends}
        self.ring.say(line)
        return group

    def _end(self, call: Call, number: int) -> None:
        if number <= self.ring.written - self.ring.capacity:
            return
        at = self.ring.word_of(number)
        if call.lost:  # neither that it ended nor that it did not may be read out of it
            record = form.Record(
                number, call.begun_ns, 0, call.begun_ns, 0, 0, form.NONE, form.NONE,
                self._op("unseen"), 0xFFFF, form.OTHER, 0,
            )  # fmt: skip
            form.RECORD.pack_into(self.ring.map, 8 * at, *record)
            return
        self.ring.words[at + form.WAITED_AT // 8] = call.waited_ns
        self.ring.words[at + form.WAITED_AT // 8 + 1] = call.ended_ns

    def _op(self, name: str) -> int:
        number = self._ops.get(name)
        if number is None:
            number = self._ops[name] = len(self._ops)
            self.ring.say({"op": number, "name": name})
        return number


def _netns(process: Path) -> int:
    """Return the inode of a process' network namespace; 0 where it cannot be read."""
    try:
        return (process / "ns/net").stat().st_ino
    except OSError:
        return 0


def _environment(tgid: int) -> dict[str, str]:
    try:
        text = _read(Path("/proc", str(tgid), "environ"), MOST_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (part.partition("=") for part in text.split("\0"))
    return {name: value[:64] for name, _, value in pairs}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 8 else -1


if __name__ == "__main__":
    sys.exit(main())
