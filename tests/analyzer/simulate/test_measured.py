# SPDX-License-Identifier: Apache-2.0
from operator import itemgetter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.columns import packed
from analyzer.simulate.measured import Probes, Runs, columns_of, in_order
from analyzer.simulate.messages import MEASURED
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeMeasured, ProbeReplied
from netagent.wire.messages import FlowColumns, Health
from netagent.wire.rounding import PER_LN


def probes(flow, lost, rtt_ns=None, at_ms=None, refused=None, large=None):
    n = len(flow)
    at_ms = range(n) if at_ms is None else at_ms
    return Probes(
        np.asarray(flow),
        1_000_000 * np.asarray(at_ms),
        np.asarray(large or [False] * n),
        np.asarray(lost, np.bool_),
        np.asarray(refused or [False] * n),
        np.asarray(rtt_ns or [10_000.0] * n, np.float64),
        np.stack([np.full(n, 2_000.0), np.full(n, 3_000.0)]),
    )


def told(columns, *names):
    return [columns[name].tolist() for name in names]


def test_each_flow_has_a_row_of_what_it_sent_lost_and_measured():
    got = columns_of(
        probes([3, 3, 3, 8], [0, 1, 0, 0], [10_000.0, 7e9, 20_000.0, 40_000.0]), Runs.of(9)
    )
    assert told(got, "flow", "sent", "lost", "count") == [[3, 8], [3, 1], [1, 0], [2, 1]]
    assert told(got, "prober_ns", "responder_ns") == [[2_048, 2_048], [3_072, 3_072]]


FLOWS = [FlowId(EndpointId("a", 0), EndpointId("b", 0), port) for port in range(4)]
ROUND_TRIPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2**32 - 1)), min_size=1)


@given(ROUND_TRIPS)
def test_round_trips_are_told_as_agents_tell_them(measured):
    measured.sort(key=itemgetter(0))
    tally = WindowTally(large_class=2)
    for seq, (flow, rtt_ns) in enumerate(measured):
        tally.add(ProbeReplied(FLOWS[flow], seq, 0))
        tally.add(ProbeMeasured(FLOWS[flow], seq, rtt_ns, 2_000, 3_000))
    window = Window(0, 5)
    summary = tally.close(window, host="h0", instance="1", findings=(), health=Health())
    flow, rtt_ns = zip(*measured, strict=True)
    got = columns_of(probes(flow, [False] * len(flow), list(map(float, rtt_ns))), Runs.of(4))
    got = in_order(got | {"source_port": got["flow"]})
    for name in ("source_port", *MEASURED, "hist_bucket", "hist_count"):
        ours = packed(FlowColumns, name, got[name])
        if name in {"mean_ln", "var_ln"}:  # sums in another order
            both = (np.frombuffer(each, "<f4") for each in (ours, getattr(summary.flows, name)))
            assert np.allclose(*both, rtol=0.07, atol=1 / PER_LN + 1e-6)
        elif name not in {"run", "run_ms"}:
            assert ours == getattr(summary.flows, name), name


def test_what_is_lost_or_refused_is_no_round_trip():
    got = columns_of(probes([1, 1], [1, 0], refused=[False, True]), Runs.of(2))
    assert told(got, "sent", "lost", "refused", "count") == [[2], [1], [1], [0]]
    assert told(got, "min_ns", "max_ns", "mean_ln", "hist_len") == [[0], [0], [0], [0]]


def test_large_probes_are_counted_by_themselves():
    got = columns_of(probes([1] * 3, [1, 1, 0], large=[True, False, True]), Runs.of(2))
    assert told(got, "sent_large", "lost_large") == [[2], [1]]


def test_losses_in_a_row_go_on_over_windows():
    runs = Runs.of(2)
    seen = [
        told(columns_of(probes([1] * 3, lost, at_ms=at), runs), "run", "run_ms")
        for lost, at in (([0, 1, 1], [0, 5, 9]), ([1] * 3, [20, 25, 29]), ([1, 0, 1], [40, 45, 49]))
    ]
    assert seen == [[[2], [4]], [[5], [24]], [[1], [0]]]


def test_some_of_the_probes_are_those_in_all_columns():
    made = probes([1, 2, 3], [0, 1, 0]).of(np.asarray([1, 2]))
    assert (made.flow.tolist(), made.lost.tolist()) == ([2, 3], [True, False])
    assert made.kept_ns.shape == (2, 2)


def test_probes_of_two_windows_are_those_of_one():
    one = probes([1, 2], [0, 1]).and_then(probes([1, 3], [1, 0], at_ms=[7, 8]))
    assert told(columns_of(one, Runs.of(4)), "flow", "sent", "lost") == [
        [1, 2, 3], [2, 1, 1], [1, 1, 0],
    ]  # fmt: skip


def test_flows_that_are_gone_are_left_out_under_new_numbers():
    assert probes([1, 2, 3], [0, 1, 0]).renumbered({1: 9, 3: 4}).flow.tolist() == [4, 9]


def test_of_no_probes_nothing_is_told():
    assert columns_of(probes([], []), Runs.of(2))["sent"].tolist() == []
