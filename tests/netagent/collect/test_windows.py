# SPDX-License-Identifier: Apache-2.0
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.paths import PathsToSay, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import (
    ProbeFailed,
    ProbeLost,
    ProbeMeasured,
    ProbeRefused,
    ProbeReplied,
)
from netagent.wire.messages import Health
from netagent.wire.rounding import rounded_ns
from tests.oracles.rows import items

A, B, C = (EndpointId(name, 0) for name in "abc")
FLOWS = [FlowId(A, B, 40000), FlowId(A, B, 40001), FlowId(B, C, 40000)]
WINDOW = Window(0, 5)


def close(tally, paths=(), whole_ns=0):
    paths = PathsToSay(tuple(paths), whole_ns)
    return tally.close(WINDOW, host="h", instance="i", paths=paths, findings=(), health=Health())


def u16(data):
    return list(struct.unpack(f"<{len(data) // 2}H", data))


COUNTED = ("sent", "lost", "refused", "sent_large", "lost_large")
EVENTS = st.lists(
    st.tuples(st.sampled_from(FLOWS), st.sampled_from("rlfx"), st.integers(0, 2)), max_size=80
)


@given(EVENTS)
def test_columns_are_a_naive_count_of_the_events(script):
    tally = WindowTally(large_class=2)
    kinds = {"r": ProbeReplied, "f": ProbeRefused, "x": ProbeFailed}
    for n, (flow, kind, size) in enumerate(script):
        event = ProbeLost(flow, n, size, n) if kind == "l" else kinds[kind](flow, n, size)
        tally.add(event)
    summary = close(tally)
    rows = {}
    columns = summary.flows
    counted = [items(columns, name) for name in COUNTED]
    ends = [items(columns, name) for name in ("source", "target")]
    ports = items(columns, "source_port")
    for source, target, port, *counts in zip(*ends, ports, *counted, strict=True):
        rows[FlowId(summary.endpoints[source], summary.endpoints[target], port)] = tuple(counts)
    naive = {}
    for flow in FLOWS:
        mine = [(kind, size) for f, kind, size in script if f == flow and kind != "x"]
        if mine:
            naive[flow] = (
                len(mine),
                sum(k == "l" for k, _ in mine),
                sum(k == "f" for k, _ in mine),
                sum(s == 2 for _, s in mine),
                sum(k == "l" and s == 2 for k, s in mine),
            )
    assert rows == naive
    assert tally.take_send_errors() == sum(kind == "x" for _, kind, _ in script)


def test_a_run_of_losses_goes_on_over_windows_until_a_reply():
    tally = WindowTally(large_class=2)
    tally.add(ProbeLost(FLOWS[0], 1, 0, 1_000_000_000))
    close(tally)
    tally.add(ProbeLost(FLOWS[0], 2, 0, 3_000_000_000))
    second = close(tally)
    assert (items(second.flows, "run"), items(second.flows, "run_ms")) == ([2], [2000])
    tally.add(ProbeReplied(FLOWS[0], 3, 0))
    assert items(close(tally).flows, "run") == [0]


def test_round_trips_become_moments_and_a_histogram():
    tally = WindowTally(large_class=2)
    for seq, network_ns in enumerate((100_010, 200_010, 200_010)):
        tally.add(ProbeMeasured(FLOWS[0], seq, network_ns, 10, 20))
    flows = close(tally).flows
    assert (items(flows, "count"), items(flows, "min_ns"), items(flows, "max_ns")) == (
        [3],
        [rounded_ns(100_010)],
        [rounded_ns(200_010)],
    )
    (mean,) = struct.unpack("<f", flows.mean_ln)
    assert math.isclose(math.exp(mean), (1e5 * 2e5 * 2e5) ** (1 / 3), rel_tol=2e-3)
    assert items(flows, "hist_len") == [2]
    assert sorted(items(flows, "hist_count")) == [1, 2]
    assert (items(flows, "prober_ns"), items(flows, "responder_ns")) == ([10], [20])


@pytest.mark.parametrize("trips_ns", [(100_010,), (100_010, 200_010)])
def test_one_or_two_round_trips_are_told_by_their_extremes(trips_ns):
    tally = WindowTally(large_class=2)
    for seq, network_ns in enumerate(trips_ns):
        tally.add(ProbeMeasured(FLOWS[0], seq, network_ns, 10, 20))
    flows = close(tally).flows
    extremes = items(flows, "min_ns") + items(flows, "max_ns")
    assert extremes == [rounded_ns(trips_ns[0]), rounded_ns(trips_ns[-1])]
    assert (flows.hist_bucket, flows.hist_count) == (b"", b"")
    assert struct.unpack("<2f", flows.mean_ln + flows.var_ln) == (0.0, 0.0)


def test_a_quiet_flow_has_no_row_and_a_forgotten_one_no_memory():
    tally = WindowTally(large_class=2)
    tally.add(ProbeLost(FLOWS[0], 1, 0, 0))
    close(tally)
    assert close(tally).flows.source_port == b""
    tally.forget(set())
    tally.add(ProbeLost(FLOWS[0], 2, 0, 0))
    assert items(close(tally).flows, "run") == [1]


def test_paths_share_their_routes():
    hops = ("leaf-0", "", "leaf-1")
    paths = [
        TracedPath(FLOWS[0], reply=False, outer_port=1, hops=hops),
        TracedPath(FLOWS[1], reply=True, outer_port=2, hops=hops),
    ]
    columns = close(WindowTally(large_class=0), paths, whole_ns=7).paths
    assert (columns.routes, columns.whole_ns) == ((hops,), 7)
    assert (u16(columns.route), list(columns.reply), u16(columns.outer_port)) == (
        [0, 0],
        [0, 1],
        [1, 2],
    )


@given(st.permutations(FLOWS), st.booleans())
def test_the_same_endpoints_are_in_the_same_table(flows, slow):
    tally = WindowTally(large_class=2)
    for flow in flows:
        tally.add(ProbeReplied(flow, 1, 0))
    for number in range(4 * slow):  # whose rows come last
        tally.add(ProbeMeasured(flows[0], 1, 1000 + number, 0, 0))
    path = TracedPath(FlowId(C, A, 40000), reply=True, outer_port=1, hops=("leaf",))
    assert close(tally, [path]).endpoints == (A, B, C)


def test_rows_and_routes_that_are_alike_are_beside_each_other():
    tally, digests = WindowTally(large_class=2), {FLOWS[0]: 3, FLOWS[1]: 2, FLOWS[2]: 1}
    for flow, count in digests.items():
        for seq in range(count):
            tally.add(ProbeReplied(flow, seq, 0))
            tally.add(ProbeMeasured(flow, seq, 10_000, 0, 0))
    hops = [("l1", "s2", "l2"), ("l1", "s1", "l3"), ("l1", "s1", "l2"), ("l1", "s2", "l2")]
    paths = [
        TracedPath(FLOWS[0], reply=False, outer_port=n, hops=way) for n, way in enumerate(hops)
    ]
    summary = close(tally, paths)
    assert items(summary.flows, "count") == [1, 2, 3]
    assert summary.paths.routes == (hops[2], hops[0], hops[1])
    assert [summary.paths.routes[row] for row in u16(summary.paths.route)] == hops


def test_a_flow_that_ended_is_told_once_more_and_then_forgotten_with_its_run():
    tally = WindowTally(large_class=2)
    for flow in FLOWS[:2]:
        tally.add(ProbeLost(flow, 1, 0, 10))
    tally.end([FLOWS[0]])
    assert items(close(tally).flows, "source_port") == [40000, 40001]
    assert list(tally._flows) == [FLOWS[1]]
    tally.add(ProbeReplied(FLOWS[1], 2, 0))
    assert items(close(tally).flows, "source_port") == [40001]
    assert tally._ended == set()
