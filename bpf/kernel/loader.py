# SPDX-License-Identifier: Apache-2.0
"""Loads, attaches, reads and detaches programs; what was compiled once is kept on disk."""

import hashlib
import re
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import bpf
from bpf.kernel import cache
from bpf.kernel.host import identity
from bpf.kernel.libbcc import Bcc, Ring, Table, close_all
from bpf.trace.abi import (
    COUNTERS,
    NOTHING,
    STAGES,
    DropKey,
    Event,
    Filter,
    OuterKey,
    PortKey,
    Readings,
    RoceKey,
    Totals,
    UpcallKey,
)
from bpf.trace.compiled import RING_BUFFER, Compiled, from_data, to_data
from bpf.trace.layout import Layout
from bpf.trace.programs import PROGRAMS, Hook, KernelFacts, Program, Refusal, symbol_of
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

FOLDER = Path(bpf.__file__).parent
TRACING = Path("/sys/kernel/tracing")
CACHE = cache.FOLDER / "programs"
VERSION = 1
"""Version of stored programs. Raise it when `compiled` or `libbcc` makes something else of the same
source."""

Key = TypeVar("Key")

_INCLUDE = re.compile(r'^#include "(\w+\.h)"$', re.MULTILINE)
_LEGACY = re.compile(r"^[pr]\d*:(kprobes/[pr]_(\w+)_bcc_(\d+)) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much kernel memory a trace may take."""

    journeys: int
    """Packets followed at one time."""

    rows: int
    """Entries of each other map."""

    ring_pages: int
    """Pages of the ring buffer; a power of two."""

    @property
    def defines(self) -> dict[str, int]:
        """Macros for the compiler."""
        return {
            "MAX_JOURNEYS": self.journeys,
            "MAX_ROWS": self.rows,
            "RING_PAGES": self.ring_pages,
        }


def source(programs: Iterable[Program]) -> str:
    """Return the C of `programs` as one text: bcc rewrites only what is in the main file."""
    seen: set[str] = set()

    def insert(found: re.Match[str]) -> str:
        name = found[1]
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(insert, (FOLDER / "include" / name).read_text("utf-8"))

    texts = ((FOLDER / f"{p.name}.bpf.c").read_text("utf-8") for p in programs)
    return "\n".join(_INCLUDE.sub(insert, text) for text in texts)


class Tracer:
    """Attached programs; they count nothing before `start` sets their filter."""

    def __init__(self, bcc: Bcc, compiled: Compiled) -> None:
        self._bcc, self._compiled = bcc, compiled
        self._functions = {each.name: each for each in compiled.functions}
        self._maps: dict[str, int] = {}
        self._tables: dict[str, Table] = {}
        self._held: list[int] = []
        """Descriptors of what is loaded and attached."""

        self._ring: Ring | None = None
        self.refusals: list[Refusal] = []
        """Programs that could not be attached."""

        self.attached: list[str] = []
        self.bad_events = 0
        """Events that made no sense."""

        self.unkept_events = 0
        """Events that whoever got them had no room for."""

    def make_maps(self) -> None:
        """Make what programs count in, once, before any is attached; raises CapabilityMissing."""
        for made in self._compiled.maps:
            try:
                descriptor = self._maps[made.name] = self._bcc.make(made)
            except OSError as error:
                raise CapabilityMissing(f"eBPF map ({error})", _READ_LOG) from error
            if made.kind != RING_BUFFER:
                self._tables[made.name] = Table(self._bcc, made, descriptor)

    def start(self, chosen: Filter, on_event: Callable[[Event], None] | None) -> None:
        """Begin to count, and to hand events to `on_event` whenever `poll` is called."""
        if on_event is not None:

            def receive(data: bytes) -> None:
                try:
                    on_event(Event.unpack(data))
                except RemoteProtocolError:
                    self.bad_events += 1

            self._close_ring()
            self._ring = Ring(self._bcc, self._maps["events"], receive)
        self._configure(chosen)

    def stop(self) -> None:
        """Count no more; what was counted can be read."""
        self._configure(Filter(netns=0))

    def poll(self, *, wait_ms: int) -> None:
        """Wait for events, at most `wait_ms`, and hand them on."""
        if self._ring:
            self._ring.poll(wait_ms=wait_ms)

    def consume(self) -> None:
        """Hand on the events that are there."""
        if self._ring:
            self._ring.consume()

    def read(self) -> Readings:
        """Return what was counted until now."""
        return Readings(
            stages={name: self._totals(index) for index, name in enumerate(STAGES)},
            ports=self._rows("ports", PortKey.unpack),
            drops=self._rows("drops", DropKey.unpack),
            upcalls=self._rows("upcalls", UpcallKey.unpack),
            outers=self._rows("outers", OuterKey.unpack),
            roce=self._rows("roce", RoceKey.unpack),
            counters={name: self._counter(index) for index, name in enumerate(COUNTERS)},
        )

    def clear(self) -> None:
        """Forget what was counted, and what to count."""
        for table in self._tables.values():
            table.clear()

    def attach(self, program: Program, facts: KernelFacts) -> None:
        """Attach all hooks of `program`; one that fails is a refusal, and not the end."""
        try:
            for hook in program.hooks:
                self._attach(hook, symbol_of(hook, facts) or hook.symbols[0])
        except OSError as error:
            why = f"cannot be attached: {error.filename}: {error.strerror}"
            self.refusals.append(Refusal(program.name, why, _READ_LOG))
        else:
            self.attached.append(program.name)

    def _attach(self, hook: Hook, symbol: str) -> None:
        raw = hook.kind == "raw_tracepoint"
        loaded = self._bcc.load(self._functions[hook.function], self._maps, raw_tracepoint=raw)
        self._held.append(loaded)
        self._held.append(self._bcc.attach(loaded, hook.kind, symbol))

    def close(self) -> None:
        """Detach everything; once."""
        self._close_ring()
        close_all([*reversed(self._held), *self._maps.values()])

    def _close_ring(self) -> None:
        if self._ring:
            self._ring.close()
        self._ring = None

    def _configure(self, chosen: Filter) -> None:
        self._tables["config"].put(_FIRST, chosen.pack())

    def _totals(self, stage: int) -> Totals:
        return sum(map(Totals.unpack, self._tables["stages"].at(stage)), NOTHING)

    def _counter(self, counter: int) -> int:
        return sum(map(_number, self._tables["counters"].at(counter)))

    def _rows(self, name: str, unpack: Callable[[bytes], Key]) -> dict[Key, int]:
        table = self._tables.get(name)  # None where no program of this trace has it
        return {unpack(key): _number(value) for key, value in table.rows()} if table else {}


_FIRST = bytes(4)
"""The key of an array's first entry."""

_READ_LOG = "see the kernel log; the other programs are not affected"


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


@contextmanager
def load(
    programs: Iterable[Program],
    facts: KernelFacts,
    layout: Layout,
    sizes: Sizes,
    kept: Path = CACHE,
) -> Iterator[Tracer]:
    """Attach `programs`, compiled anew where `kept` has them not; all is detached on the way out.

    Raises CapabilityMissing if they cannot be compiled, or the kernel refuses their maps.
    """
    programs = tuple(programs)
    bcc = Bcc()
    sweep()
    defines = {**layout.defines, **sizes.defines}
    flags = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    tracer = Tracer(bcc, _compiled(bcc, source(programs), flags, kept))
    try:
        tracer.make_maps()
        for program in programs:
            tracer.attach(program, facts)
        yield tracer
    finally:
        tracer.close()


def _compiled(bcc: Bcc, text: str, flags: list[str], kept: Path) -> Compiled:
    # Headers of this kernel build and the compiler's version are inputs as well.
    inputs = "\0".join([str(VERSION), text, *flags, bcc.version, identity()])
    name = hashlib.sha256(inputs.encode()).hexdigest()[:32]
    with suppress(RemoteProtocolError):
        if (data := cache.get(kept, name)) is not None:
            return from_data(data)
    compiled = bcc.compile(text, flags)
    cache.put(kept, name, to_data(compiled))
    return compiled


def sweep(tracing: Path = TRACING) -> int:
    """Remove what killed traces left in kprobe_events; return how many.

    bcc falls back to these on kernels whose perf has no kprobes (before 4.17): they stay.
    """
    events = tracing / "kprobe_events"
    ours = {symbol for p in PROGRAMS.values() for hook in p.hooks for symbol in hook.symbols}
    removed = 0
    with suppress(OSError):
        for name, symbol, pid in _LEGACY.findall(events.read_text("ascii")):
            if symbol in ours and not Path(f"/proc/{pid}").exists():
                with events.open("a", encoding="ascii") as file:
                    file.write(f"-:{name}\n")
                removed += 1
    return removed


def readable(descriptor: int) -> bool:
    """Return whether `descriptor` has data to read, or has ended."""
    return bool(select.select([descriptor], [], [], 0)[0])
