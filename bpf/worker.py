# SPDX-License-Identifier: Apache-2.0
"""One trace in a process of its own: `python -m bpf.worker`.

Reads one JSON line (the request) on stdin, writes JSON lines on stdout: `{"attached": [...]}` when
it begins to count, then the result, or `{"error": ..., "remedy": ..., "code": ...}`. It ends early,
with what was seen, on SIGINT, SIGTERM, and when stdin ends; before it counts, without a result: so
it does not outlive who asked. Exit codes: 0 a result, 1 this host cannot, 2 the request makes no
sense, 3 another trace of this switch is running.
"""

import fcntl
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bpf.kernel.host import Symbols, read_facts
from bpf.kernel.loader import Sizes, Tracer, load, readable
from bpf.lines import refuse, say
from bpf.trace.abi import Event
from bpf.trace.layout import Layout
from bpf.trace.programs import KernelFacts, Program, Refusal, choose
from bpf.trace.request import Request, read_request
from bpf.trace.result import to_result
from netagent.model.errors import BUSY, MISUSE, PROBLEM, CapabilityMissing, ConfigError, TooSoon

LOCKS = Path("/run/netagent")
NICE = 5
"""Niceness of the worker. Chosen: it yields to the training job and still gets CPU."""
COMPILE_CPU_S = 180
"""CPU seconds that the worker may use beside the trace's duration. Chosen: enough for compiling
under emulation."""

POLL_MS = 100
"""Milliseconds between two looks at events and at a stop. Chosen: a stop takes effect soon, at ten
wake-ups a second."""
MAX_EVENTS = 20_000
"""Most events kept for the result. Chosen: bounds memory."""


def main() -> int:
    """Run the trace that stdin asks for."""
    stop = _Stop()
    try:
        request = read_request(sys.stdin.buffer.readline())
        _limit(request)
        say(_trace(request, stop))
    except ConfigError as error:
        return refuse(MISUSE, error.message, "correct the request")
    except TooSoon as error:
        return refuse(BUSY, error.reason, "try again later")
    except CapabilityMissing as error:
        return refuse(PROBLEM, error.capability, error.remedy)
    return 0


class _Stop:
    """Set by SIGINT and SIGTERM, and when whoever asked is gone."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or readable(sys.stdin.fileno())


def _trace(request: Request, stop: _Stop) -> dict[str, Any]:
    facts = read_facts()
    programs, refusals = choose(request.kind, facts, request.tunnel.kind)
    if not programs or facts.layout is None:
        first = refusals[0]
        raise CapabilityMissing(f"tracing ({first.reason})", first.remedy)
    with _alone(request):
        return _attached(request, stop, facts, facts.layout, programs, refusals)


@contextmanager
def _ends_with_stdin() -> Iterator[None]:
    """End this process within this context as soon as stdin ends.

    A compiler at work looks at nothing, and would hold the lock for minutes.
    """
    stdin = sys.stdin.fileno()
    over, leave = os.pipe()

    def wait() -> None:
        ready, _, _ = select.select([stdin, over], [], [])
        if over in ready:
            return
        try:
            with suppress(OSError):  # nobody may listen any more
                why = "tracing (whoever asked for it stopped it before it counted)"
                refuse(PROBLEM, why, "ask again")
        finally:
            os._exit(PROBLEM)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        os.close(leave)
        waiting.join()
        os.close(over)


def _attached(
    request: Request,
    stop: _Stop,
    facts: KernelFacts,
    layout: Layout,
    programs: list[Program],
    refusals: list[Refusal],
) -> dict[str, Any]:
    sizes = Sizes(request.caps.journeys, request.caps.rows, request.caps.ring_pages)
    events: list[Event] = []
    with ExitStack() as stack:
        with _ends_with_stdin():
            tracer = stack.enter_context(load(programs, facts, layout, sizes))
        if not tracer.attached:
            raise CapabilityMissing(f"tracing ({tracer.refusals[0].reason})", "see the kernel log")
        lasted_ns = _watch(tracer, request, stop, events)
        readings = tracer.read()
        return to_result(
            request,
            readings,
            events,
            lasted_ns=lasted_ns,
            attached=tracer.attached,
            refusals=[*refusals, *tracer.refusals],
            reasons=layout.reasons,
            symbol=Symbols(),
            notes=_notes(facts, tracer),
        )


def _notes(facts: KernelFacts, tracer: Tracer) -> list[str]:
    notes = []
    if facts.layout and "actions" in tracer.attached and not facts.layout.has_ovs_reasons:
        notes.append(
            f"kernel {facts.release} frees what a flow drops silently: flows without actions are "
            "counted where actions begin; which flow: ovs-appctl dpctl/dump-flows"
        )
    if tracer.unkept_events:
        notes.append(f"{tracer.unkept_events} events came after the first {MAX_EVENTS}")
    if tracer.bad_events:
        notes.append(f"{tracer.bad_events} events made no sense")
    return notes


def _watch(tracer: Tracer, request: Request, stop: _Stop, events: list[Event]) -> int:
    """Let the programs count; return for how many nanoseconds they did."""

    def keep(event: Event) -> None:
        if len(events) < MAX_EVENTS:
            events.append(event)
        else:
            tracer.unkept_events += 1

    wants_events = request.events_per_s > 0
    begin_ns = time.monotonic_ns()
    tracer.start(request.filter(), keep if wants_events else None)
    say({"attached": tracer.attached})
    end_ns = begin_ns + request.duration_ns
    while (left_ns := end_ns - time.monotonic_ns()) > 0 and not stop:
        wait_ms = min(POLL_MS, left_ns // 1_000_000 + 1)
        if wants_events:
            tracer.poll(wait_ms=wait_ms)
        else:
            _sleep(wait_ms)
    tracer.stop()
    lasted_ns = time.monotonic_ns() - begin_ns
    if wants_events:
        tracer.consume()
    return lasted_ns


def _sleep(wait_ms: int) -> None:
    """Wait; a signal or the end of stdin comes first."""
    select.select([sys.stdin], [], [], wait_ms / 1e3)


def _limit(request: Request) -> None:
    """Yield to the training job, and end if anything here runs away."""
    os.nice(NICE)
    seconds = COMPILE_CPU_S + request.duration_ns // 1_000_000_000
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


@contextmanager
def _alone(request: Request) -> Iterator[None]:
    """Allow one trace of a switch at a time; the kernel frees the lock of a process that ends."""
    file: IO[str]
    try:
        LOCKS.mkdir(parents=True, exist_ok=True)
        file = (LOCKS / f"trace-{request.netns}.lock").open("w")
    except OSError as error:
        remedy = f"run as root, or let this user write to {LOCKS}"
        raise CapabilityMissing(f"tracing ({error.strerror}: {error.filename})", remedy) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TooSoon("trace", "another trace of this switch is running") from error
        yield


if __name__ == "__main__":
    sys.exit(main())
