# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from netagent.adapters.workers.trace import TraceWorker, own_netns
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon, Unreachable
from netagent.wire.trace import TraceCaps, TraceReply, TraceRequest

REQUEST = TraceRequest(kind="drops", flow="udp,tp_dst=4791", duration_s=0.1)
ANSWER = json.dumps({"kind": "drops", "flow": "udp", "netns": 1, "lasted_ns": 5})
READY = '{"attached":["drop"]}'


class Behind:
    """A socket behind which each connection has a process of its own, as systemd does it."""

    def __init__(self, path: Path, program: Path) -> None:
        self.path, self._program = path, program
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._started: list[subprocess.Popen[bytes]] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._started.append(
                    subprocess.Popen([self._program], stdin=connection, stdout=connection)
                )

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a shell script, and returns its path."""

    def make(text: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture
def worker(program, monkeypatch):
    """Return a function that puts a shell script in the place of the worker's Python."""

    def make(text: str, *, spare_s: float = 10) -> TraceWorker:
        monkeypatch.setattr(sys, "executable", str(program(text)))
        return TraceWorker(spare_s=spare_s)

    return make


@pytest.fixture
def dialled(program, tmp_path):
    """Return a function that puts a shell script behind a socket."""
    with ExitStack() as stack:

        def make(text: str, *, spare_s: float = 10) -> TraceWorker:
            behind = Behind(tmp_path / "tracer.sock", program(text))
            stack.callback(behind.close)
            return TraceWorker(str(behind.path), spare_s=spare_s)

        yield make


def test_a_request_is_one_line_and_the_last_line_is_its_reply(worker, tmp_path):
    said = []
    made = worker(
        f'read line; echo "$line" >{tmp_path}/in; echo "$@" >{tmp_path}/argv\n'
        f"echo '{READY}'; echo '{ANSWER}'"
    )
    reply = asyncio.run(made.trace(REQUEST, on_attached=lambda: said.append("attached")))
    assert reply == TraceReply(kind="drops", flow="udp", netns=1, lasted_ns=5)
    assert said == ["attached"]
    assert (tmp_path / "argv").read_text().split() == ["-m", "bpf.worker"]
    asked = json.loads((tmp_path / "in").read_text())
    assert asked["netns"] == own_netns() == Path("/proc/self/ns/net").stat().st_ino
    assert asked["caps"] == {}


def test_caps_that_are_given_are_passed_on(worker, tmp_path):
    request = TraceRequest(kind="path", flow="", netns=9, caps=TraceCaps(rows=64))
    made = worker(f"head -1 >{tmp_path}/in; echo '{ANSWER}'")
    asyncio.run(made.trace(request))
    asked = json.loads((tmp_path / "in").read_text())
    assert (asked["netns"], asked["caps"]) == (9, {"rows": 64})


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ('echo \'{"error":"no kprobes","remedy":"x"}\'; exit 1', CapabilityMissing, "no kprobes"),
        ('echo \'{"error":"bad flow","remedy":""}\'; exit 2', RemoteProtocolError, "bad flow"),
        ('echo \'{"error":"another","remedy":"later"}\'; exit 3', TooSoon, "another: later"),
        ("exit 4", Unreachable, "ended with code 4"),
        (f"echo '{READY}'; kill -9 $$", Unreachable, "ended with code -9"),
        ("echo nonsense", RemoteProtocolError, "no TraceReply"),
        ("cat /dev/zero", CapabilityMissing, "an answer of over"),
    ],
)
def test_what_goes_wrong_is_a_typed_error(worker, script, error, text):
    with pytest.raises(error, match=text):
        asyncio.run(worker(script).trace(REQUEST))


def test_a_worker_that_hangs_is_killed(worker, monkeypatch):
    started, start = [], asyncio.create_subprocess_exec

    async def noted(*words, **fields):
        started.append(await start(*words, **fields))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    made = worker("exec sleep 600", spare_s=0.1)
    with pytest.raises(Unreachable, match="timeout"):
        asyncio.run(made.trace(REQUEST))
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_a_second_trace_is_refused_while_one_is_at_work_and_not_after(worker):
    made = worker(f"echo '{READY}'; cat >/dev/null; echo '{ANSWER}'")

    async def both():
        stop, attached = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(made.trace(REQUEST, stop=stop, on_attached=attached.set))
        await attached.wait()
        with pytest.raises(TooSoon, match=r"another trace is at work .* try again later"):
            await made.trace(REQUEST)
        stop.set()
        return await first, await made.trace(REQUEST, stop=stop)

    first, second = asyncio.run(both())
    assert first == second


def test_a_trace_that_is_cancelled_ends_its_worker(worker, tmp_path):
    made = worker(f"echo $$ >{tmp_path}/pid; echo '{READY}'; exec sleep 600")

    async def cancel():
        attached = asyncio.Event()
        tracing = asyncio.create_task(made.trace(REQUEST, on_attached=attached.set))
        await attached.wait()
        tracing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tracing

    asyncio.run(cancel())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_worker_behind_a_socket_is_asked_and_stopped_the_same_way(dialled, tmp_path):
    made = dialled(f"echo '{READY}'; cat >{tmp_path}/in; echo '{ANSWER}'")

    async def stopped():
        stop = asyncio.Event()
        return await made.trace(REQUEST, stop=stop, on_attached=stop.set)

    assert asyncio.run(stopped()) == TraceReply(kind="drops", flow="udp", netns=1, lasted_ns=5)
    assert json.loads((tmp_path / "in").read_text())["kind"] == "drops"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('echo \'{"error":"no kprobes","remedy":"x","code":1}\'', CapabilityMissing, "no kprobes"),
        ('echo \'{"error":"bad flow","remedy":"","code":2}\'', RemoteProtocolError, "bad flow"),
        ('echo \'{"error":"another","remedy":"later","code":3}\'', TooSoon, "another: later"),
        ("exit 3", Unreachable, "without a word"),
        (f"echo '{READY}'; kill -9 $$", Unreachable, "without a word"),
        ("echo nonsense", RemoteProtocolError, "no TraceReply"),
        ("cat /dev/zero", CapabilityMissing, "an answer of over"),
        (f"echo '{READY}'; exec sleep 600", Unreachable, "timeout"),
    ],
)
def test_what_goes_wrong_behind_a_socket_is_a_typed_error(dialled, text, error, said):
    # Closing with the request unread would take back what was said.
    made = dialled(f"read line; {text}", spare_s=1 if "sleep" in text else 30)
    with pytest.raises(error, match=said):
        asyncio.run(made.trace(REQUEST))


def test_a_socket_that_is_not_there_says_what_to_start(tmp_path):
    with pytest.raises(CapabilityMissing, match="No such file") as caught:
        asyncio.run(TraceWorker(str(tmp_path / "none")).trace(REQUEST))
    assert "netagent-tracer.socket" in caught.value.remedy
