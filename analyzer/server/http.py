# SPDX-License-Identifier: Apache-2.0
"""What the routes share: requests to messages, messages to answers."""

import asyncio
from typing import Annotated, Any, TypeVar

from litestar import Request, Response
from litestar.datastructures import State
from litestar.params import QueryParameter

from analyzer.server.analyzer import Analyzer
from analyzer.server.problems import Problem
from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.wire.codec import MAX_BODY_BYTES, ContentType, decode, encode

T = TypeVar("T")
P = TypeVar("P")

Call = Request[Any, Any, State]

MAX_WAIT_S = 60.0
"""Most seconds that a long poll is held. Chosen: idle watchers ask once a minute, and a connection
that died is noticed within one."""

BOTH = (ContentType.JSON, ContentType.MSGPACK)

WaitS = Annotated[
    float,
    QueryParameter(ge=0, le=MAX_WAIT_S, description="Seconds to hold it until there is news."),
]


def analyzer_of(request: Call) -> Analyzer:
    """Return the analyzer that serves the request."""
    analyzer: Analyzer = request.app.state["analyzer"]
    return analyzer


async def read(
    request: Call,
    kind: type[T],
    part: type[P] | None = None,
    *,
    max_bytes: int = MAX_BODY_BYTES,
) -> tuple[P | T, bytes]:
    """Return the message in the body, and its msgpack.

    Of msgpack only the fields of `part`, where that is given: the others may make no sense.
    """
    form = _form(request.headers.get("content-type", ""))
    body = await request.body()
    if form is ContentType.MSGPACK:
        return decode(body, part or kind, form, max_bytes=max_bytes), body
    message = decode(body, kind, form, max_bytes=max_bytes)
    try:
        return message, encode(message)
    except LocalProtocolError as error:  # JSON has integers of any size
        raise RemoteProtocolError(str(error)) from error


async def body_of(request: Call, forms: tuple[ContentType, ...]) -> bytes:
    """Return the body; Problem where it is said to be of another form."""
    form = _form(request.headers.get("content-type", ""))
    if form not in forms:
        remedy = f"set content-type to {' or '.join(each.value for each in forms)}"
        raise Problem(415, f"content type {form.value} is not taken here", remedy)
    return await request.body()


# A page in a browser on the same machine may send any other form to it unasked (CSRF).
def _form(given: str) -> ContentType:
    named = given.partition(";")[0].strip().lower()
    try:
        return ContentType(named)
    except ValueError as error:
        remedy = "set content-type to application/json or application/msgpack"
        raise Problem(415, f"content type {named!r} is not understood", remedy) from error


def reply(request: Call, message: object) -> Response[bytes]:
    """Return the answer in the form asked for, or else in the form of what came."""
    accept = request.headers.get("accept", "")
    named = accept if "json" in accept or "msgpack" in accept else None
    form = ContentType.of(named or request.headers.get("content-type"))
    return Response(encode(message, form), status_code=200, media_type=form.value)


def as_json(plain: object) -> Response[bytes]:
    """Return plain data as JSON."""
    body = encode(plain, ContentType.JSON)
    return Response(body, status_code=200, media_type=ContentType.JSON.value)


async def changed(analyzer: Analyzer, ticket: "asyncio.Future[None]", deadline_s: float) -> bool:
    """Whether the ticket is called before the deadline, and not because the server stops."""
    try:
        async with asyncio.timeout_at(deadline_s):
            await ticket
    except TimeoutError:
        return False
    return not analyzer.waiters.stopping
