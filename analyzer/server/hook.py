# SPDX-License-Identifier: Apache-2.0
"""Runs a command of the operator's: no shell, a deadline, a process group, bounded output."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

DEADLINE_S = 30.0
"""Seconds that a command may take. Chosen: a scheduler's API answers within seconds."""
MOST_SAID = 2_000
"""Bytes of what it says that are kept. Chosen: to be read; the rest is read and thrown away."""


async def run(command: Sequence[str], *, deadline_s: float = DEADLINE_S) -> str:
    """Run a command; return why it failed, "" where it exited with 0.

    At its deadline, and where nobody waits any more, it and what it started in its process group
    are killed. It is over once it exits, whatever it leaves behind.
    """
    with _heard() as (said, pipe):
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True, cwd="/"
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror or error}"
        try:
            async with asyncio.timeout(deadline_s):
                status = await process.wait()
        except TimeoutError:
            why = f"not over within {deadline_s:g} s, killed"
        else:
            why = f"exit status {status}" if status else ""
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()
    return _told(why, said) if why else ""


@contextmanager
def _heard() -> Iterator[tuple[bytearray, int]]:
    """Yield what comes through a pipe, once this is left, and the pipe's other end.

    It is no pipe of asyncio's: a child that stays would hold that open.
    """
    said, loop = bytearray(), asyncio.get_running_loop()
    reads, writes = os.pipe()
    os.set_blocking(reads, False)

    def read() -> None:
        with suppress(BlockingIOError):
            while chunk := os.read(reads, 1 << 16):
                said.extend(chunk[: MOST_SAID - len(said)])
                if len(chunk) < 1 << 16:
                    return  # others have their turn
            loop.remove_reader(reads)

    loop.add_reader(reads, read)
    try:
        yield said, writes
    finally:
        read()
        loop.remove_reader(reads)
        os.close(reads)
        os.close(writes)


def _kill(pid: int) -> None:
    """Kill the process group of a command that has not ended: its id is no other's yet."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _told(why: str, said: bytearray) -> str:
    text = said.decode(errors="replace").strip()
    printable = "".join(c if c.isprintable() else " " for c in text)
    return f"{why}: {printable}" if printable else why
