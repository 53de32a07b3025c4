# SPDX-License-Identifier: Apache-2.0
"""Summaries decoded one row and one item at a time: slow, literal, and what the benchmark beats."""

import struct
from typing import Any

from netagent.model.ids import FlowId
from netagent.wire.messages import Summary

ITEMS = {
    "sent": "I", "lost": "I", "refused": "I", "sent_large": "I", "lost_large": "I", "run": "H",
    "run_ms": "I", "count": "I", "min_ns": "I", "max_ns": "I", "mean_ln": "f", "var_ln": "f",
    "prober_ns": "I", "responder_ns": "I",
}  # fmt: skip


def rows_of(summary: Summary) -> list[dict[str, Any]]:
    """Return a dict per flow of the summary."""
    columns = summary.flows
    rows: list[dict[str, Any]] = []
    for i in range(len(columns.source) // 2):
        source, target, port = (
            struct.unpack_from("<H", getattr(columns, name), 2 * i)[0]
            for name in ("source", "target", "source_port")
        )
        row: dict[str, Any] = {
            "flow": FlowId(summary.endpoints[source], summary.endpoints[target], port)
        }
        for name, code in ITEMS.items():
            item = struct.Struct("<" + code)
            (row[name],) = item.unpack_from(getattr(columns, name), item.size * i)
        rows.append(row)
    return rows
