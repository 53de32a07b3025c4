# SPDX-License-Identifier: Apache-2.0
"""The connection to a judge: a process that is started, written to and read from."""

import asyncio
import contextlib
import logging
import socket
import sys
from collections import deque
from typing import Protocol

import structlog

from analyzer.judge import messages
from analyzer.judge.messages import HEAD, Up

BUFFER_BYTES = 4 << 20
"""Bytes that are handed to the transport at once. Chosen: asyncio keeps them as one array, which it
moves as a whole again and again; what is more waits as the frames that it is."""
END_S = 1.5
"""Seconds that a judge may take to end. Chosen: the analyzer stops within three."""

log = structlog.get_logger()


class LinkClosed(Exception):
    """The judge is gone."""


class Link(Protocol):
    """One judge, from its start to its end."""

    def send(self, frame: bytes) -> None:
        """Give it a framed message; what is sent to one that is gone is lost."""

    async def drain(self) -> None:
        """Wait until little of what was sent waits to be read; raises LinkClosed."""

    async def receive(self) -> Up:
        """Return its next message; raises LinkClosed."""

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that it has not read so far."""

    async def close(self) -> None:
        """Let it end, and wait until it has."""


class ProcessLink:
    """A judge in a process of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._pumping: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls) -> "ProcessLink":
        """Start a process. Raises OSError."""
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            verbose = ["-v"] if logging.getLogger().isEnabledFor(logging.INFO) else []
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "analyzer.judge", "--socket", str(theirs.fileno()), *verbose,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    def send(self, frame: bytes) -> None:
        """Give it a framed message; what is sent to one that is gone is lost."""
        if self._pumping is None and self._buffered < BUFFER_BYTES:
            self._writer.write(frame)
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        if self._pumping is None:
            self._pumping = asyncio.create_task(self._pump())

    async def _pump(self) -> None:
        try:
            while self._waiting:
                await self._writer.drain()
                while self._waiting and self._buffered < BUFFER_BYTES:
                    frame = self._waiting.popleft()
                    self._waiting_bytes -= len(frame)
                    self._writer.write(frame)
        except ConnectionError:
            self._waiting.clear()  # it is gone, as whoever reads from it learns
            self._waiting_bytes = 0
        finally:
            self._pumping = None

    async def drain(self) -> None:
        """Wait until little of what was sent waits to be read; raises LinkClosed."""
        try:
            if self._pumping is not None:
                await asyncio.shield(self._pumping)
            await self._writer.drain()
        except ConnectionError as error:
            raise LinkClosed from error

    async def receive(self) -> Up:
        """Return its next message; raises LinkClosed."""
        try:
            (length,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            return messages.up(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise LinkClosed from error

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that wait in this process for it."""
        return self._buffered + self._waiting_bytes

    @property
    def _buffered(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def close(self) -> None:
        """Let it end, and wait until it has; one that does not is killed."""
        if self._pumping is not None:
            self._pumping.cancel()
        self._writer.close()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            log.warning("judge_killed", pid=self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if code := self._process.returncode:
            log.warning("judge_died", pid=self._process.pid, code=code)
