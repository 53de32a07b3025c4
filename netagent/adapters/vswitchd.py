# SPDX-License-Identifier: Apache-2.0
"""Whether ovs-vswitchd is at work: asked over its control socket, JSON-RPC as ovs-appctl does."""

import asyncio
import json
import os
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

ANSWER_S = 3.0
"""Seconds for an answer; a large reconfiguration takes one."""

OVSDB_LOOKS = 10
"""So many looks without OVSDB may be its restart, or ours; ovs-vswitchd forwards meanwhile."""

_MAX_ANSWER = 16 << 20


class VswitchdError(Exception):
    """ovs-vswitchd did not answer, or with an error; the text says why."""


class NoAnswer(VswitchdError):
    """It took too long, which it also does where the host is busy."""


async def appctl(rundir: Path, command: str, *arguments: str, timeout_s: float = ANSWER_S) -> str:
    """Return ovs-vswitchd's answer to `command`.

    Raises VswitchdError, and NoAnswer where it takes longer than `timeout_s`.
    """
    path = control_socket(rundir)
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(path, command, arguments)
    except TimeoutError as error:
        raise NoAnswer(f"no answer to {command} within {timeout_s:g} s") from error
    except (OSError, ValueError, TypeError) as error:
        raise VswitchdError(f"{path}: {error}") from error


def control_socket(rundir: Path) -> Path:
    """Return the control socket of the ovs-vswitchd that runs in `rundir`; VswitchdError if none.

    Its name holds the process id unless it was given one.
    """
    fixed = rundir / "ovs-vswitchd.ctl"
    if fixed.exists():
        return fixed
    try:
        pid = int((rundir / "ovs-vswitchd.pid").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise VswitchdError(f"no pid file in {rundir}") from error
    return rundir / f"ovs-vswitchd.{pid}.ctl"


async def _ask(path: Path, command: str, arguments: tuple[str, ...]) -> str:
    reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_ANSWER)
    try:
        request = {"id": 0, "method": command, "params": list(arguments)}
        writer.write(json.dumps(request).encode())
        await writer.drain()
        answer = await _read_document(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if not isinstance(answer, dict) or answer.get("error") is not None:
        raise ValueError(
            f"{command}: {answer.get('error') if isinstance(answer, dict) else answer}"
        )
    return str(answer.get("result"))


async def _read_document(reader: asyncio.StreamReader) -> object:
    """Read until what came is a whole JSON document: the protocol has no other delimiter."""
    data = b""
    while chunk := await reader.read(1 << 16):
        data += chunk
        if data.rstrip().endswith(b"}"):
            with suppress(ValueError):
                return json.loads(data)
    raise ValueError(f"connection closed after {len(data)} bytes")


class VswitchdWatch:
    """Decides at each look whether ovs-vswitchd is at work."""

    def __init__(self, rundir: Path, *, answer_s: float = ANSWER_S) -> None:
        self._rundir, self._answer_s = rundir, answer_s
        self.down: str | None = None
        """Why it is not at work; None if it is."""
        self._doubts = 0  # looks in a row with something that may pass by itself
        self._unanswered = 0  # looks in a row without OVSDB

    async def look(
        self, *, connected: bool, bridges: AbstractSet[str], ports: AbstractSet[str]
    ) -> bool:
        """Look again; return whether `down` changed.

        `connected` says whether OVSDB answers. A few looks without it are a reconnection; one
        without one of `bridges`, or without an answer, is a change under way or a busy host, and
        two in a row are not. Once down it counts as back when it
        has all `bridges` and `ports` in its datapath.
        """
        before = self.down
        try:
            doubt = await self._missing(bridges, ports)
            self._unanswered = 0 if connected else self._unanswered + 1
            if doubt is None and self._unanswered >= OVSDB_LOOKS:
                doubt = "OVSDB does not answer"
        except NoAnswer as error:
            doubt = str(error)
        except VswitchdError as error:
            self.down = str(error)
            return self.down != before
        self._doubts = self._doubts + 1 if doubt else 0
        self.down = doubt if before or self._doubts > 1 else None
        return self.down != before

    async def _missing(self, bridges: AbstractSet[str], ports: AbstractSet[str]) -> str | None:
        if self._process_gone():
            raise VswitchdError("its process is gone")
        if self.down is None:
            missing = bridges - set((await self._ask("ofproto/list")).split())
        else:
            missing = (bridges | ports) - _listed(await self._ask("dpif/show"))
        return f"it lacks {', '.join(sorted(missing))}" if missing else None

    async def _ask(self, command: str) -> str:
        return await appctl(self._rundir, command, timeout_s=self._answer_s)

    def _process_gone(self) -> bool:
        """Whether the process of the pid file ended; unknown counts as not."""
        try:
            pid = int((self._rundir / "ovs-vswitchd.pid").read_text(encoding="ascii"))
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError):
            return False
        return False


def _listed(dpif_show: str) -> set[str]:
    """Return the bridges and ports in ``dpif/show``, one per line, indented by depth."""
    words = (line.split() for line in dpif_show.splitlines())
    return {each[0].rstrip(":") for each in words if each}
