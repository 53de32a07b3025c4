# SPDX-License-Identifier: Apache-2.0
"""Summaries decoded one row and one item at a time: slow, literal, and what the benchmark beats."""

import struct
from typing import Any

from netagent.model.ids import FlowId
from netagent.wire.messages import FlowColumns, Summary

KEY = ("source", "target", "source_port")
ITEMS = {
    "sent": "I", "lost": "I", "refused": "I", "sent_large": "I", "lost_large": "I", "run": "H",
    "run_ms": "I", "count": "I", "min_ns": "I", "max_ns": "I", "mean_ln": "f", "var_ln": "f",
    "prober_ns": "I", "responder_ns": "I",
}  # fmt: skip


def items(columns: FlowColumns, name: str) -> list[Any]:
    """Return the items of a column, whatever its width."""
    rows = len(columns.source_port) // 2
    if name in {"hist_bucket", "hist_count"}:
        rows = sum(items(columns, "hist_len"))
    data: bytes = getattr(columns, name)
    if ITEMS.get(name) == "f":
        return [each for (each,) in struct.iter_unpack("<f", data)]
    width = len(data) // rows if rows else 0
    return [int.from_bytes(data[width * n : width * (n + 1)], "little") for n in range(rows)]


def rows_of(summary: Summary) -> list[dict[str, Any]]:
    """Return a dict per flow of the summary."""
    columns = {name: items(summary.flows, name) for name in (*KEY, *ITEMS)}
    rows: list[dict[str, Any]] = []
    for i in range(len(columns["source_port"])):
        source, target, port = (columns[name][i] for name in KEY)
        row: dict[str, Any] = {
            "flow": FlowId(summary.endpoints[source], summary.endpoints[target], port)
        }
        for name in ITEMS:
            row[name] = columns[name][i]
        rows.append(row)
    return rows
