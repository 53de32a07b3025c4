# SPDX-License-Identifier: Apache-2.0
"""Posts events to a receiver: the door of HTTP to where the operator points."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path

import httpx

from analyzer.config import Webhook
from analyzer.webhooks.answers import Answer, Outcome, outcome_of, retry_after_ns
from analyzer.webhooks.cloudevents import CONTENT_TYPE, signed
from analyzer.webhooks.outbox import CONNECTIONS
from netagent.model.errors import ConfigError

LEAST_SECRET = 16
"""Least bytes of a secret. Chosen: nobody guesses 128 bits."""
MOST_SAID = 1024
"""Most bytes that are read of an answer. Chosen: a sentence for people; nothing is decided by it.
"""
SAID_S = 1.0
"""Most seconds that are waited for them. Chosen: the status came already."""
CONNECT_SHARE = 0.4
"""Part of the time that a connection may take, and as much again its TLS handshake. Chosen: both
end by themselves before all of the time is over, since a handshake that is cancelled leaks its
socket (httpcore 1.0, AnyIOStream.start_tls)."""


class Poster:
    """One receiver, over at most CONNECTIONS connections, none of which is kept."""

    def __init__(self, webhook: Webhook, path: str) -> None:
        """Read what the webhook of the configuration file at `path` names. Raises ConfigError."""
        self._webhook = webhook
        try:
            self._secret()
            if webhook.url.startswith("https:"):
                tls = ssl.create_default_context(cafile=webhook.ca or None)
            else:
                tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is not asked
        except (OSError, ConfigError) as error:  # ssl.SSLError is one of the former
            raise ConfigError(path, f"webhook {webhook.name}: {error}") from error
        timeout_s = webhook.timeout_s
        self._found: asyncio.Future[str] | None = None
        """The newest lookup of the receiver's name: why it failed, or nothing."""
        self._client = httpx.AsyncClient(
            verify=tls,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_SHARE * timeout_s),
            limits=httpx.Limits(max_connections=CONNECTIONS + 1, max_keepalive_connections=0),
            headers={"user-agent": "netagent", "accept-encoding": "identity"},
        )

    async def post(self, body: bytes) -> Answer:
        """Send an event once, and return what came back."""
        timeout_s = self._webhook.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                if why := await self._look_up():
                    return Answer(Outcome.LATER, why)
                secret = await asyncio.to_thread(self._secret)
                headers = signed(secret, int(time.time()), body) if secret else {}
                return await self._exchange(body, {"content-type": CONTENT_TYPE, **headers})
        except (TimeoutError, httpx.TimeoutException):
            return Answer(Outcome.LATER, f"no answer within {timeout_s:g} s")
        except (OSError, ConfigError, httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(Outcome.LATER, str(error) or type(error).__name__)

    async def close(self) -> None:
        """Drop every connection."""
        await self._client.aclose()

    async def _look_up(self) -> str:
        """Look the receiver's name up; return why that is not possible.

        The client does it once more, in one of the few threads that all of asyncio shares. Name
        servers that do not answer would hold these; here they hold a thread that nobody waits for.
        """
        loop = asyncio.get_running_loop()
        if self._found is None or self._found.done():
            self._found = found = loop.create_future()
            url = httpx.URL(self._webhook.url)
            where = url.host, url.port or url.scheme

            def work() -> None:
                why = ""
                try:
                    socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
                except (OSError, UnicodeError) as error:
                    why = f"{where[0]}: {error}"
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(found.set_result, why)

            threading.Thread(target=work, name="lookup", daemon=True).start()
        return await asyncio.shield(self._found)

    async def _exchange(self, body: bytes, headers: dict[str, str]) -> Answer:
        url = self._webhook.url
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            self._client.cookies.clear()  # a receiver could fill memory with them
            status = response.status_code
            text = f"HTTP {status} {response.reason_phrase}"[:80]
            if response.has_redirect_location:
                text += ", which is not followed"
            after = retry_after_ns(response.headers.get("retry-after"), time.time_ns())
            return Answer(outcome_of(status), text, status, after, await _said(response))

    def _secret(self) -> bytes:
        """Return what events are signed with, as the file now is; raises OSError, ConfigError."""
        if not self._webhook.secret:
            return b""
        path = Path(self._webhook.secret)
        if path.stat().st_mode & 0o077:
            raise ConfigError(str(path), "others than its owner may read it: chmod 600")
        secret = path.read_bytes().strip()
        if len(secret) < LEAST_SECRET:
            raise ConfigError(str(path), f"holds less than {LEAST_SECRET} bytes")
        return secret


async def _said(response: httpx.Response) -> str:
    said = bytearray()
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(SAID_S):
            async for chunk in response.aiter_raw():
                said += chunk
                if len(said) >= MOST_SAID:
                    break
    text = said[:MOST_SAID].decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text).strip()
