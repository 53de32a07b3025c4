# SPDX-License-Identifier: Apache-2.0
"""Whether ovs-vswitchd is at work: asked over its control socket, JSON-RPC as ovs-appctl does.

Other daemons that have such a socket are asked by the same client.
"""

import asyncio
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any

from netagent.concurrency import timeout
from netagent.model.errors import RemoteProtocolError
from netagent.model.unixctl import VSWITCHD, Call, control_sockets, pid_file, pid_of, sockets

ANSWER_S = 3.0
"""Seconds ovs-vswitchd has to answer. Chosen: a large reconfiguration takes about one."""

OVSDB_LOOKS = 10
"""Looks in a row without OVSDB before that is reported. Chosen: OVSDB or the agent may be
restarting, and ovs-vswitchd forwards meanwhile."""

_MAX_ANSWER = 16 << 20
"""Bytes of an answer that are accepted. Chosen: far more than these commands print, and the agent's
memory stays bounded."""


class VswitchdError(Exception):
    """The daemon did not answer, or with an error; the text says why."""


class NoAnswer(VswitchdError):
    """The daemon did not answer within the timeout, which also happens on a busy host."""


class Absent(VswitchdError):
    """Nobody listens."""


async def appctl(
    rundir: Path,
    command: str,
    *arguments: str,
    timeout_s: float = ANSWER_S,
    daemon: str = VSWITCHD,
) -> str:
    """Return the answer of `daemon` to `command`.

    Raises VswitchdError: Absent where nobody listens, NoAnswer where it takes longer than
    `timeout_s`.
    """
    paths = _paths(rundir, daemon)
    if not paths:
        raise Absent(f"no pid file in {rundir}")
    try:
        async with timeout(timeout_s):
            return await _ask_first(paths, command, arguments)
    except TimeoutError as error:
        raise NoAnswer(f"no answer to {command} within {timeout_s:g} s") from error


def _paths(rundir: Path, daemon: str) -> list[Path]:
    found = [path.name for path in rundir.glob(sockets(daemon))]
    own = process_of(rundir, daemon)
    return [rundir / name for name in control_sockets(daemon, own, found)]


def process_of(rundir: Path, daemon: str) -> int | None:
    """Return the process id in the pid file of `daemon`; None where there is none."""
    try:
        return pid_of((rundir / pid_file(daemon)).read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None


async def _ask_first(paths: Sequence[Path], command: str, arguments: Sequence[str]) -> str:
    """Ask the first of `paths` where somebody listens."""
    refused: list[str] = []
    for path in paths:
        call = Call(command, arguments, max_bytes=_MAX_ANSWER)
        try:
            return str(await exchange(path, call))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            refused.append(f"{path}: {error}")
        except (OSError, RemoteProtocolError) as error:
            raise VswitchdError(f"{path}: {error}") from error
    raise Absent(refused[0])


async def exchange(path: Path, call: Call) -> Any:
    """Return the result of one JSON-RPC call over a socket.

    Raises OSError, RemoteProtocolError, NoAnswer where no more connections are taken.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        # Where no more connections wait to be taken, connect(2) says EAGAIN, and asyncio takes
        # that for a connection.
        if writer.get_extra_info("peername") is None:
            raise NoAnswer(f"{path}: it takes no connections")
        writer.write(call.request)
        await writer.drain()
        while not call.feed(await reader.read(1 << 16)):
            pass
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return call.result


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
        pid = process_of(self._rundir, VSWITCHD)
        try:
            if pid is not None:
                os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False


def _listed(dpif_show: str) -> set[str]:
    """Return the bridges and ports in ``dpif/show``, one per line, indented by depth."""
    words = (line.split() for line in dpif_show.splitlines())
    return {each[0].rstrip(":") for each in words if each}
