# SPDX-License-Identifier: Apache-2.0
"""The page's listener: HTTP/1.1 by TLS, certificates optional, connections and bytes bounded."""

import asyncio
import socket
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.server import ServerState

from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import CONNECTIONS, IdentifiedProtocol
from analyzer.server.page.files import files, runbooks
from analyzer.server.page.guard import Guard
from analyzer.server.page.routes import application
from netagent.trust import Trust

log = structlog.get_logger()

MAX_ALL = 512
"""Most connections. Chosen: fifty people with some tabs each; the API has descriptors left."""
HANDSHAKE_S, HEAD_S = 5.0, 10.0
"""Seconds that a handshake, and the head of a request, may take. Chosen: who holds either open
holds one of the connections there are."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection is kept. Chosen: browsers close theirs after about as many."""


class PageProtocol(IdentifiedProtocol):
    """HTTP/1.1 of browsers: who shows no certificate is counted by address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Let it in, unless there are too many."""
        self._until = self.loop.call_later(HEAD_S, transport.abort)
        super().connection_made(transport)
        if self.app_state[CONNECTIONS].total() > MAX_ALL:
            transport.abort()

    def counted(self, name: str | None, transport: asyncio.Transport) -> str | None:
        """Return by what a connection is counted."""
        return name or str((transport.get_extra_info("peername") or ("",))[0])

    def connection_lost(self, exc: Exception | None) -> None:
        """Let another one in."""
        self._until.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Let its head come in time."""
        self._until.cancel()
        self._until = self.loop.call_later(HEAD_S, self.transport.abort)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let it be answered, however long that takes."""
        self._until.cancel()
        super().on_headers_complete()


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
    shared: dict[str, Any] = {}

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
