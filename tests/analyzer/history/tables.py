# SPDX-License-Identifier: Apache-2.0
"""Windows of three endpoints of one host, row by row, and minutes of two pairs."""

from collections.abc import Mapping, Sequence

import numpy as np

from analyzer.history.blocks import Block, Table
from analyzer.history.spread import NOTHING, Spread, buckets_of, merged
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import WindowTable, joined
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.columns import pack
from netagent.wire.histogram import bucket_of
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


def block(
    start_ns: int,
    sent: Sequence[int] = (10, 20),
    lost: Sequence[int] = (0, 1),
    rtt: Sequence[int] = (1_000, 0),
    windows: int = 12,
    *,
    spread: bool = True,
) -> Block:
    """Return a minute of two pairs, a/rail0 -> b/rail0 and c/rail0 -> a/rail0.

    Its components, link x -- y and switch x, have the same numbers. Each of `rtt` that is not 0
    was measured five times; without `spread`, as an analyzer of before told it.
    """
    u4 = {name: np.array(each, np.uint32) for name, each in (("sent", sent), ("lost", lost))}
    u4["refused"] = np.zeros(2, np.uint32)
    u4["rtt_count"] = np.array([5 * (ns > 0) for ns in rtt], np.uint32)
    means = {"rtt_mean_ns": np.array(rtt, np.uint32)}
    others = {f"rtt_{name}_ns": np.array(rtt, np.uint32) for name in ("min", "max")}
    keys = {"source": np.array([0, 2]), "target": np.array([1, 0])}
    order = ("rtt_min_ns", "rtt_mean_ns", "rtt_max_ns")
    trips = spread_of(rtt) if spread else NOTHING
    found = trips.quantiles(u4["rtt_count"])
    exact = {name: np.minimum(np.array(rtt), found[name] << 16).astype(np.uint32) for name in found}
    pairs = Table(
        ("a/rail0", "b/rail0", "c/rail0"),
        keys,
        u4 | {n: (means | others)[n] for n in order} | exact,
        trips,
    )
    names = ("link x -- y", "switch x")
    components = Table(names, {"component": np.arange(2)}, u4 | means | found, trips)
    return Block(start_ns, windows, pairs, components)


def spread_of(rtt: Sequence[int]) -> Spread:
    """Return five round trips at each place of those that are not 0."""
    place = np.flatnonzero(rtt)
    fine = np.array([bucket_of(rtt[n]) for n in place.tolist()], np.uint16)
    return merged([(place, buckets_of(fine), np.full(len(place), 5))])
