# SPDX-License-Identifier: Apache-2.0
"""Summaries as agents send them, taken without the web framework.

They are nearly all that is asked of an analyzer, and its router, request and response took more of
one than reading it and storing it. Whatever else comes goes on to the application.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER, require
from analyzer.server.problems import REMEDIES, Problem, refused
from netagent.model.errors import CapabilityMissing
from netagent.wire.codec import MAX_BODY_BYTES, ContentType, decode, encode
from netagent.wire.messages import Accepted, SummaryHead

PATH = "/v1/summaries"

HELD_BYTES = 256 << 20
"""Bytes of bodies that are held until they are whole. Chosen: ten thousand hosts' usual summaries;
hosts that begin large ones and never end them take no more."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gone(Exception):
    """The caller hung up."""


async def take(
    analyzer: Analyzer, caller: str | None, summary: SummaryHead, payload: bytes, received_ns: int
) -> Accepted:
    """Take what a caller sends, and return once it is on disk.

    Raises Problem where it is another host's, RemoteProtocolError for what no agent sends, and
    CapabilityMissing where it cannot be taken now.
    """
    require(caller, summary.host)
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
        self._held_bytes = 0
        """Of bodies that are not whole yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _is_delivery(scope):
            await self._rest(scope, receive, send)
            return
        try:
            status, body = 200, encode(await self._taken(scope, receive))
            form = ContentType.MSGPACK
        except Gone:
            return
        except Exception as error:  # noqa: BLE001 - as the application answers
            status, body = refused(error, PATH)
            form = ContentType.JSON
        headers = [
            (b"content-type", form.value.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _taken(self, scope: Scope, receive: Receive) -> Accepted:
        received_ns = self._analyzer.clock()
        payload = await self._body(receive)
        caller = scope.get("state", {}).get(PEER)
        self._analyzer.may_send(caller, len(payload), received_ns)
        summary = decode(payload, SummaryHead)
        return await take(self._analyzer, caller, summary, payload, received_ns)

    async def _body(self, receive: Receive) -> bytes:
        parts, size, more = list[bytes](), 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                size += len(parts[-1])
                self._held_bytes += len(parts[-1])
                self._check(size)
        finally:
            self._held_bytes -= size
        return b"".join(parts)

    def _check(self, size: int) -> None:
        if size > MAX_BODY_BYTES:
            raise Problem(413, f"a body of more than {MAX_BODY_BYTES} bytes", REMEDIES[413])
        if self._held_bytes > HELD_BYTES:
            raise CapabilityMissing("memory", "too much is being sent at once: come again later")


def _is_delivery(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
        return False
    forms = [value for name, value in scope["headers"] if name in {b"content-type", b"accept"}]
    return bool(forms) and all(b"msgpack" in form or form == b"*/*" for form in forms)
