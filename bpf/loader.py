# SPDX-License-Identifier: Apache-2.0
"""The only door to bcc: compiles, attaches, reads and detaches programs.

Everything is attached by file descriptors (perf events and raw tracepoints), so the kernel takes
all of it down with the process, however that ends.
"""

import re
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bpf.abi import (
    COUNTERS,
    NOTHING,
    STAGES,
    DropKey,
    Event,
    Filter,
    OuterKey,
    PortKey,
    RoceKey,
    Totals,
    UpcallKey,
    size,
)
from bpf.layout import Layout
from bpf.programs import PROGRAMS, Hook, KernelFacts, Program, Refusal, symbol_of
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

FOLDER = Path(__file__).parent
TRACING = Path("/sys/kernel/tracing")

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


@dataclass(frozen=True)
class Readings:
    """All that was counted."""

    stages: dict[str, Totals]
    ports: dict[PortKey, int]
    drops: dict[DropKey, int]
    upcalls: dict[UpcallKey, int]
    outers: dict[OuterKey, int]
    roce: dict[RoceKey, int]
    counters: dict[str, int]


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
    """Programs at work; they count nothing until they are told what."""

    def __init__(self, compiled: Any) -> None:
        self._bcc = compiled
        self.refusals: list[Refusal] = []
        """Programs that could not be attached."""

        self.attached: list[str] = []
        self.bad_events = 0
        """Events that made no sense."""

        self.unkept_events = 0
        """Events that whoever got them had no room for."""

    def start(self, chosen: Filter, on_event: Callable[[Event], None] | None) -> None:
        """Begin to count, and to hand events to `on_event` whenever `poll` is called."""
        if on_event is not None:

            def receive(_cpu: int, data: int, length: int) -> None:
                from ctypes import string_at  # noqa: PLC0415 - the rim, as bcc

                try:
                    on_event(Event.unpack(string_at(data, size("event"))[:length]))
                except RemoteProtocolError:
                    self.bad_events += 1

            self._bcc[b"events"].open_ring_buffer(receive)
        self._configure(chosen)

    def stop(self) -> None:
        """Count no more; what was counted can be read."""
        self._configure(Filter(netns=0))

    def poll(self, *, wait_ms: int) -> None:
        """Wait for events, at most `wait_ms`, and hand them on."""
        self._bcc.ring_buffer_poll(wait_ms)

    def consume(self) -> None:
        """Hand on the events that are there."""
        self._bcc.ring_buffer_consume()

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

    def attach(self, program: Program, facts: KernelFacts) -> None:
        """Attach all hooks of `program`; one that fails is a refusal, and not the end."""
        try:
            for hook in program.hooks:
                self._attach(hook, symbol_of(hook, facts) or hook.symbols[0])
        except Exception as error:  # noqa: BLE001 - bcc raises nothing more specific
            self.refusals.append(Refusal(program.name, f"cannot be attached: {error}", _READ_LOG))
        else:
            self.attached.append(program.name)

    def _attach(self, hook: Hook, symbol: str) -> None:
        function = hook.function.encode()
        if hook.kind == "raw_tracepoint":
            self._bcc.attach_raw_tracepoint(tp=symbol.encode(), fn_name=function)
        elif hook.kind == "kretprobe":
            self._bcc.attach_kretprobe(event=symbol.encode(), fn_name=function)
        else:
            self._bcc.attach_kprobe(event=symbol.encode(), fn_name=function)

    def _configure(self, chosen: Filter) -> None:
        table = self._bcc[b"config"]
        table[table.Key(0)] = table.Leaf.from_buffer_copy(chosen.pack())

    def _totals(self, stage: int) -> Totals:
        table = self._bcc[b"stages"]
        total = NOTHING
        for leaf in table[table.Key(stage)]:  # one for each CPU
            total += Totals.unpack(bytes(leaf))
        return total

    def _counter(self, counter: int) -> int:
        table = self._bcc[b"counters"]
        return sum(table[table.Key(counter)])

    def _rows(self, name: str, unpack: Callable[[bytes], Key]) -> dict[Key, int]:
        try:
            table = self._bcc[name.encode()]
        except KeyError:  # no program of this trace has it
            return {}
        return {unpack(bytes(key)): int(leaf.value) for key, leaf in table.items()}


_READ_LOG = "see the kernel log; the other programs are not affected"


@contextmanager
def load(
    programs: Iterable[Program], facts: KernelFacts, layout: Layout, sizes: Sizes
) -> Iterator[Tracer]:
    """Compile and attach `programs`; everything is detached on the way out.

    Raises CapabilityMissing if they cannot be compiled.
    """
    programs = tuple(programs)
    try:
        from bcc import BPF  # noqa: PLC0415 - only where a trace runs; PyPI's `bcc` is another
    except ImportError as error:
        raise CapabilityMissing("eBPF", "apt-get install python3-bpfcc") from error
    sweep()
    defines = {**layout.defines, **sizes.defines}
    flags = [f"-D{name}={value}" for name, value in sorted(defines.items())]
    try:
        compiled = BPF(text=source(programs).encode(), cflags=[*flags, "-w"])
    except Exception as error:
        remedy = "apt-get install linux-headers-$(uname -r), and see what the compiler printed"
        raise CapabilityMissing(f"eBPF ({error})", remedy) from error
    try:
        tracer = Tracer(compiled)
        for program in programs:
            tracer.attach(program, facts)
        yield tracer
    finally:
        # bcc looks into tracefs even for what hangs on descriptors, and gives up where a mount
        # namespace (that of `ip netns exec`) hides it; the end of the process detaches the rest.
        with suppress(Exception):
            compiled.cleanup()


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
    """Tell whether `descriptor` has something to read, or has ended."""
    return bool(select.select([descriptor], [], [], 0)[0])
