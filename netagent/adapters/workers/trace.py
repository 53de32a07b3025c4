# SPDX-License-Identifier: Apache-2.0
"""A trace of the virtual switch, done by a short-lived process of its own.

bcc brings a compiler, and the kernel's programs ask for capabilities, which the agent must not
hold. The worker (`bpf.worker`) ends when its stdin does, so it does not outlive the agent; what it
attached goes with its process. It is a child, or what systemd starts behind a socket
(`netagent-tracer.socket`), with its own capabilities.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from netagent.concurrency import timeout
from netagent.model.errors import CapabilityMissing, TooSoon, Unreachable
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.worker import MAX_OUTPUT_BYTES, read_answer, stated_code

SPARE_S = 120.0
"""Seconds a worker may take beside the trace. Chosen: compiling takes one second, fifteen under
emulation, and a multiple of that on a busy machine."""

NAME = "trace worker"

SOCKET = "NETAGENT_TRACER"
"""Environment variable that names the socket behind which workers are; unset: children."""


class TraceWorker:
    """Answers one request at a time.

    Raises RemoteProtocolError for a request that makes no sense, TooSoon for one that comes while
    another is at work, CapabilityMissing for what this host cannot, and Unreachable if no answer
    came in time.
    """

    def __init__(self, socket: str | None = None, *, spare_s: float = SPARE_S) -> None:
        self._socket = socket
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
            raise TooSoon(NAME, "another trace is at work on this host: try again later")
        self._busy = True
        try:
            return await self._run(request, stop or asyncio.Event(), on_attached)
        finally:
            self._busy = False

    async def _run(
        self, request: TraceRequest, stop: asyncio.Event, on_attached: Callable[[], None]
    ) -> TraceReply:
        worker = await (_Dialled.start(self._socket) if self._socket else _Child.start())
        stopping = asyncio.create_task(_end_early(worker, stop))
        try:
            async with timeout(request.duration_s + self._spare_s):
                return await _converse(worker, _to_line(request), on_attached)
        except TimeoutError as error:
            raise Unreachable(NAME, "timeout") from error
        finally:
            stopping.cancel()
            await asyncio.wait({stopping})
            await worker.end()


class _Worker(Protocol):
    """A worker that was started, and the two ends of its talk."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def hang_up(self) -> None:
        """Let its stdin end."""

    async def code(self, answer: bytes) -> int:
        """Return with which exit code it answered; Unreachable where there is none."""

    async def end(self) -> None:
        """Leave nothing of it."""


class _Child:
    def __init__(
        self, process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._process = process
        self.reader, self.writer = reader, writer

    @classmethod
    async def start(cls) -> "_Child":
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bpf.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_OUTPUT_BYTES,
            start_new_session=True,  # so that Ctrl-C reaches us, and the worker ends in order
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the worker was started without pipes")
        return cls(process, process.stdout, process.stdin)

    def hang_up(self) -> None:
        self.writer.close()

    async def code(self, _answer: bytes) -> int:
        return await self._process.wait()

    async def end(self) -> None:
        if self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while await self.reader.read(1 << 16):
            pass  # asyncio learns of the end only from a pipe that somebody reads
        await self._process.wait()


class _Dialled:
    """What systemd started for one connection; it ends when that does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def start(cls, path: str) -> "_Dialled":
        try:
            return cls(*await asyncio.open_unix_connection(path, limit=MAX_OUTPUT_BYTES))
        except OSError as error:
            remedy = "systemctl start netagent-tracer.socket"
            raise CapabilityMissing(f"tracing ({path}: {error.strerror})", remedy) from error

    def hang_up(self) -> None:
        if self.writer.can_write_eof() and not self.writer.is_closing():
            with suppress(OSError):  # it ended first
                self.writer.write_eof()

    async def code(self, answer: bytes) -> int:
        if not answer:
            raise Unreachable(NAME, "ended without a word")
        return stated_code(answer)

    async def end(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


def own_netns() -> int:
    """Return the inode of this process's network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def _to_line(request: TraceRequest) -> bytes:
    data = msgspec.to_builtins(request)
    data["netns"] = request.netns or own_netns()
    return msgspec.json.encode(data) + b"\n"


async def _converse(worker: _Worker, line: bytes, on_attached: Callable[[], None]) -> TraceReply:
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended early: its exit code says why
        worker.writer.write(line)
        await worker.writer.drain()
    answer = await _line(worker.reader)
    if answer.startswith(b'{"attached":'):
        on_attached()
        answer = await _line(worker.reader)
    worker.hang_up()
    return read_answer(NAME, await worker.code(answer), answer, TraceReply)


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ConnectionResetError:
        return b""
    except ValueError as error:  # longer than the limit
        message = f"an answer of over {MAX_OUTPUT_BYTES} bytes"
        raise CapabilityMissing(message, "trace fewer flows") from error


async def _end_early(worker: _Worker, stop: asyncio.Event) -> None:
    await stop.wait()
    worker.hang_up()
