# SPDX-License-Identifier: Apache-2.0
"""Questions to agents: the client of their RPC."""

import asyncio
import contextlib
import errno
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon, Unreachable
from netagent.wire.actions import ActionReply, ActionRequest
from netagent.wire.codec import MAX_BODY_BYTES, ContentType, decode, encode
from netagent.wire.messages import (
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

T = TypeVar("T")

MAX_EXCHANGES = 512
"""Most questions under way at once; others wait within their deadlines. Chosen: bounds sockets."""
MAX_IDLE = 128
"""Agents to whom a connection is kept. Chosen: those that an incident asks again and again."""

REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no route",
    errno.ENETUNREACH: "no route",
}
"""Errors of connect() that say something about the peer."""


class Refused(RemoteProtocolError):
    """A host answered, with another status than that all is well."""

    def __init__(self, host: str, status: int, text: str) -> None:
        super().__init__(f"{host} answers {status}: {text}")
        self.status = status


class Fleet:
    """Every agent of the cluster, by host. Each question has its deadline.

    Every method raises Unreachable, whose `reason` is `refused` (nothing listens), `timeout`
    (the host accepted the connection, the agent did not answer), `connect timeout` (not even the
    host answered), `no route`, `unknown host` (it never registered), or a text; and
    RemoteProtocolError for an answer that is none.
    """

    def __init__(
        self, url_of: Callable[[str], str | None], tls: ssl.SSLContext | None = None
    ) -> None:
        """Find agents by `url_of(host)`; `tls` holds our certificate and trusts theirs.

        Without `tls` nobody is trusted: then only plain HTTP works.
        """
        self._url_of = url_of
        self._clients = _Clients(tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._ending: set[asyncio.Task[bytes]] = set()
        """Exchanges past their deadline; TLS handshakes end by the client's own timeout."""

    async def check(
        self, host: str, request: CheckRequest, *, deadline_s: float = 5.0
    ) -> CheckReply:
        """Ask where the vSwitch of `host` takes packets."""
        return await self._ask(host, "/v1/check", request, kind=CheckReply, deadline_s=deadline_s)

    async def status(self, host: str, *, deadline_s: float = 1.0) -> Status:
        """Ask the agent of `host` who it is and what it does."""
        return await self._ask(host, "/v1/status", None, kind=Status, deadline_s=deadline_s)

    async def path(self, host: str, request: PathRequest, *, deadline_s: float = 5.0) -> PathReply:
        """Have `host` trace the outer paths of a pair's flows now."""
        return await self._ask(host, "/v1/path", request, kind=PathReply, deadline_s=deadline_s)

    async def probe(
        self, host: str, request: ProbeRequest, *, deadline_s: float = 5.0
    ) -> ProbeReply:
        """Have `host` probe a target now."""
        return await self._ask(host, "/v1/probe", request, kind=ProbeReply, deadline_s=deadline_s)

    async def trace(
        self, host: str, request: TraceRequest, *, deadline_s: float = 100.0
    ) -> TraceReply:
        """Have `host` count a flow's packets at each stage of its virtual switch."""
        return await self._ask(host, "/v1/trace", request, kind=TraceReply, deadline_s=deadline_s)

    async def validate(
        self, host: str, request: ValidateRequest, *, deadline_s: float = 40.0
    ) -> ValidateReply:
        """Have `host` compare the copies of its flow tables; raises TooSoon if it just did."""
        reply = await self._ask(
            host, "/v1/validate", request, kind=ValidateReply, deadline_s=deadline_s
        )
        if reply.host != host:
            raise RemoteProtocolError(f"{host} speaks of {reply.host}")
        return reply

    async def act(
        self, host: str, request: ActionRequest, *, deadline_s: float = 50.0
    ) -> ActionReply:
        """Have `host` do something, or say what it would do; raises TooSoon where it did too much.

        The same id is done once, however often it is asked for.
        """
        reply = await self._ask(
            host, "/v1/actions", request, kind=ActionReply, deadline_s=deadline_s
        )
        if (reply.host, reply.verb) != (host, request.verb):
            raise RemoteProtocolError(f"{host} speaks of {reply.verb} on {reply.host}")
        return reply

    async def flows(self, host: str, bridge: str, *, deadline_s: float = 3.0) -> FlowsReply:
        """Ask for the flows of `bridge` on `host`, with cookie and counters."""
        url = f"/v1/flows?{httpx.QueryParams(bridge=bridge)}"
        return await self._ask(host, url, None, kind=FlowsReply, deadline_s=deadline_s)

    async def zone(self, host: str, request: ZoneRequest, *, deadline_s: float = 15.0) -> ZoneReply:
        """Ask for what `host` reads of the controller's databases that it has itself."""
        reply = await self._ask(host, "/v1/zone", request, kind=ZoneReply, deadline_s=deadline_s)
        if reply.host != host:
            raise RemoteProtocolError(f"{host} speaks of {reply.host}")
        return reply

    async def operators(
        self, host: str, request: OperatorsRequest, *, deadline_s: float = 5.0
    ) -> OperatorsReply:
        """Ask for what jobs on `host` recorded of a time."""
        return await self._ask(
            host, "/v1/operators", request, kind=OperatorsReply, deadline_s=deadline_s
        )

    async def renew(self) -> None:
        """Ask over new connections from now on."""
        await self._clients.renew()

    async def close(self) -> None:
        """Drop every connection, once the last TLS handshakes have timed out."""
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._clients.close()

    async def _ask(
        self, host: str, path: str, message: object | None, *, kind: type[T], deadline_s: float
    ) -> T:
        base = self._url_of(host)
        if base is None:
            raise Unreachable(host, "unknown host")
        url = base.rstrip("/") + path
        body = encode(message) if message is not None else None
        try:
            return decode(await self._exchange(host, url, body, deadline_s), kind)
        except _Stale:  # the agent restarted between two questions; this connection is new
            return decode(await self._exchange(host, url, body, deadline_s), kind)

    async def _exchange(self, host: str, url: str, body: bytes | None, deadline_s: float) -> bytes:
        seen: set[str] = set()
        work = asyncio.create_task(self._converse(host, url, body, seen, deadline_s))
        try:
            done, _ = await asyncio.wait({work}, timeout=deadline_s)
            if not done:
                raise _late(host, seen)
            return work.result()
        except (TimeoutError, httpx.TimeoutException):
            raise _late(host, seen) from None
        except httpx.InvalidURL as error:
            raise Unreachable(host, f"{url}: {error}") from error
        except httpx.HTTPError as error:
            if CONNECTING not in seen:
                raise _Stale(host, str(error)) from error
            raise Unreachable(host, _reason(error)) from error
        finally:
            self._end(work, seen)

    async def _converse(
        self, host: str, url: str, body: bytes | None, seen: set[str], deadline_s: float
    ) -> bytes:
        """Ask and return the answer; add what the connection went through to `seen`."""

        async def trace(event: str, _: dict[str, Any]) -> None:
            seen.add(event)

        # The client's own timeouts close what they give up. They come a little before the deadline.
        async with (
            self._clients.of(host) as client,
            client.stream(
                "GET" if body is None else "POST",
                url,
                content=body,
                headers=_HEADERS,
                timeout=httpx.Timeout(0.9 * deadline_s),
                extensions={"trace": trace},
            ) as response,
        ):
            _check_name(host, response)
            return await _content(host, response)

    def _end(self, work: asyncio.Task[bytes], seen: set[str]) -> None:
        if work.done():
            return
        self._ending.add(work)
        work.add_done_callback(self._ended)
        # A TLS handshake that is cancelled leaks its socket (httpcore 1.0, AnyIOStream.start_tls).
        if HANDSHAKING not in seen or seen & HANDSHAKEN:
            work.cancel()

    def _ended(self, work: asyncio.Task[bytes]) -> None:
        self._ending.discard(work)
        if not work.cancelled():
            work.exception()  # or asyncio says that nobody asked for it


_HEADERS = dict.fromkeys(("accept", "content-type"), ContentType.MSGPACK.value) | {
    "accept-encoding": "identity"
}

MOST_TEXT = 300
"""Most characters of a refusal that are told. Chosen: to be read."""


@dataclass(slots=True)
class _Client:
    """The connections to one agent."""

    http: httpx.AsyncClient
    users: int = 0
    is_stale: bool = False
    """Whether it is closed once nobody uses it."""


class _Clients:
    """A client for each agent: one for all looks at every connection for every request.

    That is the square of the number of hosts where all are asked at once (httpcore 1.0,
    `AsyncConnectionPool._assign_requests_to_connections`).
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._known: dict[str, _Client] = {}
        """By host, the one that was used last at the end."""
        self._exchanges = asyncio.Semaphore(MAX_EXCHANGES)

    @contextlib.asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[httpx.AsyncClient]:
        """Lend the client of a host, once there is room for another exchange."""
        async with self._exchanges:
            mine = self._known.pop(host, None) or self._made()
            self._known[host] = mine
            mine.users += 1
            try:
                yield mine.http
            finally:
                mine.users -= 1
                if mine.is_stale and not mine.users:
                    await mine.http.aclose()
                await self._trim()

    def _made(self) -> _Client:
        limits = httpx.Limits(max_keepalive_connections=1)
        return _Client(httpx.AsyncClient(verify=self._tls, trust_env=False, limits=limits))

    async def _trim(self) -> None:
        """Close what was not used for longest."""
        more = len(self._known) - MAX_IDLE
        idle = (host for host, each in self._known.items() if not each.users)
        for host in list(itertools.islice(idle, max(0, more))):
            await self._known.pop(host).http.aclose()

    async def renew(self) -> None:
        """Have nobody ask over a connection that stands now."""
        known, self._known = self._known, {}
        for each in known.values():
            each.is_stale = True
            if not each.users:
                await each.http.aclose()

    async def close(self) -> None:
        """Close all."""
        known, self._known = self._known, {}
        for each in known.values():
            await each.http.aclose()


HANDSHAKING = "connection.start_tls.started"
HANDSHAKEN = {"connection.start_tls.complete", "connection.start_tls.failed"}
CONNECTING = "connection.connect_tcp.started"
CONNECTED = "connection.connect_tcp.complete"


def _late(host: str, seen: set[str]) -> Unreachable:
    connecting = CONNECTING in seen and CONNECTED not in seen
    return Unreachable(host, "connect timeout" if connecting else "timeout")


class _Stale(Unreachable):
    """A connection kept from an earlier question turned out to be dead."""


# The TLS handshake proved that the peer is where the URL points; this, that it is the host meant.
def _check_name(host: str, response: httpx.Response) -> None:
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("ssl_object") if stream is not None else None
    if peer is None:
        return
    names = certificate_names(peer.getpeercert() or {})
    if host not in names:
        raise Unreachable(host, f"its certificate names {', '.join(sorted(names)) or 'nobody'}")


def certificate_names(certificate: dict[str, Any]) -> set[str]:
    """Return whom a certificate (as `getpeercert()` gives it) names: CN and DNS names."""
    subject = {
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    }
    return subject | {v for kind, v in certificate.get("subjectAltName", ()) if kind == "DNS"}


async def _content(host: str, response: httpx.Response) -> bytes:
    chunks = bytearray()
    # As it came: httpx unpacks whatever a Content-Encoding says, twice packed zeros of any length.
    async for chunk in response.aiter_raw():
        chunks += chunk
        if len(chunks) > MAX_BODY_BYTES:
            raise RemoteProtocolError(f"{host} answers with more than {MAX_BODY_BYTES} bytes")
    if response.status_code != httpx.codes.OK:
        text, remedy = _problem(bytes(chunks))
        if response.status_code == httpx.codes.NOT_IMPLEMENTED:
            what = text.removesuffix(f" unavailable: {remedy}")
            raise CapabilityMissing(f"{host}: {what}", remedy or "see its agent's log")
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise TooSoon(host, text)
        raise Refused(host, response.status_code, text)
    return bytes(chunks)


def _problem(body: bytes) -> tuple[str, str]:
    """Return the error and the remedy that an agent's refusal holds."""
    try:
        told = decode(body, dict[str, str])
    except RemoteProtocolError:
        return body[:MOST_TEXT].decode(errors="replace"), ""
    return told.get("error", "")[:MOST_TEXT], told.get("remedy", "")[:MOST_TEXT]


def _reason(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in REASONS:
            return REASONS[cause.errno]
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for part in error.exceptions:
                yield from _causes(part)
        error = error.__cause__ or error.__context__
