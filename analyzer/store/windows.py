# SPDX-License-Identifier: Apache-2.0
"""SQL of the table of windows: which summaries there are, and where each one's payload is.

A payload is on disk before the row that says where it is.
"""

from collections.abc import Iterable, Iterator

import duckdb

from analyzer.store.segments import Segments
from analyzer.store.writer import Row
from netagent.wire.messages import SummaryKey

TRIM_ROWS = 5000
"""Most summaries deleted in one transaction. Chosen: agents wait behind it only briefly."""

COUNT_OF = """
SELECT count(*) FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
"""
# Payloads are sorted some at a time: all that came in two minutes do not fit into memory.
BYTES_OF = """
SELECT start_ns, sum(bytes) FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
GROUP BY start_ns ORDER BY start_ns
"""
OF_HOSTS = """
SELECT segment, place, bytes FROM windows
WHERE host IN (SELECT unnest(?::VARCHAR[])) AND start_ns >= ? AND start_ns <= ?
ORDER BY start_ns, host
"""
BYTES_SINCE = """
SELECT received_ns, sum(bytes) FROM windows WHERE received_ns >= ?
GROUP BY received_ns ORDER BY received_ns
"""
HEARD = """
SELECT host, max(start_ns), max(received_ns) FROM windows WHERE received_ns >= ? GROUP BY host
"""
RECEIVED = """
SELECT received_ns, segment, place, bytes FROM windows WHERE received_ns >= ? AND received_ns <= ?
ORDER BY received_ns
"""

INSERT = """
INSERT INTO windows
SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]),
       unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[])
ON CONFLICT DO NOTHING RETURNING host, start_ns, life
"""


def slices(sizes: Iterable[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield first and last instants of slices in order, each of `most` bytes or of one instant.

    `sizes` are instants in order, with their bytes.
    """
    first, last, total = 0, 0, 0
    for instant, size in sizes:
        if total and total + size > most:
            yield first, last
            total = 0
        first = first if total else instant
        last, total = instant, total + size
    if total:
        yield first, last


def insert(
    connection: duckdb.DuckDBPyConnection, rows: list[Row], segments: Segments
) -> set[SummaryKey]:
    """Insert summaries; return the keys of those that are new. Raises OSError, duckdb.Error."""
    if not rows:
        return set()
    unique = list({row.key: row for row in reversed(rows)}.values())
    places = segments.places(len(row.payload) for row in unique)
    columns = [
        [row.host for row in unique],
        [row.start_ns for row in unique],
        [row.life for row in unique],
        [row.received_ns for row in unique],
        [place.segment for place in places],
        [place.offset for place in places],
        [place.length for place in places],
    ]
    new = set(connection.execute(INSERT, columns).fetchall())
    segments.write(
        [(place, row.payload) for place, row in zip(places, unique, strict=True) if row.key in new]
    )
    return new


def segments_of(connection: duckdb.DuckDBPyConnection) -> set[int]:
    """Return the numbers of the files in which summaries are."""
    rows = connection.execute("SELECT DISTINCT segment FROM windows").fetchall()
    return {number for (number,) in rows}


def excess_ns(connection: duckdb.DuckDBPyConnection, max_bytes: int) -> int:
    """Return the instant before which summaries must go for the rest to fit `max_bytes`."""
    row = connection.execute(
        """
        SELECT max(received_ns) FROM (
            SELECT received_ns, sum(bytes) OVER (ORDER BY received_ns DESC, host, start_ns
                ROWS UNBOUNDED PRECEDING) AS kept FROM windows)
        WHERE kept > ?
        """,
        [max_bytes],
    ).fetchone()
    return row[0] + 1 if row is not None and row[0] is not None else 0


def delete_oldest(connection: duckdb.DuckDBPyConnection, before_ns: int) -> int:
    """Delete the oldest summaries received before `before_ns`, some; return how many."""
    row = connection.execute(
        """
        SELECT max(received_ns) FROM (
            SELECT received_ns FROM windows WHERE received_ns < ? ORDER BY received_ns LIMIT ?)
        """,
        [before_ns, TRIM_ROWS],
    ).fetchone()
    if row is None or row[0] is None:
        return 0
    deleted = connection.execute("DELETE FROM windows WHERE received_ns <= ?", [row[0]])
    count = deleted.fetchone()
    return int(count[0]) if count else 0


def newest_of(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """Return each file in which summaries are, and when the newest of them was received."""
    select = "SELECT segment, max(received_ns) FROM windows GROUP BY segment"
    return dict(connection.execute(select).fetchall())


def delete_of(connection: duckdb.DuckDBPyConnection, segments: list[int]) -> int:
    """Delete the summaries in these files; return how many."""
    delete = "DELETE FROM windows WHERE segment IN (SELECT unnest(?::BIGINT[]))"
    count = connection.execute(delete, [segments]).fetchone()
    return int(count[0]) if count else 0
