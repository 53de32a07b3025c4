# SPDX-License-Identifier: Apache-2.0
"""Routes as a file: a frame that says what follows, then endpoints and columns in parts.

Of a column all first bytes come first, then all second ones, and so on: most are alike then, and
deflated in little time.

A file of another version, a damaged one, or one whose end is missing is refused as a whole, as one
of baselines is.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.localize.saved import COLUMNS, SavedRoutes
from analyzer.replay.frames import MAX_BYTES, frame, payloads
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode, encode

FORMAT = 2
"""Version of the file; a reader takes no other."""
PART_BYTES = 8 << 20
"""Bytes of a column in a frame. Chosen: an eighth of what a frame may hold."""
PART_ENDS = 65_536
"""Endpoints in a frame. Chosen: some megabytes."""
MAX_FILE_BYTES = 4 << 30
"""Most bytes of columns. Chosen: twenty times those of 40,000 RNICs; bounds memory."""


class _Head(Struct, frozen=True, kw_only=True):
    format: int
    at_ns: int
    names: tuple[str, ...]
    leaf_of: dict[str, str]
    endpoints: int
    bytes: dict[str, int]
    """Column -> how many bytes it has."""


class _Ends(Struct, frozen=True, kw_only=True):
    endpoints: tuple[EndpointId, ...]


def pack(saved: SavedRoutes) -> Iterator[bytes]:
    """Yield the file's frames."""
    head = _Head(
        format=FORMAT,
        at_ns=saved.at_ns,
        names=saved.names,
        leaf_of=dict(saved.leaf_of),
        endpoints=len(saved.endpoints),
        bytes={name: saved.columns[name].nbytes for name in COLUMNS},
    )
    yield frame(encode(head))
    for first in range(0, len(saved.endpoints), PART_ENDS):
        yield frame(encode(_Ends(endpoints=saved.endpoints[first : first + PART_ENDS])))
    for name in COLUMNS:
        data = _by_place(saved.columns[name])
        for first in range(0, len(data), PART_BYTES):
            yield frame(data[first : first + PART_BYTES])


def unpack(source: BinaryIO, *, now_ns: int, most_ns: int) -> SavedRoutes:
    """Return what a file holds; RemoteProtocolError if it is not whole, recent and ours.

    It is recent where it is not older than `most_ns`, nor ahead of the clock.
    """
    frames = (payload for _, _, payload in payloads(source))
    first = next(frames, None)
    if first is None:
        raise RemoteProtocolError("it is empty")
    head = decode(first, _Head, max_bytes=MAX_BYTES)
    if head.format != FORMAT or head.bytes.keys() != COLUMNS.keys():
        raise RemoteProtocolError(f"another version wrote it (format {head.format})")
    if not now_ns - most_ns <= head.at_ns <= now_ns:
        raise RemoteProtocolError(
            f"it ends {(now_ns - head.at_ns) / 1e9:.0f} s ago: too old, or the clock was set"
        )
    if min(head.bytes.values()) < 0 or sum(head.bytes.values()) > MAX_FILE_BYTES:
        raise RemoteProtocolError("columns of no such size")
    endpoints: tuple[EndpointId, ...] = ()
    while len(endpoints) < head.endpoints:
        endpoints += decode(_next(frames), _Ends, max_bytes=MAX_BYTES).endpoints
    columns = {name: _column(name, frames, size) for name, size in head.bytes.items()}
    if len(endpoints) != head.endpoints or next(frames, None) is not None:
        raise RemoteProtocolError("it holds more than it says")
    return SavedRoutes(head.at_ns, endpoints, head.names, head.leaf_of, columns)


def _by_place(column: NDArray[Any]) -> bytes:
    return column.view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _next(frames: Iterator[bytes]) -> bytes:
    found = next(frames, None)
    if found is None:
        raise RemoteProtocolError("its end is missing")
    return found


def _column(name: str, frames: Iterator[bytes], size: int) -> NDArray[Any]:
    data = bytearray()
    while len(data) < size:
        data += _next(frames)
    dtype = np.dtype(COLUMNS[name])
    if len(data) != size or size % dtype.itemsize:
        raise RemoteProtocolError(f"{name}: {len(data)} bytes")
    by_place = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(by_place.T).view(dtype).reshape(-1)
