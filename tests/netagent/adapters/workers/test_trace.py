# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from netagent.adapters.workers.trace import TraceWorker, own_netns
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.wire.trace import TraceCaps, TraceReply, TraceRequest

REQUEST = TraceRequest(kind="drops", flow="udp,tp_dst=4791", duration_s=0.1)
ANSWER = json.dumps({"kind": "drops", "flow": "udp", "netns": 1, "lasted_ns": 5})
READY = '{"attached":["drop"]}'


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the place of the worker's Python."""

    def make(script: str, *, spare_s: float = 10) -> TraceWorker:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(path))
        return TraceWorker(spare_s=spare_s)

    return make


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
        ("exit 3", Unreachable, "ended with code 3"),
        (f"echo '{READY}'; kill -9 $$", Unreachable, "ended with code -9"),
        ("echo nonsense", RemoteProtocolError, "no TraceReply"),
        ("cat /dev/zero", CapabilityMissing, "an answer of over"),
    ],
)
def test_what_goes_wrong_is_a_typed_error(worker, script, error, text):
    with pytest.raises(error, match=text):
        asyncio.run(worker(script).trace(REQUEST))


def test_a_worker_that_hangs_is_killed(worker, tmp_path):
    made = worker(f"echo $$ >{tmp_path}/pid; exec sleep 600", spare_s=0.3)
    with pytest.raises(Unreachable, match="timeout"):
        asyncio.run(made.trace(REQUEST))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_second_trace_is_refused_while_one_is_at_work_and_not_after(worker):
    made = worker(f"echo '{READY}'; cat >/dev/null; echo '{ANSWER}'")

    async def both():
        stop, attached = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(made.trace(REQUEST, stop=stop, on_attached=attached.set))
        await attached.wait()
        with pytest.raises(RemoteProtocolError, match="one at a time"):
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
