# SPDX-License-Identifier: Apache-2.0
"""Columns of messages as numpy arrays, by what `netagent.wire.messages` declares."""

from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import no_array, typecodes


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


def columns(message: Struct, names: tuple[str, ...], rows: int) -> dict[str, NDArray[Any]]:
    """Return columns of `rows` items each; RemoteProtocolError where the size of one differs."""
    dtypes, found = _dtypes(type(message)), {}
    for name in names:
        data: bytes = getattr(message, name)
        if len(data) != rows * dtypes[name].itemsize:
            raise RemoteProtocolError(f"column {name}: {len(data)} bytes for {rows} rows")
        found[name] = np.frombuffer(data, dtypes[name])
    return found
