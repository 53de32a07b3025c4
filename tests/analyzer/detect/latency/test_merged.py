# SPDX-License-Identifier: Apache-2.0
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.latency import merged
from analyzer.detect.latency.merged import MAX, MEAN, MIN, P25, P50, P75, STD, longer, merge, needed
from analyzer.intake.flows import FlowNumbers
from netagent.probing.digest import Digest
from netagent.wire.histogram import value_of
from tests.analyzer.detect.latency.trips import flow, window

TRIPS = st.lists(st.integers(1, 4_000_000_000), max_size=12)
WINDOWS = st.lists(st.fixed_dictionaries({1: TRIPS, 2: TRIPS, 3: TRIPS}), min_size=1, max_size=6)


def rows_of(windows):
    numbers = FlowNumbers()
    return numbers, [
        exact(numbers, {flow(port): trips for port, trips in each.items() if trips})
        for each in windows
    ]


def exact(numbers, trips):
    """Return a window's rows as they are without rounding."""
    rows = window(numbers, trips)
    digests = [Digest() for _ in trips]
    known = {numbers.known(each): of for each, of in trips.items()}
    for digest, each in zip(digests, map(known.get, rows.flow.tolist()), strict=True):
        for rtt_ns in each:
            digest.add(rtt_ns)
    names = ("min_ns", "max_ns", "mean_ln", "var_ln")
    told = {name: np.array([getattr(d, name) for d in digests]) for name in names}
    entries = [entry for d in digests for entry in sorted(d.buckets.items())]
    bucket, count = np.array(entries, np.int64).reshape(-1, 2).T
    lengths = np.array([len(d.buckets) for d in digests], np.uint16)
    return replace(rows, hist_len=lengths, hist_bucket=bucket, hist_count=count, **told)


@given(WINDOWS)
def test_windows_together_are_what_one_digest_of_all_is(windows):
    numbers, rows = rows_of(windows)
    together = merge(rows)
    for port in (1, 2, 3):
        every = [rtt for each in windows for rtt in each[port]]
        number = numbers.known(flow(port))
        if not every:
            assert number is None or number not in together.flow
            continue
        place = together.flow.tolist().index(number)
        digest = Digest()
        for rtt in every:
            digest.add(rtt)
        seven = together.seven[:, place]
        assert together.count[place] == together.told[place] == len(every)
        assert together.mean_ln[place] == pytest.approx(digest.mean_ln, abs=1e-5)
        assert together.var_ln[place] == pytest.approx(digest.var_ln, abs=1e-4)
        assert (seven[MIN], seven[MAX]) == (min(every), max(every))
        for row, share in ((P25, 0.25), (P50, 0.5), (P75, 0.75)):
            assert seven[row] == pytest.approx(digest.quantile(share))
        values = [value_of(b) for b, count in digest.buckets.items() for _ in range(count)]
        assert seven[MEAN] == pytest.approx(np.mean(values))
        assert seven[STD] == pytest.approx(np.std(values), abs=1e-3 * max(values))


@given(WINDOWS, st.integers(1, 3))
def test_it_is_the_same_however_many_flows_are_merged_at_once(windows, together):
    _, rows = rows_of(windows)
    old = [replace(each, hist_len=each.hist_len[:0]) for each in rows[:1]]
    for each in (rows, [*old, *rows[1:]], []):
        whole = merge(each)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merged, "FLOWS_AT_ONCE", together)
            parts = merge(each)
        for column in fields(merged.Merged):
            one, other = (getattr(found, column.name) for found in (whole, parts))
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)


@given(WINDOWS)
def test_what_waits_to_be_merged_is_told_as_all_of_it_would_be(windows):
    _, rows = rows_of(windows)
    waiting = [needed(each) for each in rows]
    assert all(each.sent.strides == (0,) for each in waiting)
    assert {each.count.itemsize for each in waiting} == {1}  # round trips of a flow, a dozen
    for one, other in ((rows, waiting), (rows, [each.only(each.flow >= 0) for each in waiting])):
        whole, told = merge(one), merge(other)
        for column in fields(merged.Merged):
            assert np.array_equal(getattr(whole, column.name), getattr(told, column.name))


@given(WINDOWS, st.randoms())
def test_order_says_nothing(windows, random):
    _, rows = rows_of(windows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = merge(rows), merge(shuffled)
    assert one.flow.tolist() == other.flow.tolist()
    assert np.allclose(one.seven, other.seven)
    assert np.allclose(one.mean_ln, other.mean_ln)


def test_flows_that_come_one_by_one_are_moved_seldom_and_leave_little_unused():
    columns, moved = np.arange(2 * 1024).reshape(2, 1024), 0
    for size in range(1, 50_000):
        before, columns = columns, longer(columns, size)
        moved += columns is not before
        assert size <= columns.shape[1] <= max(1024, 1.125 * size)
    assert moved < 50
    assert columns[:, :1024].tolist() == np.arange(2 * 1024).reshape(2, 1024).tolist()
    assert not columns[:, 1024:].any()


def test_no_window_is_no_flow():
    assert len(merge([]).flow) == 0
