# SPDX-License-Identifier: Apache-2.0
"""On loopback, with real certificates: who fails, and what of it is garbage afterwards."""

import asyncio
import gc
import socket
import ssl
from contextlib import suppress

import pytest

from netagent import handshakes as module
from netagent.concurrency import timeout
from netagent.handshakes import AFTER_S, bound_handshakes
from tests.analyzer.certificates import Authority

FAILED = 20


class Echo(asyncio.Protocol):
    def __init__(self):
        self.lost = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, _):
        self.transport.close()  # or Python 3.10 complains
        self.lost.set()

    def data_received(self, data):
        self.transport.write(data)


def context(side, authority, signed=None):
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(authority.ca)
    if signed:
        made.load_cert_chain(*signed)
    return made


def without_certificate(port, client):
    plain = socket.create_connection(("127.0.0.1", port))
    with plain, client.wrap_socket(plain) as wrapped:
        wrapped.recv(1)


def garbage(port, _client):
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.recv(64)


def silence(port, _client):
    socket.create_connection(("127.0.0.1", port)).close()


async def left_by(knock, authority):
    """Return how many connections' TLS are garbage that waits for the collector."""
    loop = asyncio.get_running_loop()
    bound_handshakes(loop)
    server_side = context(ssl.PROTOCOL_TLS_SERVER, authority, authority.sign("analyzer"))
    client = context(ssl.PROTOCOL_TLS_CLIENT, authority)
    accepted = []

    def echo():
        accepted.append(None)
        return Echo()

    server = await loop.create_server(echo, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]

    def knocks(count):
        for _ in range(count):
            with suppress(OSError):
                knock(port, client)

    await asyncio.to_thread(knocks, 1)
    gc.collect()
    gc.disable()
    try:
        await asyncio.to_thread(knocks, FAILED)
        with suppress(TimeoutError):
            async with timeout(60):
                # Whoever is gone at once may be accepted after it is.
                while len(accepted) <= FAILED or _protocols():  # noqa: ASYNC110 - nothing tells of what is freed
                    await asyncio.sleep(AFTER_S)
        return _protocols()
    finally:
        gc.enable()
        server.close()
        await server.wait_closed()


def _protocols():
    return sum(type(each) is asyncio.sslproto.SSLProtocol for each in gc.get_objects())


@pytest.mark.parametrize("knock", [without_certificate, garbage, silence])
def test_a_handshake_that_fails_leaves_nothing_for_the_collector(knock, tmp_path):
    assert asyncio.run(left_by(knock, Authority(tmp_path))) == 0


def test_who_shakes_hands_is_served_as_before(tmp_path):
    authority = Authority(tmp_path)

    async def asked():
        bound_handshakes(asyncio.get_running_loop())
        signed, echo = authority.sign("analyzer"), Echo()
        server = await asyncio.get_running_loop().create_server(
            lambda: echo, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER, authority, signed)
        )
        client = context(ssl.PROTOCOL_TLS_CLIENT, authority, authority.sign("h0"))
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"hello")
        await asyncio.sleep(2 * AFTER_S)
        said = await reader.readexactly(5)
        writer.close()
        await writer.wait_closed()
        await echo.lost.wait()
        server.close()
        return said

    assert asyncio.run(asked()) == b"hello"


def test_who_connects_and_is_silent_is_let_go_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WITHIN_S", 0.2)
    authority = Authority(tmp_path)

    async def ended():
        bound_handshakes(asyncio.get_running_loop())
        signed = authority.sign("analyzer")
        server = await asyncio.get_running_loop().create_server(
            Echo, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER, authority, signed)
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        async with timeout(60):
            said = await reader.read()
        writer.close()
        server.close()
        return said

    assert asyncio.run(ended()) == b""


def test_another_kind_of_loop_is_left_alone():
    class Other:
        pass

    other = Other()
    bound_handshakes(other)
    assert vars(other) == {}


def test_of_more_who_are_silent_than_an_agent_bears_the_oldest_gives_way(tmp_path):
    authority = Authority(tmp_path)

    async def main():
        loop = asyncio.get_running_loop()
        bound_handshakes(loop, most=3)
        signed = authority.sign("analyzer")
        server = await loop.create_server(
            Echo, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER, authority, signed)
        )
        port = server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        async with timeout(60):
            ended = [await reader.read() for reader, _ in silent[:2]]
        client = context(ssl.PROTOCOL_TLS_CLIENT, authority, authority.sign("h0"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"hello")
        async with timeout(60):
            said = await reader.readexactly(5), await silent[2][0].read()
        held = [each.at_eof() for each, _ in silent[3:]]
        for _, each in (*silent, (None, writer)):
            each.close()
        server.close()
        return ended, said, held

    assert asyncio.run(main()) == ([b"", b""], (b"hello", b""), [False, False])
