# SPDX-License-Identifier: Apache-2.0

from analyzer.history.figures import OTHERS, Group, Told
from analyzer.server.metrics.judged import judged

S = 10**9


def test_groups_windows_and_findings_are_told():
    group = Group(
        task="t", source="0", target="1", sent=10, lost=2, buckets=(1,) * 15, sum_s=0.5, round_s=2.0
    )
    others = Group(
        task=OTHERS, source=OTHERS, target=OTHERS, sent=1, lost=1, buckets=(0,) * 15, sum_s=0.0,
        round_s=0.0,
    )  # fmt: skip
    told = Told(
        groups=(others, group), windows=3, newest_end_ns=90 * S, flows=8, unknown_paths=2,
        findings={"rnic-down": 1}, history={"minutes_lost": 4},
    )  # fmt: skip
    found = {name: dict(rows) for name, rows in judged(told, age_ns=S, wall_ns=100 * S)}
    at, of_others = ("t", "0", "1"), (OTHERS, OTHERS, OTHERS)
    assert found["probes_sent_total"] == {at: 10, of_others: 1}
    assert found["probes_lost_total"] == {at: 2, of_others: 1}
    assert found["round_seconds"][at] == 2
    assert found["rtt_seconds"][at].total_s == 0.5
    assert (found["flows"], found["flows_path_unknown"]) == ({(): 8}, {(): 2})
    assert found["findings"] == {("rnic-down",): 1}
    assert found["window_age_seconds"] == {(): 10}
    assert found["figures_age_seconds"] == {(): 1}
    assert found["history_lost_total"] == {(): 4}


def test_before_the_first_window_there_is_no_age_of_one():
    names = [name for name, _ in judged(Told(), age_ns=0, wall_ns=1)]
    assert "window_age_seconds" not in names
