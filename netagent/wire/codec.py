# SPDX-License-Identifier: Apache-2.0
"""Messages to bytes and back: the door of msgpack, of zlib-ng and of JSON bodies.

msgpack writes the bytes; msgspec reads them, and says whether what came is a message. One function
pair serves every message type, so that a body's form is a matter of its content type alone.
"""

import contextlib
import zlib
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

import msgpack
import msgspec

from netagent.model.errors import LocalProtocolError, RemoteProtocolError
from netagent.model.strenum import StrEnum

fast_zlib: Any = zlib
with contextlib.suppress(ImportError):
    # An analyzer inflates thousands of bodies a second, and has what takes 0.6 of the time for it.
    from zlib_ng import zlib_ng as fast_zlib

T = TypeVar("T")

MAX_BODY_BYTES = 16 << 20
"""Bytes of a body; a larger one is refused before it is parsed. Chosen: it bounds what a faulty
peer costs."""

LEVEL = 9
"""Level of deflation, zlib's best. Chosen: half a millisecond a summary, once a window, in 98.6 %
of the bytes that zlib's default leaves."""
APART = tuple(
    msgpack.packb(name)
    for name in (
        "flows", "min_ns", "mean_ln", "prober_ns", "hist_len",
        "paths", "outer_port", "route", "routes",
    )
)  # fmt: skip
"""Names in a summary, in order, from which on its bytes are of another kind: zlib would begin anew
to count them only after more bytes than a summary has. Chosen: of the cuts that were tried, these
leave least."""
MOST_INFLATED = 16
"""Most bytes that one byte may inflate to. Chosen: a summary's do not reach ten; it bounds what a
few bytes of a faulty peer cost."""
_ZLIB = b"\x78"
"""First byte of a zlib stream with a window of 32 KiB; in msgpack it is an integer."""


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


def deflated(body: bytes) -> bytes:
    """Return a msgpack body deflated (RFC 1950), or as it is where that is no use.

    `decode` takes either: no message begins with the byte that such a stream begins with.
    """
    packing, parts, begin = zlib.compressobj(LEVEL), list[bytes](), 0
    for name in APART:
        end = body.find(name, begin)
        if end > 0:  # wherever it is cut, the same is inflated
            parts += packing.compress(body[begin:end]), packing.flush(zlib.Z_BLOCK)
            begin = end
    packed = b"".join([*parts, packing.compress(body[begin:]), packing.flush()])
    is_worth = len(packed) < len(body) <= MOST_INFLATED * len(packed)
    return packed if is_worth else body


def quickly_deflated(body: bytes) -> bytes:
    """Return bytes deflated (RFC 1950) in as little time as may be; they are the more for it."""
    packed: bytes = fast_zlib.compress(body, 1)
    return packed


def is_deflated(body: bytes) -> bool:
    """Return whether a body is a deflated one."""
    return body[:1] == _ZLIB


def inflated(body: bytes, *, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return what `deflated` was given; RemoteProtocolError if it is none, or of more bytes."""
    if not is_deflated(body):
        return body
    most = min(max_bytes, MOST_INFLATED * len(body))
    inflating = fast_zlib.decompressobj()
    try:
        found: bytes = inflating.decompress(body, most + 1)
    except fast_zlib.error as error:
        raise RemoteProtocolError(f"the body cannot be inflated: {error}") from error
    if len(found) > most:
        raise RemoteProtocolError(f"a body that inflates to more than {most} bytes")
    if not inflating.eof or inflating.unused_data:
        raise RemoteProtocolError("a deflated body that is not whole")
    return found


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
        made: T = _decoder(wanted).decode(inflated(body, max_bytes=max_bytes))
    except (ValueError, TypeError, RecursionError) as error:  # msgspec's are a ValueError
        name = getattr(kind, "__name__", "message")  # a union has none
        raise RemoteProtocolError(f"no {name}: {error}") from error
    return made


@cache
def _decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(kind)
