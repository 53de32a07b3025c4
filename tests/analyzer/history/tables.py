# SPDX-License-Identifier: Apache-2.0
"""Windows of three endpoints of one host, row by row."""

from collections.abc import Mapping, Sequence

import numpy as np

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import WindowTable, joined
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.columns import pack
from netagent.wire.messages import FlowColumns, Health, Summary

WIDTH_NS = 5 * 10**9
MINUTE_NS = 60 * 10**9
NAMES = [EndpointId(name, 0) for name in "abc"]
ENDPOINTS = {
    name: Endpoint(name, "t", "h", "", "", "", f"rnic{n}", "br-int", "p")
    for n, name in enumerate(NAMES)
}
Rows = Mapping[tuple[int, int, int], tuple[int, int, Sequence[int]]]
"""Places of source and target in NAMES and a port -> probes answered, lost, and round trips, ns."""


def table_of(rows: Rows, start_ns: int, numbers: FlowNumbers) -> tuple[Summary, WindowTable]:
    """Return a window of one host as it is sent, and as it is judged."""
    columns: dict[str, list[float]] = {
        name: [] for name in ("sent", "lost", "count", "min_ns", "max_ns", "mean_ln")
    }
    for sent, lost, rtts in rows.values():
        columns["sent"].append(sent + lost)
        columns["lost"].append(lost)
        columns["count"].append(len(rtts))
        columns["min_ns"].append(min(rtts, default=0))
        columns["max_ns"].append(max(rtts, default=0))
        columns["mean_ln"].append(float(np.log(rtts).mean()) if rtts else 0.0)
    others = ("refused", "sent_large", "lost_large", "run", "run_ms", "var_ln", "prober_ns",
              "responder_ns", "hist_len")  # fmt: skip
    zeros = [0] * len(rows)
    keys = [list(each) for each in zip(*rows, strict=True)] or [[], [], []]
    flows = pack(
        FlowColumns, source=keys[0], target=keys[1], source_port=keys[2], hist_bucket=[],
        hist_count=[], **columns, **dict.fromkeys(others, zeros),
    )  # fmt: skip
    summary = Summary(
        host="h", instance="i", start_ns=start_ns, width_ns=WIDTH_NS, endpoints=tuple(NAMES),
        flows=flows, health=Health(),
    )  # fmt: skip
    decoded = numbers.decode(summary)
    return summary, joined(decoded.window, {"h": decoded}, numbers)
