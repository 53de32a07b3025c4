# SPDX-License-Identifier: Apache-2.0
import fcntl
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from bpf import worker
from bpf.trace.abi import COUNTERS, NOTHING, STAGES, Event, FlowKey, Readings
from bpf.trace.layout import Layout
from bpf.trace.programs import KernelFacts, Refusal, wanted_symbols
from netagent.model.errors import BUSY, CapabilityMissing

ABLE = KernelFacts("6.1", wanted_symbols(), True, True, True, Layout({}, has_switch=True))
REQUEST = {"kind": "path", "flow": "udp", "netns": 1, "duration_s": 0.05}


class Tracer:
    """Attached programs that see one event at each poll."""

    def __init__(self) -> None:
        self.refusals, self.attached = [], ["lookup", "actions"]
        self.bad_events = self.unkept_events = 0
        self.told = []

    def start(self, chosen, on_event) -> None:
        self.told.append(chosen)
        self._on_event = on_event

    def poll(self, *, wait_ms: int) -> None:
        assert 0 < wait_ms <= 100
        self._on_event(Event(1, 2, 0, FlowKey(1, 2, 3, 4, 17, 6), "lookup", 0, 0, 0, ""))

    def stop(self) -> None:
        self.told.append(None)

    def consume(self) -> None:
        assert self.told[-1] is None

    def read(self) -> Readings:
        assert self.told[-1] is None  # nothing counts while it is read
        counters = dict.fromkeys(COUNTERS, 0)
        return Readings(dict.fromkeys(STAGES, NOTHING), {}, {}, {}, {}, {}, counters)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs the worker in this process, for a request; lines come back."""
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    reading, writing = os.pipe()
    monkeypatch.setattr(worker, "LOCKS", tmp_path)
    monkeypatch.setattr(worker, "_limit", lambda _: None)

    def make(request=REQUEST, *, facts=ABLE, tracer=None) -> tuple[int, list[dict]]:
        @contextmanager
        def load(*_):
            if tracer is None:
                raise CapabilityMissing("eBPF", "another kernel")
            yield tracer

        class Stdin(io.TextIOWrapper):
            def fileno(self) -> int:
                return reading

        stdin = Stdin(io.BytesIO(json.dumps(request).encode() + b"\n"))
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(worker, "read_facts", lambda: facts)
        monkeypatch.setattr(worker, "load", load)
        code = worker.main()
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    yield make
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.close(reading)
    os.close(writing)


def test_a_trace_says_when_it_counts_and_then_what_it_counted(run):
    tracer = Tracer()
    code, (ready, result) = run(tracer=tracer)
    assert code == 0
    assert ready == {"attached": ["lookup", "actions"]}
    assert (result["kind"], result["flow"], result["netns"]) == ("path", "udp", 1)
    assert [row["stage"] for row in result["stages"]] == ["lookup", "actions"]
    assert result["journeys"]
    assert any("flows without actions" in note for note in result["notes"])
    assert tracer.told[0].netns == 1
    assert result["lasted_ns"] >= 50_000_000


def test_a_kernel_that_can_do_nothing_says_why(run):
    facts = KernelFacts("6.18", frozenset(), False, False, True, None, "no BTF")
    code, (problem,) = run(facts=facts)
    assert code == 1
    assert "bcc is not installed" in problem["error"]
    assert "python3-bpfcc" in problem["remedy"]


def test_what_cannot_be_compiled_or_attached_is_said(run):
    code, (problem,) = run()
    assert (code, problem["remedy"]) == (1, "another kernel")
    nothing = Tracer()
    nothing.attached = []
    nothing.refusals = [Refusal("lookup", "the verifier refuses it", "")]
    code, (problem,) = run(tracer=nothing)
    assert code == 1


def test_events_that_were_not_kept_are_told(run, monkeypatch):
    monkeypatch.setattr(worker, "MAX_EVENTS", 0)
    _, (_, result) = run(tracer=Tracer())
    assert any("events came after the first 0" in note for note in result["notes"])


def test_a_switch_is_traced_once_at_a_time(run, tmp_path):
    with (tmp_path / "trace-1.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, (problem,) = run(tracer=Tracer())
        assert (code, problem["error"]) == (BUSY, "another trace of this switch is running")
        code, _ = run({**REQUEST, "netns": 2}, tracer=Tracer())
        assert code == 0


COMPILES = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from bpf import worker
from tests.bpf.test_worker import ABLE

@contextmanager
def load(*_):
    print("compiling", file=sys.stderr, flush=True)
    time.sleep(600)
    yield

worker.LOCKS, worker.load, worker.read_facts = Path(sys.argv[1]), load, lambda: ABLE
sys.exit(worker.main())
"""


@pytest.mark.parametrize("hears", [True, False], ids=["still listens", "is gone"])
def test_the_end_of_stdin_ends_a_worker_that_compiles(run, tmp_path, hears):
    here, there = socket.socketpair()
    here.settimeout(30)
    command = [sys.executable, "-c", COMPILES, tmp_path]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=subprocess.PIPE) as made:
        try:
            there.close()
            here.sendall(json.dumps(REQUEST).encode() + b"\n")
            assert made.stderr.readline() == b"compiling\n"
            assert run(tracer=Tracer())[0] == BUSY
            if hears:
                here.shutdown(socket.SHUT_WR)
                problem = json.loads(here.makefile().readline())
                assert (problem["code"], problem["remedy"]) == (1, "ask again")
            here.close()
            assert made.wait(timeout=30) == 1
        finally:
            made.kill()
    assert run(tracer=Tracer())[0] == 0


def test_what_waits_for_the_end_of_stdin_meanwhile_leaves_nothing_behind(run):
    threads = threading.active_count()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        assert run(tracer=Tracer())[0] == 0
        assert run()[0] == 1
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


@pytest.mark.parametrize("line", ["", "nonsense", '{"kind":"path"}'])
def test_what_is_no_request_is_exit_2(line):
    done = subprocess.run(
        [sys.executable, "-m", "bpf.worker"],
        input=line + "\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(worker.__file__).parent.parent,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout).keys() == {"error", "remedy", "code"}
    assert json.loads(done.stdout)["code"] == 2


def test_a_lock_that_cannot_be_had_is_said_with_its_remedy(run, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(worker, "LOCKS", tmp_path / "file" / "below")
    code, (problem,) = run(tracer=Tracer())
    assert code == 1
    assert "tracing (" in problem["error"]
    assert "run as root" in problem["remedy"]
