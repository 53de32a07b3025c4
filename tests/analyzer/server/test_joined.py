# SPDX-License-Identifier: Apache-2.0
import asyncio
import socket

import pytest

from analyzer.server.joined import MOST_BYTES, Joined


class Counted(asyncio.Transport):
    """What was written, and how it ended."""

    def __init__(self):
        super().__init__()
        self.written, self.ended = [], ""

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.ended = "closed"

    def abort(self):
        self.ended = "aborted"


def on(work):
    async def inside():
        inner = Counted()
        joined = Joined(inner, asyncio.get_running_loop())
        await work(joined, inner)
        await asyncio.sleep(0)
        return inner

    return asyncio.run(inside())


def test_what_is_written_at_once_is_sent_as_one_and_in_order():
    async def work(joined, inner):
        for part in (b"head", b"", bytearray(b"body")):
            joined.write(part)
        assert inner.written == []
        await asyncio.sleep(0)
        joined.write(b"next")

    assert on(work).written == [b"headbody", b"next"]


def test_much_is_sent_before_the_loop_comes_to_it():
    async def work(joined, inner):
        joined.write(b"a")
        joined.write(bytes(MOST_BYTES))
        assert [len(part) for part in inner.written] == [MOST_BYTES + 1]
        joined.write(b"b")

    assert on(work).written[1:] == [b"b"]


@pytest.mark.parametrize(("how", "sent"), [("close", [b"last"]), ("abort", [])])
def test_the_last_is_sent_before_an_end_and_nothing_of_what_is_ended_at_once(how, sent):
    async def work(joined, inner):
        joined.write(b"last")
        getattr(joined, how)()
        assert inner.ended

    assert on(work).written == sent


def test_over_a_real_connection_a_slow_reader_holds_it_up_and_loses_nothing():
    async def work():
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        held = asyncio.Event()

        class Protocol(asyncio.Protocol):
            def pause_writing(self):
                held.set()

        loop = asyncio.get_running_loop()
        inner, _ = await loop.create_connection(Protocol, sock=ours)
        joined = Joined(inner, loop)
        joined.pause_reading()
        joined.resume_reading()
        assert joined.get_extra_info("socket") is inner.get_extra_info("socket")
        parts = [bytes([n]) * 1_000 for n in range(256)] * 16
        for part in parts:
            joined.write(part)
        await asyncio.wait_for(held.wait(), 60)
        joined.close()
        assert joined.is_closing()
        found = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return found == b"".join(parts)

    assert asyncio.run(work())
