# SPDX-License-Identifier: Apache-2.0
"""The page's listener: HTTP/1.1 by TLS, certificates optional, connections and bytes bounded."""

import asyncio
import ipaddress
import socket
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.server import ServerState

from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import CONNECTIONS, PEER, REFUSED, IdentifiedProtocol
from analyzer.server.page.files import files, runbooks
from analyzer.server.page.guard import KNOWN, Guard
from analyzer.server.page.routes import application
from netagent.trust import Trust

log = structlog.get_logger()

MAX_ALL = 512
"""Most connections. Chosen: fifty people with some tabs each; the API has descriptors left."""
HANDSHAKE_S, MESSAGE_S = 5.0, 10.0
"""Seconds that a handshake, and a request with its body, may take. Chosen: who holds either open
holds one of the connections there are."""
STALLED_S = 30
"""Seconds for which nothing of an answer is taken, until the connection ends. Chosen: a network
that is gone for as long is noticed by the browser, too, which comes again."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection is kept. Chosen: browsers close theirs after about as many."""
STRANGERS = "netagent_strangers"
"""Key of the connections of which nobody is known, the oldest first, in everybody's state."""


class PageProtocol(IdentifiedProtocol):
    """HTTP/1.1 of browsers: who shows no certificate is counted by address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Let it in, instead of the oldest one of nobody where there are too many."""
        self._until: asyncio.TimerHandle | None = None
        strangers: dict[PageProtocol, None] = self.app_state.setdefault(STRANGERS, {})
        self._strangers = strangers
        super().connection_made(transport)
        self._begin()
        if not self.app_state[PEER]:
            strangers[self] = None
            self.app_state[KNOWN] = lambda: strangers.pop(self, None)
        if self.app_state[CONNECTIONS].total() > MAX_ALL:
            oldest = next(iter(strangers), self)
            strangers.pop(oldest, None)
            self.app_state[REFUSED]["connection"] += 1
            oldest.transport.abort()

    def counted(self, name: str | None, transport: asyncio.Transport) -> str | None:
        """Return by what a connection is counted: of IPv6, what one site has of it."""
        if name:
            return name
        address = str((transport.get_extra_info("peername") or ("",))[0]).partition("%")[0]
        if ":" not in address:
            return address
        return str(ipaddress.ip_network((address, 64), strict=False))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let another one in."""
        self._end()
        self._strangers.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Let what begins come to its end in time: a blank line begins something, too."""
        self._begin()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Let it come in time."""
        self._begin()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Let it be answered, however long that takes."""
        self._end()
        super().on_message_complete()

    def _begin(self) -> None:
        if self._until is None:
            self._until = self.loop.call_later(MESSAGE_S, self.transport.abort)

    def _end(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None


async def serve(
    analyzer: Analyzer, trust: Trust | None, bound: socket.socket, state: ServerState
) -> None:
    """Answer at a bound socket until cancelled.

    `state` is that of the API's server, which ends the connections of what is revoked, and all of
    them at a stop.
    """
    port = bound.getsockname()[1]
    served = {**files(), **runbooks(analyzer.config.runbooks.pages.base)}
    app = Guard(analyzer, cast("Any", application(analyzer)), served, port=port)
    config = uvicorn.Config(
        cast("Any", app),
        http=PageProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    config.load()
    loop = asyncio.get_running_loop()
    shared: dict[str, Any] = {REFUSED: analyzer.sessions.refused}
    # Accepted ones have it of this one. A reader that stands still holds a connection for ever.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * STALLED_S)

    def protocol() -> PageProtocol:
        return PageProtocol(config=config, server_state=state, app_state=shared, _loop=loop)

    # A socket that is closed with its server would be missing where this is started again.
    server = await loop.create_server(
        protocol, sock=bound.dup(),
        ssl=trust.optional if trust is not None else None,
        ssl_handshake_timeout=HANDSHAKE_S if trust is not None else None,
    )  # fmt: skip
    log.info("page_listening", port=port)
    async with server:
        await server.serve_forever()
