# SPDX-License-Identifier: Apache-2.0
"""Baselines of round trips as a file: frames of columns, each with its checksum.

The first frame says which columns follow and of how many flows; each further one has some flows.
A file of another version, a damaged one, or one whose end is missing is refused as a whole: whoever
reads it begins anew.
"""

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.detect.latency.saved import Columns, Saved
from analyzer.detect.latency.slowness import MAX_SAVED, Slowness
from analyzer.replay.frames import MAX_BYTES, frame, payloads
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.wire.codec import decode, encode

FORMAT = 1
"""Version of the file; a reader takes no other. It grows when a column gets another meaning."""
CHUNK_FLOWS = 16_384
"""Flows in a frame. Chosen: some megabytes, a quarter of what a frame may hold."""
AGE_NS = 24 * 3600 * 10**9
"""Nanoseconds after which nobody knows any more whether baselines still hold. Chosen: as long as
`drift` keeps a reference."""
AHEAD_NS = 60 * 10**9
"""Nanoseconds that baselines may be ahead of the clock. Chosen: a clock that was set back by more
makes their age unknown."""


class _Head(Struct, frozen=True, kw_only=True):
    format: int
    until_ns: int
    drift_window: int
    flows: int
    columns: dict[str, tuple[str, list[int]]]
    """Name -> type, and shape of one flow's part."""


class _Chunk(Struct, frozen=True, kw_only=True):
    endpoints: tuple[EndpointId, ...]
    source: bytes
    target: bytes
    port: bytes
    columns: dict[str, bytes]


def pack(saved: Saved) -> Iterator[bytes]:
    """Yield the file's frames."""
    head = _Head(
        format=FORMAT,
        until_ns=saved.until_ns,
        drift_window=saved.drift_window,
        flows=len(saved.flows),
        columns=_shapes(saved.columns),
    )
    yield frame(encode(head))
    for first in range(0, len(saved.flows), CHUNK_FLOWS):
        yield frame(encode(_chunk(saved, slice(first, first + CHUNK_FLOWS))))


def _chunk(saved: Saved, part: slice) -> _Chunk:
    flows = saved.flows[part]
    ends = sorted({end for flow in flows for end in (flow.source, flow.target)})
    place = {end: n for n, end in enumerate(ends)}
    return _Chunk(
        endpoints=tuple(ends),
        source=np.array([place[f.source] for f in flows], "<u4").tobytes(),
        target=np.array([place[f.target] for f in flows], "<u4").tobytes(),
        port=np.array([f.source_port for f in flows], "<u2").tobytes(),
        columns={name: of[part].tobytes() for name, of in saved.columns.items()},
    )


def unpack(source: BinaryIO, *, now_ns: int) -> Saved:
    """Return what a file holds; RemoteProtocolError if it is not whole, recent and ours."""
    frames = (payload for _, _, payload in payloads(source))
    first = next(frames, None)
    if first is None:
        raise RemoteProtocolError("it is empty")
    head = decode(first, _Head)
    _check(head, now_ns)
    chunks = [decode(each, _Chunk, max_bytes=MAX_BYTES) for each in _few(frames)]
    flows = tuple(flow for chunk in chunks for flow in _flows(chunk))
    if len(flows) != head.flows:
        raise RemoteProtocolError(f"it has {len(flows)} of {head.flows} flows")
    columns = {
        name: _column(name, [chunk.columns.get(name, b"") for chunk in chunks], head)
        for name in head.columns
    }
    return Saved(head.until_ns, head.drift_window, flows, columns)


def _check(head: _Head, now_ns: int) -> None:
    if head.format != FORMAT or head.columns != EXPECTED:
        raise RemoteProtocolError(f"another version wrote it (format {head.format})")
    if not 0 <= head.flows <= MAX_SAVED:
        raise RemoteProtocolError(f"{head.flows} flows; {MAX_SAVED} at most")
    if not now_ns - AGE_NS <= head.until_ns <= now_ns + AHEAD_NS:
        raise RemoteProtocolError(
            f"it ends {(now_ns - head.until_ns) / 1e9:.0f} s ago: too old, or the clock was set"
        )


def _few(frames: Iterator[bytes]) -> Iterator[bytes]:
    most = math.ceil(MAX_SAVED / CHUNK_FLOWS)
    for number, each in enumerate(frames):
        if number >= most:
            raise RemoteProtocolError(f"more than {most} frames of flows")
        yield each


def _flows(chunk: _Chunk) -> Iterator[FlowId]:
    try:
        source, target = (np.frombuffer(each, "<u4") for each in (chunk.source, chunk.target))
        port = np.frombuffer(chunk.port, "<u2")
        for a, b, p in zip(source.tolist(), target.tolist(), port.tolist(), strict=True):
            yield FlowId(chunk.endpoints[a], chunk.endpoints[b], p)
    except (IndexError, ValueError) as error:
        raise RemoteProtocolError(f"its flows do not agree: {error}") from error


def _column(name: str, parts: list[bytes], head: _Head) -> NDArray[Any]:
    dtype, shape = head.columns[name]
    try:
        made = np.frombuffer(b"".join(parts), dtype).reshape(head.flows, *shape)
    except ValueError as error:
        raise RemoteProtocolError(f"{name}: {error}") from error
    if made.dtype.kind == "f" and not np.isfinite(made).all():
        raise RemoteProtocolError(f"{name} holds what is no number")
    if made.dtype.kind == "i" and (made < 0).any():
        raise RemoteProtocolError(f"{name} is negative")
    return made


def _shapes(columns: Columns) -> dict[str, tuple[str, list[int]]]:
    return {name: (of.dtype.str, list(of.shape[1:])) for name, of in columns.items()}


EXPECTED = _shapes(Slowness().columns(np.zeros(0, np.int64)))
"""Columns that this version writes."""
