# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from netagent.adapters.peers import announcer
from netagent.adapters.peers.announcer import Announcer
from netagent.concurrency import timeout
from netagent.config import AgentConfig, AnalyzerConfig
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Announced, Announcement, Peer
from tests.netagent.adapters.peers.analyzer import FakeAnalyzer
from tests.netagent.probing.test_activation import endpoint

CONFIG = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="http://127.0.0.1:1"))


def said(*endpoints, generation=1):
    return Announcement(host="h0", instance="one", generation=generation, endpoints=endpoints)


def taken(_):
    return 200, encode(Announced(news=True))


def with_peers(count, work, answer=taken):
    async def main():
        mine = Announcer(CONFIG)
        async with contextlib.AsyncExitStack() as stack, timeout(60):
            fakes = [
                await stack.enter_async_context(FakeAnalyzer(answer=answer)) for _ in range(count)
            ]
            peers = [Peer(host=f"h{n + 1}", rpc_url=fake.url) for n, fake in enumerate(fakes)]
            try:
                await work(mine, peers, fakes)
            finally:
                await mine.close()

    asyncio.run(main())


def test_every_peer_is_told_once_and_the_own_host_is_none():
    async def work(mine, peers, fakes):
        await mine.tell(said(endpoint(0)), [*peers, Peer(host="h0", rpc_url="http://127.0.0.1:1")])
        for fake in fakes:
            (asked,) = fake.asked
            assert (asked.method, asked.target) == ("PUT", "/v1/peers")
            assert decode(asked.body, Announcement) == said(endpoint(0))

    with_peers(20, work)


def test_what_did_not_change_is_not_told_again():
    async def work(mine, peers, fakes):
        running = asyncio.create_task(mine.run())
        mine.announce(said(endpoint(0)), peers)
        await fakes[0].heard(1)
        mine.announce(said(endpoint(0), generation=2), peers)
        mine.announce(said(generation=3), peers)
        heard = await fakes[0].heard(2)
        assert decode(heard[1].body, Announcement) == said(generation=3)
        running.cancel()

    with_peers(1, work)


def test_a_peer_that_is_away_holds_up_nobody_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(announcer, "RETRY_S", 0.001)

    async def work(mine, peers, fakes):
        away = Peer(host="h9", rpc_url="http://127.0.0.1:1")
        await mine.tell(said(endpoint(0)), [away, *peers])
        assert len(fakes[0].asked) == 1

    with_peers(1, work)

    async def refused(mine, peers, fakes):
        await mine.tell(said(endpoint(0)), peers)
        assert len(fakes[0].asked) == announcer.TRIES

    with_peers(1, refused, answer=lambda _: (503, b""))


def test_a_newer_state_does_not_wait_for_peers_that_keep_silent(monkeypatch):
    monkeypatch.setattr(announcer, "DEADLINE_S", 600.0)

    async def work(mine, peers, fakes):
        fakes[0].answer = lambda _: None  # takes connections and says nothing
        running = asyncio.create_task(mine.run())
        mine.announce(said(endpoint(0)), peers)
        await asyncio.gather(fakes[0].heard(1), fakes[1].heard(1))
        mine.announce(said(generation=2), peers)
        heard = await fakes[1].heard(2)
        assert decode(heard[1].body, Announcement) == said(generation=2)
        running.cancel()

    with_peers(2, work)


async def told(head, part, tries=1):
    """Return what is said of a peer that answers with a head, and with parts until it is cut."""

    async def serve(reader, writer):
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while True:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)

    mine = Announcer(CONFIG)
    async with timeout(60), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with capture_logs() as logs:
            await mine.tell(said(endpoint(0)), [Peer(host="h7", rpc_url=url)], tries=tries)
        await mine.close()
    return [each["first"] for each in logs]


CHUNKED = b"X\r\ntransfer-encoding: chunked\r\n%s\r\n"


@pytest.mark.parametrize(
    ("status", "first"), [(b"200 ", []), (b"503 ", [f"h7: status 503 {'x' * 200}"])]
)
def test_an_answer_without_an_end_is_not_read_to_its_end(status, first):
    head = b"HTTP/1.1 " + status + CHUNKED % b""
    assert asyncio.run(told(head, b"80\r\n" + b"x" * 128 + b"\r\n")) == first


def test_a_refusal_is_read_as_it_came():
    head = b"HTTP/1.1 503 " + CHUNKED % b"content-encoding: gzip, gzip\r\n"
    assert asyncio.run(told(head, b"1\r\nx\r\n")) == [f"h7: status 503 {'x' * 200}"]


def test_an_attempt_ends_though_something_comes_all_the_time(monkeypatch):
    monkeypatch.setattr(announcer, "WHOLE_S", 0.3)
    assert asyncio.run(told(b"HTTP/1.1 200 X\r\nserver: ", b"x")) == ["h7: TimeoutError"]
