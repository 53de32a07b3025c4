# SPDX-License-Identifier: Apache-2.0
"""The worker as it is started by the agent and by the command line."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netagent.adapters.workers.trace import TraceWorker
from netagent.model.errors import BUSY, RemoteProtocolError
from netagent.wire.trace import TraceCaps, TraceRequest
from tests.kernel.overlay import Overlay
from tests.ovs.host import run
from tests.waiting import wait_until

pytestmark = pytest.mark.kernel

REQUEST = {"kind": "upcalls", "flow": "udp", "duration_s": 60.0}


def attached_programs() -> list[str]:
    """Return names of our programs in the kernel."""
    shown = json.loads(run("bpftool", "-j", "prog", "show"))
    return sorted(each.get("name", "") for each in shown if each.get("name", "").startswith("on_"))


def start_worker(netns: int, *prefix: str, **more: object) -> subprocess.Popen[str]:
    """Start a worker, by the command `prefix`; it runs until it is told otherwise."""
    worker = subprocess.Popen(
        [*prefix, sys.executable, "-m", "bpf.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps({**REQUEST, "netns": netns, **more}) + "\n")
    worker.stdin.flush()
    return worker


def probes_left() -> str:
    """Return what kprobe_events holds; empty where nothing is."""
    return Path("/sys/kernel/tracing/kprobe_events").read_text()


def test_a_killed_worker_leaves_nothing_attached(overlay: Overlay):
    before, probes = attached_programs(), probes_left()
    with start_worker(overlay.hosts[0].netns) as worker:
        assert worker.stdout is not None
        assert "attached" in worker.stdout.readline()
        assert len(attached_programs()) > len(before)
        worker.send_signal(signal.SIGKILL)
    wait_until(lambda: attached_programs() == before, "the programs' end")
    assert probes_left() == probes


def test_the_end_of_stdin_ends_a_trace_and_a_second_one_is_refused(overlay: Overlay):
    before = attached_programs()
    netns = overlay.hosts[0].netns
    # There /sys is another's: no tracefs.
    with start_worker(netns, "ip", "netns", "exec", overlay.hosts[0].name) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        worker.stdout.readline()
        with start_worker(netns) as second:
            assert second.stdout is not None
            assert "another trace" in json.loads(second.stdout.readline())["error"]
            assert second.wait() == BUSY
        worker.stdin.close()
        result = json.loads(worker.stdout.readline())
        assert worker.wait() == 0
    assert result["lasted_ns"] < 60e9
    assert attached_programs() == before


def test_the_agents_adapter_returns_a_reply_and_its_limits_are_the_workers(overlay: Overlay):
    netns = overlay.hosts[0].netns

    async def trace():
        stop = asyncio.Event()
        worker = TraceWorker()
        request = TraceRequest(kind="upcalls", flow="udp,tp_dst=7777", duration_s=60, netns=netns)

        def send() -> None:
            overlay.hosts[0].forget()
            overlay.deliver("a", count=1, target_port=7777)
            stop.set()

        return await worker.trace(request, stop=stop, on_attached=send)

    reply = asyncio.run(trace())
    stages = {row.stage: row.packets for row in reply.stages}
    assert stages["upcall"] == stages["execute"] == 1
    assert [(row.command, row.result, row.packets) for row in reply.upcalls] == [("miss", "ok", 1)]
    greedy = TraceRequest(kind="path", flow="udp", netns=netns, caps=TraceCaps(journeys=10**9))
    with pytest.raises(RemoteProtocolError, match="journeys is not within"):
        asyncio.run(TraceWorker().trace(greedy))


def test_the_command_shows_a_journey_in_80_columns(overlay: Overlay):
    host = overlay.hosts[0]
    words = ["path", "udp,tp_dst=7778", "--netns", host.name, "--duration", "60"]
    program = (
        "import sys; from netagent.commands import trace; from argparse import ArgumentParser;"
    )
    program += "p = ArgumentParser(); trace.add_arguments(p); sys.exit(trace.run(p.parse_args()))"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        while "tracing udp,tp_dst=7778" not in command.stderr.readline():
            assert command.poll() is None
        overlay.deliver("a", count=5, target_port=7778)
        command.send_signal(signal.SIGINT)
        text = command.stdout.read()
        assert command.wait() == 0, text
    print(text)
    assert max(map(len, text.splitlines())) < 80
    assert "uplink_transmit up0 VNI 100 port" in text
    assert "no packet vanished of 5" in text
