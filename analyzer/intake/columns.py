# SPDX-License-Identifier: Apache-2.0
"""Columns of messages as numpy arrays, by what `netagent.wire.messages` declares."""

from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import narrow, no_array, typecodes

_SIZES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
"""Bytes of an item of a narrow column -> its dtype."""


@cache
def _dtypes(message: type[Struct]) -> dict[str, np.dtype[Any]]:
    return {name: np.dtype(f"<{code}") for name, code in typecodes(message).items()}


def column(message: Struct, name: str) -> NDArray[Any]:
    """Return the items of the column `name`; RemoteProtocolError if its bytes are no array."""
    data: bytes = getattr(message, name)
    dtype = _dtypes(type(message))[name]
    if len(data) % dtype.itemsize:
        raise no_array(data, typecodes(type(message))[name])
    return np.frombuffer(data, dtype)


def widest(message: type[Struct], name: str) -> np.dtype[Any]:
    """Return the type of the items of a column, which is as wide as any may be sent."""
    return _dtypes(message)[name]


def columns(message: Struct, names: tuple[str, ...], rows: int) -> dict[str, NDArray[Any]]:
    """Return columns of `rows` items each, as narrow as they came.

    Raises RemoteProtocolError where the size of one differs.
    """
    found: dict[str, NDArray[Any]] = {}  # not called: naming the type takes as long as a column
    narrower = {size * rows: (size, dtype) for size, dtype in _SIZES.items()}
    zeros: NDArray[Any] | None = None
    for name, size, dtype, may_be_narrow in _layout(type(message), names):
        data: bytes = getattr(message, name)
        if len(data) == rows * size:
            found[name] = np.frombuffer(data, dtype)
        elif may_be_narrow and not data:
            # Nobody writes into what came: all that are zero may be one.
            found[name] = zeros = np.zeros(rows, np.uint8) if zeros is None else zeros
        elif may_be_narrow and (sent := narrower.get(len(data))) and sent[0] < size:
            found[name] = np.frombuffer(data, sent[1])
        else:
            raise RemoteProtocolError(f"column {name}: {len(data)} bytes for {rows} rows")
    return found


@cache
def _layout(
    message: type[Struct], names: tuple[str, ...]
) -> tuple[tuple[str, int, np.dtype[Any], bool], ...]:
    """Return bytes and type of an item of each column, and whether it may be narrower."""
    dtypes, may_be_narrow = _dtypes(message), narrow(message)
    return tuple(
        (name, dtypes[name].itemsize, dtypes[name], name in may_be_narrow) for name in names
    )


def packed(message: type[Struct], name: str, items: NDArray[Any]) -> bytes:
    """Return the column `name` of a message, as `netagent.wire.columns.pack_column` does."""
    dtype = _dtypes(message)[name]
    if name in narrow(message):
        largest = int(items.max(initial=0))
        if not largest:
            return b""
        fits = (size for size in _SIZES if largest < 1 << 8 * size)
        dtype = _SIZES[next(fits)]
    return items.astype(dtype).tobytes()
