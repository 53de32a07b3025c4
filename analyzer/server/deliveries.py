# SPDX-License-Identifier: Apache-2.0
"""Summaries as agents send them, taken without the web framework.

They are nearly all that is asked of an analyzer, and its router, request and response took more of
one than reading it and storing it. Whatever else comes goes on to the application.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER, is_ours, require
from analyzer.server.problems import REMEDIES, Problem, refused
from netagent.model.errors import CapabilityMissing
from netagent.wire.codec import MAX_BODY_BYTES, ContentType, decode, encode
from netagent.wire.messages import Accepted, SummaryHead

PATH = "/v1/summaries"

HELD_BYTES, HELD_BYTES_EACH = 256 << 20, 2 * MAX_BODY_BYTES
"""Bytes of bodies that are held, in all and of one caller, until they are answered. Chosen: ten
thousand hosts' usual summaries, and two of the largest: who begins some and never ends them takes
no room of others."""
BODY_S = 30.0
"""Seconds in which a body comes. Chosen: an agent gives up after five."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gone(Exception):
    """The caller hung up."""


class Full(CapabilityMissing):
    """What all callers send at once does not fit."""


async def take(
    analyzer: Analyzer, caller: str | None, summary: SummaryHead, payload: bytes, received_ns: int
) -> Accepted:
    """Take what a caller sends, and return once it is on disk.

    Raises Problem where it is another host's, RemoteProtocolError for what no agent sends, and
    CapabilityMissing where it cannot be taken now.
    """
    require(caller, summary.host, analyzer.config)
    try:
        analyzer.admit(received_ns)
    except CapabilityMissing:
        analyzer.registry.heard(summary.host, summary.start_ns, received_ns)  # its agent lives
        analyzer.counters.refused_summaries += 1
        raise
    accepted = await analyzer.service.push(summary, payload, analyzer.clock())
    analyzer.counters.summaries += not accepted.duplicate
    analyzer.counters.duplicates += accepted.duplicate
    analyzer.counters.summary_bytes += len(payload)
    replied_ns = analyzer.clock()
    sample = analyzer.sampling.of(summary.host, replied_ns)
    stamps = {"received_ns": received_ns, "replied_ns": replied_ns}
    return msgspec.structs.replace(accepted, sample=sample, **stamps)


class Deliveries:
    """An ASGI application: agents' summaries, and `rest` for all else."""

    def __init__(self, analyzer: Analyzer, rest: App) -> None:
        self._analyzer, self._rest = analyzer, rest
        self._held = Counter[str | None]()
        """Caller -> bytes of bodies of requests that are not answered yet; None: of all."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        if self._is_misled(scope):
            problem = Problem(403, "this is another machine's name", "ask for localhost")
            await _answer(send, ContentType.JSON, *refused(problem, scope["path"]))
            return
        body = _Body(receive, scope.get("state", {}).get(PEER), self._held)
        try:
            if _is_delivery(scope):
                await self._deliver(body, send)
            else:
                await self._rest(scope, body.receive, send)
        finally:
            body.release()

    async def _deliver(self, body: "_Body", send: Send) -> None:
        form = ContentType.MSGPACK
        try:
            status, said = 200, encode(await self._taken(body))
        except Gone:
            return
        except Exception as error:  # noqa: BLE001 - as the application answers
            form = ContentType.JSON
            status, said = refused(error, PATH)
        await _answer(send, form, status, said)

    def _is_misled(self, scope: Scope) -> bool:
        """Return whether a site has its own name lead here, where nobody is asked who he is."""
        is_plain = scope.get("state", {}).get(PEER, "") is None
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        is_bounded = is_plain and not self._analyzer.config.insecure
        return is_bounded and host != b"" and not is_ours(host.decode("latin-1"))

    async def _taken(self, body: "_Body") -> Accepted:
        received_ns = self._analyzer.clock()
        try:
            payload = await body.whole()
        except Full:
            self._analyzer.overrun(received_ns)
            raise
        self._analyzer.may_send(body.caller, len(payload))
        summary = decode(payload, SummaryHead)
        return await take(self._analyzer, body.caller, summary, payload, received_ns)


async def _answer(send: Send, form: ContentType, status: int, said: bytes) -> None:
    headers = [
        (b"content-type", form.value.encode()),
        (b"content-length", str(len(said)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said})


class _Body:
    """The body of one request, while it comes."""

    def __init__(self, receive: Receive, caller: str | None, held: Counter[str | None]) -> None:
        self.caller = caller
        self._receive, self._held = receive, held
        self._size = 0
        self._until_s = asyncio.get_running_loop().time() + BODY_S
        self._is_whole = False

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next part; raises Problem or CapabilityMissing for more than it may be."""
        if self._is_whole or not self._size:  # who waits for an answer, or has not begun
            message = await self._receive()
        else:
            message = await self._next()
        size = len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        self._size += size
        for name in {self.caller, None}:
            self._held[name] += size
        self._check()
        return message

    async def whole(self) -> bytes:
        """Return all of it. Raises Gone, and what `receive` does."""
        parts = list[bytes]()
        while not self._is_whole:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            parts.append(message.get("body", b""))
        return b"".join(parts)

    def release(self) -> None:
        """Count it no more."""
        for name in {self.caller, None}:
            self._held[name] -= self._size
            if not self._held[name]:
                del self._held[name]

    async def _next(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout_at(self._until_s):
                return await self._receive()
        except TimeoutError:
            raise Problem(
                408, f"a body that takes more than {BODY_S:g} s", "send it anew"
            ) from None

    def _check(self) -> None:
        if self._size > MAX_BODY_BYTES:
            raise Problem(413, f"a body of more than {MAX_BODY_BYTES} bytes", REMEDIES[413])
        if self.caller is not None and self._held[self.caller] > HELD_BYTES_EACH:
            raise CapabilityMissing("memory", "end what you began to send, then come again")
        if self._held[None] > HELD_BYTES:
            raise Full("memory", "too much is being sent at once: come again later")


def _is_delivery(scope: Scope) -> bool:
    if scope["path"] != PATH or scope["method"] != "POST":
        return False
    given, wanted = (
        [value for name, value in scope["headers"] if name == header]
        for header in (b"content-type", b"accept")
    )
    ours = ContentType.MSGPACK.value.encode()
    is_ours = bool(given) and all(form.partition(b";")[0].strip().lower() == ours for form in given)
    return is_ours and all(b"msgpack" in form or form == b"*/*" for form in wanted)
