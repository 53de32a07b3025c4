# SPDX-License-Identifier: Apache-2.0
"""Reads minutes and hours: many pairs as one, in the order of time.

Quantiles of several pairs are those of their histograms, added up. Where these are gone, or of some
round trips not known, the quantiles are not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analyzer.history.files import HISTORY, TRIPS, What
from analyzer.store.listing import files_between, readable, relisted
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.past import Wanted
from analyzer.store.rows import SPREADING, selected, spread
from netagent.model.errors import RemoteProtocolError

OF_SOURCES = """start_ns >= $since_ns AND start_ns < $until_ns
    AND source IN (SELECT unnest($sources::VARCHAR[]))"""


class Sum(NamedTuple):
    """A minute, or an hour, of all that is asked for."""

    start_ns: int
    sent: int
    lost: int
    rtt_count: int
    rtt_mean_ns: float | None
    """The geometric mean; None where no round trip was measured."""
    rtt_min_ns: int | None
    rtt_max_ns: int | None
    rtt_p50_ns: int | None = None
    rtt_p90_ns: int | None = None
    rtt_p99_ns: int | None = None


def sums(table: str) -> str:
    """Return the query of all rows of a table of pairs, by their start."""
    return f"""
SELECT start_ns, sum(sent)::BIGINT, sum(lost)::BIGINT, sum(rtt_count)::BIGINT,
    exp(sum(rtt_count * ln(greatest(rtt_mean_ns, 1))) / nullif(sum(rtt_count), 0)),
    min(rtt_min_ns) FILTER (rtt_count > 0), max(rtt_max_ns) FILTER (rtt_count > 0)
FROM {table}
GROUP BY start_ns ORDER BY start_ns
"""  # noqa: S608 - names of ours


def together(database: str, wanted: Wanted, sources: Sequence[str] | None = None) -> list[Sum]:
    """Return all pairs that are wanted as one, or all that `sources` probed.

    Files that are damaged are left out. Raises CapabilityMissing.
    """
    if sources is not None and not sources:
        return []
    return relisted(lambda is_last: _together(database, wanted, sources, is_last=is_last))


def _together(
    database: str, wanted: Wanted, sources: Sequence[str] | None, *, is_last: bool
) -> list[Sum]:
    folder = Path(database + HISTORY)
    paths = {
        what: files_between(folder, wanted.tier, what, wanted.since_ns, wanted.until_ns).paths
        for what in (What.PAIRS, TRIPS[What.PAIRS])
    }
    if not paths[What.PAIRS]:
        return []
    conditions = wanted.conditions if sources is None else [OF_SOURCES]
    values: dict[str, Any] = {"since_ns": wanted.since_ns, "until_ns": wanted.until_ns}
    values |= wanted.named if sources is None else {"sources": list(sources)}
    table = selected("read_parquet($files, union_by_name = true)", conditions)
    with Parquet(folder / "spill-of-questions") as parquet:
        found, spreads = (
            _rows(parquet, query, paths[what], {**values, **more}, is_last=is_last)
            for what, query, more in (
                (What.PAIRS, sums(table), {}),
                (TRIPS[What.PAIRS], spread(table, "start_ns"), SPREADING),
            )
        )
    known = {start: (trips, quantiles) for start, trips, *quantiles in spreads}
    return [_sum(row, *known.get(row[0], (0, []))) for row in found]


def _sum(row: Sequence[Any], trips: int, quantiles: Sequence[float]) -> Sum:
    """Return a sum, with quantiles where these are of all round trips, inside of the extremes."""
    start_ns, sent, lost, count, mean, least, most = row
    told = [min(max(round(ns), least), most) for ns in quantiles] if trips == count else []
    return Sum(start_ns, sent, lost, count, mean, least, most, *told)


def _rows(
    parquet: Parquet, query: str, paths: Sequence[Path], values: dict[str, Any], *, is_last: bool
) -> list[tuple[Any, ...]]:
    if not paths:
        return []
    try:
        return parquet.rows(query, {"files": names_of(paths), **values})
    except RemoteProtocolError:
        whole = readable(parquet, paths, is_last=is_last)
        if not whole or len(whole) == len(paths):
            return []
        return parquet.rows(query, {"files": names_of(whole), **values})
