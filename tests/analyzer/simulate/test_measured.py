# SPDX-License-Identifier: Apache-2.0
import numpy as np

from analyzer.simulate.measured import Probes, Runs, columns_of


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
    assert told(got, "min_ns", "max_ns") == [[10_000, 40_000], [20_000, 40_000]]
    assert np.allclose(got["mean_ln"], [np.log(10_000 * 20_000) / 2, np.log(40_000)])
    assert np.allclose(got["var_ln"], [(np.log(2) / 2) ** 2, 0], atol=1e-9)
    assert told(got, "prober_ns", "responder_ns") == [[2_000, 2_000], [3_000, 3_000]]
    assert (got["hist_len"].tolist(), got["hist_count"].tolist()) == ([2, 1], [1, 1, 1])


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
