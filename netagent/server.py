# SPDX-License-Identifier: Apache-2.0
"""The agent's RPC: a raw ASGI application on uvicorn's HTTP/1.1 protocol, with mutual TLS.

No framework: some routes do not pay for one in an agent of 60 MB. Bodies are msgpack or JSON by
content type, so that both the analyzer and `curl` are at home. Who may ask is decided by the
common name of the client's certificate.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs

import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from netagent.concurrency import timeout
from netagent.config import AgentConfig
from netagent.model.errors import (
    CapabilityMissing,
    RemoteProtocolError,
    TooSoon,
    Unreachable,
)
from netagent.trust import Trust
from netagent.wire.actions import ActionReply, ActionRequest
from netagent.wire.codec import MOST_INFLATED, ContentType, decode, encode, is_deflated
from netagent.wire.messages import (
    Announced,
    Announcement,
    CheckReply,
    CheckRequest,
    FlowsReply,
    PathReply,
    PathRequest,
    ProbeReply,
    ProbeRequest,
    Status,
)
from netagent.wire.operators import OperatorsReply, OperatorsRequest
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest
from netagent.wire.zone import ZoneReply, ZoneRequest

log = structlog.get_logger()

MAX_REQUEST_BYTES = 1 << 20
"""Bytes of a request's body; a larger one is refused while it is still coming in. Chosen: far more
than any request has."""

BODY_S = 10.0
"""Seconds a request's body, or a TLS handshake, may take. Chosen: a slow or dead client does not
hold a connection for long."""

ANSWER_S = 30.0
"""Seconds a request may take to be answered. Chosen: longer than each part's own deadline, so this
one only ends what hangs."""
LONGER_S = {"/v1/trace": 150.0, "/v1/validate": 60.0, "/v1/actions": 60.0}
"""Seconds for what takes longer. Chosen: a trace lasts as long as its request says, and compiles
first (`workers.trace.SPARE_S`); a comparison of tables looks several times, after the walks that
wait before it; what is done is put back before it is answered."""

MAX_CONNECTIONS = 128
"""Open connections beyond which requests are answered 503. Chosen: it bounds the agent's memory."""

MAX_OF_PEER = 16
"""Open connections of one certificate. Chosen: the analyzer and agents need one, and people some;
who has stolen a host's key leaves enough for all others."""
HELD = "held"
"""Key of the connections by name, in everybody's state."""

ANNOUNCED_BYTES, ANNOUNCED_BYTES_PER_S = 2 << 20, 64 << 10
"""Bytes that one host may announce at once, and each second. Chosen: an agent of a hundred
endpoints announces them as often as it registers. A MiB takes a tenth of a second of the loop, in
which no probe is answered; what is refused, the analyzer says."""
LEAST_ANNOUNCED = 32 << 10
"""Bytes for which each counts at least. Chosen: for whatever is announced the whole list is made
anew; an agent registers thirty times at once, and then each second (`Membership.register`)."""
MAX_ANNOUNCERS = 4096
"""Hosts of which that is remembered; who announced first goes first. Chosen: as of those whose
announcements are (`probing.activation.MAX_HOSTS`)."""

TOLD_EVERY_S, MOST_TOLD = 1.0, 200
"""Seconds between two refusals in the log, and characters of a text there. Chosen: whoever has a
certificate can have thousands in a second, of paths of 64 KiB."""

STOP_S = 2.0
"""Seconds that requests in flight may still take when the server stops. Chosen: a restart is quick,
and short answers still arrive."""

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class AgentService(Protocol):
    """What the agent answers. May raise `Refusal`, and the errors of `netagent.model.errors`."""

    async def status(self) -> Status:
        """Say who the agent is and what it does."""

    async def check(self, request: CheckRequest) -> CheckReply:
        """Walk this host's flow tables."""

    async def path(self, request: PathRequest) -> PathReply:
        """Trace the outer path of every flow of a pair now."""

    async def probe(self, request: ProbeRequest) -> ProbeReply:
        """Probe a target now, within the caps."""

    async def trace(self, request: TraceRequest) -> TraceReply:
        """Count a flow's packets at each stage of the virtual switch."""

    async def validate(self, request: ValidateRequest) -> ValidateReply:
        """Compare OpenFlow's tables, the datapath and tc for the packets of a pair."""

    async def flows(self, bridge: str, table: int | None) -> FlowsReply:
        """Dump a bridge's flows, or one table's."""

    async def zone(self, request: ZoneRequest) -> ZoneReply:
        """Read the databases of the controller that this host has itself."""

    async def operators(self, request: OperatorsRequest) -> OperatorsReply:
        """Return what training jobs of this host recorded."""

    async def act(self, request: ActionRequest, peer: str | None) -> ActionReply:
        """Do what the analyzer, `peer`, asks for, where this host's owner permits it."""

    async def hear(self, said: Announcement) -> Announced:
        """Take what another host announces."""


class Refusal(Exception):
    """A request that cannot be answered; `status` is HTTP's, `remedy` one line for a human."""

    def __init__(self, status: int, error: str, remedy: str) -> None:
        super().__init__(error)
        self.status, self.error, self.remedy = status, error, remedy


@dataclass(frozen=True, slots=True)
class _Request:
    query: dict[str, list[str]]
    body: bytes
    form: ContentType
    peer: str | None
    """Common name of the client's certificate; None where there is no TLS."""

    def message(self, kind: type[Any]) -> Any:
        return decode(self.body, kind, self.form, max_bytes=MAX_REQUEST_BYTES)


Handler = Callable[[AgentService, _Request], Awaitable[object]]


async def _flows(service: AgentService, request: _Request) -> FlowsReply:
    bridge = request.query.get("bridge", [""])[0]
    table = request.query.get("table", [None])[0]
    if not bridge or not (table is None or (table.isascii() and table.isdecimal())):
        raise Refusal(
            400, "no bridge named, or no number for a table", "add ?bridge=br-int&table=0"
        )
    return await service.flows(bridge, None if table is None else int(table))


async def _hear(service: AgentService, request: _Request) -> Announced:
    said: Announcement = request.message(Announcement)
    if request.peer is not None and said.host != request.peer:
        raise Refusal(403, f"{request.peer!r} speaks for {said.host!r}", "announce your own host")
    return await service.hear(said)


PEERS_ROUTE = "/v1/peers"
"""Every host's agent may announce its own endpoints."""

ROUTES: dict[str, dict[str, Handler]] = {
    "/v1/status": {"GET": lambda service, _: service.status()},
    "/v1/check": {"POST": lambda service, request: service.check(request.message(CheckRequest))},
    "/v1/path": {"POST": lambda service, request: service.path(request.message(PathRequest))},
    "/v1/probe": {"POST": lambda service, request: service.probe(request.message(ProbeRequest))},
    "/v1/trace": {"POST": lambda service, request: service.trace(request.message(TraceRequest))},
    "/v1/validate": {
        "POST": lambda service, request: service.validate(request.message(ValidateRequest))
    },
    "/v1/actions": {
        "POST": lambda service, request: service.act(request.message(ActionRequest), request.peer)
    },
    "/v1/operators": {
        "POST": lambda service, request: service.operators(request.message(OperatorsRequest))
    },
    "/v1/flows": {"GET": _flows},
    "/v1/zone": {"POST": lambda service, request: service.zone(request.message(ZoneRequest))},
    PEERS_ROUTE: {"PUT": _hear},
}


class _Announcers:
    """What each host may still announce."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """Name in the certificate -> bytes, and when that was so (s)."""

    def take(self, peer: str, body: bytes, now_s: float) -> None:
        """Let a host announce so much; raises TooSoon, and then nothing is used up."""
        size = max(LEAST_ANNOUNCED, len(body) * (MOST_INFLATED if is_deflated(body) else 1))
        size = min(size, MAX_REQUEST_BYTES)
        left, at_s = self._left.get(peer, (float(ANNOUNCED_BYTES), now_s))
        left = min(ANNOUNCED_BYTES, left + (now_s - at_s) * ANNOUNCED_BYTES_PER_S)
        if left < size:
            raise TooSoon(peer, "it announces too much; the analyzer says the rest")
        self._left[peer] = left - size, now_s
        if len(self._left) > MAX_ANNOUNCERS:
            del self._left[next(iter(self._left))]


class RpcApp:
    """The ASGI application. `peers` are the common names that may ask; None: anybody may."""

    def __init__(self, service: AgentService, *, peers: frozenset[str] | None) -> None:
        self._service = service
        self._peers = peers
        self._announcers = _Announcers()
        self._told_s, self._untold = float("-inf"), 0
        """When a refusal was logged last, and how many since then were not."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        status, answer = await self._answer(scope, headers, receive)
        asked = headers.get(b"accept", "*/*")
        form = ContentType.of(headers.get(b"content-type") if asked == "*/*" else asked)
        body = encode(answer, form)
        fields = [(b"content-type", form.value.encode()), (b"content-length", b"%d" % len(body))]
        if status in {408, 413}:
            fields.append((b"connection", b"close"))  # the rest of the body is not read
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, scope: Scope, headers: dict[bytes, str], receive: Receive
    ) -> tuple[int, object]:
        try:
            with _as_refusals():
                self._admit(scope)
                handler = _route(scope["method"], scope["path"])
                body = await _body(headers, receive)
                form = _form(headers, body)
                query = parse_qs(scope["query_string"].decode("latin-1"))
                limit_s = LONGER_S.get(scope["path"], ANSWER_S)
                peer = scope.get("state", {}).get("peer")
                if scope["path"] == PEERS_ROUTE and peer:
                    now_s = asyncio.get_running_loop().time()
                    self._announcers.take(peer, body, now_s)
                work = handler(self._service, _Request(query, body, form, peer))
                async with timeout(limit_s):
                    return 200, await _while_asked(work, receive)
        except Refusal as why:
            self._tell(scope["path"], why, asyncio.get_running_loop().time())
            return why.status, _problem(why)

    def _tell(self, path: str, why: Refusal, now_s: float) -> None:
        if now_s < self._told_s + TOLD_EVERY_S:
            self._untold += 1
            return
        text = {"path": path[:MOST_TOLD], "error": why.error[:MOST_TOLD]}
        log.info("request_refused", **text, status=why.status, untold=self._untold)
        self._told_s, self._untold = now_s, 0

    def _admit(self, scope: Scope) -> None:
        peer = scope.get("state", {}).get("peer")
        if scope["path"] == PEERS_ROUTE and peer:
            return
        if self._peers is not None and peer not in self._peers:
            allowed = ", ".join(sorted(self._peers))
            raise Refusal(403, f"{peer!r} may not ask", f"use the certificate of one of: {allowed}")


def _problem(why: Refusal) -> dict[str, object]:
    problem: dict[str, object] = {"error": why.error, "remedy": why.remedy}
    if why.status in {404, 405}:
        problem["routes"] = [f"{verb} {path}" for path, verbs in ROUTES.items() for verb in verbs]
    return problem


def _route(method: str, path: str) -> Handler:
    verbs = ROUTES.get(path)
    if verbs is None:
        raise Refusal(404, f"nothing at {path}", "ask one of the routes")
    handler = verbs.get("GET" if method == "HEAD" else method)
    if handler is None:
        raise Refusal(405, f"{method} makes no sense at {path}", f"use {', '.join(verbs)}")
    return handler


async def _body(headers: dict[bytes, str], receive: Receive) -> bytes:
    too_large = Refusal(413, "the body is too large", f"send {MAX_REQUEST_BYTES} bytes at most")
    length = headers.get(b"content-length", "0")
    if length.isdecimal() and int(length) > MAX_REQUEST_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with timeout(BODY_S):
            while True:
                event = await receive()
                body += event.get("body", b"")
                if len(body) > MAX_REQUEST_BYTES:
                    raise too_large
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise Refusal(408, "the body did not come in time", "send it at once") from error


async def _while_asked(work: Awaitable[object], receive: Receive) -> object:
    """Return what `work` returns; who goes away has it cancelled, so that others need not wait."""
    tasks = asyncio.ensure_future(work), asyncio.create_task(_gone(receive))
    working, leaving = tasks
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done() and not working.done():
            raise Refusal(499, "the client has gone", "ask again")
        return await working
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait(tasks)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _form(headers: dict[bytes, str], body: bytes) -> ContentType:
    """Return the body's form.

    A web page can send none of ours without asking first, so none can talk to a loopback RPC.
    """
    given = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    try:
        return ContentType(given) if body else ContentType.JSON
    except ValueError as error:
        remedy = "set content-type to application/json or application/msgpack"
        raise Refusal(415, f"content type {given!r} is not understood", remedy) from error


@contextmanager
def _as_refusals() -> Iterator[None]:
    """Turn the errors a service may raise into the client's answer."""
    try:
        yield
    except Refusal:
        raise
    except RemoteProtocolError as error:
        raise Refusal(400, str(error), "see the documentation of this route's message") from error
    except CapabilityMissing as error:
        raise Refusal(501, str(error), error.remedy) from error
    except TooSoon as error:
        raise Refusal(429, str(error), "wait as long as it says") from error
    except (Unreachable, TimeoutError) as error:
        raise Refusal(504, str(error) or "no answer in time", "try again") from error
    except Exception as error:
        # The one place where a bug of a handler must not end the agent.
        log.exception("request_failed")
        raise Refusal(500, "internal error", "see the agent's log") from error


class _PeerProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which gives the application the client's identity.

    It bounds the connections of a client, and ends those over which nothing is asked.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self.certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
        peer = common_name(self.certificate)
        held: Counter[str | None] = self.app_state[HELD]
        self.app_state = {**self.app_state, "peer": peer}
        held[peer] += 1
        self._leave: Callable[[], None] = lambda: held.subtract([peer])
        self._idle_since_s = self.loop.time()
        self._look = self.loop.call_later(BODY_S, self._end_if_idle)
        if peer is not None and held[peer] > MAX_OF_PEER:
            transport.abort()  # to close it would wait for the client

    def on_response_complete(self) -> None:
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        self._leave()
        super().connection_lost(exc)

    # A head that comes byte by byte keeps nobody waiting either.
    def _end_if_idle(self) -> None:
        is_asked = self.cycle is not None and not self.cycle.response_complete
        left_s = BODY_S if is_asked else self._idle_since_s + BODY_S - self.loop.time()
        if left_s <= 0:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(left_s, self._end_if_idle)


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name of a verified certificate as `ssl` gives it."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


class HttpServer:
    """Serves an application within the running loop, with mutual TLS where there is a `trust`.

    uvicorn's own `Server` would take over the process' signals and wake up ten times a second.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        address: tuple[str, int],
        trust: Trust | None,
        *,
        most: int = MAX_CONNECTIONS,
    ) -> None:
        """Bind nothing yet; beyond `most` connections, requests are answered 503."""
        self._address = address
        self._trust = trust
        self._tls = trust.server if trust is not None else None
        self._roots = trust.roots if trust is not None else frozenset()
        self._uvicorn = Config(
            app,
            http=_PeerProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            limit_concurrency=most,
        )
        self._state = ServerState()
        self._held: Counter[str | None] = Counter()
        """Connections by the client's name."""
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port bound, also where the configuration said 0."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Bind and listen; raises OSError if the address cannot be had."""
        host, port = self._address
        self._uvicorn.load()
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol,
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=BODY_S if self._tls else None,
        )

    def end_revoked(self) -> None:
        """End the connections of certificates that hold no more, or of another authority."""
        trust = self._trust
        if trust is None:
            return
        roots, self._roots = self._roots, trust.roots
        for connection in list(self._state.connections):
            if isinstance(connection, _PeerProtocol) and (
                roots != trust.roots or trust.refuses(connection.certificate)
            ):
                connection.transport.abort()

    async def stop(self) -> None:
        """Take no more connections, let requests in flight end, close."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=STOP_S)
        for task in list(self._state.tasks):
            task.cancel()
        with suppress(TimeoutError):
            async with timeout(STOP_S):
                await self._server.wait_closed()
        self._server = None

    def _protocol(self) -> asyncio.Protocol:
        state = {HELD: self._held}
        return _PeerProtocol(config=self._uvicorn, server_state=self._state, app_state=state)


class RpcServer(HttpServer):
    """Serves an `AgentService` as the configuration says."""

    def __init__(
        self, config: AgentConfig, service: AgentService, trust: Trust | None = None
    ) -> None:
        """Bind nothing yet; ConfigError if the TLS files cannot be used.

        `trust` is of `config.tls`, and shared by all parts of an agent.
        """
        # The host itself may ask: who has its key is root here already.
        peers = frozenset((*config.rpc.peers, config.host)) if config.tls else None
        trust = trust or (Trust(config.tls) if config.tls else None)
        super().__init__(RpcApp(service, peers=peers), config.rpc.address, trust)
