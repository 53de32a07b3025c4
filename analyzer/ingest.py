# SPDX-License-Identifier: Apache-2.0
"""Summaries into arrays: one decoded window of one host, its flows numbered across the cluster.

An agent sends the same rows window after window, so the numbers of a whole key block are remembered
and found again by the block's bytes. A flow keeps its number while it is seen; restarted agents
choose new source ports, so numbers unseen for long are given anew.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.wire.messages import FlowColumns, Summary

MAX_BLOCKS = 65_536
"""Key blocks remembered; when full, all are forgotten and found again."""

MAX_LN = 100.0
"""No moment of ln(ns) of a round trip comes near; also catches what is not finite."""

_Block = tuple[tuple[EndpointId, ...], bytes, bytes, bytes]
_FOUR_BYTES = ("sent", "lost", "refused", "sent_large", "lost_large", "run_ms", "count",
               "min_ns", "max_ns", "prober_ns", "responder_ns")  # fmt: skip
_FLOATS = ("mean_ln", "var_ln")


@dataclass(frozen=True, slots=True)
class WindowRows:
    """One host's window; arrays are (n_flows,), as in `FlowColumns`, without the histogram."""

    host: str
    instance: str
    window: Window
    flow: NDArray[np.int64]
    """Number of the flow in the `FlowNumbers` that decoded it."""
    sent: NDArray[np.uint32]
    lost: NDArray[np.uint32]
    refused: NDArray[np.uint32]
    sent_large: NDArray[np.uint32]
    lost_large: NDArray[np.uint32]
    run: NDArray[np.uint16]
    run_ms: NDArray[np.uint32]
    count: NDArray[np.uint32]
    min_ns: NDArray[np.uint32]
    max_ns: NDArray[np.uint32]
    mean_ln: NDArray[np.float32]
    var_ln: NDArray[np.float32]
    prober_ns: NDArray[np.uint32]
    responder_ns: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class PathRow:
    """The routers one direction of a flow crossed, as traced by the sender's host."""

    flow: FlowId
    reply: bool
    outer_port: int
    hops: tuple[str, ...]


class FlowNumbers:
    """Numbers flows 0, 1, 2 … in the order met."""

    def __init__(self) -> None:
        self._number: dict[FlowId, int] = {}
        self._flows: list[FlowId] = []
        self._free: list[int] = []
        self._seen_ns = np.zeros(1024, np.int64)
        """Start of the newest window that had the flow, by number."""
        self._blocks: dict[_Block, NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self._number)

    def flow(self, number: int) -> FlowId:
        """Return the flow of a number."""
        return self._flows[number]

    def decode(self, summary: Summary) -> WindowRows:
        """Return the summary's flows; RemoteProtocolError where columns do not agree."""
        columns = summary.flows
        block = (summary.endpoints, columns.source, columns.target, columns.source_port)
        numbers = self._blocks.get(block)
        if numbers is None:
            numbers = self._number_block(block)
        self._seen_ns[numbers] = np.maximum(self._seen_ns[numbers], summary.start_ns)
        rows = len(numbers)
        arrays = {name: column(columns, name, "<u4", rows) for name in _FOUR_BYTES}
        moments = {name: column(columns, name, "<f4", rows) for name in _FLOATS}
        if not all(((each >= 0) & (each < MAX_LN)).all() for each in moments.values()):
            raise RemoteProtocolError("a moment of ln(ns) is out of range")
        window = Window(summary.start_ns, summary.width_ns)
        run = column(columns, "run", "<u2", rows)
        return WindowRows(
            summary.host, summary.instance, window, numbers, run=run, **arrays, **moments
        )

    def recycle(self, *, before_ns: int) -> NDArray[np.int64]:
        """Forget flows that no window since `before_ns` had; return their numbers, now free."""
        old = [n for n in self._number.values() if self._seen_ns[n] < before_ns]
        for number in old:
            del self._number[self._flows[number]]
        self._free += old
        if old:
            self._blocks.clear()
        return np.array(old, np.int64)

    def _number_block(self, block: _Block) -> NDArray[np.int64]:
        endpoints, *key_columns = block
        source, target, port = (np.frombuffer(_even(each), "<u2") for each in key_columns)
        if not len(source) == len(target) == len(port):
            raise RemoteProtocolError("key columns of different length")
        if len(source) and max(int(source.max()), int(target.max())) >= len(endpoints):
            raise RemoteProtocolError("a row names an endpoint beyond the table")
        if len(self._blocks) >= MAX_BLOCKS:
            self._blocks.clear()
        numbers = np.fromiter(
            (
                self._number_of(FlowId(endpoints[a], endpoints[b], p))
                for a, b, p in zip(source.tolist(), target.tolist(), port.tolist(), strict=True)
            ),
            np.int64,
            len(source),
        )
        if len(np.unique(numbers)) != len(numbers):
            raise RemoteProtocolError("a flow stands in two rows")
        self._blocks[block] = numbers
        return numbers

    def _number_of(self, flow: FlowId) -> int:
        number = self._number.get(flow)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self._flows[number] = flow
        else:
            number = len(self._flows)
            self._flows.append(flow)
        if number >= len(self._seen_ns):
            self._seen_ns = np.concatenate([self._seen_ns, np.zeros_like(self._seen_ns)])
        self._number[flow] = number
        return number


def column(columns: FlowColumns, name: str, dtype: str, rows: int) -> NDArray[Any]:
    """Return a column as an array of `rows` items; RemoteProtocolError where its size differs."""
    data: bytes = getattr(columns, name)
    if len(data) != rows * np.dtype(dtype).itemsize:
        raise RemoteProtocolError(f"column {name}: {len(data)} bytes for {rows} rows")
    return np.frombuffer(data, dtype)


def paths_of(summary: Summary) -> list[PathRow]:
    """Return the summary's traced paths; RemoteProtocolError where columns do not agree."""
    paths = summary.paths
    words = [
        np.frombuffer(_even(each), "<u2").tolist()
        for each in (paths.source, paths.target, paths.source_port, paths.outer_port, paths.route)
    ]
    try:
        return [
            PathRow(
                FlowId(summary.endpoints[a], summary.endpoints[b], port),
                bool(reply),
                outer,
                paths.routes[route],
            )
            for a, b, port, outer, route, reply in zip(*words, paths.reply, strict=True)
        ]
    except (IndexError, ValueError) as error:
        raise RemoteProtocolError(f"path columns do not agree: {error}") from error


def _even(data: bytes) -> bytes:
    if len(data) % 2:
        raise RemoteProtocolError(f"{len(data)} bytes are no array of u16")
    return data
