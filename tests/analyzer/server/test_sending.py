# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import socket
import threading

import pytest

from analyzer.server.sending import LITTLE_BYTES, Sender
from tests.waiting import until


def on(work):
    async def inside():
        ours, theirs = socket.socketpair()
        sender = Sender(ours)
        try:
            async with asyncio.timeout(60):
                await work(sender, theirs)
        finally:
            sender.drop()
            theirs.close()
        await until(lambda: not any(each.name == "link" for each in threading.enumerate()))

    asyncio.run(inside())


def all_of(connection):
    """Read until the other side is done."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_frames_come_whole_and_in_order_and_then_the_end():
    frames = [bytes([n % 256]) * (n * 997 % 40_000) for n in range(500)]

    async def work(sender, theirs):
        for frame in frames:
            sender.send(frame)
        sender.end()
        assert await asyncio.to_thread(all_of, theirs) == b"".join(frames)

    on(work)


def test_they_are_written_while_the_loop_does_something_else():
    async def work(sender, theirs):
        for _ in range(40):
            sender.send(bytes(100_000))
        got = 0
        while got < 4_000_000:  # the loop does nothing meanwhile
            got += len(theirs.recv(1 << 16))

    on(work)


def test_what_waits_is_counted_and_drained():
    async def work(sender, theirs):
        size = LITTLE_BYTES + 1_000_000
        sender.send(bytes(size))
        assert 0 < sender.waiting_bytes <= size
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sender.drain()
        reading = asyncio.create_task(asyncio.to_thread(all_of, theirs))
        await sender.drain()
        sender.end()
        assert len(await reading) == size
        await until(lambda: sender.waiting_bytes == 0)

    on(work)


@pytest.mark.parametrize("waits", [0, LITTLE_BYTES * 2])
def test_a_reader_that_is_gone_takes_nothing_and_keeps_nobody_waiting(waits):
    async def work(sender, theirs):
        sender.send(bytes(waits))
        theirs.close()

        async def again(_pause_s):
            sender.send(b"x")
            with contextlib.suppress(ConnectionError):
                await sender.drain()
            await asyncio.sleep(0.001)

        await until(lambda: sender._is_gone, rest=again)
        with pytest.raises(ConnectionError):
            await sender.drain()
        sender.send(b"more")
        await until(lambda: sender.waiting_bytes == 0)

    on(work)


def test_who_is_dropped_does_not_wait_for_a_reader_that_takes_nothing():
    async def work(sender, theirs):
        sender.send(bytes(LITTLE_BYTES * 2))
        sender.drop()

    on(work)
