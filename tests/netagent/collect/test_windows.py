# SPDX-License-Identifier: Apache-2.0
import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.windows import TracedPath, WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import (
    ProbeFailed,
    ProbeLost,
    ProbeMeasured,
    ProbeRefused,
    ProbeReplied,
)
from netagent.wire.columns import pack_column
from netagent.wire.messages import FlowColumns, Health

A, B, C = (EndpointId(name, 0) for name in "abc")
FLOWS = [FlowId(A, B, 40000), FlowId(A, B, 40001), FlowId(B, C, 40000)]
WINDOW = Window(0, 5)


def close(tally, paths=()):
    return tally.close(WINDOW, host="h", instance="i", paths=paths, findings=(), health=Health())


def u32(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def u16(data):
    return list(struct.unpack(f"<{len(data) // 2}H", data))


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
    for i, port in enumerate(u16(columns.source_port)):
        key = FlowId(
            summary.endpoints[u16(columns.source)[i]],
            summary.endpoints[u16(columns.target)[i]],
            port,
        )
        rows[key] = (u32(columns.sent)[i], u32(columns.lost)[i], u32(columns.refused)[i],
                     u32(columns.sent_large)[i], u32(columns.lost_large)[i])  # fmt: skip
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
    assert (u16(second.flows.run), u32(second.flows.run_ms)) == ([2], [2000])
    tally.add(ProbeReplied(FLOWS[0], 3, 0))
    assert u16(close(tally).flows.run) == [0]


def test_round_trips_become_moments_and_a_histogram():
    tally = WindowTally(large_class=2)
    for seq, network_ns in enumerate((100_000, 200_000, 200_000)):
        tally.add(ProbeMeasured(FLOWS[0], seq, network_ns, 10, 20))
    flows = close(tally).flows
    assert (u32(flows.count), u32(flows.min_ns), u32(flows.max_ns)) == ([3], [100_000], [200_000])
    (mean,) = struct.unpack("<f", flows.mean_ln)
    assert math.isclose(math.exp(mean), (1e5 * 2e5 * 2e5) ** (1 / 3), rel_tol=1e-4)
    assert u16(flows.hist_len) == [2]
    assert sorted(u32(flows.hist_count)) == [1, 2]
    assert (u32(flows.prober_ns), u32(flows.responder_ns)) == ([10], [20])


def test_a_quiet_flow_has_no_row_and_a_forgotten_one_no_memory():
    tally = WindowTally(large_class=2)
    tally.add(ProbeLost(FLOWS[0], 1, 0, 0))
    close(tally)
    assert close(tally).flows.sent == b""
    tally.forget(set())
    tally.add(ProbeLost(FLOWS[0], 2, 0, 0))
    assert u16(close(tally).flows.run) == [1]


def test_paths_share_their_routes():
    hops = ("leaf-0", "", "leaf-1")
    paths = [
        TracedPath(FLOWS[0], reply=False, outer_port=1, hops=hops),
        TracedPath(FLOWS[1], reply=True, outer_port=2, hops=hops),
    ]
    columns = close(WindowTally(large_class=0), paths).paths
    assert columns.routes == (hops,)
    assert (u16(columns.route), list(columns.reply), u16(columns.outer_port)) == (
        [0, 0],
        [0, 1],
        [1, 2],
    )


@given(st.lists(st.integers(0, 0xFFFFFFFF)))
def test_columns_are_little_endian(values):
    assert u32(pack_column(FlowColumns, "sent", values)) == values


def test_a_flow_that_ended_is_told_once_more_and_then_forgotten_with_its_run():
    tally = WindowTally(large_class=2)
    for flow in FLOWS[:2]:
        tally.add(ProbeLost(flow, 1, 0, 10))
    tally.end([FLOWS[0]])
    assert u16(close(tally).flows.source_port) == [40000, 40001]
    assert list(tally._flows) == [FLOWS[1]]
    tally.add(ProbeReplied(FLOWS[1], 2, 0))
    assert u16(close(tally).flows.source_port) == [40001]
    assert tally._ended == set()
