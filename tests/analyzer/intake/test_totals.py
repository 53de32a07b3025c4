# SPDX-License-Identifier: Apache-2.0

from analyzer.intake.reports import Report
from analyzer.intake.totals import MAX_COUNTERS, MOST_OF_COUNTER, MOST_OF_WINDOW, OTHERS, Totals
from netagent.wire.messages import Health


def report(health=None, counters=None, omitted=0):
    return Report(0, health or Health(), {"mlx5_0": counters or {}}, omitted, {})


def test_what_hosts_report_adds_up():
    totals = Totals()
    totals.add(report(Health(sent=5, capped=1), {"out_of_sequence": 3}))
    totals.add(report(Health(sent=2, send_errors=4), {"out_of_sequence": 2}, omitted=7))
    assert (totals.probes["sent"], totals.probes["capped"], totals.probes["send_errors"]) == (
        7,
        1,
        4,
    )
    assert (totals.counters, totals.omitted) == ({"out_of_sequence": 5}, 7)


def test_what_no_host_can_have_counts_up_to_a_bound():
    totals = Totals()
    totals.add(report(Health(sent=1 << 60, capped=-5), {"a": 1 << 63}))
    assert (totals.probes["sent"], totals.probes["capped"]) == (MOST_OF_WINDOW, 0)
    assert totals.counters["a"] == MOST_OF_COUNTER


def test_names_that_hosts_make_up_are_few():
    totals = Totals()
    for n in range(3 * MAX_COUNTERS):
        totals.add(report(counters={f"made_up_{n}": 1, 'odd"} 1\n': 1, "x" * 100: 1}))
    assert len(totals.counters) == MAX_COUNTERS
    assert totals.counters["made_up_0"] == 1
    assert totals.counters.total() == 9 * MAX_COUNTERS
    assert totals.counters[OTHERS] == 9 * MAX_COUNTERS - (MAX_COUNTERS - 1)
