# SPDX-License-Identifier: Apache-2.0
"""The agent's way to the analyzer: HTTP with mutual TLS; summaries go through the spool."""

import asyncio
import random
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import quote

import httpx
import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.peers.spool import Spool, sync
from netagent.collect.clocks import ClockEstimate
from netagent.concurrency import timeout
from netagent.config import AgentConfig, TlsConfig
from netagent.model.errors import RemoteProtocolError, Unreachable
from netagent.trust import Trust
from netagent.wire.codec import ContentType, decode, encode, is_deflated
from netagent.wire.enrolment import CRL_VERSION, Certified, Renew
from netagent.wire.messages import Accepted, Registered, Registration
from netagent.wire.roster import Follow, Update

log = structlog.get_logger()

T = TypeVar("T")

DEADLINE_S = 5.0
"""Seconds a request may take, connection included; a long poll has its wait on top. Chosen: an
analyzer that is only busy answers by then."""

BACKOFF_S = (0.2, 10.0)
"""First and longest wait before a summary is sent again, in seconds. Chosen: a short outage costs
little time, a long one few requests."""

MAX_CRL_BYTES = 4 << 20
"""Bytes of a list of revoked certificates. Chosen: a hundred thousand of them."""

_REFUSALS = frozenset({400, 413, 415, 422})
"""Statuses that say the body itself is at fault: sending it again would not help."""


def client_tls(tls: TlsConfig | None) -> ssl.SSLContext:
    """Return the client's side of mutual TLS; ConfigError if the files cannot be used.

    Without `tls` nobody is trusted: then only plain HTTP works.
    """
    return Trust(tls).client if tls is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Uplink:
    """Requests to the analyzer, each with a deadline.

    All raise Unreachable when no usable answer came (retry later), and RemoteProtocolError when
    the analyzer refused the request itself or answered nonsense.
    """

    def __init__(self, config: AgentConfig, trust: Trust | None = None) -> None:
        """Open no connection yet; ConfigError if the TLS files cannot be used.

        `trust` is of `config.tls`, and shared by all parts of an agent.
        """
        self._host = quote(config.host, safe="")
        self._url = config.analyzer.url
        self._tls = trust.client if trust is not None else client_tls(config.tls)
        self._client = self._made()
        self.crl_version = ""
        """Of the list of what was revoked, as the analyzer last told; "" where it keeps none."""
        self.alive = asyncio.Event()
        """Set by every answer; whoever waits for the analyzer clears it and waits."""
        self.clock = ClockEstimate()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _made(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._url,
            verify=self._tls,
            timeout=DEADLINE_S,
            trust_env=False,  # an operator's HTTP_PROXY is not for the management network
            limits=httpx.Limits(max_connections=4, max_keepalive_connections=2),
        )

    async def reconnect(self) -> None:
        """End the connections that stand; what is asked over them meanwhile is asked again."""
        before, self._client = self._client, self._made()
        await before.aclose()

    async def register(self, registration: Registration) -> Registered:
        """Tell all endpoints of this host; return which list is theirs now."""
        path = f"/v1/hosts/{self._host}/endpoints"
        return _decoded(await self._send("PUT", path, encode(registration)), Registered)

    async def follow(self, asked: Follow) -> Update | None:
        """Return what changed since what was asked after; None if nothing did in the wait."""
        path = f"/v1/hosts/{self._host}/pinglist"
        deadline_s = asked.wait_s + DEADLINE_S
        response = await self._send("POST", path, encode(asked), deadline_s=deadline_s)
        self.crl_version = response.headers.get(CRL_VERSION, "")
        return None if response.status_code == 204 else _decoded(response, Update)

    async def renewed(self, request: str) -> Certified:
        """Return the next certificate of this host, for a request in PEM."""
        path = f"/v1/hosts/{self._host}/certificate"
        return _decoded(await self._send("POST", path, encode(Renew(request=request))), Certified)

    async def revoked(self) -> str:
        """Return the list of what was revoked, in PEM, as its authority signed it."""
        response = await self._send("GET", "/v1/crl", b"")
        if len(response.content) > MAX_CRL_BYTES:
            raise RemoteProtocolError(f"a list of {len(response.content)} bytes")
        return response.text

    async def push(self, summary: bytes) -> Accepted:
        """Deliver one encoded summary; when this returns the analyzer has it on disk.

        RemoteProtocolError means that it will never take this one. An answer that is no
        acknowledgement is Unreachable here: nothing says that the summary arrived.
        """
        asked_ns = wall_ns()
        response = await self._send("POST", "/v1/summaries", summary)
        answered_ns = wall_ns()
        try:
            accepted = _decoded(response, Accepted)
        except RemoteProtocolError as error:
            raise Unreachable(self._url, f"acknowledged nothing: {error}") from error
        stamps = (asked_ns, accepted.received_ns, accepted.replied_ns, answered_ns)
        self.clock.add(*stamps, now_ns=now_ns())
        return accepted

    async def _send(
        self, method: str, path: str, body: bytes, *, deadline_s: float = DEADLINE_S
    ) -> httpx.Response:
        headers = dict.fromkeys(("accept", "content-type"), ContentType.MSGPACK.value)
        if is_deflated(body):
            headers["content-encoding"] = "deflate"
        try:
            async with timeout(deadline_s):
                response = await self._client.request(
                    method, path, content=body, headers=headers, timeout=deadline_s
                )
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Unreachable(self._url, "timeout") from error
        except (httpx.HTTPError, OSError) as error:
            raise Unreachable(self._url, _reason(error)) from error
        if response.status_code in _REFUSALS:
            raise RemoteProtocolError(f"{method} {path} refused: {_said(response)}")
        if response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            raise NotTaken(self._url, f"{method} {path}: {_said(response)}")
        if not response.is_success:
            raise Unreachable(self._url, f"{method} {path}: {_said(response)}")
        self.alive.set()
        return response


class NotTaken(Unreachable):
    """The analyzer failed over what was sent: something else may be taken meanwhile."""


def _decoded(response: httpx.Response, kind: type[T]) -> T:
    form = ContentType.of(response.headers.get("content-type"))
    return decode(response.content, kind, form)


def _said(response: httpx.Response) -> str:
    return f"status {response.status_code} {response.text[:200]}".rstrip()


def _reason(error: BaseException) -> str:
    """Return `refused`, `no route` or the text of what lies beneath httpx' error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "refused"
        if isinstance(cause, OSError) and cause.errno in {101, 113}:  # ENETUNREACH, EHOSTUNREACH
            return "no route"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


class Shipper:
    """Delivers summaries at least once: each is on disk until acknowledged.

    After an outage the newest minutes go first, so that the analyzer judges again at once, and what
    older ones there are after them.
    """

    def __init__(
        self,
        uplink: Uplink,
        spool: Spool,
        sample: Callable[[int, float], object] = lambda _tick_ms, _seconds: None,
    ) -> None:
        """Take `sample`, which is told of finer ticks that the analyzer asks for, and for how long.

        It may raise RemoteProtocolError.
        """
        self._uplink = uplink
        self._spool = spool
        self._sample = sample
        self._filled = asyncio.Event()
        self._newest_ns = 0
        """Start of the window that was handed over last."""
        self.sent = 0
        """Summaries acknowledged."""
        self.acknowledged_ns = 0
        """Start of the newest window acknowledged; 0 before the first."""
        self.refused = 0
        """Summaries the analyzer will never take; dropped."""

    @property
    def dropped(self) -> int:
        """Summaries thrown away for want of room, or refused, or found damaged."""
        return self._spool.dropped + self._spool.damaged + self.refused

    def submit(self, start_ns: int, summary: bytes) -> None:
        """Hand over the encoded summary of the window that starts at `start_ns`."""
        if start_ns < self._newest_ns:  # the clock went back
            self.acknowledged_ns = 0
        self._newest_ns = start_ns
        self._spool.put(start_ns, summary)
        self._filled.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        failures = 0
        while True:
            waiting = self._spool.next()
            if waiting is None:
                self._filled.clear()
                await self._filled.wait()
            elif await self._deliver(*waiting):
                failures = 0
            else:
                failures += 1
                await self._make_last()
                await self._back_off(failures)

    async def _deliver(self, start_ns: int, summary: bytes) -> bool:
        """Return whether the summary is settled, for better or worse."""
        # Cleared before, so that an answer to someone else meanwhile ends the back-off.
        self._uplink.alive.clear()
        try:
            accepted = await self._uplink.push(summary)
            self.sent += 1
            if not self._newest_ns or start_ns <= self._newest_ns:
                self.acknowledged_ns = max(self.acknowledged_ns, start_ns)
        except RemoteProtocolError as error:
            self.refused += 1
            log.warning("summary_refused", start_ns=start_ns, error=str(error))
        except Unreachable as error:
            log.warning("analyzer_unreachable", reason=error.reason, waiting=len(self._spool))
            if isinstance(error, NotTaken):
                self._spool.postpone(start_ns)
            return False
        else:
            self._do(accepted)
        self._spool.delete(start_ns)
        return True

    def _do(self, accepted: Accepted) -> None:
        asked = accepted.sample
        if asked is None:
            return
        try:
            self._sample(asked.tick_ms, asked.seconds)
        except RemoteProtocolError as error:
            log.warning("sampling_refused", error=str(error))

    async def _make_last(self) -> None:
        """Have what waits outlive a loss of power."""
        try:
            await asyncio.to_thread(sync, self._spool.take_unsynced())
        except OSError as error:
            log.warning("spool_not_synced", error=str(error))

    async def _back_off(self, failures: int) -> None:
        """Wait, longer each time and never in step with other hosts, or until it is back."""
        first_s, longest_s = BACKOFF_S
        limit_s = min(longest_s, first_s * 2 ** min(failures - 1, 16))
        with suppress(TimeoutError):
            async with timeout(random.uniform(limit_s / 2, limit_s)):
                await self._uplink.alive.wait()
