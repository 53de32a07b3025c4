# SPDX-License-Identifier: Apache-2.0
"""Columns: arrays of numbers, packed as bytes in little-endian order.

A message declares what a column's items are where it declares the column, `sent: U32`; here, and in
`analyzer.intake.columns`, they are packed and unpacked by that declaration. Most numbers of a
quiet window are zero or small, so those columns are as narrow as they can be.
"""

from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct

from netagent.model.errors import RemoteProtocolError

U8 = Annotated[bytes, Meta(extra={"item": "B"})]
U16 = Annotated[bytes, Meta(extra={"item": "H"})]
U32 = Annotated[bytes, Meta(extra={"item": "I"})]
U64 = Annotated[bytes, Meta(extra={"item": "Q"})]
F32 = Annotated[bytes, Meta(extra={"item": "f"})]

N16 = Annotated[bytes, Meta(extra={"item": "H", "narrow": True})]
N32 = Annotated[bytes, Meta(extra={"item": "I", "narrow": True})]
"""Columns of at most so many bits: of 0, 8, 16 or 32, what the largest item needs. The row count
says which."""

WIDTHS: Mapping[str, str] = {"H": "BH", "I": "BHI"}
"""Typecodes, by that of the widest, in which a narrow column may be sent."""

NAMES: Mapping[str, str] = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64", "f": "f32"}
"""What messages of errors call the items of a typecode."""

_BIG_ENDIAN = array("H", [1]).tobytes() == b"\0\1"

S = TypeVar("S", bound=Struct)


@cache
def typecodes(message: type[Struct]) -> Mapping[str, str]:
    """Return the columns of a message with the typecodes of their items.

    `array` and `struct` know the typecodes; after "<" they are a numpy dtype, too.
    """
    hints = get_type_hints(message, include_extras=True)
    found = {name: _typecode(hint) for name, hint in hints.items()}
    return {name: code for name, code in found.items() if code}


def _typecode(hint: Any) -> str:
    metas = (each for each in get_args(hint)[1:] if isinstance(each, Meta))
    return next((str(meta.extra["item"]) for meta in metas if meta.extra), "")


@cache
def narrow(message: type[Struct]) -> frozenset[str]:
    """Return the columns of a message that are no wider than their items need."""
    hints = get_type_hints(message, include_extras=True)
    metas = {n: [m for m in get_args(h)[1:] if isinstance(m, Meta)] for n, h in hints.items()}
    return frozenset(
        name for name, each in metas.items() if any((m.extra or {}).get("narrow") for m in each)
    )


def pack(message: type[S], **values: Any) -> S:
    """Return a message whose columns hold `values`; values of other fields go in unchanged."""
    codes = typecodes(message)
    columns = {name: pack_column(message, name, values[name]) for name in values if name in codes}
    return message(**{**values, **columns})


def pack_column(message: type[Struct], name: str, values: Iterable[float]) -> bytes:
    """Return the column `name` of a message; OverflowError if a value is none of its items."""
    packed: array[Any] = array(typecodes(message)[name], values)
    if name in narrow(message):
        packed = _narrowed(packed)
    return _in_wire_order(packed).tobytes()


def _narrowed(items: "array[Any]") -> "array[Any]":
    largest = max(items, default=0)
    if not largest:
        return array("B")
    fits = (c for c in WIDTHS[items.typecode] if largest < 1 << 8 * array(c).itemsize)
    return array(next(fits), items)


def unpack(message: Struct, name: str) -> "array[Any]":
    """Return the items of the column `name`; RemoteProtocolError if its bytes are no array."""
    data: bytes = getattr(message, name)
    items: array[Any] = array(typecodes(type(message))[name])
    if len(data) % items.itemsize:
        raise no_array(data, items.typecode)
    items.frombytes(data)
    return _in_wire_order(items)


def no_array(data: bytes, typecode: str) -> RemoteProtocolError:
    """Return the error for bytes that are no array of such items."""
    return RemoteProtocolError(f"{len(data)} bytes are no array of {NAMES[typecode]}")


def _in_wire_order(items: "array[Any]") -> "array[Any]":
    if _BIG_ENDIAN and items.itemsize > 1:
        items.byteswap()
    return items
