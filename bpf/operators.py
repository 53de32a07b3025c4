# SPDX-License-Identifier: Apache-2.0
"""Watches gloo and NCCL in all processes of a host, without a change to them.

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
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bpf.kernel.uprobes import Place, Uprobes
from bpf.lines import refuse, say
from bpf.trace import collectives, elf
from bpf.trace.collectives import Call, Pairing
from netagent.model.errors import MISUSE, PROBLEM, CapabilityMissing
from netagent_torch import form
from netagent_torch.ring import Ring

POLL_S = 0.1
"""Seconds between two looks. Chosen: a buffer holds a thousand hits of a CPU."""
LOOK_S = 5.0
"""Seconds between two looks for libraries that were loaded. Chosen: a job takes longer to start."""
MOST_RINGS = 64
"""Most processes that are recorded. Chosen: several times a host's GPUs."""
MOST_FILES = 65536
"""Descriptors: a probe has one of each CPU."""
RECORDS = 1 << 13
_Inode = tuple[int, int]
"""Device and inode."""


class _Library(NamedTuple):
    """A file that processes have loaded."""

    way: str
    """Path by which it is opened; of a process, so it may be gone with that one."""
    name: str
    """Path for people."""


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
    rings, offsets = _Rings(folder), dict[_Inode, dict[str, int]]()
    said: set[_Inode] | None = None
    while not stop:
        libraries = _libraries()
        places = _places(libraries, offsets)
        if said is None or libraries.keys() - said:
            names = sorted({each.name for each in libraries.values()})
            say({"attached": len(places), "libraries": names})
        said = set(libraries)
        with Uprobes(places, words) as probes:
            if _record(probes, rings, said, stop):
                return


def _record(probes: Uprobes, rings: "_Rings", known: set[_Inode], stop: list[int]) -> bool:
    """Record until something new is there to be watched; return True where that is the end."""
    pairing, looked, lost = Pairing(), time.monotonic(), 0
    while not stop:
        if select.select([sys.stdin], [], [], POLL_S)[0]:
            return True
        for call in pairing.take(probes.take(time.monotonic_ns())):
            rings.note(call)
        if probes.lost > lost:
            for call in pairing.lose():
                rings.note(call)
            rings.shed(probes.lost - lost)
            lost = probes.lost
        if time.monotonic() - looked >= LOOK_S:
            looked = time.monotonic()
            rings.forget()
            if _libraries().keys() - known:
                for call in pairing.lose():
                    rings.note(call)
                return False
    return True


def _libraries() -> dict[_Inode, _Library]:
    """Return the libraries that processes have loaded, whatever container they are in."""
    found: dict[_Inode, _Library] = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            for line in (process / "maps").read_text(errors="replace").splitlines():
                fields = line.split(None, 5)
                path = fields[5] if len(fields) > 5 else ""
                name = path.rpartition("/")[2]
                if name.startswith(collectives.LIBRARIES) and "x" in fields[1]:
                    _add(found, process, fields[0], path)
    return found


def _add(found: dict[_Inode, _Library], process: Path, span: str, path: str) -> None:
    """Note the file behind a mapping, by a path that this process can open.

    What is mapped is the very file, though another one has its name by now, and is no matter of
    mount namespaces; without CAP_SYS_ADMIN it is looked for in the process' own root.
    """
    for way in (f"{process}/map_files/{span}", f"{process}/root{path}"):
        with suppress(OSError):
            state = Path(way).stat()
            found.setdefault((state.st_dev, state.st_ino), _Library(way, f"{process}/root{path}"))
            return


def _places(
    libraries: dict[_Inode, _Library], offsets: dict[_Inode, dict[str, int]]
) -> list[Place]:
    """Return the functions in libraries; `offsets` keeps where they are, by file."""
    found = []
    for key, library in libraries.items():
        if key not in offsets:
            with suppress(OSError, ValueError):
                offsets[key] = _offsets(library.way)
        found += [
            Place(library.way, offset, collectives.BY_SYMBOL[symbol])
            for symbol, offset in offsets.get(key, {}).items()
        ]
    return found


def _offsets(path: str) -> dict[str, int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:

        def read(at: int, size: int) -> bytes:
            return os.pread(file, size, at)

        return elf.offsets(read, collectives.BY_SYMBOL)
    finally:
        os.close(file)


class _Rings:
    """One ring for each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rings: dict[int, _Recorded] = {}
        self.unkept = 0

    def note(self, call: Call) -> None:
        """Write what became of a call."""
        known = self._rings.get(call.tgid)
        if known is None:
            if len(self._rings) >= MOST_RINGS:
                self.unkept += 1
                return
            known = self._rings[call.tgid] = _Recorded(self._folder, call.tgid)
        known.note(call)

    def shed(self, count: int) -> None:
        """Count hits that were shed: whose they were nobody knows."""
        for each in self._rings.values():
            for _ in range(min(count, 1000)):
                each.ring.leave_out()

    def forget(self) -> None:
        """Close the rings of processes that are gone; what they did stays in the files."""
        for tgid in [tgid for tgid in self._rings if not Path("/proc", str(tgid)).exists()]:
            self._rings.pop(tgid).ring.close()


class _Recorded:
    """The ring of one process."""

    def __init__(self, folder: Path, tgid: int) -> None:
        self.ring = Ring(
            folder / f"uprobes-{tgid}-{secrets.token_hex(4)}{form.SUFFIX}", capacity=RECORDS
        )
        environment = _environment(tgid)
        self.ring.say(
            {
                "job": environment.get("NETAGENT_JOB") or environment.get("SLURM_JOB_ID") or "job",
                "rank": _number(environment.get("RANK")),
                "world": max(0, _number(environment.get("WORLD_SIZE"))),
                "netns": _netns(tgid),
                "source": "uprobes",
                "pid": tgid,
            }
        )
        self._ops: dict[str, int] = {}
        self._groups: dict[int, int] = {}
        self._counted: dict[tuple[int, str, int], int] = {}

    def note(self, call: Call) -> None:
        """Write what is new of a call; of one that ended at once, all of it the first time."""
        if not call.record:
            call.record = self._begin(call)
        if (call.ended_ns or call.lost) and not call.written:
            call.written = True
            self._end(call, call.record)

    def _begin(self, call: Call) -> int:
        function = call.function
        group = self._groups.get(call.group)
        if group is None:
            group = self._groups[call.group] = len(self._groups)
            name = f"{call.group:x}"
            self.ring.say({"group": group, "name": name, "size": call.size, "place": call.place})
        # Collectives are counted together, sends and receives by their peer.
        key = group, "" if function.kind == "collective" else function.kind, call.peer
        sequence = self._counted[key] = self._counted.get(key, 0) + 1
        record = form.Record(
            0, call.begun_ns, call.begun_ns, 0, call.bytes, sequence, form.NONE, call.peer,
            self._op(function.op), group, KINDS[function.kind], 0,
        )  # fmt: skip
        return self.ring.add(record)

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
        self.ring.words[at + form.WAITED_AT // 8 + 1] = call.ended_ns

    def _op(self, name: str) -> int:
        number = self._ops.get(name)
        if number is None:
            number = self._ops[name] = len(self._ops)
            self.ring.say({"op": number, "name": name})
        return number


def _netns(tgid: int) -> int:
    """Return the inode of a process' network namespace; 0 where it cannot be read."""
    try:
        return Path(f"/proc/{tgid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _environment(tgid: int) -> dict[str, str]:
    try:
        data = Path("/proc", str(tgid), "environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.partition("=") for part in data.decode(errors="replace").split("\0"))
    return {name: value[:64] for name, _, value in pairs}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 8 else -1


if __name__ == "__main__":
    sys.exit(main())
