# SPDX-License-Identifier: Apache-2.0
"""The judge's process: reads what the analyzer writes to a socket, until that is closed.

The analyzer starts it, with the number of a connected socket. It ends when the analyzer does.
"""

import argparse
import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import time

from analyzer.judge import messages
from analyzer.judge.bench import Bench
from analyzer.judge.memory import keep_freed
from analyzer.judge.messages import HEAD, Down, Open, Ready, Up
from analyzer.logs import configure_logging
from analyzer.replay.records import Roster
from netagent.model.errors import RemoteProtocolError

BUFFER_BYTES = 4 << 20
"""Bytes that are read ahead. Chosen: some hundred summaries; what is more waits in the analyzer."""
GARBAGE = (100_000, 20, 20)
"""Allocations before a look for cycles among the youngest objects, such looks before one among
older ones, and those before one among all. Chosen: a judge has millions of objects and makes no
cycles of them, and each look among all of them takes it a second."""
_PR_SET_PDEATHSIG = 1
"""Operation PR_SET_PDEATHSIG of linux/prctl.h."""


async def judge(connection: socket.socket) -> None:
    """Judge until the analyzer closes the connection.

    Raises RemoteProtocolError where it says what nobody should.
    """
    reader, writer = await asyncio.open_connection(sock=connection, limit=BUFFER_BYTES)

    def say(message: Up) -> None:
        writer.write(messages.framed(message))

    say(Ready(pid=os.getpid()))
    opening, roster = await _next(reader), await _next(reader)
    if opening is None or roster is None:
        return
    if not isinstance(opening, Open) or not isinstance(roster, Roster):
        raise RemoteProtocolError("it does not begin with what to judge, and with who is there")
    bench, frames = Bench(opening, roster, time.time_ns, say), messages.Frames()
    await bench.start()
    try:
        while chunk := await _chunk(reader):
            bench.take_all((messages.down(each), each) for each in frames.whole(chunk))
    finally:
        await bench.stop()
        writer.close()


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """Return what came; nothing where nothing comes any more."""
    try:
        return await reader.read(BUFFER_BYTES)
    except ConnectionError:
        return b""


async def _next(reader: asyncio.StreamReader) -> Down | None:
    """Return the next message; None where there is none any more."""
    payload = await _payload(reader)
    return None if payload is None else messages.down(payload)


async def _payload(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = HEAD.unpack(await reader.readexactly(HEAD.size))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m analyzer.judge", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="number of a connected socket")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more, to stderr")
    args = parser.parse_args()
    configure_logging(verbose=args.verbose)
    # A killed analyzer's judge must not write beside the next one's, however long its step takes.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):  # to all of a group: the analyzer says when
        signal.signal(number, signal.SIG_IGN)
    gc.set_threshold(*GARBAGE)
    keep_freed()
    asyncio.run(judge(socket.socket(fileno=args.socket)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
