# SPDX-License-Identifier: Apache-2.0
"""The process: an analyzer behind uvicorn, from start to a clean stop on SIGTERM."""

import asyncio
import contextlib
import gc
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import structlog
import uvicorn

from analyzer.authority import Authority
from analyzer.config import Config, split_address
from analyzer.server import enrolling, identity
from analyzer.server.analyzer import Analyzer
from analyzer.server.capacity import raise_open_files
from analyzer.server.page import listener as page
from analyzer.server.routes import application
from netagent.handshakes import bound_handshakes
from netagent.model.errors import ConfigError
from netagent.trust import Trust, due, ends_s, names_of, new_request, write_whole

log = structlog.get_logger()

GRACE_S = 1
"""Seconds that requests in progress may take at a stop. Chosen: most take milliseconds, and agents
retry the others."""

STOP_S = 2.0
"""Seconds after which connections are abandoned at a stop. Chosen: above GRACE_S; a peer that does
not close must not keep the analyzer alive."""

KEEP_ALIVE_S = 75
"""Seconds that an idle connection is kept. Chosen: longer than a window, so that an agent's next
summary needs no new TLS handshake."""


LOOK_S = 10.0
"""Seconds between two looks at the files of certificates. Chosen: what is revoked is refused within
a minute, wherever it was revoked."""

GARBAGE = (100_000, 20, 20)
"""Allocations before a look for cycles among the youngest objects, such looks before one among
older ones, and those before one among all. Chosen, as of a judge: an analyzer of 40,000 RNICs has
millions of objects, and nothing else is done while it looks among all of them."""


class _Server(uvicorn.Server):
    analyzer: Analyzer
    ready: Callable[[], None]
    stopping: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stopping()
        self.analyzer.waiters.stop()  # held requests are answered, else uvicorn waits for them
        try:
            async with asyncio.timeout(STOP_S):
                await super().shutdown(sockets)
        except TimeoutError:
            log.warning("connections_abandoned", connections=len(self.server_state.connections))

    # uvicorn raises the signal once more after its stop; a stop that was asked for is no failure.
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


async def serve(
    config: Config,
    path: str,
    *,
    ready: Callable[[str], None] = lambda _url: None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run the analyzer of the configuration file at `path` until SIGTERM or SIGINT.

    `ready` is told the URL once it can be reached, `stopping` is called once it is to stop.
    Raises ConfigError.
    """
    listener = _listen(*config.address, path)
    gc.set_threshold(*GARBAGE)
    bound_handshakes(asyncio.get_running_loop())
    log.debug("open_files", limit=raise_open_files())
    with contextlib.closing(listener), contextlib.ExitStack() as stack:
        trust = identity.trust_of(config.tls, path) if config.tls is not None else None
        server = _Server(_uvicorn(trust))
        server.analyzer = analyzer = await Analyzer.start(config, path, trust=trust)
        try:
            if trust is not None:
                analyzer.workers.start("trust", lambda: _renew(trust, server))
                if config.enrolment is not None:
                    doors = _listen(*config.enrolment_address, path)
                    stack.enter_context(contextlib.closing(doors))
                    log.info("hosts_enrol", port=doors.getsockname()[1])
                    analyzer.workers.start(
                        "enrolling", lambda: enrolling.serve(analyzer, trust, doors)
                    )
            if config.page is not None:
                host, port = split_address(config.page.listen)
                views = _listen(host, port, path)
                stack.enter_context(contextlib.closing(views))
                analyzer.page_at = host, views.getsockname()[1]
                analyzer.workers.start(
                    "page", lambda: page.serve(analyzer, trust, views, server.server_state)
                )
            server.config.app = application(analyzer)
            url = _url(config, listener)
            server.ready = lambda: _announce(url, config, ready)
            server.stopping = stopping
            await server.serve([listener])
        finally:
            await analyzer.stop()
            log.info("stopped")


def _announce(url: str, config: Config, ready: Callable[[str], None]) -> None:
    log.info("listening", url=url, database=config.database)
    ready(url)


async def _renew(trust: Trust, server: "_Server") -> None:
    """Take certificates that changed, renew our own, end the connections of what was revoked."""
    analyzer, authority = server.analyzer, server.analyzer.authority
    while True:
        await asyncio.sleep(LOOK_S)
        roots = trust.roots
        if await asyncio.to_thread(trust.look):
            log.info("certificates_taken", revoked=len(trust.revoked))
            if roots != trust.roots:
                analyzer.sessions.clear()
            await analyzer.fleet.renew()  # what stands was verified by what was there before
        elif trust.problem:
            log.warning("certificates_not_taken", problem=trust.problem)
        for connection in list(server.server_state.connections):
            if isinstance(connection, identity.IdentifiedProtocol) and (
                roots != trust.roots or trust.refuses(connection.certificate)
            ):
                connection.transport.abort()
        analyzer.ends = newest_ends(analyzer, server.server_state.connections)
        if authority is not None:  # last: a disk that is full keeps nobody in who was revoked
            async with analyzer.signing:
                await asyncio.to_thread(_renew_own, trust, authority)


def newest_ends(analyzer: Analyzer, connections: Iterable[object]) -> dict[str, float]:
    """Return when the certificates of registered hosts end, as far as they ever showed one.

    Agents connect anew once they have the next one.
    """
    shown: dict[str, float] = {}
    for each in connections:
        if isinstance(each, identity.IdentifiedProtocol) and each.certificate:
            name = identity.common_name(each.certificate)
            end_s = float(ends_s(each.certificate))
            shown[name] = max(end_s, shown.get(name, 0.0))
    hosts = {agent.host for agent in analyzer.registry.agents()}
    return {host: end_s for host, end_s in (analyzer.ends | shown).items() if host in hosts}


def _renew_own(trust: Trust, authority: Authority) -> None:
    """Sign our own certificate anew, in time, where it is in one file with its key."""
    files = trust.files
    if files.cert != files.key or time.time() < due(files.cert, trust.began_s, trust.expires_s):
        return
    name, addresses, others = names_of(Path(files.cert))
    key, request = new_request(name)
    also = [f"DNS:{each}" for each in others if each != name]
    write_whole(Path(files.cert), key + authority.sign(request, name, addresses, also=also))
    log.info("certificate_renewed")


def _uvicorn(trust: Trust | None) -> uvicorn.Config:
    built = uvicorn.Config(
        app=_not_ready,
        http=identity.IdentifiedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=2048,
    )
    if trust is not None:
        built.ssl_context_factory = lambda _config, _default: trust.server
    return built


async def _not_ready(*_: object) -> None:
    """Stand in until the analyzer is restored; nothing is served before."""


def _listen(host: str, port: int, path: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle off only where the protocol is named; with it an answer takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(path, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def _url(config: Config, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if config.tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
