# SPDX-License-Identifier: Apache-2.0
"""The connection to a judge: a process that is started, written to and read from."""

import asyncio
import contextlib
import logging
import socket
import sys
from typing import Protocol

import structlog

from analyzer.judge import messages
from analyzer.judge.messages import HEAD, Up
from analyzer.server.sending import Sender

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
        sender: Sender,
    ) -> None:
        self._process, self._reader, self._sender = process, reader, sender
        self._writer = writer
        """Never written to; it ends reading."""

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
        sender = Sender(ours.dup())
        return cls(process, *await asyncio.open_connection(sock=ours), sender)

    def send(self, frame: bytes) -> None:
        """Give it a framed message; what is sent to one that is gone is lost."""
        self._sender.send(frame)

    async def drain(self) -> None:
        """Wait until little of what was sent waits to be read; raises LinkClosed."""
        try:
            await self._sender.drain()
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
        return self._sender.waiting_bytes

    async def close(self) -> None:
        """Let it end, and wait until it has; one that does not is killed."""
        self._sender.end()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            log.warning("judge_killed", pid=self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._sender.drop()
        self._writer.close()
        if code := self._process.returncode:
            log.warning("judge_died", pid=self._process.pid, code=code)
