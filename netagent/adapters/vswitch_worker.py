# SPDX-License-Identifier: Apache-2.0
"""Flow-table work for the agent's RPC, done by a short-lived process of its own.

Parsing a hundred thousand flows takes seconds and hundreds of megabytes, which the agent has not:
the worker is niced, has a deadline, and leaves nothing behind but its answer.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from netagent.config import AgentConfig
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, Unreachable
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.messages import CheckReply, CheckRequest, FlowsReply

DEADLINE_S = 10.0
"""Seconds a worker may take."""

QUEUE = 8
"""Questions that may wait for the one at work; more are refused at once."""

MAX_OUTPUT_BYTES = 4 << 20
"""A larger answer is refused: it would not fit beside the agent."""

MISUSE = 2
"""Exit code of a worker that was asked what makes no sense."""

NAME = "vSwitch worker"

T = TypeVar("T")


class Problem(Struct, frozen=True, kw_only=True):
    """What a worker prints instead of an answer."""

    error: str
    remedy: str


class VswitchWorker:
    """Answers `check` and `flows`, one at a time.

    Both raise CapabilityMissing for what this host's Open vSwitch cannot answer,
    RemoteProtocolError for questions that make no sense, and Unreachable when too many wait
    already or no answer came in time.
    """

    def __init__(self, config: AgentConfig, *, deadline_s: float = DEADLINE_S) -> None:
        self._place = ("--rundir", config.ovs.rundir, "--host", config.host)
        self._bridge = config.ovs.integration_bridge
        self._deadline_s = deadline_s
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def check(self, request: CheckRequest) -> CheckReply:
        """Answer the questions over one snapshot of the flow tables."""
        arguments = ("check", "--questions", "-", "--bridge", self._bridge)
        return await self._ask((*arguments, *self._place), request, CheckReply)

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        """Return the flows of `bridge`, or those of one table."""
        some = () if table is None else ("--table", str(table))
        # With "=", so that a bridge called "--help" is a bridge.
        return await self._ask(
            ("flows", f"--bridge={bridge}", *some, *self._place), None, FlowsReply
        )

    async def _ask(self, arguments: tuple[str, ...], question: object, kind: type[T]) -> T:
        if self._waiting > QUEUE:
            raise Unreachable(NAME, f"busy: {QUEUE} questions wait already")
        self._waiting += 1
        try:
            async with self._turn:
                body = encode(question, ContentType.JSON) if question is not None else b""
                code, output = await self._run((*arguments, "--json"), body)
        finally:
            self._waiting -= 1
        if code == 0:
            return decode(output, kind, ContentType.JSON)
        try:
            problem = decode(output, Problem, ContentType.JSON)
        except RemoteProtocolError as error:
            raise Unreachable(NAME, f"ended with code {code}") from error
        if code == MISUSE:
            raise RemoteProtocolError(problem.error)
        raise CapabilityMissing(problem.error, problem.remedy)

    async def _run(self, arguments: tuple[str, ...], body: bytes) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "netagent", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its own children (ovs-ofctl) can be ended with it
        )
        try:
            async with asyncio.timeout(self._deadline_s):
                output = await _converse(process, body)
                return await process.wait(), output
        except TimeoutError as error:
            raise Unreachable(NAME, "timeout") from error
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the worker and its children, if it still runs, and wait for its end."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    while process.stdout is not None and await process.stdout.read(1 << 16):
        pass  # asyncio learns of the end only from a pipe that somebody reads
    await process.wait()


async def _converse(process: asyncio.subprocess.Process, body: bytes) -> bytes:
    """Send `body`, return what the process prints, up to the limit."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker was started without pipes")
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended early: its code tells why
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()
    output = bytearray()
    while chunk := await process.stdout.read(1 << 16):
        output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            raise CapabilityMissing(f"an answer of over {MAX_OUTPUT_BYTES} bytes", "name a table")
    return bytes(output)
