# SPDX-License-Identifier: Apache-2.0
"""Rows of minutes and hours, in SQL: how they are written, added up, and read in any format.

Rows of pairs and components have quantiles, NULL where they are not known. The histograms that they
are of lie in files of their own: two lists a row, of buckets and of counts, in no order that means
anything. Those of an hour are its minutes' added up, so its quantiles are as exact as theirs. Rows
of several minutes, or hours, are put together as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzer.history.files import TRIPS, What
from analyzer.history.spread import RATIO, SHARES

KEYS: Mapping[What, str] = {
    What.PAIRS: "source, target", What.PAIR_TRIPS: "source, target",
    What.COMPONENTS: "component", What.COMPONENT_TRIPS: "component",
}  # fmt: skip
COLUMNS: Mapping[What, tuple[str, ...]] = {
    What.PAIRS: (
        "start_ns", "windows", "source", "target", "sent", "lost", "refused", "rtt_count",
        "rtt_min_ns", "rtt_mean_ns", "rtt_max_ns", *SHARES,
    ),
    What.COMPONENTS: (
        "start_ns", "windows", "component", "sent", "lost", "refused", "rtt_count", "rtt_mean_ns",
        *SHARES,
    ),
    What.PAIR_TRIPS: ("start_ns", "source", "target", "rtt_buckets", "rtt_counts"),
    What.COMPONENT_TRIPS: ("start_ns", "component", "rtt_buckets", "rtt_counts"),
}  # fmt: skip
_OWN: Mapping[What, str] = {
    What.PAIRS: "rtt_min_ns, rtt_mean_ns, rtt_max_ns",
    What.COMPONENTS: "rtt_mean_ns",
}
MOST = 2**32 - 1
"""Most round trips of a bucket that are told. More would not be all, and quantiles not known."""
SPREADING: Mapping[str, Any] = {"ratio": RATIO}
"""Parameters of what uses `spread`."""
PART_ROWS = 65_536
"""Rows of an hour that are made at a time. Chosen: so many pairs with their histograms fit into the
memory that there is for it; an hour of 40,000 RNICs has five times as many, and did not."""
ALL: Mapping[str, str | None] = {"first": "", "end": None}
"""Parameters of an hour's query for all of its rows."""


def known(files: str) -> str:
    """Return a table of files with pairs or components, whatever their format is.

    What a format has no columns for is NULL.
    """
    shape = ", ".join(f"NULL::UINTEGER AS {name}" for name in SHARES)
    return f"""(
    SELECT {shape} WHERE false
    UNION ALL BY NAME SELECT * FROM read_parquet({files}, union_by_name = true))"""  # noqa: S608 - names of ours


def selected(table: str, conditions: Sequence[str]) -> str:
    """Return a table of the rows for which one of `conditions` holds; no two hold for the same.

    Each is looked for by itself: of a disjunction, what is known of groups of rows tells nothing.
    """
    found = (f"SELECT * FROM {table} WHERE {each}" for each in conditions)  # noqa: S608 - names of ours
    return f"({' UNION ALL '.join(found)})"


# --- a minute -----------------------------------------------------------------------------------


def _named(what: What) -> str:
    names = KEYS[what].split(", ")
    return ", ".join(f"list_extract($names::VARCHAR[], {each} + 1) AS {each}" for each in names)


def _write(what: What) -> str:
    quantiles = ", ".join(f"nullif({name}, 0) AS {name}" for name in SHARES)
    return f"""
SELECT $start_ns::BIGINT AS start_ns, $windows::INTEGER AS windows, {_named(what)},
    sent::BIGINT AS sent, lost::BIGINT AS lost, refused::BIGINT AS refused,
    rtt_count::BIGINT AS rtt_count, {_OWN[what]}, {quantiles}
FROM columns
"""  # noqa: S608 - names of ours


def _write_trips(what: What) -> str:
    keys = ", ".join(f"any_value({each}) AS {each}" for each in KEYS[what].split(", "))
    return f"""
SELECT $start_ns::BIGINT AS start_ns, {_named(what)}, rtt_buckets, rtt_counts
FROM (
    SELECT {keys}, list(bucket::USMALLINT) AS rtt_buckets,
        list(least(many, {MOST})::UINTEGER) AS rtt_counts
    FROM columns GROUP BY place ORDER BY place)
"""  # noqa: S608 - names of ours


WRITE: Mapping[What, str] = {
    each: _write_trips(each) if each in TRIPS.values() else _write(each) for each in What
}
"""From columns to a minute's file."""


# --- an hour ------------------------------------------------------------------------------------


def ranges(counted: Iterable[tuple[str, int]]) -> list[Mapping[str, str | None]]:
    """Return parameters of queries that together make an hour, in the order of names.

    `counted`: each first key's name, and how many rows it has, in order. Each range has about
    PART_ROWS; names that are not among them fall into one as well.
    """
    found, rows = [ALL], 0
    for name, many in counted:
        if rows and rows + many > PART_ROWS:
            found[-1:] = [{**found[-1], "end": name}, {"first": name, "end": None}]
            rows = 0
        rows += many
    return found


def counted(what: What) -> str:
    """Return a query of how many rows each name of the first key has."""
    key = _first_key(what)
    return f"SELECT {key}, count(*) FROM read_parquet($files) GROUP BY {key} ORDER BY {key}"  # noqa: S608 - names of ours


def _first_key(what: What) -> str:
    return KEYS[what].partition(",")[0]


def _within(table: str, what: What) -> str:
    """Return a table of the rows of a range of names."""
    key = _first_key(what)
    return f"""(
    SELECT * FROM {table}
    WHERE {key} >= $first AND ($end::VARCHAR IS NULL OR {key} < $end::VARCHAR))"""  # noqa: S608 - names of ours


def _summed(table: str, keys: str) -> str:
    """Return, as a query, `many` round trips by `keys` and `bucket`."""
    return f"""
SELECT {keys}, bucket, sum(many) AS many FROM (
    SELECT {keys}, unnest(rtt_buckets) AS bucket, unnest(rtt_counts) AS many
    FROM {table})
GROUP BY {keys}, bucket
"""  # noqa: S608 - names of ours


def spread(table: str, keys: str) -> str:
    """Return, as a query, quantiles and how many round trips they are of (`trips`), by `keys`.

    They are of all rows of a table with histograms, added up.
    """
    found = ", ".join(
        f"round(2 * $ratio ** min(bucket) FILTER (until >= ceil({share} * trips)) / ($ratio + 1))"
        f" AS {name}"
        for name, share in SHARES.items()
    )
    return f"""
SELECT {keys}, any_value(trips)::BIGINT AS trips, {found}
FROM (
    SELECT {keys}, bucket, sum(many) OVER (PARTITION BY {keys}) AS trips,
        sum(many) OVER (PARTITION BY {keys} ORDER BY bucket) AS until
    FROM ({_summed(table, keys)}))
GROUP BY {keys}
"""  # noqa: S608 - names of ours


def _merge_trips(what: What) -> str:
    keys = KEYS[what]
    return f"""
SELECT $start_ns::BIGINT AS start_ns, {keys}, list(bucket::USMALLINT) AS rtt_buckets,
    list(least(many, {MOST})::UINTEGER) AS rtt_counts
FROM ({_summed(_within("read_parquet($files)", what), keys)}) GROUP BY {keys} ORDER BY {keys}
"""  # noqa: S608 - names of ours


MERGE_TRIPS: Mapping[What, str] = {each: _merge_trips(each) for each in TRIPS.values()}
"""From histograms of minutes to an hour's."""


def _merge(what: What, *, has_trips: bool) -> str:
    keys, inside, extremes = KEYS[what], "{}", ""
    if what is What.PAIRS:
        inside = "least(greatest({}, rtt_min_ns), rtt_max_ns)"
        extremes = """
    coalesce(min(rtt_min_ns) FILTER (rtt_count > 0), 0)::UINTEGER AS rtt_min_ns,
    max(rtt_max_ns) AS rtt_max_ns,"""
    told = (f"CASE WHEN trips = rtt_count THEN {inside.format(name)} END" for name in SHARES)
    named = zip(told if has_trips else ("NULL" for _ in SHARES), SHARES, strict=True)
    quantiles = ", ".join(f"({each})::UINTEGER AS {name}" for each, name in named)
    joined = (
        f"LEFT JOIN ({spread(_within('read_parquet($trips)', what), keys)}) USING ({keys})"
        if has_trips
        else ""
    )
    return f"""
SELECT $start_ns::BIGINT AS start_ns, $windows::INTEGER AS windows, {keys},
    sent, lost, refused, rtt_count, {_OWN[what]}, {quantiles}
FROM (
    SELECT {keys}, sum(sent)::BIGINT AS sent, sum(lost)::BIGINT AS lost,
        sum(refused)::BIGINT AS refused, sum(rtt_count)::BIGINT AS rtt_count,{extremes}
        coalesce(round(exp(sum(rtt_count * ln(rtt_mean_ns)) FILTER (rtt_count > 0)
            / sum(rtt_count))), 0)::UINTEGER AS rtt_mean_ns
    FROM {_within("read_parquet($files, union_by_name = true)", what)} GROUP BY {keys})
{joined} ORDER BY {keys}
"""  # noqa: S608 - names of ours


MERGE: Mapping[What, str] = {each: _merge(each, has_trips=True) for each in TRIPS}
"""From files of minutes, and the hour's histograms, to an hour's file."""
MERGE_UNKNOWN: Mapping[What, str] = {each: _merge(each, has_trips=False) for each in TRIPS}
"""The same where there are no histograms."""


# --- several minutes, or hours ------------------------------------------------------------------


def _pack(what: What, *, again: bool) -> str:
    def table(files: str) -> str:
        return f"read_parquet({files})" if what in TRIPS.values() else known(files)

    columns = ", ".join(COLUMNS[what])
    kept = f"""
UNION ALL SELECT {columns} FROM {table("$packed")}
WHERE start_ns NOT IN (SELECT unnest($starts::BIGINT[]))"""  # noqa: S608 - names of ours
    return f"""
SELECT {columns} FROM {table("$files")} {kept if again else ""}
ORDER BY {KEYS[what]}, start_ns
"""  # noqa: S608 - likewise


IN_TURN = "SELECT * FROM read_parquet($files)"
"""The rows of one file after those of another."""
PACK: Mapping[What, str] = {each: _pack(each, again=False) for each in What}
"""From files of minutes, or of hours, to one."""
PACK_AGAIN: Mapping[What, str] = {each: _pack(each, again=True) for each in What}
"""The same where there is one, `packed`, but for what it has of `starts`."""
