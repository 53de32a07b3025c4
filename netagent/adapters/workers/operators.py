# SPDX-License-Identifier: Apache-2.0
"""Keeps the process that watches gloo and NCCL (`bpf.operators`), where `[operators] uprobes` says.

It needs what the agent must not hold, and ends with its stdin, so it does not outlive the agent.
What it sees it writes into rings, beside those of jobs. It is a child, or what systemd starts
behind a socket (`netagent-operators.socket`), with its own capabilities.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import msgspec
import structlog

from netagent.config import OperatorsConfig

AGAIN_S = 600.0
"""Seconds after which a host that could not is asked again. Chosen: somebody has to change it."""
SOON_S = 10.0
"""Seconds after which a worker that died is started again. Chosen: no loop of starts."""

SOCKET = "NETAGENT_PROBER"
"""Environment variable that names the socket behind which workers are; unset: children."""

log = structlog.get_logger()


class _Said(msgspec.Struct):
    attached: int = 0
    error: str = ""
    remedy: str = ""


class OperatorWorker:
    """Runs the worker until cancelled; without `uprobes` it does nothing."""

    def __init__(self, config: OperatorsConfig, socket: str | None = None) -> None:
        """Start nothing yet."""
        self._config = config
        self._socket = socket
        self.attached = 0
        """Functions that are watched now."""
        self.refusal = ""
        """Why this host cannot, and what would help; "" where it can."""

    async def run(self) -> None:
        """Keep a worker at work."""
        while self._config.enabled and self._config.uprobes:
            await self._once()
            self.attached = 0
            await asyncio.sleep(AGAIN_S if self.refusal else SOON_S)

    async def _once(self) -> None:
        await (self._dialled(self._socket) if self._socket else self._child())

    async def _dialled(self, path: str) -> None:
        """Have systemd start a worker, and hear it until it ends."""
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            remedy = "systemctl start netagent-operators.socket"
            self._refused(f"uprobes ({path}: {error.strerror})", remedy)
            return
        try:
            await self._converse(reader, writer)
            log.warning("operator_probes_ended")
        finally:
            writer.close()

    async def _child(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bpf.operators"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the worker was started without pipes")
        try:
            await self._converse(process.stdout, process.stdin)
            log.warning("operator_probes_ended", code=await process.wait())
        finally:
            process.stdin.close()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask for probes, and hear what is said of them until the worker ends."""
        with suppress(BrokenPipeError, ConnectionResetError):  # it ended: it says why, or its code
            writer.write(msgspec.json.encode({"folder": self._config.folder}) + b"\n")
            await writer.drain()
            while line := await reader.readline():
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = msgspec.json.decode(line, type=_Said)
        except msgspec.DecodeError:
            return
        self.attached = said.attached
        self._refused(said.error, said.remedy)

    def _refused(self, error: str, remedy: str) -> None:
        refusal = f"{error}: {remedy}" if error else ""
        if refusal and refusal != self.refusal:
            log.warning("operators_unprobed", error=error, remedy=remedy)
        self.refusal = refusal
