# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.reports import (
    FORGET_NS,
    MAX_COUNTERS,
    MAX_STAMPS,
    STAMPS,
    Reports,
    report_of,
)
from analyzer.intake.windows import AHEAD_NS
from netagent.collect.windows import NOT_OURS
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.probing.session import Stamps
from netagent.wire.columns import pack
from netagent.wire.messages import CounterColumns, Health, Summary

A, B = EndpointId("a", 0), EndpointId("b", 0)


def summary(**fields) -> Summary:
    return Summary(host="h0", instance="i", start_ns=5, width_ns=1, **fields)


def test_the_numbers_of_stamps_are_the_agents():
    assert [each.name.lower() for each in Stamps] == list(STAMPS)


def test_a_report_has_health_counters_and_who_stamps():
    columns = pack(
        CounterColumns,
        device=(0, 1, 1),
        counter=(0, 0, 1),
        delta=(3, 4, 1 << 40),
        devices=("mlx5_0", "mlx5_1"),
        counters=("link_downed", "port_rcv_data"),
    )
    health = Health(pending=2)
    stamps = bytes([Stamps.RNIC, NOT_OURS])
    report = report_of(summary(endpoints=(A, B), stamps=stamps, counters=columns, health=health))
    assert report.stamps == {A: "rnic"}
    assert report.health.pending == 2
    assert report.counters == {
        "mlx5_0": {"link_downed": 3},
        "mlx5_1": {"link_downed": 4, "port_rcv_data": 1 << 40},
    }


def test_a_summary_without_them_reports_nothing():
    report = report_of(summary(endpoints=(A,)))
    assert (report.stamps, report.counters) == ({}, {})


@given(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=17), st.binary(max_size=3))
def test_columns_that_do_not_agree_are_refused(device, counter, delta, stamps):
    columns = CounterColumns(
        device=device, counter=counter, delta=delta, devices=("d",), counters=("c",)
    )
    odd = summary(endpoints=(A, B), counters=columns, stamps=stamps)
    rows = len(device) / 2
    agree = (
        rows == len(counter) / 2 == len(delta) / 8
        and not any(device + counter)
        and len(stamps) in {0, 2}
    )
    if agree and rows == int(rows):
        report_of(odd)
    else:
        with pytest.raises(RemoteProtocolError):
            report_of(odd)


def test_a_report_of_the_future_gives_way_to_one_of_the_present():
    reports, now_ns = Reports(), 10 * AHEAD_NS
    for start_ns, now in ((now_ns + 5, now_ns), (now_ns + 1, now_ns + 2)):
        reports.take("h0", replace(report_of(summary()), start_ns=start_ns), now)
    assert reports.of("h0").start_ns == now_ns + 1


def test_the_newest_report_of_a_host_is_kept_unless_its_clock_is_ahead():
    def report(start_ns):
        return report_of(Summary(host="h0", instance="i", start_ns=start_ns, width_ns=1))

    now_ns, reports = 10 * FORGET_NS, Reports()
    assert reports.of("h0") is None
    for start_ns in (now_ns - 9, now_ns - 5, now_ns - 7, now_ns + AHEAD_NS + 1):
        reports.take("h0", report(start_ns), now_ns)
    assert reports.of("h0").start_ns == now_ns - 5
    reports.forget(now_ns)
    assert reports.of("h0").start_ns == now_ns - 5
    reports.forget(now_ns + FORGET_NS)
    assert reports.of("h0") is None


def test_one_host_says_no_more_than_is_kept_of_one():
    """A summary of 16 MiB has room for more than a million counters, 100 MB as a dictionary."""

    def counted(count):
        rows = {"device": range(count), "counter": range(count), "delta": [1] * count}
        every = tuple(map(str, range(count)))
        return report_of(
            summary(counters=pack(CounterColumns, **rows, devices=every, counters=every))
        )

    assert len(counted(MAX_COUNTERS).counters) == MAX_COUNTERS
    with pytest.raises(RemoteProtocolError, match="4097 counters"):
        counted(MAX_COUNTERS + 1)
    for name in ("devices", "counters"):
        columns = CounterColumns(**{name: ("n" * 256,)})
        with pytest.raises(RemoteProtocolError, match="255 characters"):
            report_of(summary(counters=columns))
    ends = tuple(EndpointId("a", n) for n in range(MAX_STAMPS + 1))
    others = summary(endpoints=ends, stamps=bytes([NOT_OURS]) * len(ends))
    assert report_of(others).stamps == {}
    with pytest.raises(RemoteProtocolError, match="4097 endpoints"):
        report_of(summary(endpoints=ends, stamps=bytes(len(ends))))
