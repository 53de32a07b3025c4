# SPDX-License-Identifier: Apache-2.0

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.history.spread import RATIO, SHARES
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.rows import ALL, MOST, PART_ROWS, SPREADING, known, ranges, selected, spread


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    with Parquet(folder / "spill") as opened:
        yield opened, folder


def write(parquet, folder, rows):
    """Write rows of (key, {bucket: count}) as histograms."""
    path = folder / "trips.parquet"
    values = {
        "key": [key for key, _ in rows],
        "buckets": [list(each) for _, each in rows],
        "counts": [list(each.values()) for _, each in rows],
    }
    query = """SELECT unnest($key::BIGINT[]) AS key,
        unnest($buckets::USMALLINT[][]) AS rtt_buckets,
        unnest($counts::UINTEGER[][]) AS rtt_counts"""
    parquet.write(path, query, values)
    return names_of([path])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.dictionaries(st.integers(0, 278), st.integers(1, 9), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_quantiles_of_histograms_added_up_are_those_of_all_their_round_trips(parquet, rows):
    opened, folder = parquet
    files = write(opened, folder, rows)
    found = {key: told for key, *told in opened.rows(
        spread("read_parquet($files)", "key"), {"files": files, **SPREADING}
    )}  # fmt: skip
    assert found.keys() == {key for key, _ in rows}
    for key, (trips, *quantiles) in found.items():
        every = sorted(
            bucket
            for at, counts in rows
            if at == key
            for bucket, count in counts.items()
            for _ in range(count)
        )
        assert trips == len(every)
        for ns, share in zip(quantiles, SHARES.values(), strict=True):
            bucket = every[math.ceil(share * len(every)) - 1]
            assert ns == pytest.approx(2 * RATIO**bucket / (RATIO + 1), abs=1)


def test_only_rows_that_are_wanted_count(parquet):
    opened, folder = parquet
    files = write(opened, folder, [(1, {100: MOST}), (2, {7: 5})])
    table = selected("read_parquet($files)", ["key = 1", "key = $other"])
    told = opened.rows(spread(table, "key"), {"files": files, "other": 3, **SPREADING})
    assert [(key, trips) for key, trips, *_ in told] == [(1, MOST)]
    told = opened.rows(spread(table, "key"), {"files": files, "other": 2, **SPREADING})
    assert sorted(each[:2] for each in told) == [(1, MOST), (2, 5)]


def test_columns_that_a_format_does_not_have_are_null(parquet):
    opened, folder = parquet
    old, new = folder / "old.parquet", folder / "new.parquet"
    opened.write(old, "SELECT 1 AS sent", {})
    opened.write(new, "SELECT 7::UINTEGER AS rtt_p50_ns, 2 AS sent", {})
    query = f"SELECT sent, rtt_p50_ns, rtt_p99_ns FROM {known('$files')} ORDER BY sent"  # noqa: S608
    assert opened.rows(query, {"files": names_of([old])}) == [(1, None, None)]
    assert opened.rows(query, {"files": names_of([old, new])}) == [(1, None, None), (2, 7, None)]


@given(st.lists(st.integers(1, 2 * PART_ROWS), max_size=30))
def test_ranges_of_an_hour_have_each_name_once_and_no_more_rows_than_fit(many):
    counted = [(f"n{number:03}", rows) for number, rows in enumerate(many)]
    found = ranges(counted)
    assert (found[0]["first"], found[-1]["end"]) == (ALL["first"], ALL["end"])
    assert [each["end"] for each in found[:-1]] == [each["first"] for each in found[1:]]
    for each in found:
        mine = [
            rows
            for name, rows in counted
            if each["first"] <= name and (each["end"] is None or name < each["end"])
        ]
        assert sum(mine) <= PART_ROWS or len(mine) == 1
