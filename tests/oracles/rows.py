# SPDX-License-Identifier: Apache-2.0
"""Summaries decoded one row and one item at a time: slow, literal, and what the benchmark beats."""

import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from netagent.model.ids import FlowId
from netagent.wire.histogram import bucket_of
from netagent.wire.messages import FlowColumns, Summary
from netagent.wire.rounding import FEW

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
    lengths = items(summary.flows, "hist_len")
    names = ("hist_bucket", "hist_count")
    entries = zip(*(items(summary.flows, name) for name in names), strict=True)
    rows: list[dict[str, Any]] = []
    for i in range(len(columns["source_port"])):
        source, target, port = (columns[name][i] for name in KEY)
        row: dict[str, Any] = {
            "flow": FlowId(summary.endpoints[source], summary.endpoints[target], port)
        }
        for name in ITEMS:
            row[name] = columns[name][i]
        row["buckets"] = _buckets(row, entries, lengths[i] if lengths else 0)
        rows.append(row)
    return rows


def _buckets(row: dict[str, Any], entries: Iterator[tuple[int, int]], length: int) -> Counter[int]:
    """Return a row's round trips by bucket; of one or two, they follow from the extremes."""
    if row["count"] and row["count"] <= FEW and not length and not row["mean_ln"]:
        ends = (row["min_ns"], row["max_ns"])[: row["count"]]
        return Counter(bucket_of(each) for each in ends)
    found = Counter[int]()
    for bucket, count in islice(entries, length):
        found[bucket] += count
    return found
