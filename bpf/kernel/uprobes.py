# SPDX-License-Identifier: Apache-2.0
"""Probes on functions of libraries, by tracefs and perf alone: no compiler, no bcc.

tracefs defines an event for each probe, which fetches arguments; perf opens it on each CPU, into a
buffer of that CPU, and what does not fit there is counted by the kernel. A probe is in effect as
long as a descriptor of it is open, so it goes with the process however that ends. What may be left
of a killed one are definitions, which do nothing; the next one removes them.
"""

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bpf.trace.collectives import Function, Hit
from netagent.model.errors import CapabilityMissing

if TYPE_CHECKING:
    from typing_extensions import Self

_MOUNTS = (Path("/sys/kernel/tracing"), Path("/proc/1/root/sys/kernel/tracing"))
"""Where tracefs is; seen through the first process where this one has a /sys of its own, as in what
`ip netns exec` starts."""
TRACING = next((each for each in _MOUNTS if os.access(each / "uprobe_events", os.F_OK)), _MOUNTS[0])
PREFIX = "netagent_"
_CALLS = {"x86_64": 298, "aarch64": 241}
"""Number of perf_event_open(2), by machine."""
_ATTR = struct.Struct("<IIQQQQQIIQQQQIiQIHH")
"""struct perf_event_attr of linux/perf_event.h, version 5."""
_TRACEPOINT, _PERIOD = 2, 1
_SAMPLED = 1 << 1 | 1 << 2 | 1 << 10  # TID, TIME, RAW
_FLAGS = 1 << 14 | 1 << 25  # watermark, use_clockid
_MONOTONIC, _CLOEXEC, _SET_OUTPUT = 1, 8, 0x2405
_LOST, _SAMPLE = 2, 9
_HEAD_AT, _TAIL_AT = 1024, 1032
PAGES = 32
"""Pages of a CPU's buffer, a power of two. Chosen: a thousand hits between two looks."""


class Place(NamedTuple):
    """A function in a library's file."""

    path: str
    offset: int
    function: Function


class Uprobes:
    """Probes at the beginning and end of functions, of all processes; a context."""

    def __init__(self, places: "list[Place]", words: "dict[str, str]") -> None:
        """Define and open all; `words` fetch arguments, by symbol.

        Raises CapabilityMissing where the kernel does not let this process.
        """
        self.lost = 0
        """Hits that the kernel shed, as a buffer was full."""
        self.refused: list[str] = []
        self._group = f"{mine()}{os.getpid()}"
        self._events: dict[int, tuple[Function, bool]] = {}
        self._files: list[int] = []
        self._buffers: list[mmap.mmap] = []
        self._later: list[Hit] = []
        if not (TRACING / "uprobe_events").exists():
            remedy = f"mount -t tracefs tracefs {_MOUNTS[0]}, on a kernel with CONFIG_UPROBE_EVENTS"
            raise CapabilityMissing("uprobes", remedy)
        sweep()
        try:
            self._define(places, words)
            self._open()
        except OSError as error:
            self.close()
            remedy = f"run as root, with CAP_SYS_ADMIN and CAP_PERFMON ({error.strerror})"
            raise CapabilityMissing("uprobes", remedy) from error

    def __enter__(self) -> "Self":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release all probes."""
        self.close()

    def close(self) -> None:
        """Release all probes."""
        for buffer in self._buffers:
            buffer.close()
        for file in self._files:
            with suppress(OSError):
                os.close(file)
        self._buffers, self._files = [], []
        _remove(self._group)

    def _define(self, places: "list[Place]", words: "dict[str, str]") -> None:
        for number, place in enumerate(places):
            where = f"{place.path}:{place.offset:#x}"
            fetched = words.get(place.function.symbol, "")
            for letter, rest in (("p", f" {fetched}"), ("r", ""))[: 1 + place.function.leaves]:
                name = f"{letter}{number}"
                try:
                    _append(f"{letter}:{self._group}/{name} {where}{rest}")
                except OSError as error:
                    self.refused.append(f"{place.function.symbol}: {error.strerror}")
                    break
                event = TRACING / "events" / self._group / name
                self._events[int((event / "id").read_text())] = place.function, letter == "p"

    def _open(self) -> None:
        for cpu in _cpus():
            first = -1
            for event in self._events:
                file = _open_event(event, cpu)
                self._files.append(file)
                if first < 0:
                    first = file
                    size = (1 + PAGES) * mmap.PAGESIZE
                    self._buffers.append(mmap.mmap(file, size))
                else:
                    fcntl.ioctl(file, _SET_OUTPUT, first)

    def take(self, now_ns: int) -> list[Hit]:
        """Return the hits until `now_ns` (monotonic), in the order of time.

        Those of later are kept for the next time: of these, one CPU's were read before another's.
        """
        hits = [*self._later, *(hit for buffer in self._buffers for hit in self._drain(buffer))]
        hits.sort(key=lambda hit: hit.time_ns)
        self._later = [hit for hit in hits if hit.time_ns > now_ns]
        return hits[: len(hits) - len(self._later)]

    def _drain(self, buffer: mmap.mmap) -> Iterator[Hit]:
        (head,) = struct.unpack_from("<Q", buffer, _HEAD_AT)
        (tail,) = struct.unpack_from("<Q", buffer, _TAIL_AT)
        size = PAGES * mmap.PAGESIZE
        while tail < head:
            start = mmap.PAGESIZE + tail % size
            kind, _, length = struct.unpack("<IHH", _ringed(buffer, start, 8))
            data = _ringed(buffer, start, length)
            tail += length
            if kind == _LOST:
                self.lost += int(struct.unpack_from("<QQ", data, 8)[1])
            elif kind == _SAMPLE and (hit := self._hit(data)) is not None:
                yield hit
        struct.pack_into("<Q", buffer, _TAIL_AT, head)

    def _hit(self, data: bytes) -> Hit | None:
        tgid, tid, time_ns, size = struct.unpack_from("<IIQI", data, 8)
        raw = data[28 : 28 + size]
        known = self._events.get(struct.unpack_from("<H", raw)[0])
        if known is None or not tgid:  # 0: in a namespace of processes that is not seen from here
            return None
        function, enters = known
        # Behind the common fields of a trace event and the address: what is fetched, in order.
        count = len(function.fetched) if enters else 0
        values = struct.unpack_from(f"<{count}Q", raw, 16)
        return Hit(time_ns, tgid, tid, function, enters, values)


def mine() -> str:
    """Return how groups of events of this namespace of processes begin: numbers are its own."""
    return f"{PREFIX}{Path('/proc/self/ns/pid').stat().st_ino}_"


def sweep() -> None:
    """Remove the definitions of processes of this namespace that are gone."""
    try:
        events = (TRACING / "uprobe_events").read_text()
    except OSError:
        return
    groups = {line.partition("/")[0][2:] for line in events.splitlines()}
    for group in groups:
        pid = group.removeprefix(mine())
        if group != pid and pid.isdecimal() and not Path("/proc", pid).exists():
            _remove(group)


def _remove(group: str) -> None:
    with suppress(OSError):
        for line in (TRACING / "uprobe_events").read_text().splitlines():
            name = line.split(" ", 1)[0][2:]
            if name.startswith(f"{group}/"):
                with suppress(OSError):
                    _append(f"-:{name}")


def _append(line: str) -> None:
    file = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def _cpus() -> list[int]:
    found: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _open_event(event: int, cpu: int) -> int:
    watermark = PAGES * mmap.PAGESIZE // 2
    attr = _ATTR.pack(
        _TRACEPOINT, _ATTR.size, event, _PERIOD, _SAMPLED, 0, _FLAGS, watermark,
        0, 0, 0, 0, 0, 0, _MONOTONIC, 0, 0, 0, 0,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALLS[os.uname().machine]
    file: int = libc.syscall(number, attr, -1, cpu, -1, _CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def _ringed(buffer: mmap.mmap, start: int, length: int) -> bytes:
    end = len(buffer)
    data = buffer[start : min(end, start + length)]
    return data + buffer[mmap.PAGESIZE : mmap.PAGESIZE + length - len(data)]
