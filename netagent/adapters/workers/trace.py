# SPDX-License-Identifier: Apache-2.0
"""A trace of the virtual switch, done by a short-lived process of its own.

bcc brings a compiler, which the agent must not hold. The worker (`bpf.worker`) ends when its stdin
does, so it does not outlive the agent; what it attached goes with its process.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from netagent.concurrency import timeout
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.worker import MAX_OUTPUT_BYTES, read_answer

SPARE_S = 120.0
"""Seconds a worker may take beside the trace. Chosen: compiling takes one second, fifteen under
emulation, and a multiple of that on a busy machine."""

NAME = "trace worker"


class TraceWorker:
    """Answers one request at a time.

    Raises RemoteProtocolError for a request that makes no sense or comes while another is at work,
    CapabilityMissing for what this host cannot, and Unreachable if no answer came in time.
    """

    def __init__(self, *, spare_s: float = SPARE_S) -> None:
        self._spare_s = spare_s
        self._busy = False

    async def trace(
        self,
        request: TraceRequest,
        *,
        stop: asyncio.Event | None = None,
        on_attached: Callable[[], None] = lambda: None,
    ) -> TraceReply:
        """Trace; `stop` ends it early, with what was seen until then."""
        if self._busy:
            raise RemoteProtocolError("a trace is at work on this host; one at a time")
        self._busy = True
        try:
            return await self._run(request, stop or asyncio.Event(), on_attached)
        finally:
            self._busy = False

    async def _run(
        self, request: TraceRequest, stop: asyncio.Event, on_attached: Callable[[], None]
    ) -> TraceReply:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bpf.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_OUTPUT_BYTES,
            start_new_session=True,  # so that Ctrl-C reaches us, and the worker ends in order
        )
        stopping = asyncio.create_task(_end_early(process, stop))
        try:
            async with timeout(request.duration_s + self._spare_s):
                return await _converse(process, _to_line(request), on_attached)
        except TimeoutError as error:
            raise Unreachable(NAME, "timeout") from error
        finally:
            stopping.cancel()
            await asyncio.wait({stopping})
            await _end(process)


def own_netns() -> int:
    """Return the inode of this process's network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def _to_line(request: TraceRequest) -> bytes:
    data = msgspec.to_builtins(request)
    data["netns"] = request.netns or own_netns()
    return msgspec.json.encode(data) + b"\n"


async def _converse(
    process: asyncio.subprocess.Process, line: bytes, on_attached: Callable[[], None]
) -> TraceReply:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker was started without pipes")
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended early: its exit code says why
        process.stdin.write(line)
        await process.stdin.drain()
    answer = await _line(process.stdout)
    if answer.startswith(b'{"attached":'):
        on_attached()
        answer = await _line(process.stdout)
    process.stdin.close()
    code = await process.wait()
    return read_answer(NAME, code, answer, TraceReply)


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError as error:  # longer than the limit
        message = f"an answer of over {MAX_OUTPUT_BYTES} bytes"
        raise CapabilityMissing(message, "trace fewer flows") from error


async def _end_early(process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    await stop.wait()
    if process.stdin is not None:
        process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the worker, if it still runs, and wait for its end."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    while process.stdout is not None and await process.stdout.read(1 << 16):
        pass  # asyncio learns of the end only from a pipe that somebody reads
    await process.wait()
