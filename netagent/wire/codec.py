# SPDX-License-Identifier: Apache-2.0
"""Messages to bytes and back: the door of msgpack and of JSON bodies.

msgpack writes the bytes; msgspec reads them, and says whether what came is a message. One function
pair serves every message type, so that a body's form is a matter of its content type alone.
"""

from collections.abc import Collection
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

import msgpack
import msgspec

from netagent.model.errors import LocalProtocolError, RemoteProtocolError

T = TypeVar("T")

MAX_BODY_BYTES = 16 << 20
"""Bytes of a body; a larger one is refused before it is parsed. Chosen: it bounds what a faulty
peer costs."""


class ContentType(StrEnum):
    """Forms of a body."""

    MSGPACK = "application/msgpack"
    JSON = "application/json"

    @classmethod
    def of(cls, header: str | None) -> "ContentType":
        """Return the form a Content-Type or Accept header asks for; JSON where it says nothing."""
        return cls.MSGPACK if header and "msgpack" in header else cls.JSON


def encode(message: object, form: ContentType = ContentType.MSGPACK) -> bytes:
    """Return `message` (a Struct or dataclass) as bytes; LocalProtocolError if it holds no such."""
    try:
        if form is ContentType.JSON:
            return msgspec.json.encode(message)
        plain = msgspec.to_builtins(message, builtin_types=(bytes,))
        packed: bytes = msgpack.packb(plain, use_bin_type=True)
    except (OverflowError, TypeError, ValueError) as error:
        raise LocalProtocolError(f"{type(message).__name__}: {error}") from error
    return packed


def array(encoded: Collection[bytes]) -> bytes:
    """Return a msgpack array of elements that are encoded already."""
    head: bytes = msgpack.Packer().pack_array_header(len(encoded))
    return b"".join((head, *encoded))


def decode(
    body: bytes,
    kind: type[T],
    form: ContentType = ContentType.MSGPACK,
    *,
    max_bytes: int = MAX_BODY_BYTES,
) -> T:
    """Return the `kind` that `body` holds.

    Raises RemoteProtocolError for bytes that are no message of that kind, are truncated, or are
    more than `max_bytes`.
    """
    if len(body) > max_bytes:
        raise RemoteProtocolError(f"body of {len(body)} bytes; {max_bytes} at most")
    try:
        if form is ContentType.JSON:
            return msgspec.json.decode(body, type=kind)
        wanted: Any = kind
        made: T = _decoder(wanted).decode(body)
    except (ValueError, TypeError, RecursionError) as error:  # msgspec's are a ValueError
        name = getattr(kind, "__name__", "message")  # a union has none
        raise RemoteProtocolError(f"no {name}: {error}") from error
    return made


@cache
def _decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(kind)
