# SPDX-License-Identifier: Apache-2.0
"""Flow-table work for the agent's RPC, done by a process of its own.

Parsing a hundred thousand flows takes seconds and hundreds of megabytes, which the agent has not:
each question has a niced fork, a deadline, and leaves nothing behind but its answer. The process
that forks (`netagent.commands.answer`) lives while there are questions, and a little longer: during
an incident they come with every window.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import structlog

from netagent.concurrency import timeout
from netagent.config import AgentConfig
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing, Unreachable
from netagent.wire.messages import CheckReply, CheckRequest, FlowsReply
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.worker import (
    MAX_OUTPUT_BYTES,
    READY,
    CheckWork,
    FlowsWork,
    ValidateWork,
    Work,
    question,
    read_answer,
    read_head,
)

DEADLINE_S = 10.0
"""Seconds an answer may take. Chosen: an answer takes a fraction of one, and the switch may be slow
to dump its tables."""

START_S = 60.0
"""Seconds until the process must be ready. Chosen: it imports, and the host may be busy."""

VALIDATE_S = 15.0
"""Seconds a comparison of tables may take. Chosen: it looks three times, a second apart, and
200,000 flows take some seconds; walks wait meanwhile."""

IDLE_S = 60.0
"""Seconds without a question after which the process ends. Chosen: questions of one incident come
closer together (decision 20)."""

QUEUE = 8
"""Questions that may wait for the one at work; further ones are refused at once. Chosen: the last
one still answers before its asker gives up."""

NAME = "vSwitch worker"

NICE = 5
"""Niceness of the process, from its start on. Chosen: it yields to the training job and to the
agent."""

Answer = tuple[int, bytes]
"""Exit code and output."""

T = TypeVar("T")

log = structlog.get_logger()


class VswitchWorker:
    """Answers `check`, `flows` and `validate`, one at a time.

    All raise CapabilityMissing for what this host's Open vSwitch cannot answer,
    RemoteProtocolError for questions that make no sense, and Unreachable when too many wait
    already or no answer came in time. A question whose asker stops waiting is worked on to its
    end, so that the next one finds a process at work and not one that begins anew.
    """

    def __init__(self, config: AgentConfig, *, deadline_s: float = DEADLINE_S) -> None:
        self.endpoints: Callable[[], tuple[Endpoint, ...]] = tuple
        """Returns the host's endpoints: tables alone do not say whose ports they serve."""
        self._ovs = config.ovs
        self._host = config.host
        self._deadline_s = deadline_s
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[Answer] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._waiting = 0

    def warm(self) -> None:
        """Be ready soon: questions may follow. One that could not start is left for a while."""
        if self._process is None and self._idle is None and not self._turn.locked():
            self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> None:
        async with self._turn:
            try:
                await self._started()
            except Unreachable as error:
                log.warning("not_warm", error=str(error))
            self._rest()

    async def check(self, request: CheckRequest) -> CheckReply:
        """Answer the questions over one snapshot of the flow tables."""
        ovs = self._ovs
        work = CheckWork(
            rundir=ovs.rundir, bridge=ovs.integration_bridge, host=self._host, request=request,
            endpoints=self.endpoints(),
        )  # fmt: skip
        return await self._ask(work, CheckReply)

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        """Return the flows of `bridge`, or those of one table."""
        work = FlowsWork(rundir=self._ovs.rundir, bridge=bridge, table=table)
        return await self._ask(work, FlowsReply)

    async def validate(self, request: ValidateRequest) -> ValidateReply:
        """Compare the copies of the flow tables for the packets of a pair."""
        ovs = self._ovs
        work = ValidateWork(
            rundir=ovs.rundir, bridge=ovs.integration_bridge, host=self._host, request=request,
            endpoints=self.endpoints(),
        )  # fmt: skip
        return await self._ask(work, ValidateReply, VALIDATE_S)

    async def _ask(self, work: Work, kind: type[T], deadline_s: float | None = None) -> T:
        if self._waiting >= QUEUE:
            raise Unreachable(NAME, f"busy: {QUEUE} questions wait already")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        self._work = asyncio.create_task(self._run(question(work), limit_s))
        self._work.add_done_callback(self._done)
        code, output = await asyncio.shield(self._work)
        return read_answer(NAME, code, output, kind)

    def _done(self, work: asyncio.Task[Answer]) -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # its asker may have gone: then nobody else looks at it

    async def _run(self, line: bytes, deadline_s: float) -> Answer:
        try:
            process = await self._started()
            async with timeout(deadline_s):
                answer = await _converse(process, line)
        except TimeoutError as error:
            await self._kill()
            raise Unreachable(NAME, "timeout") from error
        except BaseException:
            await self._kill()  # what it still says answers no later question
            raise
        self._rest()
        return answer

    async def _started(self) -> Process:
        """Return the process, ready; raises Unreachable."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "netagent", "answer"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its forks and theirs can be ended with it
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)
        try:
            async with timeout(START_S):
                await _expect_ready(self._process)
        except BaseException as error:
            await self._kill()
            if isinstance(error, TimeoutError):
                raise Unreachable(NAME, "not ready in time") from error
            raise
        return self._process

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        self._warming = asyncio.create_task(self._close_if_idle())

    async def _close_if_idle(self) -> None:
        async with self._turn:
            if self._idle is None:  # else there was a question after all
                await self._kill()

    async def close(self) -> None:
        """End the process, whatever it is at."""
        tasks = [task for task in (self._work, self._warming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._idle is not None:
            self._idle.cancel()
        await self._kill()

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await _end(process)


async def _expect_ready(process: Process) -> None:
    line = await process.stdout.readline() if process.stdout is not None else b""
    if line != READY:
        raise Unreachable(NAME, await _ending(process))


async def _converse(process: Process, line: bytes) -> Answer:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker was started without pipes")
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended: reading the answer shows why
        process.stdin.write(line)
        await process.stdin.drain()
    said = read_head(await process.stdout.readline())
    if said is None:
        raise Unreachable(NAME, await _ending(process))
    code, length = said
    if length > MAX_OUTPUT_BYTES:
        raise CapabilityMissing(f"an answer of over {MAX_OUTPUT_BYTES} bytes", "name a table")
    return code, await process.stdout.readexactly(length)


async def _ending(process: Process) -> str:
    ended = process.stdout is None or process.stdout.at_eof()
    return f"ended with code {await process.wait() if ended else 'nonsense'}"


async def _end(process: Process) -> None:
    """Kill the worker and its forks, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    while process.stdout is not None and await process.stdout.read(1 << 16):
        pass  # asyncio learns of the end only from a pipe that somebody reads
    await process.wait()
