# SPDX-License-Identifier: Apache-2.0
"""What one caller may take of a server before any handler sees it; over real mutual TLS."""

import asyncio
import contextlib
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from analyzer.config import Tls
from analyzer.server import identity
from analyzer.server.identity import MAX_CONNECTIONS, MAX_HEAD_BYTES, PEER, IdentifiedProtocol
from netagent.wire.codec import MAX_BODY_BYTES
from tests.analyzer.certificates import Authority
from tests.waiting import until

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


async def name_and_size(scope, receive, send):
    """Answer with the caller's name, and how long the body is."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    said = f"{scope['state'][PEER]} {size}".encode()
    headers = [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


@contextlib.asynccontextmanager
async def serving(authority):
    cert, key = authority.sign("analyzer")
    tls = Tls(ca=str(authority.ca), cert=str(cert), key=str(key))
    config = uvicorn.Config(
        name_and_size, http=IdentifiedProtocol, lifespan="off", log_config=None, ws="none",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    config.ssl_context_factory = lambda *_: identity.trust_of(tls, "analyzer.toml").server
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server._serve([listener]))
        await until(lambda: server.started)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def connected(port, authority, name):
    return await asyncio.open_connection("127.0.0.1", port, ssl=authority.client(name))


async def asked(connection, request=GET):
    reader, writer = connection
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return head.split(b"\r\n")[0].decode()
    lines = head.decode().split("\r\n")
    length = next(x for x in lines if x.startswith("content-length"))
    return (await reader.readexactly(int(length.split()[1]))).decode()


def on(authority, work):
    async def inside():
        async with asyncio.timeout(90), serving(authority) as port:
            return await work(port)

    return asyncio.run(inside())


def test_each_connection_has_the_name_of_its_own_certificate(authority):
    async def work(port):
        first, second = [await connected(port, authority, name) for name in ("h0", "h1")]
        said = [await asked(each) for each in (first, second, first)]
        assert said == ["h0 0", "h1 0", "h0 0"]

    on(authority, work)


def test_a_body_of_the_longest_that_is_taken_comes_whole_and_another_request_after_it(authority):
    async def work(port):
        connection = await connected(port, authority, "h0")
        head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n".encode()
        assert await asked(connection, head + bytes(MAX_BODY_BYTES)) == f"h0 {MAX_BODY_BYTES}"
        assert await asked(connection) == "h0 0"

    on(authority, work)


def test_who_says_that_it_asks_no_more_just_as_it_is_answered_has_the_answer_whole():
    async def work():
        asked, answering = asyncio.Event(), asyncio.Event()

        async def application(scope, receive, send):
            asked.set()
            await answering.wait()
            await name_and_size(scope, receive, send)

        config = uvicorn.Config(application, lifespan="off", log_config=None, ws="none")
        config.load()
        loop, state = asyncio.get_running_loop(), ServerState()
        server = await loop.create_server(
            lambda: IdentifiedProtocol(config, state, {}, _loop=loop), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(90):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(GET)
            await asked.wait()
            writer.write_eof()
            answering.set()  # both come in one turn of the loop
            said = await reader.read()
            writer.close()
        return said

    assert asyncio.run(work()).endswith(b"None 0")


async def is_refused(connection, request):
    """Whether the server ends the connection instead of reading all of this.

    It says why, but who is still sending may see the connection reset first.
    """
    reader, writer = connection
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        said = await reader.read()
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    assert head.startswith(b"HTTP/1.1 400 ")
    return said == b"Too large."


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"GET / HTTP/1.1\r\nX: ", id="a header that does not end"),
        pytest.param(b"GET /", id="a path that does not end"),
    ],
)
def test_a_head_that_does_not_end_is_refused(authority, begin):
    async def work(port):
        connection = await connected(port, authority, "h0")
        assert await is_refused(connection, begin + b"a" * (2 * MAX_HEAD_BYTES))
        assert await asked(await connected(port, authority, "h0")) == "h0 0"

    on(authority, work)


def test_trailers_that_do_not_end_are_refused(authority):
    async def work(port):
        connection = await connected(port, authority, "h0")
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        assert await is_refused(connection, head + b"X-A: b\r\n" * (5 * MAX_BODY_BYTES // 16 * 2))
        assert await asked(await connected(port, authority, "h0")) == "h0 0"

    on(authority, work)


def test_one_name_takes_no_more_than_its_connections_and_gives_them_back(authority):
    async def work(port):
        mine = [await connected(port, authority, "h0") for _ in range(MAX_CONNECTIONS)]
        assert [await asked(each) for each in mine] == ["h0 0"] * MAX_CONNECTIONS
        reader, _ = await connected(port, authority, "h0")
        assert await reader.read() == b""
        assert await asked(await connected(port, authority, "h1")) == "h1 0"
        mine[0][1].close()
        await mine[0][1].wait_closed()

        async def again(_pause_s):
            with contextlib.suppress(OSError, EOFError):
                said.append(await asked(await connected(port, authority, "h0")))

        said = []
        await until(lambda: said, rest=again)
        assert said == ["h0 0"]

    on(authority, work)
