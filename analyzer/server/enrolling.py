# SPDX-License-Identifier: Apache-2.0
"""A listener of its own for hosts without a certificate: one question, and nothing else."""

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from analyzer.server.analyzer import Analyzer
from netagent.model.errors import NetAgentError, RemoteProtocolError
from netagent.trust import Trust
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.enrolment import MAX_REQUEST_BYTES, Certified, Enrol

log = structlog.get_logger()

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_CONNECTIONS, MAX_OF_ADDRESS = 256, 8
"""Connections at once, of all and of one address. Chosen: hosts come again; a whole room behind one
address takes turns."""
LIVE_S, HANDSHAKE_S = 15.0, 5.0
"""Seconds that a connection, and its handshake, may last. Chosen: longer than its one question."""
HELD = "netagent_held"
"""Key of the connections by address, in everybody's state."""
ANSWER_S = 10.0
"""Seconds a question may take, its body included. Chosen: signing takes milliseconds."""
FAILED_S = 0.2
"""Seconds between two answers to tokens that invite nobody. Chosen: nobody guesses 192 bits, and
nobody fills the log."""


class Door(HttpToolsProtocol):
    """HTTP over connections that nobody holds: each ends soon, and of an address there are few."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Let it in, unless others of its address are enough, or all are."""
        super().connection_made(transport)
        held: Counter[str] = self.app_state[HELD]
        address = str((transport.get_extra_info("peername") or ("",))[0])
        held[address] += 1
        self._leave: Callable[[], None] = lambda: held.subtract([address])
        self._end = self.loop.call_later(LIVE_S, transport.abort)
        if held[address] > MAX_OF_ADDRESS or held.total() > MAX_CONNECTIONS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let another one in."""
        self._end.cancel()
        self._leave()
        super().connection_lost(exc)


async def serve(analyzer: Analyzer, trust: Trust, bound: socket.socket) -> None:
    """Answer at a bound socket until cancelled; no certificate is asked for."""
    config = uvicorn.Config(
        Enrolling(analyzer),
        http=Door,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    loop, held = asyncio.get_running_loop(), Counter[str]()
    state = ServerState()

    def door() -> Door:
        return Door(config=config, server_state=state, app_state={HELD: held}, _loop=loop)

    # A socket that is closed with its server would be missing where this is started again.
    server = await loop.create_server(
        door, sock=bound.dup(), ssl=trust.bare, ssl_handshake_timeout=HANDSHAKE_S
    )
    async with server:
        await server.serve_forever()


class Enrolling:
    """The ASGI application: GET /v1/ca, POST /v1/enrol."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._failing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(ANSWER_S):
                status, body = await self._answer(scope, receive)
        except TimeoutError:
            status, body = 408, _told("not asked in time", "ask again")
        except RemoteProtocolError as error:
            status, body = 400, _told(str(error), "is it this version's `netagent enroll`?")
        except PermissionError as error:
            async with self._failing:
                log.warning("token_refused", address=_address(scope))
                await asyncio.sleep(FAILED_S)
            status, body = 403, _told(str(error), "ask for another: netagent-analyzer invite HOST")
        except NetAgentError:
            log.exception("not_signed")
            status, body = 500, _told("not signed", "see the analyzer's log")
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        authority = self._analyzer.authority
        if authority is None:
            return 404, _told("this analyzer signs nothing", "")
        asked = scope.get("method"), scope.get("path")
        if asked == ("GET", "/v1/ca"):
            return 200, encode({"ca": authority.ca.read_text()}, ContentType.JSON)
        if asked != ("POST", "/v1/enrol"):
            return 404, _told("hosts enrol here", "the API has a port of its own, such as 8420")
        message = decode(await _body(receive), Enrol, ContentType.JSON)
        async with self._analyzer.signing:
            host, signed, address = await asyncio.to_thread(
                authority.enrol, message.secret, message.request, _address(scope),
                now_ns=self._analyzer.clock(),
            )  # fmt: skip
        log.info("host_enrolled", host=host, address=address)
        certified = Certified(
            certificate=signed, ca=authority.ca.read_text(), host=host, address=address
        )
        return 200, encode(certified, ContentType.JSON)


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        event = await receive()
        body += bytes(event.get("body", b""))
        if len(body) > MAX_REQUEST_BYTES:
            raise RemoteProtocolError(f"more than {MAX_REQUEST_BYTES} bytes")
        if not event.get("more_body"):
            return body


def _address(scope: Scope) -> str:
    """Return where a request comes from; of IPv4 as that, also at a listener of both versions."""
    client = scope.get("client")
    text = str(client[0]) if client else ""
    return text.removeprefix("::ffff:") if "." in text else text


def _told(error: str, remedy: str) -> bytes:
    body: bytes = encode({"error": error, "remedy": remedy}, ContentType.JSON)
    return body
